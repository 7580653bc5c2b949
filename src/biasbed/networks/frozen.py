"""Prepared networks that methods and makers use: style transfer, and those of plug-ins.

`prepare` trains a small one on a suite's own images or converts the authors' published weights. Either way one file
holds the network and everything that is needed to build it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor, nn

from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.networks.weights import read_file
from biasbed.registry import Registry
from biasbed.system.files import sha256

REGISTRY = Registry("network", {"style": "biasbed.networks.style:StyleTransfer"})


class PreparedNetwork(nn.Module):
    """Network that is used as it is and never trained by a method.

    settings: the constructor's arguments. `size`, the short side in pixels of the training images, is one of them.
    """

    published: ClassVar[tuple[str, ...]] = ()  # options of `prepare` that take the authors' weight files

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    @property
    def size(self) -> int:
        """Short side in pixels of the images that the network was trained on."""
        return int(self.settings["size"])

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """Return the network with the authors' weights, given as one state dict per name in `published`.

        Raises UsageError with the names of keys that don't fit.
        """
        raise NotImplementedError


def network_class(kind: str) -> type[PreparedNetwork]:
    """Return the class of a kind of network, such as `style`."""
    loaded: type[PreparedNetwork] = REGISTRY.load(kind)
    return loaded


class PublishedNetwork(NamedTuple):
    """Network with its authors' weights."""

    network: PreparedNetwork
    checksums: dict[str, str]  # SHA-256 of each file, by the option that names it


def load_published(kind: str, files: Mapping[str, Path]) -> PublishedNetwork:
    """Return the network with the weights of the authors' files. files: path by option."""
    checksums = {option: sha256(path) for option, path in files.items()}
    tensors = {option: read_file(path, option) for option, path in files.items()}
    return PublishedNetwork(network_class(kind).from_published(tensors), checksums)


def save(path: Path, kind: str, network: PreparedNetwork, origin: Mapping[str, Any]) -> None:
    """Write the network atomically. origin: JSON values that describe where its weights come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"kind": kind, "settings": network.settings, "origin": dict(origin), "state": network.state_dict()}
    checkpoint.save(path, content)


def load(path: Path, kind: str) -> PreparedNetwork:
    """Return the network of a file that `save` wrote, frozen, in eval mode. Raises Failure if the file is damaged."""
    content = _read(path)
    try:
        network = network_class(kind)(**content["settings"])
        network.load_state_dict(content["state"])
    except Exception as error:  # its type depends on what has changed in the network's class
        raise Failure(
            f"{path} was written by other code ({checkpoint.first_line_of(error)}): prepare it again"
        ) from None
    return network.eval().requires_grad_(False)


def origin(path: Path) -> dict[str, Any]:
    """Return the origin that `save` was given. Raises Failure if the file is damaged."""
    return dict(_read(path)["origin"])


def fingerprint(path: Path) -> str:
    """Return 16 hex digits that identify the weights and settings. Equal weights give equal digits on every machine.

    Raises Failure if the file is damaged.
    """
    content = _read(path)
    sha = hashlib.sha256(repr(sorted(content["settings"].items())).encode())
    for name, tensor in content["state"].items():
        sha.update(name.encode())
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    """Return what `save` wrote. Raises Failure if the file is damaged."""
    try:
        return checkpoint.load(path, parts={"kind": str, "settings": dict, "origin": dict, "state": dict})
    except Failure as failure:
        raise Failure(f"{path} is no usable network ({failure}); remove it and prepare it again") from None
