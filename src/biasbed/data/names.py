"""Compact arrays of names. Loads no torch: the analysis of recorded decisions works without it."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from os.path import commonpath
from typing import Any, overload

import numpy as np


class Names(Sequence[str]):
    """Sequence of strings, stored in two arrays.

    A list of a million strings takes ten times the memory, and each loader process would get its own copy of it:
    counting references writes to the memory pages that the process shares with its parent.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, names: Iterable[str]) -> None:
        encoded = [name.encode() for name in names]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([0, *map(len, encoded)])

    @classmethod
    def from_bytes(cls, content: np.ndarray, ends: np.ndarray) -> Names:
        """Make names of joined UTF-8 bytes [B] uint8: name n is `content[ends[n] : ends[n + 1]]`."""
        names = cls(())
        names._bytes, names._ends = content, ends
        return names

    def joined(self, separator: str) -> bytes:
        """Join the names with an ASCII character between them."""
        return np.insert(self._bytes, self._ends[1:-1], ord(separator)).tobytes()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes + self._ends.nbytes

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        row = at % len(self)
        return self._bytes[self._ends[row] : self._ends[row + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        content = self._bytes.tobytes()
        return (content[start:end].decode() for start, end in itertools.pairwise(self._ends.tolist()))

    def at(self, rows: np.ndarray) -> Names:
        """Return the names at the rows [n] int64, in their order."""
        lengths = np.diff(self._ends)[rows]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(ends[-1]) + np.repeat(self._ends[:-1][rows] - ends[:-1], lengths)
        return Names.from_bytes(self._bytes[positions], ends)

    def arrays(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (content, ends) of the names `start` to `stop`, as `from_bytes` takes them; the ends start at 0."""
        ends = self._ends[start : stop + 1]
        return self._bytes[ends[0] : ends[-1]], ends - ends[0]

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Names):
            return isinstance(value, Sequence) and list(self) == list(value)
        if len(self) != len(value) or not np.array_equal(np.diff(self._ends), np.diff(value._ends)):
            return False
        return np.array_equal(self.arrays(0, len(self))[0], value.arrays(0, len(value))[0])


class Coded:
    """Array of names with few distinct values: each name once, and its number at every position.

    Numbers take as few bytes as possible. Comparison with a name, or with an array of names, returns an array of bool.
    """

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # makes numpy arrays leave comparisons to this class

    def __init__(self, codes: np.ndarray, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.codes = codes.astype(np.min_scalar_type(max(0, len(self.names) - 1)), copy=False)

    @classmethod
    def from_names(cls, values: Any) -> Coded:
        """Code names in any form, numbered in the order of their first occurrence."""
        if isinstance(values, Coded):
            return values
        array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=object)
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(name, len(numbers)) for name in array.reshape(-1).tolist()]
        return cls(np.array(codes, dtype=np.int64).reshape(array.shape), numbers)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes

    def __getitem__(self, at: Any) -> Any:
        """Return the name at a position, or the `Coded` of several positions."""
        codes = self.codes[at]
        return Coded(codes, self.names) if np.ndim(codes) else self.names[codes]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        names: list[Any] = np.asarray(self).tolist()
        return names

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([*self.names, None], dtype=object)[self.codes].astype(dtype or object)

    def __eq__(self, value: object) -> np.ndarray:  # type: ignore[override]
        return self._compare(value, operator.eq)

    def __ne__(self, value: object) -> np.ndarray:  # type: ignore[override]
        return self._compare(value, operator.ne)

    def _compare(self, value: Any, compare: Any) -> np.ndarray:
        numbers = {name: code for code, name in enumerate(self.names)}
        if isinstance(value, str):
            return np.asarray(compare(self.codes, numbers.get(value, -1)))
        right = Coded.from_names(value)
        if right.names == self.names:
            return np.asarray(compare(self.codes, right.codes))
        translation = np.array([*(numbers.get(name, -1) for name in right.names), -1], dtype=np.int32)
        return np.asarray(compare(self.codes, translation[right.codes]))

    def counts(self, chosen: np.ndarray | None = None) -> dict[str, int]:
        """Count how often each name occurs, among the chosen positions (bool) only; in the order of the numbers."""
        codes = self.codes.reshape(-1) if chosen is None else self.codes[chosen]
        return dict(zip(self.names, np.bincount(codes, minlength=len(self.names)).tolist(), strict=True))


def number_photographs(images: Iterable[str], conditions: Iterable[str]) -> np.ndarray:
    """Return the number [N] int32 of the photograph that each image is a view of.

    Views of one photograph have the same name below the folders of their conditions (`noise/fog/3/n01440764/a.JPEG`):
    as many leading folders are left out as the images of every condition have in common. A name may also end with its
    condition (`a_fog_3.JPEG`).
    """
    images, conditions = list(images), list(conditions)
    ends: dict[str, tuple[str, str]] = {}
    for image, condition in zip(images, conditions, strict=True):
        low, high = ends.get(condition, (image, image))
        ends[condition] = min(low, image), max(high, image)
    # All sorted names share the leading folders that the first and the last of them share.
    depth = min((_folders(*pair) for pair in ends.values()), default=0)
    numbers: dict[str, int] = {}
    rests = (image.split("/", depth)[-1] for image in images)
    names = map(without_condition, rests, conditions)
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int32)


_CONDITION = re.compile(r"_(?P<kind>[a-z][a-z_]*)_(?P<severity>\d+)(?P<suffix>\.[A-Za-z]+)$")


def without_condition(name: str, condition: str) -> str:
    """Return the name without the condition that it ends with: `a_fog_3.JPEG` under `fog-3` is `a.JPEG`.

    The name may have the beginning of the condition's kind: `a_sticker_3.JPEG` is under `stickers-3`.
    """
    kind, _, severity = condition.rpartition("-")
    match = _CONDITION.search(name) if severity and f"_{severity}." in name else None
    if match is None or match["severity"] != severity:
        return name
    # The kind stands behind the photograph's own words: the longest end of them that begins the condition's kind.
    parts = match["kind"].split("_")
    for start in range(len(parts)):
        end = "_".join(parts[start:])
        if kind.startswith(end):
            before = "".join(f"_{part}" for part in parts[:start])
            return name[: match.start()] + before + match["suffix"]
    return name


def _folders(first: str, last: str) -> int:
    """Count the leading folders that two names have in common."""
    return first.count("/") if first == last else len([part for part in commonpath((first, last)).split("/") if part])
