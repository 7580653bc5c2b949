"""WebDataset shards: tar files whose members with one key are a sample (`000.jpg`, `000.cls`, `000.json`).

Read strictly: no links, no paths that lead out, no key twice, and the mark of the archive's end must be there.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from biasbed.errors import shown
from biasbed.plugins.shards.columns import (
    BIAS,
    IMAGE,
    LABEL,
    MOST_BYTES,
    ROLES,
    ShardImages,
    StatedColumns,
    check_path,
    name_values,
)
from biasbed.system.strict import parse_int, parse_json

BLOCK = 512  # bytes of a header
PEEKED = 8  # members that tell whether a tar file has samples
JSON = "json"
# Raised by tarfile for archives that are damaged or made to be.
DAMAGED = (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError, EOFError)


class Member(NamedTuple):
    """File in a tar file."""

    name: str
    offset: int
    size: int


def read_members(path: Path) -> Iterator[Member]:
    """Yield the files of a tar file in order. Raises ValueError if it is not whole or has anything but files."""
    size = path.stat().st_size
    with tarfile.open(path, "r:") as archive:
        end = 0
        while (header := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else it keeps all of them
            if header.isdir():
                continue
            name = check_path(header.name)
            if not header.isreg() or header.issparse():
                raise ValueError(f"its member {shown(name, 60)!r} is not a file: links and devices are not read")
            if header.offset_data + header.size > size:
                raise ValueError(f"it is cut off in its member {shown(name, 60)!r}")
            if name.startswith("/") or header.offset_data < end:
                raise ValueError(
                    f"the name {shown(name, 60)!r} leads out of its folder, or the member has no right size"
                )
            end = header.offset_data + header.size
            yield Member(name.removeprefix("./"), header.offset_data, header.size)
        with path.open("rb") as file:
            file.seek(archive.offset)
            if file.read(BLOCK) != bytes(BLOCK):
                raise ValueError(f"it is cut off or damaged at byte {archive.offset:,}")


def has_samples(path: Path) -> bool | None:
    """Return True if the first members of a tar file are those of samples: an image, and its label or texts.

    Returns None if it is damaged.
    """
    parts: dict[str, set[str]] = {}
    try:
        for number, member in enumerate(read_members(path)):
            key, part = _SampleFile.from_name(member.name)
            parts.setdefault(key, set()).add(part)
            if number == PEEKED:
                break
    except DAMAGED:
        return None
    return any(len(names) > 1 and StatedColumns().choose(names, IMAGE) for names in parts.values())


def read_shard(path: Path, columns: StatedColumns, classes: tuple[str, ...]) -> ShardImages:
    """Read the names and the values of a shard's images. Reads headers and labels only.

    classes: names of the labels that are numbers. Raises ValueError if it is not whole or a sample does not fit.
    """
    samples = _read_samples(path)
    paths = []
    values: dict[str, list[Any]] = {role: [] for role in ROLES if role != IMAGE}
    with path.open("rb") as file:
        for key, parts in samples.items():
            try:
                paths.append(f"{key}.{columns.require(parts, IMAGE)}")
                further = _read_values(file.fileno(), parts, columns)
            except ValueError as error:
                raise ValueError(f"sample {shown(key, 60)!r}: {error}") from None
            for role, column in values.items():
                column.append(further.get(role))
    named = {}
    for role, column in values.items():
        if role == LABEL or any(value is not None for value in column):
            named[role] = name_values(column, classes if role in (LABEL, BIAS) else (), role)
    return ShardImages(paths, named)


def read_images(path: Path, columns: StatedColumns) -> Iterator[bytes]:
    """Yield the files of a shard's images, in the order of `read_shard`."""
    samples = _read_samples(path)
    with path.open("rb") as file:
        for parts in samples.values():
            image = parts[columns.require(parts, IMAGE)]
            yield os.pread(file.fileno(), image.size, image.offset)


class _SampleFile(NamedTuple):
    """Sample that a member belongs to, and its part in it: `a/001.jpg` is `a/001`, `jpg`."""

    key: str
    part: str  # may have a dot: `seg.png`

    @classmethod
    def from_name(cls, name: str) -> _SampleFile:
        folder, slash, base = name.rpartition("/")
        key, _, part = base.partition(".")
        return cls(folder + slash + key, part.lower())


def _read_samples(path: Path) -> dict[str, dict[str, Member]]:
    """Return the members of each sample, keyed by the sample's key and by part.

    Raises ValueError for a file that is damaged, and for a part that is there twice.
    """
    samples: dict[str, dict[str, Member]] = {}
    try:
        for member in read_members(path):
            key, part = _SampleFile.from_name(member.name)
            base = key.rpartition("/")[2]
            if not base or base.startswith("__") or not part:  # hidden files, and those about the shard itself
                continue
            parts = samples.setdefault(key, {})
            if part in parts:
                raise ValueError(f"it has {shown(member.name, 60)!r} twice")
            parts[part] = member
    except ValueError:
        raise
    except DAMAGED as error:
        raise ValueError(f"it is damaged ({str(error) or type(error).__name__})") from None
    return samples


def _read_values(file: int, parts: Mapping[str, Member], columns: StatedColumns) -> dict[str, int | str]:
    """Return a sample's values by role: of its texts, and of what its json has. They must agree if both have one."""
    about: Any = parse_json(_read_text(file, parts[JSON])) if JSON in parts else {}
    if not isinstance(about, dict):
        raise ValueError("its json is no mapping")
    values: dict[str, int | str] = {}
    for role in ROLES:
        if role == IMAGE:
            continue
        part = columns.choose(parts, role, is_part=True)
        key = columns.choose(about, role, is_part=part is not None or role not in columns.stated)
        if part is not None:
            text = _read_text(file, parts[part]).strip()
            values[role] = parse_int(text) if text.lstrip("-").isdecimal() else text
        if key is None or about[key] is None:
            continue
        value = about[key]
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError(f"its {role} in json, {shown(key, 60)!r}, is neither a number nor a name")
        if values.setdefault(role, value) != value:
            first, second = shown(str(values[role]), 60), shown(str(value), 60)
            raise ValueError(
                f"its {role} is {first} by {part} and {second} by {shown(key, 60)} in json: say which with "
                f"unpacked.columns={role}:{part}"
            )
    return values


def _read_text(file: int, member: Member) -> str:
    if member.size > MOST_BYTES:
        raise ValueError(f"{shown(member.name, 60)!r} is larger than a label")
    return os.pread(file, member.size, member.offset).decode("utf-8")
