"""Files that are there wholly or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path, durable: bool = True, kept: Path | None = None) -> Iterator[Path]:
    """A path to write to, which becomes the file at the end of the block; if that fails, the file stays as it was.

    durable: it has reached the disk then, so that a power cut does not empty it. kept: what the file from before
    becomes, once the new one has reached the disk.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
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


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never there in half, and that a power cut does not empty."""
    with whole(path) as temporary:
        temporary.write_text(text)


def append_line(path: Path, line: str) -> None:
    """Add a line that a power cut does not lose, to a file whose last one a kill may have cut off."""
    with path.open("a+b") as file:
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
