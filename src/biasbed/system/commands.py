"""Command lines of biasbed, to be printed for the user: as a program of its own, or through `mlflow run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from biasbed import redaction
from biasbed.errors import UsageError
from biasbed.redaction import UNRECORDED

RUN = "MLFLOW_RUN_ID"  # set by `mlflow run`, which has opened a run for this process

LAUNCHED = "BIASBED_LAUNCHED"  # environment variable: `mlflow run` has started this process or an ancestor of it
SERVER = "MLFLOW_TRACKING_URI"
SERVERLESS = ("prepare", "list", "compare", "test")  # commands that use no tracking server


def is_launched() -> bool:
    """Return True if `mlflow run` has opened a run for this process and no code has taken it yet."""
    return RUN in os.environ


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a command without secrets: addresses lose user, password and tokens."""
    return {name: redaction.public_value(value) for name, value in settings.items()}


class SplitVariables(NamedTuple):
    """Environment variables by name."""

    public: dict[str, str]  # these may be written to a file
    secret: dict[str, str]  # these have a secret, and are inherited instead


def split_secrets(variables: Mapping[str, str]) -> SplitVariables:
    """Split environment variables into those that may be written to a file and those with a secret."""
    secret = {name: value for name, value in variables.items() if redaction.is_secret(name, value)}
    public = {name: value for name, value in variables.items() if name not in secret}
    return SplitVariables(public, secret)


def refuse_logged_secrets(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a password in `tracking_uri` that `mlflow run` has logged as a parameter."""
    value = settings.get(UNRECORDED, "")
    if is_launched() and redaction.has_secret(value):
        raise UsageError(
            f"{UNRECORDED}={redaction.public_value(value)}: `mlflow run` has logged its password as a parameter: "
            f"delete that run, change the password, and set {SERVER} instead"
        )


def note_launcher() -> None:
    """Note that `mlflow run` started this process, also for its children."""
    if is_launched():
        os.environ[LAUNCHED] = "yes"


def format_command(name: str, settings: Mapping[str, str], open_end: str = "", is_for_others: bool = False) -> str:
    """Return a command line, in the form in which this process was started, with the tracking server before it.

    open_end: text after it for the user to complete, as `...` or `algorithms=<names>`. is_for_others: the command is
    for other machines, with servers of their own, so this server is left out.
    """
    server, variable = os.environ.get(SERVER, ""), ""
    if server and not is_for_others and name not in SERVERLESS and "tracking_uri" not in settings:
        variable = f"{SERVER}={_quoted(redaction.public_uri(server))}"
    if LAUNCHED in os.environ:
        command = format_mlflow_command(name, settings)
    else:
        flags = (f"--{setting} {_quoted(value)}" for setting, value in without_secrets(settings).items())
        command = " ".join(["biasbed", name, *flags])
    return " ".join(filter(None, [variable, command, open_end]))


def format_continuation(arguments: Sequence[str]) -> str:
    """Return the command line that repeats this process's arguments, without `resume`, to continue its work."""
    name, settings = arguments[0], parse_settings(arguments[1:])
    return format_command(name, {setting: value for setting, value in settings.items() if setting != "resume"})


def format_mlflow_command(name: str, settings: Mapping[str, str]) -> str:
    """Return a command line of `mlflow run`, for a checkout on a machine that needs only MLflow and uv."""
    parameters = (f"-P {setting}={_quoted(value)}" for setting, value in without_secrets(settings).items())
    return " ".join(["mlflow run . -e", name, *parameters, "--env-manager uv"])


def _quoted(value: str) -> str:
    """Return a value quoted for a shell; a placeholder such as `<folder>` stays as it is."""
    return value if value.startswith("<") and value.endswith(">") else shlex.quote(value)


def parse_settings(arguments: Sequence[str]) -> dict[str, str]:
    """Parse `--name value` and `--name=value` into settings; leave out `auto`, which `mlflow run` adds by itself."""
    parts: list[str] = []
    for argument in arguments:
        parts.extend(argument.split("=", 1) if argument.startswith("--") else [argument])
    settings = {name[2:]: value for name, value in zip(parts[::2], parts[1::2], strict=False)}
    return {name: value for name, value in settings.items() if value != "auto"}
