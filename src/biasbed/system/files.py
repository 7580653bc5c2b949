"""Files that are there wholly or not at all, and files that are the ones that were meant."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from biasbed.errors import REFUSALS, UsageError

CHECKSUM = "#sha256="  # after a file's name: what its bytes should have, as pip writes it


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


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else can look into, and return it. If it is somebody else's, use a name of our own."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    if path.lstat().st_uid != os.getuid():  # also of a link
        return private_folder(path.with_name(f"{path.name}-{os.getuid()}"))
    path.chmod(0o700)
    return path


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


def named(word: str, option: str) -> Path | None:
    """The file that a setting names, as `<file>` or `<file>#sha256=<its checksum>`; None where it names no file.

    Raises UsageError where the checksum is none, or where the file has another.
    """
    text, mark, checksum = word.partition(CHECKSUM)
    path = Path(text).expanduser()
    if not path.is_file():
        return None
    if mark and not re.fullmatch("[0-9a-fA-F]{64}", checksum):
        raise UsageError(f"{option}={word}: after {CHECKSUM} should be the 64 hex digits that `sha256sum` prints")
    if mark and (found := sha256(path)) != checksum.lower():
        raise UsageError(f"{option}={path}: its SHA-256 is {found}, not {checksum}: it is another file, or damaged")
    return path


def settled(word: str) -> str:
    """What a setting says, with a file's whole path, so that it means the same in any folder."""
    text, mark, checksum = word.partition(CHECKSUM)
    path = Path(text).expanduser()
    return f"{path.resolve()}{mark}{checksum}" if path.is_file() else word
