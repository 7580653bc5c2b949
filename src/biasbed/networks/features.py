"""Features of frozen networks, kept in files so that further probes of the same network need no forward pass.

A file holds the features of one batch. Its name follows from the content: the batch's pixels, the network's weights
and normalisation, the library and the arithmetic. A kept feature is therefore the one that would be computed.

Answers: Where are the features of a frozen network kept, and when are they used again?
"""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from biasbed import record
from biasbed.batch import at_least_fp32
from biasbed.networks import heads
from biasbed.networks.network import Network, content_hash
from biasbed.system.files import atomic_file

log = logging.getLogger(__name__)

DIGITS = 32  # hexadecimal digits of a folder's and a file's name


def compute_features(network: Network, x: Tensor) -> Tensor:
    """Return the inputs [N,D] of a network's last linear layer for images [N,C,H,W], in fp32 or more."""
    return at_least_fp32(network.features(x))


class FeatureCounts(NamedTuple):
    """Numbers of images; an image counts each time its features are asked for."""

    read: int  # from files
    computed: int


class FeatureStore:
    """Features of batches below a folder: `<network>/<batch>.npz`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """facts: JSON values that the features depend on, beside weights and images: library, architecture, device."""
        self.folder = folder
        self.facts = {**facts, "torch": torch.__version__}
        self.counts = FeatureCounts(0, 0)
        self._named_network: tuple[tuple[int, ...], str] = (), ""  # versions of the last one's tensors, its folder
        self._is_writable = True

    def describe(self, counts: Sequence[FeatureCounts]) -> str:
        """Return a line on where features came from. Empty if none were asked for. counts: of all processes."""
        read, computed = (sum(numbers) for numbers in zip(*counts, strict=True))
        if not read + computed:
            return ""
        return f"features of {read:,} images read from {self.folder}, of {computed:,} computed"

    def __call__(self, network: Network, x: Tensor) -> Tensor:
        """Return `compute_features(network, x)`, from a file if this batch has been seen. The network is in eval mode.

        A file that cannot be read is written anew. If the folder cannot be written to, nothing is kept, and a warning
        says so.
        """
        if network.training:
            return compute_features(network, x)
        path = self.folder / self._folder_name(network) / f"{_hash_batch(x)}.npz"
        kept = _read_features(path, len(x))
        if kept is not None:
            self.counts = self.counts._replace(read=self.counts.read + len(x))
            return kept.to(x.device)
        self.counts = self.counts._replace(computed=self.counts.computed + len(x))
        features = compute_features(network, x)
        if self._is_writable:
            self._write(path, features)
        return features

    def _folder_name(self, network: Network) -> str:
        """Return the name of the network's folder, which is computed again only after a change of the weights."""
        tensors = network.state_dict(keep_vars=True).values()
        versions = (id(network), *(tensor._version for tensor in tensors))
        if versions != self._named_network[0]:
            self._named_network = versions, self._hash_network(network)
        return self._named_network[1]

    def _hash_network(self, network: Network) -> str:
        """Return the first digits of the SHA-256 of all that features depend on beside the images."""
        head = heads.find(network.backbone)
        tensors = {name: tensor for name, tensor in network.state_dict().items() if not _is_in_head(name, head)}
        mean_std = [network.normalise.mean.flatten().tolist(), network.normalise.std.flatten().tolist()]
        facts = {**self.facts, "weights": content_hash(tensors), "mean_std": mean_std}
        return hashlib.sha256(record.canonical_json(facts).encode()).hexdigest()[:DIGITS]

    def _write(self, path: Path, features: Tensor) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path, durable=False) as temporary, temporary.open("wb") as file:
                np.savez(file, features=features.detach().cpu().numpy())
        except OSError as error:
            self._is_writable = False
            log.warning("features are not kept: %s", error)


def _is_in_head(name: str, head: str | None) -> bool:
    """Return True if a tensor of a network belongs to its last linear layer, on which features do not depend."""
    return head is not None and name.startswith(f"backbone.{head}.")


def _hash_batch(x: Tensor) -> str:
    images = x.detach().cpu().contiguous().numpy()
    sha = hashlib.blake2b(f"{images.dtype} {images.shape}".encode(), digest_size=DIGITS // 2)
    sha.update(images.data)
    return sha.hexdigest()


def _read_features(path: Path, count: int) -> Tensor | None:
    """Return the features in a file; None if there is no file, or if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as content:
            features = torch.from_numpy(content["features"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        log.warning("%s is damaged and is written anew: %s", path, error)
        return None
    return features if features.ndim == 2 and len(features) == count else None
