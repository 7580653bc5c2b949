"""Columns of image data sets in Parquet and WebDataset shards: which is the image, the label, the domain, the bias.

Numbers become names here: by the names that the column brings, or by those in `classes.txt`, never by position alone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from biasbed.data.decoding import EXTENSIONS
from biasbed.errors import UnreadableFile, UsageError, listed, shown
from biasbed.settings import is_text
from biasbed.system.strict import read_text

IMAGE, LABEL, DOMAIN, BIAS, SPLIT = ROLES = ("image", "label", "domain", "bias", "split")
SUFFIX_NAMES = tuple(sorted(suffix[1:] for suffix in EXTENSIONS))  # as keys of WebDataset samples
# Names of columns, in lower case, that people use for each role.
USUAL: Mapping[str, tuple[str, ...]] = {
    IMAGE: ("image", "img", "picture", *SUFFIX_NAMES),
    LABEL: ("label", "labels", "cls", "class", "target", "y", "fine_label", "coarse_label"),
    DOMAIN: ("domain", "domains", "env", "environment"),
    BIAS: ("bias",),
    SPLIT: ("split",),
}
CLASS_FILES = ("classes.txt", "classnames.txt")  # a class a line, in the order of the labels
UNLABELLED = -1  # label of images whose class is not published, as on the hub
MOST_BYTES = 2**20  # of a file of classes, and of a sample's text
LONGEST = 1024  # characters of a name
SIGNATURES = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}


@dataclass(frozen=True)
class StatedColumns:
    """Names of columns that the user states, keyed by role."""

    stated: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, settings: Iterable[str]) -> StatedColumns:
        """Return the names in settings such as `label:fine_label`, as `unpacked.columns` has them."""
        return cls(dict(setting.split(":", 1) for setting in settings))

    def choose(self, names: Iterable[str], role: str, more: Iterable[str] = (), is_part: bool = False) -> str | None:
        """Return the column of a role; None if there is none. more: columns that could have it besides usual names.

        Raises ValueError if two columns could have it, or the stated one is missing, unless these are only a part of
        the columns (`is_part`).
        """
        names = list(names)
        stated = self.stated.get(role)
        if stated is not None:
            if stated not in names and not is_part:
                raise ValueError(f"it has no column '{stated}' (it has {listed(map(shown, names))})")
            return stated if stated in names else None
        candidates = [name for name in names if name.lower() in USUAL[role] or name in more]
        candidates = [name for name in candidates if name not in self.stated.values()]
        if len(candidates) > 1:
            either = " or ".join(map(shown, candidates))
            raise ValueError(f"its {role} could be {either}: say which with unpacked.columns={role}:{candidates[0]}")
        return candidates[0] if candidates else None

    def require(self, names: Iterable[str], role: str, more: Iterable[str] = ()) -> str:
        """Return the column of a role. Raises ValueError if there is none."""
        names = list(names)
        name = self.choose(names, role, more)
        if name is None:
            columns = listed(map(shown, names)) or "none"
            raise ValueError(
                f"it has no {role} column (it has {columns}): say which with unpacked.columns={role}:<column>"
            )
        return name


class ShardImages(NamedTuple):
    """Images of one shard in its order, without their content."""

    paths: Sequence[str]  # names that the shard has for them; empty without one
    values: Mapping[str, Sequence[str | None]]  # name of each image's value by role; None: not labelled


def read_classes(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return the lines of the first list of classes in one of the folders; empty if there is none.

    Raises UsageError if it is not a list of different names.
    """
    for folder in folders:
        for name in CLASS_FILES:
            if (folder / name).is_file():
                return _parse_classes(folder / name)
    return ()


def _parse_classes(path: Path) -> tuple[str, ...]:
    try:
        names = tuple(line.strip() for line in read_text(path, MOST_BYTES).rstrip().splitlines())
        if not names or len(set(names)) < len(names) or "" in names:
            raise ValueError("it should have a class a line, each once, in the order of the labels")
    except UnreadableFile:
        raise
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    return names


def name_values(values: Iterable[Any], names: Sequence[str], role: str, first: int = 0) -> list[str | None]:
    """Return the name of each value, None if it is not labelled. names: of the numbers 0, 1, ..., if there are any.

    first: number of the first value's row, for messages. Raises ValueError for a value that has no name.
    """
    numbers = dict(enumerate(names))
    named: dict[Any, str | None] = {}
    result = []
    for row, value in enumerate(values, first):
        if value not in named:
            try:
                named[value] = _name_value(value, numbers, role)
            except ValueError as error:
                raise ValueError(f"row {row}: {error}") from None
        result.append(named[value])
    return result


def _name_value(value: Any, numbers: Mapping[int, str], role: str) -> str | None:
    if value is None:
        raise ValueError(f"it has no {role}")
    if isinstance(value, str):
        return check_name(value, role)
    if role == LABEL and value == UNLABELLED:
        return None
    if numbers:
        if value not in numbers:
            raise ValueError(f"its {role} is {value}, and there are {len(numbers)} names")
        return check_name(numbers[value], role)
    if role in (LABEL, BIAS):
        raise ValueError(
            f"its {role} is the number {value}, and no names of the classes are there: write classes.txt beside the "
            "shards, a class a line in the order of the labels"
        )
    return str(value)


def check_name(name: str, role: str) -> str:
    """Return a name that could be a folder's. Raises ValueError for any other."""
    if not name or name.startswith(".") or "/" in name or len(name) > LONGEST or not name.isprintable():
        raise ValueError(
            f"its {role} {shown(name, 60)!r} can't be a folder's name; give others in classes.txt or in the column"
        )
    return name


def check_path(path: str) -> str:
    """Return the path that a shard has for an image. Raises ValueError if it leads out of its folder or is no text."""
    if not is_text(path) or "\0" in path or "\n" in path or len(path) > 4 * LONGEST:
        raise ValueError(f"the name {shown(path, 60)!r} can't be that of an image file")
    if ".." in path.replace("\\", "/").split("/"):
        raise ValueError(f"the name {shown(path, 60)!r} leads out of its folder")
    return path


def name_image(path: str, label: str, row: int) -> str:
    """Return the name of an image within its class folder, without a suffix if its path has none.

    It is the part of the shard's own path that comes after the class; a whole path without the class is kept, except
    for the folders of another machine. Without a path it is the number of the row.
    """
    *folders, base = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")] or [""]
    if label in folders:
        folders = folders[folders.index(label) + 1 :]
    elif posixpath.isabs(path) or path[1:2] == ":":
        folders = []
    return "/".join((*folders, base or f"{row:08d}"))


def has_suffix(name: str) -> bool:
    """Return True if a name ends like an image file's."""
    return posixpath.splitext(name)[1].lower() in EXTENSIONS


def suffix_of(content: bytes) -> str:
    """Return the suffix for the first bytes of an image file; empty if they are none."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in SIGNATURES.items() if content.startswith(start)), "")
