"""Weights files of PyTorch programs: the state dicts and other tensors in them, read without running code.

Answers: How are weights read from a file?
"""

from __future__ import annotations

import contextlib
import pickletools
import struct
import warnings
import zipfile
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError, first_line, shown

LARGEST_HEADER = 100 * 2**20  # bytes of a safetensors header, the library's own limit
DEEPEST = 8  # nested containers that are searched
FEW = 64  # longest list of numbers that may be a mean or a standard deviation
ADVICE = "save net.state_dict() instead, with torch.save(net.state_dict(), 'weights.pth')"


class StandIn:
    """Inert substitute for an object whose class is not loaded. It keeps the state and has no behaviour."""

    kind: ClassVar[str] = ""
    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> StandIn:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of any class."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class TensorGroup(NamedTuple):
    """Tensors that one container of a file holds directly."""

    name: str  # dotted path of the container; empty for the file itself
    tensors: Mapping[str, Tensor]


class WeightsFile(NamedTuple):
    """Content of a weights file."""

    groups: tuple[TensorGroup, ...]
    foreign: tuple[str, ...]  # classes and functions that the file names and that were not loaded
    modules: tuple[str, ...]  # classes of whole modules in the file
    is_ours: bool  # a checkpoint of biasbed

    def contents(self) -> str:
        """Return a clause on objects in the file that are not loaded. Empty if there are none."""
        if self.modules:
            return f"; it holds a whole module ({', '.join(self.modules[:3])}), whose code is never run: {ADVICE}"
        if self.foreign:
            return f"; it holds objects of {', '.join(self.foreign[:5])}, which are not loaded: {ADVICE}"
        return ""


def read(path: Path, option: str) -> WeightsFile:
    """Read a weights file without running pickled code. option: the setting that named the file, for messages.

    Raises UsageError if the file is damaged, or comes neither from torch.save nor from safetensors.
    """
    foreign: tuple[str, ...] = ()
    try:
        if _is_safetensors(path):
            from safetensors.torch import load_file

            return WeightsFile((TensorGroup("", load_file(path)),), (), (), is_ours=False)
        _refuse_damaged(path)
        foreign = _foreign_names(path)
        content = _load(path, foreign)
    except Exception as error:  # the unpickler raises nearly anything on bytes that are no weights
        advises_to_run = any(word in str(error) for word in ("weights_only", "safe_globals", "magic number"))
        reason = "it is no file of torch.save" if advises_to_run else first_line(error)
        file = WeightsFile((), foreign, (), is_ours=False)
        raise UsageError(f"{option}={path}: not a weights file ({reason}){file.contents()}") from None
    groups, modules = _search(content)
    is_ours = isinstance(content, Mapping) and isinstance(content.get("algorithm"), Mapping)
    return WeightsFile(tuple(groups), foreign, tuple(modules), is_ours)


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
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                return  # not torch's, which will say so; unpacking might never end
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"checksum of {damaged}")


def _load(path: Path, foreign: tuple[str, ...]) -> Any:
    """Load the file with torch's restricted unpickler, and stand-ins for every class that it would refuse."""
    stand_ins: list[Any] = [(_stand_in(name), name) for name in foreign]
    with warnings.catch_warnings(), torch.serialization.safe_globals(stand_ins):
        warnings.simplefilter("ignore", UserWarning)  # about other pickle protocols, which torch refuses itself
        return torch.load(path, map_location="cpu", weights_only=True)


def _stand_in(name: str) -> Any:
    """Return the class that stands in for a class of this name."""
    if name == "collections.defaultdict":
        return _plain_dict
    return type("StandIn", (StandIn,), {"kind": name})


def _plain_dict(*_: Any) -> dict[Any, Any]:
    return {}


def _foreign_names(path: Path) -> tuple[str, ...]:
    """Return the classes and functions that the file's pickles refer to and torch does not load by default."""
    from torch._weights_only_unpickler import _get_allowed_globals

    names: dict[str, None] = {}
    with _pickle_stream(path) as stream, contextlib.suppress(Exception):  # the file's end may be anything
        while True:
            names |= dict.fromkeys(_named_in_pickle(stream))
    return tuple(shown(name) for name in names if name not in _get_allowed_globals())


@contextlib.contextmanager
def _pickle_stream(path: Path) -> Iterator[BinaryIO]:
    """Yield the pickles in a file of torch.save: a part of its zip archive, or the start of an older file."""
    with contextlib.ExitStack() as stack:
        if not zipfile.is_zipfile(path):
            yield stack.enter_context(path.open("rb"))
            return
        archive = stack.enter_context(zipfile.ZipFile(path))
        name = next((name for name in archive.namelist() if name.endswith("data.pkl")), archive.namelist()[0])
        yield stack.enter_context(archive.open(name))  # type: ignore[misc]


def _named_in_pickle(stream: BinaryIO) -> Iterator[str]:
    """Yield `module.name` of everything that the next pickle of a stream refers to."""
    strings = ["", ""]  # the last two on the stack
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name in ("GLOBAL", "INST"):
            module, _, name = str(argument).partition(" ")
            yield f"{IMPORT_MAPPING.get(module, module)}.{name}"  # as torch does for names of Python 2
        elif operation.name == "STACK_GLOBAL":
            yield ".".join(strings)
        elif isinstance(argument, str):
            strings = [strings[1], argument]


def _search(content: Any) -> tuple[list[TensorGroup], list[str]]:
    """Return every group of tensors in the content, outermost first, and the classes of whole modules."""
    groups: list[TensorGroup] = []
    modules: dict[str, None] = {}
    level: list[tuple[str, Any]] = [("", content)]
    for _ in range(DEEPEST):
        below: list[tuple[str, Any]] = []
        for name, value in level:
            if isinstance(value, StandIn):
                if isinstance(value.state, Mapping) and "_modules" in value.state:
                    modules[value.kind] = None
                continue
            items = dict(enumerate(value)) if isinstance(value, list | tuple) else value
            if not isinstance(items, Mapping):
                continue
            candidates = {str(key): _as_tensor(str(key), item) for key, item in items.items()}
            tensors = {key: tensor for key, tensor in candidates.items() if tensor is not None}
            if tensors:
                groups.append(TensorGroup(name, tensors))
            below += [(f"{name}.{key}" if name else str(key), item) for key, item in items.items()]
        level = below
    return groups, list(modules)


def _as_tensor(key: str, value: Any) -> Tensor | None:
    """Return a tensor that can be copied into a network, or a list of numbers that may be a mean or a std, or None."""
    if isinstance(value, Tensor):
        return value.detach() if value.layout == torch.strided and not value.is_meta else None
    is_list = isinstance(value, list | tuple) and 0 < len(value) <= FEW and key.lower() in ("mean", "std")
    if is_list and all(isinstance(number, float | int) for number in value):
        return torch.tensor(value, dtype=torch.float64)
    return None
