"""The two ways a command ends badly. Each carries one message for the user and is printed without a traceback."""

from __future__ import annotations

import errno
import os
import tempfile
import unicodedata
from collections.abc import Iterable
from typing import Self

LONGEST_NAME = 300  # characters of a path that a message holds
# What a machine refuses in the middle of right work: a full disk, a broken one, too many open files.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
REFUSALS = frozenset((*_DISK, errno.EMFILE, errno.ENFILE, errno.ENOMEM))


SHARED_MEMORY = "/dev/shm"  # where Linux keeps it
FULL_SHARED_MEMORY = "/dev/shm, the shared memory, is full or too small: make it larger, or train with workers=0"
LEAST_FREE = 2**16  # bytes: a disk with less is full


class Told(Exception):
    """One message, and the lines of a list that may stand below it."""

    def __init__(self, message: str, *lines: str) -> None:
        super().__init__(message, *lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    def located(self, where: str) -> Self:
        """Return this error, of whatever type, with a place before its message."""
        message, *lines = self.args
        self.args = (f"{where}: {message}", *lines)
        return self


class UsageError(Told):
    """The command can't be carried out as given: nothing was started. Exit code 2."""

    exit_code = 2


class UnreadableFile(UsageError, ValueError):
    """A file that is not read, whoever wrote it: a pipe or a device, or one that is too large for its kind."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


class MissingData(UsageError):
    """Images, or the folder of them, are not where they were looked for."""


class NotApplicable(UsageError):
    """A method can't be trained on these data: they lack what it needs. In a study such a cell stays empty."""

    def __init__(self, message: str, lacking: Iterable[str] = ()) -> None:
        """lacking: of what methods may need (`algorithms.requests.NEEDS`)."""
        super().__init__(message)
        self.lacking = tuple(sorted(lacking))


class Failure(Told):
    """The command was right but its work failed: what was computed before is kept. Exit code 1."""

    exit_code = 1


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line; its type's name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def os_reason(error: OSError) -> str:
    """Return in one line what the operating system refused: a full disk, a file of somebody else's."""
    if error.strerror is None:  # raised by a library, with words of its own
        return first_line(error)
    name = "" if error.filename is None else str(error.filename)
    if not name and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ": ".join((error.strerror, ", ".join(full_places()) or "which one is not known"))
    shown = name if len(name) <= LONGEST_NAME else f"{name[:60]}..."
    return f"{error.strerror}: {shown}" if name else error.strerror


def full_places() -> list[str]:
    """Return the folders that programs write to and whose disk is full, shared memory among them."""
    candidates = (SHARED_MEMORY, tempfile.gettempdir(), os.environ.get("BIASBED_HOME", ""), os.curdir)
    full = []
    for folder in filter(os.path.isdir, candidates):
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < LEAST_FREE:
            full.append(os.path.abspath(folder))
    return list(dict.fromkeys(full))


def shown(text: str, most: int = 300) -> str:
    """Return words of a file or a server as a message holds them: cut, and without signs that a terminal would obey."""
    return (text if text.isprintable() else ascii(text)[1:-1])[:most]


LONGEST_LINE, END = 800, 250  # characters of a message, and of its end, which says what to do
MOST_LINES = 200


def in_a_line(text: str) -> str:
    """Return words as they are printed: one line, whatever was typed, without signs that a terminal would obey.

    A longer one loses its middle: what is wrong stands at the beginning, and what to do at the end.
    """
    line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
    if len(line) <= LONGEST_LINE:
        return line
    middle = f" ... ({len(line) - LONGEST_LINE} more characters) ... "
    return f"{line[: LONGEST_LINE - END - len(middle)]}{middle}{line[-END:]}"


def printed(error: Told) -> str:
    """Return the text that a command ends with: a line, and below it those of our own list, if there is one."""
    lines = [in_a_line(str(line)) for line in error.args]
    if len(lines) > MOST_LINES:  # the last is the advice
        lines[MOST_LINES - 2 : -1] = [f"... and {len(lines) - MOST_LINES + 1} more lines"]
    return "\n".join(lines)


def listed(names: Iterable[object], most: int = 20) -> str:
    """Return names as a message holds them: `a, b, c and 12 more`."""
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def other_form(name: str, names: Iterable[str]) -> str:
    """Return the name that looks the same and is written with other characters (é as one, or as e and an accent)."""
    form = unicodedata.normalize("NFC", name)
    for candidate in names:
        if candidate != name and unicodedata.normalize("NFC", candidate) == form:
            return candidate
    return ""


class CorruptImage(Failure):
    """An image that can't be decoded; the message holds its path and the reason."""


class UnfitImage(CorruptImage):
    """An image that `corrupt=skip` doesn't pass over: its size, its pack or a user's transform of it is wrong."""


class NotFinite(Failure):
    """Outputs of a model that are NaN or infinite; the message holds the image and its set."""
