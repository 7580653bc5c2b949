"""Weights files of PyTorch programs: the state dicts and other tensors in them, read without running code.

Answers: How are weights read from a file?
"""

from __future__ import annotations

import contextlib
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError, first_line, shown

LARGEST_HEADER = 100 * 2**20  # bytes of a safetensors header, the library's own limit
ADVICE = "save net.state_dict() instead, with torch.save(net.state_dict(), 'weights.pth')"


class StandIn(dict[Any, Any]):
    """Inert substitute for an object whose class is not loaded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of any class."""

    def __setstate__(self, state: Any) -> None:
        """Drop the state."""


class TensorGroup(NamedTuple):
    """Tensors that one mapping of a file holds directly."""

    name: str  # dotted path of the mapping; empty for the file itself
    tensors: Mapping[str, Tensor]


class WeightsFile(NamedTuple):
    """Content of a weights file."""

    groups: tuple[TensorGroup, ...]  # outermost first
    content: Any = None
    foreign: tuple[str, ...] = ()  # classes and functions that the file names and that are not loaded

    @property
    def is_ours(self) -> bool:
        """True for a checkpoint of biasbed."""
        return isinstance(self.content, Mapping) and isinstance(self.content.get("algorithm"), Mapping)


def read(path: Path, option: str) -> WeightsFile:
    """Read a weights file without running pickled code. option: the setting that named the file, for messages.

    Raises UsageError if the file is damaged, or comes neither from torch.save nor from safetensors.
    """
    foreign: tuple[str, ...] = ()
    try:
        if _is_safetensors(path):
            from safetensors.torch import load_file

            return WeightsFile((TensorGroup("", load_file(path)),))
        _refuse_damaged(path)
        foreign = _foreign_names(path)
        stand_ins: list[Any] = [(StandIn, name) for name in foreign]
        with warnings.catch_warnings(), torch.serialization.safe_globals(stand_ins):
            warnings.simplefilter("ignore")  # about pickle protocols and TorchScript, which torch refuses itself
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises nearly anything on bytes that are no weights
        reason = first_line(error)
        if "weights_only" in str(error) or isinstance(error, LookupError):  # advice to run its code, or an opcode
            reason = "it is no file of torch.save, or can't be read without running its code"
        raise UsageError(f"{option}={path}: not a weights file ({reason}){describe_foreign(foreign)}") from None
    return WeightsFile(tuple(_groups("", content, set())), content, tuple(map(shown, foreign)))


def describe_foreign(names: tuple[str, ...]) -> str:
    """Return a clause on the objects of a file that are not loaded. Empty if there are none."""
    named = ", ".join(map(shown, names[:5]))
    return f"; it holds objects of {named}, which are not loaded: {ADVICE}" if names else ""


def _is_safetensors(path: Path) -> bool:
    """Return True if the file begins with the length of a JSON header and a brace."""
    with path.open("rb") as file:
        start = file.read(9)
    if len(start) < 9 or start[8:] != b"{":
        return False
    (length,) = struct.unpack("<Q", start[:8])
    return bool(length <= min(LARGEST_HEADER, path.stat().st_size - 8))


def _refuse_damaged(path: Path) -> None:
    """Raise ValueError if a part of a file in torch's format, a zip archive, has another checksum."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"checksum of {damaged}")


def _foreign_names(path: Path) -> tuple[str, ...]:
    """Return the classes and functions that a file refers to and torch does not load; none of files before 1.6."""
    with contextlib.suppress(ValueError):
        return tuple(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path)))
    return ()


def _groups(name: str, content: Any, visited: set[int]) -> Iterator[TensorGroup]:
    """Yield the tensors of each mapping in a mapping. visited: ids of mappings that were visited; is extended."""
    level = [(name, content)]
    while level:
        below = []
        for path, mapping in level:
            if not isinstance(mapping, Mapping) or isinstance(mapping, StandIn) or id(mapping) in visited:
                continue
            visited.add(id(mapping))
            items = {key: value for key, value in mapping.items() if isinstance(key, str)}
            tensors = {key: value.detach() for key, value in items.items() if isinstance(value, Tensor)}
            if tensors:
                yield TensorGroup(path, tensors)
            below += [(join(path, key), value) for key, value in items.items()]
        level = below


def join(*parts: str) -> str:
    """Return a dotted path of the parts that are not empty."""
    return ".".join(filter(None, parts))


def is_plain(tensor: Tensor) -> bool:
    """Return True if a tensor holds real numbers, each of them stored."""
    if tensor.is_meta or tensor.is_quantized or tensor.layout != torch.strided or tensor.is_nested:
        return False
    stored = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.numel() <= stored and not tensor.is_complex()
