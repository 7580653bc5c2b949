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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError, first_line, shown

LARGEST_HEADER = 100 * 2**20  # bytes of a safetensors header, the library's own limit
DEEPEST = 32  # nested containers that are searched
MOST = 100_000  # containers that are searched; optimizers hold one per parameter
FEW = 64  # longest list of numbers that is kept: a mean, or the shape of images
SHARING = 4  # times that tensors may repeat the stored bytes; shared layers and averages repeat them once or twice
NEWEST_PROTOCOL = 2  # of pickles that torch's restricted unpickler reads whole
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
    aliases: tuple[str, ...] = ()  # other paths of the same container


class NumberList(NamedTuple):
    """Number or list of numbers in a file."""

    container: str  # dotted path; empty for the file itself
    key: str
    values: tuple[float, ...]


class WeightsFile(NamedTuple):
    """Content of a weights file."""

    groups: tuple[TensorGroup, ...]
    foreign: tuple[str, ...]  # classes and functions that the file names and that were not loaded
    modules: tuple[str, ...]  # classes of whole modules in the file
    is_ours: bool  # a checkpoint of biasbed
    numbers: tuple[NumberList, ...] = ()

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
        is_obscure = isinstance(error, LookupError)  # of the unpickler: the opcode or key that it met
        reason = _format_problem(path) if advises_to_run or is_obscure else first_line(error)
        file = WeightsFile((), foreign, (), is_ours=False)
        raise UsageError(f"{option}={path}: not a weights file ({reason}){file.contents()}") from None
    is_ours = isinstance(content, Mapping) and isinstance(content.get("algorithm"), Mapping)
    search = _Search(f"{option}={path}")
    search.run(content)
    return WeightsFile(search.groups(), foreign, tuple(search.modules), is_ours, tuple(search.numbers))


def _format_problem(path: Path) -> str:
    """Return why torch's restricted unpickler can't read a file: its pickle protocol, or that it is not torch's."""
    if zipfile.is_zipfile(path):
        with contextlib.suppress(Exception), _pickle_stream(path) as stream:
            _, protocol, _ = next(pickletools.genops(stream))
            if isinstance(protocol, int) and protocol > NEWEST_PROTOCOL:
                return f"torch reads pickle protocol {protocol} only by running code: leave pickle_protocol at 2"
    return "it is no file of torch.save"


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
            parts = archive.infolist()
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
                return  # not torch's, which will say so; unpacking might never end
            if sum(part.file_size for part in parts) > path.stat().st_size:
                raise ValueError("its parts overlap")
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
    memo: list[str] = []  # strings that protocol 4 numbers in order; empty for other objects
    top = ""
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name in ("GLOBAL", "INST"):
            module, _, name = str(argument).partition(" ")
            yield f"{IMPORT_MAPPING.get(module, module)}.{name}"  # as torch does for names of Python 2
        elif operation.name == "STACK_GLOBAL":
            yield ".".join(strings)
        elif operation.name == "MEMOIZE":
            memo.append(top)
            continue
        top = argument if isinstance(argument, str) else ""
        if operation.name in ("BINGET", "LONG_BINGET") and int(argument or 0) < len(memo):
            top = memo[int(argument or 0)]
        if top and operation.name not in ("GLOBAL", "INST"):
            strings = [strings[1], top]


class _Search:
    """Breadth-first search for tensors and numbers, which visits each container once.

    A small file can refer to one container any number of times, or to a container from within itself.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.modules: dict[str, None] = {}  # classes of whole modules
        self.numbers: list[NumberList] = []
        self._tensors: dict[int, TensorGroup] = {}  # by the container's id
        self._aliases: dict[int, list[str]] = {}
        self._visited: set[int] = set()

    def run(self, content: Any) -> None:
        """Visit every container of the content. Raises UsageError if it has more than MOST."""
        level: list[tuple[str, Any]] = [("", content)]
        for _ in range(DEEPEST):
            below: list[tuple[str, Any]] = []
            for name, value in level:
                if id(value) in self._visited:
                    self._aliases.setdefault(id(value), []).append(name)
                    continue
                self._visited.add(id(value))
                if len(self._visited) > MOST:
                    raise UsageError(f"{self.source}: holds more than {MOST} containers: {ADVICE}")
                below += self._visit(name, value)
            level = below

    def groups(self) -> tuple[TensorGroup, ...]:
        """Return the groups of tensors, outermost first."""
        return tuple(
            group._replace(aliases=tuple(self._aliases.get(container, ())))
            for container, group in self._tensors.items()
        )

    def _visit(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """Keep the tensors and numbers of a container, and return the containers in it."""
        state = value.state if isinstance(value, StandIn) else None
        if isinstance(state, Mapping) and "_modules" in state:
            self.modules[value.kind] = None
            return []
        inner: list[tuple[str, Any]] = []
        tensors: dict[str, Tensor] = {}
        for word, item in _items(value):
            key = _key(word)
            if isinstance(item, Tensor):
                tensors[key] = item.detach()
                continue
            numbers = _as_numbers(item)
            if isinstance(word, str) and numbers is not None:
                self.numbers.append(NumberList(name, key, numbers))
            if numbers is None and isinstance(item, Mapping | list | tuple | StandIn):
                inner.append((join(name, key), item))
        if tensors:
            self._tensors[id(value)] = TensorGroup(name, tensors)
        return inner


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and items of a mapping, a list or the state of an object that is not loaded."""
    content = value.state if isinstance(value, StandIn) else value
    if isinstance(content, Mapping):
        yield from content.items()
    elif isinstance(content, list | tuple):
        yield from enumerate(content)


def _key(word: Any) -> str:
    """Return a key as a part of a path. Keys other than words and numbers are replaced by their type."""
    if isinstance(word, str):
        return word
    is_index = isinstance(word, int) and abs(word) < 10**18  # longer ones may have more digits than Python converts
    return str(word) if is_index else type(word).__name__


def join(*parts: str) -> str:
    """Return a dotted path of the parts that are not empty."""
    return ".".join(filter(None, parts))


def _as_numbers(value: Any) -> tuple[float, ...] | None:
    """Return a number, or a list of at most FEW numbers. None for anything else."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if not 0 < len(numbers) <= FEW:
        return None
    for number in numbers:
        if not isinstance(number, float | int) or isinstance(number, bool) or abs(number) > 1e300:
            return None
    return tuple(float(number) for number in numbers)


def unusable(tensor: Tensor) -> str:
    """Return why a tensor's values can't be copied into a network. Empty if they can."""
    if tensor.is_meta:
        return "is on the meta device, without values"
    if tensor.is_quantized:
        return "is quantized"
    if tensor.layout != torch.strided or tensor.is_nested:
        return "is sparse or nested"
    if tensor.is_complex():
        return "is complex"
    stored = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.numel() > max(stored, FEW):
        return f"is expanded: {stored} stored numbers for {tensor.numel()}"
    return ""


def repeats_storage(tensors: Iterable[Tensor]) -> bool:
    """Return True if usable tensors together describe many times the bytes that are stored for them."""
    described = 0
    storages: dict[int, int] = {}  # bytes by address
    for tensor in tensors:
        described += tensor.numel() * tensor.element_size()
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return described > SHARING * sum(storages.values()) + 2**20
