"""The two ways a command ends badly. Each carries one message for the user and is printed without a traceback."""

from __future__ import annotations


class UsageError(Exception):
    """The command can't be carried out as given: nothing was started. Exit code 2."""

    exit_code = 2


class Failure(Exception):
    """The command was right but its work failed: what was computed before is kept. Exit code 1."""

    exit_code = 1
