"""Commands of biasbed as they are typed: as a program of its own, or through `mlflow run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from biasbed.errors import UsageError
from biasbed.system import places

RUN = "MLFLOW_RUN_ID"  # set by `mlflow run`, which has opened a run for this process
# Settings that may hold a password -> the variable that is better for it.
SHOWN_NOWHERE = {"storage": "BIASBED_STORAGE", "tracking_uri": "MLFLOW_TRACKING_URI"}


_STARTED_BY_MLFLOW = RUN in os.environ  # before anything takes that run


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


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a password or token in a setting that would be recorded.

    `SHOWN_NOWHERE` are recorded nowhere by us; but `mlflow run` logs all that it is given.
    """
    for name, value in settings.items():
        if not places.has_secret(value):
            continue
        if name not in SHOWN_NOWHERE:
            raise UsageError(
                f"{name}={places.public_value(value)}: has a password or token, and settings are recorded: leave it out"
            )
        if is_launched():
            raise UsageError(
                f"{name}={places.public_value(value)}: `mlflow run` has logged its password as a parameter: delete "
                f"that run, change the password, and set {SHOWN_NOWHERE[name]} instead"
            )


def typed(name: str, settings: Mapping[str, str], open_end: str = "") -> str:
    """Return a command in the form in which this process was started, ready to be typed.

    open_end: what stands behind it for the user to fill in, as `...` or `algorithms=<names>`.
    """
    if is_launched() or _STARTED_BY_MLFLOW:
        return through_mlflow(name, settings, open_end)
    flags = (f"--{setting} {_quoted(value)}" for setting, value in public(settings).items())
    return " ".join(["biasbed", name, *flags, *filter(None, [open_end])])


def through_mlflow(name: str, settings: Mapping[str, str], open_end: str = "") -> str:
    """Return a command as `mlflow run` takes it, in a checkout."""
    parameters = (f"-P {setting}={_quoted(value)}" for setting, value in public(settings).items())
    return " ".join(["mlflow run . -e", name, *parameters, *filter(None, [open_end])])


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
