"""Errors that end a command (UsageError, Failure) with one message for the user, and the text of messages."""

from __future__ import annotations

import errno
import os
import tempfile
import unicodedata
from collections.abc import Iterable
from typing import Self

LONGEST_NAME = 300  # characters of a path that a message holds
# Error numbers of a machine that fails during correct work: a full disk, a broken one, too many open files.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
REFUSALS = frozenset((*_DISK, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
# Error numbers of a path that somebody has typed, and that cannot be read or made.
WRONG_PATHS = frozenset((errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG))


SHARED_MEMORY = "/dev/shm"  # where Linux keeps it
FULL_SHARED_MEMORY = "/dev/shm, the shared memory, is full or too small: make it larger, or train with workers=0"
LEAST_FREE = 2**16  # bytes: a disk with less is full


class CommandError(Exception):
    """Error of a command: one message, and the lines of a list that may stand below it. No traceback is printed."""

    def __init__(self, message: str, *lines: str) -> None:
        super().__init__(message, *lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    def with_place(self, where: str) -> Self:
        """Put a place before the message, and return this error."""
        message, *lines = self.args
        self.args = (f"{where}: {message}", *lines)
        return self


class UsageError(CommandError):
    """The command can't be carried out as given: nothing was started. Exit code 2."""

    exit_code = 2


class UnreadableFile(UsageError, ValueError):
    """A file that is refused before it is read: a pipe, a device, or a file that is too large for its kind."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


class MissingData(UsageError):
    """Images, or the folder of them, are not where they were looked for."""


class NotApplicable(UsageError):
    """A method can't be trained on these data: they lack what it needs. In a study such a cell stays empty."""

    def __init__(self, message: str, lacking: Iterable[str] = ()) -> None:
        """lacking: the needs that the data lack (names in `algorithms.requests.NEEDS`)."""
        super().__init__(message)
        self.lacking = tuple(sorted(lacking))


class Failure(CommandError):
    """The command was right but its work failed: what was computed before is kept. Exit code 1."""

    exit_code = 1


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line; its type's name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def os_reason(error: OSError) -> str:
    """Return the reason of an operating system's error in one line, with the file or the full disk."""
    if error.strerror is None:  # raised by a library, which has its own message
        return first_line(error)
    name = "" if error.filename is None else str(error.filename)
    if len(name) > LONGEST_NAME:
        name = f"{name[:60]}..."
    if name:
        return f"{error.strerror}: {name}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.strerror}: {', '.join(find_full_disks()) or 'which one is not known'}"
    return error.strerror


def find_full_disks() -> list[str]:
    """Return those folders that a command writes to whose disk is full; shared memory is one of them."""
    candidates = (SHARED_MEMORY, tempfile.gettempdir(), os.environ.get("BIASBED_HOME", ""), os.curdir)
    full = []
    for folder in filter(os.path.isdir, candidates):
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < LEAST_FREE:
            full.append(os.path.abspath(folder))
    return list(dict.fromkeys(full))


def shown(text: str, most: int = 300) -> str:
    """Return a stranger's text for a message: at most `most` characters, control characters escaped."""
    printable = text if text.isprintable() else ascii(text)[1:-1]
    return printable[:most]


LONGEST_LINE, END = 800, 250  # characters of a message, and of the end that a cut message keeps
MOST_LINES = 200  # lines of a message with a list


def to_one_line(text: str) -> str:
    """Return text as one line that is safe to print: line breaks and control characters are escaped.

    A long line loses its middle: the beginning says what is wrong, and the end what to do.
    """
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    if len(line) <= LONGEST_LINE:
        return line
    middle = f" ... ({len(line) - LONGEST_LINE} more characters) ... "
    return f"{line[: LONGEST_LINE - END - len(middle)]}{middle}{line[-END:]}"


def format_error(error: CommandError) -> str:
    """Return the text of an error as a command prints it: its message in a line, and the lines of its list."""
    lines = [to_one_line(str(line)) for line in error.args]
    if len(lines) > MOST_LINES:  # the last is the advice
        lines[MOST_LINES - 2 : -1] = [f"... and {len(lines) - MOST_LINES + 1} more lines"]
    return "\n".join(lines)


def listed(names: Iterable[object], most: int = 20) -> str:
    """Return names as a message holds them: `a, b, c and 12 more`."""
    texts = list(map(str, names))
    joined = ", ".join(texts[:most])
    if len(texts) > most:
        return f"{joined} and {len(texts) - most} more"
    return joined


def plural(noun: str, number: float) -> str:
    """Return the noun, with an s unless the number is 1."""
    if number == 1:
        return noun
    return f"{noun}s"


def count(number: int, noun: str) -> str:
    """Return `1 set`, `2 sets`."""
    return f"{number} {plural(noun, number)}"


def find_other_form(name: str, names: Iterable[str]) -> str:
    """Return a name that looks the same in another Unicode form (é as one character, or as two); empty if none does."""
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
