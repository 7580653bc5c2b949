"""Files that are there wholly or not at all, and files that are the ones that were meant."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from biasbed.errors import REFUSALS, Failure, UsageError

CHECKSUM = "#sha256="  # after a file's name: what its bytes should have, as pip writes it
WARN_AFTER, GIVE_UP_AFTER = 2.0, 300.0  # seconds that a lock is waited for: until a line says so, and until a Failure
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of a file system without hard links


@contextlib.contextmanager
def atomic_file(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a path to write to, which becomes the file at the end of the block. On failure the file stays as it was.

    durable: it has reached the disk then, so that a power cut does not empty it.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _remove_left(path)
    try:
        with named_in_errors(path), _held(temporary):
            yield temporary
            if durable:
                flush(temporary)
            os.replace(temporary, path)
            if durable:
                flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(temporary: Path) -> Iterator[None]:
    """Make a file and hold a lock on it while it is written: by it another process knows that its writer lives.

    Process ids would not do: another machine, or another container, has others.
    """
    temporary.unlink(missing_ok=True)  # in a folder of somebody else's it may be a link
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # no such folder, no locks on this disk: the block says so, or does without
            while True:
                descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_at(temporary, descriptor):
                    break
        yield


def _remove_left(path: Path) -> None:
    """Remove what processes that were killed have left half-written of a file."""
    for name in _left_in(path.parent):
        if re.fullmatch(rf"{re.escape(path.name)}\.\d+(-[0-9a-f]+)?\.tmp", name):
            left = path.with_name(name)
            with contextlib.suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


@functools.cache
def _left_in(folder: Path) -> tuple[str, ...]:
    """Return the files that were being written in a folder when this process first looked: it may hold a million."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return tuple(file.name for file in entries if file.name.endswith(".tmp"))
    return ()


@contextlib.contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Name this file in errors of the disk that name none: which one is full?"""
    try:
        yield
    except OSError as error:
        if error.errno in REFUSALS and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that one process at a time is in a block of the same path; remove the file at the end.

    Place it beside what it protects: whoever can reach that finds the same lock, whatever their TMPDIR, HOME and user.
    Prints who holds it after `WARN_AFTER` seconds of waiting; raises Failure after `GIVE_UP_AFTER`.
    """
    began, is_told = time.monotonic(), False
    while True:
        with open_in_place(path) as lock:
            if has_lock(lock) and is_at(path, lock.fileno()):  # only the file of that name counts
                if os.fstat(lock.fileno()).st_nlink == 1:  # else it is somebody else's file, too
                    lock.truncate(0)
                    lock.write(f"process {os.getpid()} on {os.uname().nodename}")
                    lock.flush()
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)  # while it is held: nobody else's can have this name
                return
            lock.seek(0)
            holder = lock.read(200).strip() or "another process"
        waited = time.monotonic() - began
        if waited > GIVE_UP_AFTER:
            raise Failure(f"the lock {path} is held by {holder} since {waited:.0f} seconds: end it and try again")
        if waited > WARN_AFTER and not is_told:
            print(f"waiting for the lock {path}, held by {holder}", file=sys.stderr, flush=True)
            is_told = True
        time.sleep(min(0.1, 0.001 + waited / 10))


def has_lock(lock: TextIO) -> bool:
    """Take a file's lock, which is held until the file is closed; return False if that can't be had."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(lock: TextIO) -> bool:
    """Return True if somebody holds a file's lock. Others may ask at the same time: that is no holding."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def is_at(path: Path, descriptor: int) -> bool:
    """Return True if an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def new(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes the file at the end of the block unless somebody has made it meanwhile.

    An existing file is never replaced, whoever makes it and however many do so at once: the first one's stays.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _remove_left(path)
    try:
        with named_in_errors(path), _held(temporary):
            yield temporary
            flush(temporary)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                with locked(path.with_name(f"{path.name}.lock")):
                    if not path.exists():
                        os.replace(temporary, path)
            flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


# --- folders of strangers ---------------------------------------------------------------------------------------------


def open_in_place(path: Path) -> TextIO:
    """Open a file for reading and appending, and make it if it is missing.

    Raises Failure if it is a symbolic link, which could lead to any file of ours, or no plain file.
    """
    try:
        file = open(path, "a+", opener=_open_no_link)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _linked(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _linked(path)
    return file


def _open_no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def refuse_links(path: Path) -> None:
    """Raise Failure if a file, or anything below a folder, is neither a plain file nor a folder.

    A folder that somebody else has made may link to files of ours, which would be overwritten or sent to a server.
    The folder itself may be reached through a link.
    """
    if not path.is_dir():
        if not _is_plain(path):
            raise _linked(path)
        return
    for member in os.scandir(path):
        if member.is_dir(follow_symlinks=False):
            refuse_links(Path(member.path))
        elif not _is_plain(Path(member.path)):
            raise _linked(Path(member.path))


def _is_plain(path: Path) -> bool:
    """Return True for a plain file, and if there is nothing of this name."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _linked(path: Path) -> Failure:
    kind = "a symbolic link" if path.is_symlink() else "no plain file"
    return Failure(f"{path} is {kind}, which biasbed neither follows nor sends: replace it by the file that is meant")


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never there in half, and that a power cut does not empty."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Add a line that a power cut does not lose, to a file whose last one a kill may have cut off."""
    with named_in_errors(path), open_in_place(path) as text:
        file = text.buffer
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="biasbed-") as name:
        yield Path(name)


def flush(path: Path) -> None:
    """Make what was written to a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
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
    if checksum and (actual := sha256(path)) != checksum.lower():
        raise UsageError(f"{option}={path}: its SHA-256 is {actual}, not {checksum}: it is another file, or damaged")
    return path


def with_absolute_path(word: str) -> str:
    """Return a setting with a file's whole path, so that it means the same in any folder."""
    path, part, checksum = split(word)
    if not path.is_file():
        return word
    return f"{path.resolve()}{f'#{part}' * bool(part)}{CHECKSUM * (CHECKSUM in word)}{checksum}"
