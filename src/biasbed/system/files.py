"""Files: atomic and durable writing, locks, protection against links, and settings that name a file."""

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

CHECKSUM = "#sha256="  # stands between a file's name and its expected checksum, as pip writes it
WARN_AFTER, GIVE_UP_AFTER = 2.0, 300.0  # seconds of waiting for a lock until a line is printed, and until a Failure
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of a file system without hard links


@contextlib.contextmanager
def atomic_file(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a path to write to, which becomes the file at the end of the block. On failure the file stays as it was.

    durable: wait until the file has reached the disk, so that a power cut does not empty it.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _remove_leftovers(path)
    try:
        with named_in_errors(path), _locked_file(temporary):
            yield temporary
            if durable:
                flush_to_disk(temporary)
            os.replace(temporary, path)
            if durable:
                flush_to_disk(path.parent)
    finally:
        with contextlib.suppress(OSError):  # the reason why it can't be written is on its way
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked_file(temporary: Path) -> Iterator[None]:
    """Make a file and lock it within the block, so that another process can tell that its writer is alive.

    A process id would not tell, as a process on another machine or in another container may have the same.
    """
    temporary.unlink(missing_ok=True)  # it may be a link in a folder that somebody else has made
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the block raises if the folder is missing; without locks it goes on
            while True:
                descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_at(temporary, descriptor):
                    break
        yield


def _remove_leftovers(path: Path) -> None:
    """Remove half-written versions of a file that killed processes have left."""
    for name in _leftovers_in(path.parent):
        if re.fullmatch(rf"{re.escape(path.name)}\.\d+(-[0-9a-f]+)?\.tmp", name):
            leftover = path.with_name(name)
            with contextlib.suppress(OSError), leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises OSError while its writer is alive
                leftover.unlink()


@functools.cache
def _leftovers_in(folder: Path) -> tuple[str, ...]:
    """Return the names of temporary files in a folder, listed once per process: a folder may hold a million files."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return tuple(file.name for file in entries if file.name.endswith(".tmp"))
    return ()


@contextlib.contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add this file to errors of the disk that name no file, so that the user learns which disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in REFUSALS and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file within the block, so that only one process at a time is in a block of this path.

    Place it beside what it protects, so that all users find the same lock, whatever their TMPDIR and HOME. Prints who
    holds it after `WARN_AFTER` seconds of waiting; raises Failure after `GIVE_UP_AFTER`.
    """
    began, has_warned = time.monotonic(), False
    while True:
        with open_in_place(path) as lock:
            if take_lock(lock) and is_at(path, lock.fileno()):  # else another process has removed this file
                if os.fstat(lock.fileno()).st_nlink == 1:  # a hard link could lead to somebody else's file
                    lock.truncate(0)
                    lock.write(f"process {os.getpid()} on {os.uname().nodename}")
                    lock.flush()
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)  # before the lock ends, as the name may then be another's lock
                return
            lock.seek(0)
            holder = lock.read(200).strip() or "another process"
        waited = time.monotonic() - began
        if waited > GIVE_UP_AFTER:
            raise Failure(f"the lock {path} is held by {holder} since {waited:.0f} seconds: end it and try again")
        if waited > WARN_AFTER and not has_warned:
            print(f"waiting for the lock {path}, held by {holder}", file=sys.stderr, flush=True)
            has_warned = True
        time.sleep(min(0.1, 0.001 + waited / 10))


def take_lock(lock: TextIO) -> bool:
    """Lock an open file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(lock: TextIO) -> bool:
    """Return True if a process has locked a file with `take_lock`. Several processes may ask at once."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def is_at(path: Path, descriptor: int) -> bool:
    """Return True if an open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes the file at the end of the block if there is no such file yet.

    An existing file is never replaced: if several processes make it at once, the first one's stays.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _remove_leftovers(path)
    try:
        with named_in_errors(path), _locked_file(temporary):
            yield temporary
            flush_to_disk(temporary)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                with locked(path.with_name(f"{path.name}.lock")):
                    if not path.exists():
                        os.replace(temporary, path)
            flush_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


# --- folders of strangers ---------------------------------------------------------------------------------------------


def open_in_place(path: Path) -> TextIO:
    """Open a file for reading and appending, and make it if it is missing.

    Raises Failure if it is a symbolic link, which could lead to any file of the user, or not a regular file.
    """
    try:
        file = open(path, "a+", opener=_open_no_link)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_failure(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _link_failure(path)
    return file


def _open_no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def refuse_links(path: Path) -> None:
    """Raise Failure if a file, or anything below a folder, is neither a regular file nor a folder.

    A folder that somebody else has made may link to files of the user, which would be overwritten or sent to a server.
    The folder itself may be reached through a link.
    """
    if not path.is_dir():
        if not _is_regular_or_missing(path):
            raise _link_failure(path)
        return
    for member in os.scandir(path):
        if member.is_dir(follow_symlinks=False):
            refuse_links(Path(member.path))
        elif not _is_regular_or_missing(Path(member.path)):
            raise _link_failure(Path(member.path))


def _is_regular_or_missing(path: Path) -> bool:
    """Return True for a regular file, and if nothing is at this path."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _link_failure(path: Path) -> Failure:
    kind = "a symbolic link" if path.is_symlink() else "no plain file"
    return Failure(f"{path} is {kind}, which biasbed neither follows nor sends: replace it by the file that is meant")


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically and durably."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Append a line durably. If a kill has cut off the last line, that line is ended first."""
    with named_in_errors(path), open_in_place(path) as text:
        file = text.buffer
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="biasbed-") as name:
        yield Path(name)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FileSetting(NamedTuple):
    """Parts of a setting that may name a file: `<file>#<part of it>#sha256=<its checksum>`."""

    path: Path
    part: str  # empty for the whole file
    checksum: str  # empty without one


def split_setting(word: str) -> FileSetting:
    """Split a setting that may name a file. The name of an existing file may contain a #."""
    text, _, checksum = word.partition(CHECKSUM)
    path = Path(text).expanduser()
    if path.is_file() or "#" not in text:
        return FileSetting(path, "", checksum)
    name, _, part = text.rpartition("#")
    shorter = Path(name).expanduser()
    return FileSetting(shorter, part, checksum) if shorter.is_file() else FileSetting(path, "", checksum)


def find_file(word: str, option: str) -> Path | None:
    """Return the file that a setting names (`split_setting`); None if it names no file.

    Raises UsageError if the file has another checksum. option: the setting.
    """
    path, _, checksum = split_setting(word)
    if not path.is_file():
        return None
    if CHECKSUM in word:
        actual = sha256(path)
        if actual != checksum.lower():
            raise UsageError(
                f"{option}={path}: its SHA-256 is {actual}, not {checksum}: it is another file, or damaged"
            )
    return path


def with_absolute_path(word: str) -> str:
    """Return a setting with the absolute path of the file that it names, so that it means the same in any folder."""
    path, part, checksum = split_setting(word)
    if not path.is_file():
        return word
    absolute = str(path.resolve())
    if part:
        absolute += f"#{part}"
    if CHECKSUM in word:
        absolute += f"{CHECKSUM}{checksum}"
    return absolute
