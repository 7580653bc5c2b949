"""Networks that methods and makers need ready-made: style transfer, compressive autoencoder, super-resolution.

`prepare` trains a small one on a suite's own images, or takes over the weights that the authors published; either way
one file holds it, with all that is needed to build it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from biasbed.compute import checkpoint
from biasbed.errors import Failure, UsageError, shown
from biasbed.networks.weights import read_file
from biasbed.registry import Registry
from biasbed.system.files import sha256

REGISTRY = Registry(
    "network",
    {
        "style": "biasbed.networks.style:StyleTransfer",
        "cae": "biasbed.networks.cae:CAE",
        "edsr": "biasbed.networks.edsr:EDSR",
    },
)


class PreparedNetwork(nn.Module):
    """A network that is used as it is, never trained by a method.

    settings: the constructor's arguments, among them `size`: the short side in pixels of the images it was trained on.
    """

    published: ClassVar[tuple[str, ...]] = ()  # options of `prepare` that name the authors' weight files

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    @property
    def size(self) -> int:
        return int(self.settings["size"])

    @classmethod
    def from_published(cls, tensors: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """The network with the authors' weights, one state dict per name in `published`.

        Raises UsageError naming keys that don't fit.
        """
        raise NotImplementedError


def network_class(kind: str) -> type[PreparedNetwork]:
    found: type[PreparedNetwork] = REGISTRY.load(kind)
    return found


def take_over(kind: str, files: Mapping[str, Path]) -> tuple[PreparedNetwork, dict[str, str]]:
    """The network from the authors' files by option name, and each file's SHA-256."""
    checksums = {option: sha256(path) for option, path in files.items()}
    tensors = {option: read_file(path, option) for option, path in files.items()}
    return network_class(kind).from_published(tensors), checksums


def save(path: Path, kind: str, network: PreparedNetwork, origin: Mapping[str, Any]) -> None:
    """Write the network, atomically; `origin` says how it came about."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"kind": kind, "settings": network.settings, "origin": dict(origin), "state": network.state_dict()}
    checkpoint.save_whole(path, content)


def load(path: Path, kind: str) -> PreparedNetwork:
    """The network of a file that `save` wrote, in eval mode and without gradients; Failure where it is damaged."""
    content = _read(path)
    if content["kind"] != kind:
        raise UsageError(f"{path} holds a network '{shown(content['kind'])}', not '{kind}'")
    try:
        network = network_class(kind)(**content["settings"])
        network.load_state_dict(content["state"])
        _ = network.size
    except Exception as error:  # a file may hold anything
        raise Failure(f"{path} was written by other code ({checkpoint.brief(error)}): prepare it again") from None
    return network.eval().requires_grad_(False)


def origin(path: Path) -> dict[str, Any]:
    """How the network of a file came about; Failure where it is damaged."""
    return dict(_read(path)["origin"])


def fingerprint(path: Path) -> str:
    """16 hex digits of the file's weights and settings; the same weights give the same on every machine.

    Failure where the file is damaged.
    """
    content = _read(path)
    sha = hashlib.sha256(repr(sorted(content["settings"].items())).encode())
    for name, tensor in content["state"].items():
        sha.update(name.encode())
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = checkpoint.load(path, parts={"kind": str, "settings": dict, "origin": dict, "state": dict})
        for name in ("settings", "state"):
            if not all(isinstance(key, str) for key in content[name]):
                raise Failure(f"its part '{name}' has a key that is no name")
        if not all(_is_plain(value) for value in content["state"].values()):
            raise Failure("its part 'state' holds more than plain tensors")
    except Failure as failure:
        raise Failure(f"{path} is no usable network ({failure}); remove it and prepare it again") from None
    return content


def _is_plain(value: Any) -> bool:
    """Whether it is a tensor with all its numbers in a row, in a type that NumPy has: what networks are saved as."""
    kinds = (torch.float16, torch.float32, torch.float64, torch.int64)  # the last: what batch norm counts
    return isinstance(value, Tensor) and value.layout == torch.strided and value.dtype in kinds and not value.is_meta
