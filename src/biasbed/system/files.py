"""Files that are there wholly or not at all, and files that are the ones that were meant."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from biasbed.errors import REFUSALS, UsageError

CHECKSUM = "#sha256="  # after a file's name: what its bytes should have, as pip writes it


def parsed_json(text: str | bytes) -> Any:
    """What JSON of anybody's says. ValueError where it is none, also where it is nested without end."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested without end") from None


@contextlib.contextmanager
def whole(path: Path, durable: bool = True, kept: Path | None = None) -> Iterator[Path]:
    """A path to write to, which becomes the file at the end of the block; if that fails, the file stays as it was.

    durable: it has reached the disk then, so that a power cut does not empty it. kept: what the file from before
    becomes, once the new one has reached the disk.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with named_in_errors(path):
            yield temporary
            if durable:
                flush(temporary)
            if kept is not None and path.exists():
                os.replace(path, kept)
            os.replace(temporary, path)
            if durable:
                flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """What a disk refuses in the block is told of this file, where it is told of none: which one is full?"""
    try:
        yield
    except OSError as error:
        if error.errno in REFUSALS and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the block no other process of this machine is in a block of the same path; the file goes at its end.

    Whoever waited for a file that is gone by then tries again with the new one: only the file of that name counts.
    """
    while True:
        with path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_at(path, lock.fileno()):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)  # while it is held: nobody else's can have this name
            return


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never there in half, and that a power cut does not empty."""
    with whole(path) as temporary:
        temporary.write_text(text)


def append_line(path: Path, line: str) -> None:
    """Add a line that a power cut does not lose, to a file whose last one a kill may have cut off."""
    with named_in_errors(path), path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Make what was written to a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Named(NamedTuple):
    """A setting that may name a file, in its parts: `<file>#<part of it>#sha256=<its checksum>`."""

    path: Path
    part: str  # empty if the file as a whole is meant
    checksum: str


def split(word: str) -> Named:
    """Split a setting that may name a file. A file whose own name has a # is taken whole."""
    text, _, checksum = word.partition(CHECKSUM)
    path = Path(text).expanduser()
    if path.is_file() or "#" not in text:
        return Named(path, "", checksum)
    name, _, part = text.rpartition("#")
    shorter = Path(name).expanduser()
    return Named(shorter, part, checksum) if shorter.is_file() else Named(path, "", checksum)


def named(word: str, option: str) -> Path | None:
    """Return the file that a setting names (`split`). None if it names no file.

    Raises UsageError where the checksum is none, or where the file has another.
    """
    path, _, checksum = split(word)
    if not path.is_file():
        return None
    if CHECKSUM in word and not re.fullmatch("[0-9a-fA-F]{64}", checksum):
        raise UsageError(f"{option}={word}: after {CHECKSUM} should be the 64 hex digits that `sha256sum` prints")
    if checksum and (found := sha256(path)) != checksum.lower():
        raise UsageError(f"{option}={path}: its SHA-256 is {found}, not {checksum}: it is another file, or damaged")
    return path


def settled(word: str) -> str:
    """What a setting says, with a file's whole path, so that it means the same in any folder."""
    path, part, checksum = split(word)
    if not path.is_file():
        return word
    return f"{path.resolve()}{f'#{part}' * bool(part)}{CHECKSUM * (CHECKSUM in word)}{checksum}"
