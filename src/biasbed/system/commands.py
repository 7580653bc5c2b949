"""Commands of biasbed as they are typed: as a program of its own, or through `mlflow run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from biasbed.errors import UsageError
from biasbed.redaction import UNRECORDED
from biasbed.system import places

RUN = "MLFLOW_RUN_ID"  # set by `mlflow run`, which has opened a run for this process

LAUNCHED = "BIASBED_LAUNCHED"  # environment variable: `mlflow run` started this process, or one above it
SERVER = "MLFLOW_TRACKING_URI"
SERVERLESS = ("prepare", "list", "compare", "test")  # commands that talk to no tracking server


def is_launched() -> bool:
    """Return True if `mlflow run` has opened a run for this process that nothing has taken yet."""
    return RUN in os.environ


def public(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a command as they may be written anywhere: addresses without user, password and tokens."""
    return {name: places.public_value(value) for name, value in settings.items()}


def parted(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that may be written to a file, and those with a secret, which are inherited instead."""
    secrets = {name: value for name, value in variables.items() if places.is_secret(name, value)}
    return {name: value for name, value in variables.items() if name not in secrets}, secrets


def refuse_logged_secrets(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a password in the setting that we record nowhere, if `mlflow run` has logged it."""
    value = settings.get(UNRECORDED, "")
    if is_launched() and places.has_secret(value):
        raise UsageError(
            f"{UNRECORDED}={places.public_value(value)}: `mlflow run` has logged its password as a parameter: delete "
            f"that run, change the password, and set {SERVER} instead"
        )


def note_launcher() -> None:
    """Note that `mlflow run` started this process, also for its children."""
    if is_launched():
        os.environ[LAUNCHED] = "yes"


def typed(name: str, settings: Mapping[str, str], open_end: str = "", is_for_others: bool = False) -> str:
    """Return a command in the form in which this process was started, ready to be typed: with the tracking server.

    open_end: what stands behind it for the user to fill in, as `...` or `algorithms=<names>`. is_for_others: somebody
    types it on another machine, with a server of their own.
    """
    server, variable = os.environ.get(SERVER, ""), ""
    if server and not is_for_others and name not in SERVERLESS and "tracking_uri" not in settings:
        variable = f"{SERVER}={_quoted(places.public_uri(server))}"
    if LAUNCHED in os.environ:
        command = through_mlflow(name, settings)
    else:
        flags = (f"--{setting} {_quoted(value)}" for setting, value in public(settings).items())
        command = " ".join(["biasbed", name, *flags])
    return " ".join(filter(None, [variable, command, open_end]))


def typed_again(arguments: Sequence[str]) -> str:
    """Return the command that was typed, to go on with it. arguments: of this process."""
    name, settings = arguments[0], settings_of(arguments[1:])
    return typed(name, {setting: value for setting, value in settings.items() if setting != "resume"})


def through_mlflow(name: str, settings: Mapping[str, str]) -> str:
    """Return a command as `mlflow run` takes it, in a checkout, which needs only MLflow and uv."""
    parameters = (f"-P {setting}={_quoted(value)}" for setting, value in public(settings).items())
    return " ".join(["mlflow run . -e", name, *parameters, "--env-manager uv"])


def _quoted(value: str) -> str:
    """Return a value as a shell takes it; `<what to put here>` stays readable."""
    return value if value.startswith("<") and value.endswith(">") else shlex.quote(value)


def settings_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the settings of `--name value` and `--name=value`, without `auto`, which `mlflow run` adds by itself."""
    parts: list[str] = []
    for argument in arguments:
        parts.extend(argument.split("=", 1) if argument.startswith("--") else [argument])
    settings = {name[2:]: value for name, value in zip(parts[::2], parts[1::2], strict=False)}
    return {name: value for name, value in settings.items() if value != "auto"}
