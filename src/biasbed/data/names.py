"""Many names in little memory. No torch: recorded decisions are read without it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from os.path import commonpath
from typing import Any, overload

import numpy as np


class Names(Sequence[str]):
    """Many strings in two arrays.

    A list of a million strings takes ten times the memory, and every loader process would come to own a copy: counting
    references writes to the pages that it shares with its parent.
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

    def joined(self, between: str) -> bytes:
        """All of them in one, with a character of ASCII between them."""
        return np.insert(self._bytes, self._ends[1:-1], ord(between)).tobytes()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)  # which also ends an iteration
        row = at % len(self)
        return self._bytes[self._ends[row] : self._ends[row + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        content = self._bytes.tobytes()
        return (content[start:end].decode() for start, end in itertools.pairwise(self._ends.tolist()))

    def at(self, places: np.ndarray) -> Names:
        """Those at some places [n] int64, in the order of these."""
        lengths = np.diff(self._ends)[places]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        where = np.arange(ends[-1]) + np.repeat(self._ends[:-1][places] - ends[:-1], lengths)
        return Names.from_bytes(self._bytes[where], ends)

    def arrays(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(content, ends) of some in a row, as `of` takes them; the ends from zero on."""
        ends = self._ends[start : stop + 1]
        return self._bytes[ends[0] : ends[-1]], ends - ends[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names):
            return isinstance(other, Sequence) and list(self) == list(other)
        if len(self) != len(other) or not np.array_equal(np.diff(self._ends), np.diff(other._ends)):
            return False
        return np.array_equal(self.arrays(0, len(self))[0], other.arrays(0, len(other))[0])


class Coded:
    """An array of names of which there are few: each once, and at every place its number, in the fewest bytes that do.

    Compared with a name, or with an array of names, it gives an array of bool.
    """

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # an array that is compared with it leaves that to it

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

    def __getitem__(self, at: Any) -> Any:
        """A name, or those at several places."""
        found = self.codes[at]
        return Coded(found, self.names) if np.ndim(found) else self.names[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        names: list[Any] = np.asarray(self).tolist()
        return names

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([*self.names, None], dtype=object)[self.codes].astype(dtype or object)

    def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> np.ndarray:  # type: ignore[override]
        return self._compared(other, operator.ne)

    def _compared(self, other: Any, how: Any) -> np.ndarray:
        number = {name: code for code, name in enumerate(self.names)}
        if isinstance(other, str):
            found: np.ndarray = how(self.codes, number.get(other, -1))
            return found
        theirs = Coded.from_names(other)
        if theirs.names == self.names:
            return np.asarray(how(self.codes, theirs.codes))
        here = np.array([*(number.get(name, -1) for name in theirs.names), -1], dtype=np.int32)
        return np.asarray(how(self.codes, here[theirs.codes]))

    def counts(self, chosen: np.ndarray | None = None) -> dict[str, int]:
        """Name -> at how many places it stands, of those that are chosen (bool), in the order of the numbers."""
        codes = self.codes.reshape(-1) if chosen is None else self.codes[chosen]
        return dict(zip(self.names, np.bincount(codes, minlength=len(self.names)).tolist(), strict=True))


def photographs(images: Iterable[str], conditions: Iterable[str]) -> np.ndarray:
    """[N] int32 number of the photograph that each of N images is a view of; two views of one have the same.

    Views of one photograph have one name below the folders of their conditions (`noise/fog/3/n01440764/a.JPEG`):
    as many folders are left out as the images of every condition have in common.
    """
    images, conditions = list(images), list(conditions)
    ends: dict[str, tuple[str, str]] = {}
    for image, condition in zip(images, conditions, strict=True):
        low, high = ends.get(condition, (image, image))
        ends[condition] = min(low, image), max(high, image)
    # What the first and the last of sorted names begin with, all between them do.
    depth = min((_folders(*pair) for pair in ends.values()), default=0)
    numbers: dict[str, int] = {}
    rests = (image.split("/", depth)[-1] for image in images)
    return np.array([numbers.setdefault(rest, len(numbers)) for rest in rests], dtype=np.int32)


def _folders(first: str, last: str) -> int:
    """How many folders two names have in common."""
    return first.count("/") if first == last else len([part for part in commonpath((first, last)).split("/") if part])
