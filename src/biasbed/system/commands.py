"""How a command of biasbed is typed: as a program of its own, or through `mlflow run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

RUN = "MLFLOW_RUN_ID"  # set by `mlflow run`, which has opened a run for this process


def is_launched() -> bool:
    """Whether `mlflow run` has opened a run for this process that nothing has taken yet."""
    return RUN in os.environ


def typed(entry: str, settings: Mapping[str, str]) -> str:
    """A command in the form in which this process was started."""
    if is_launched():
        return through_mlflow(entry, settings)
    return " ".join(["biasbed", entry, *(f"--{name} {shlex.quote(value)}" for name, value in settings.items())])


def through_mlflow(entry: str, settings: Mapping[str, str]) -> str:
    """A command as `mlflow run` takes it, in a checkout."""
    words = (f"-P {name}={shlex.quote(value)}" for name, value in settings.items())
    return " ".join(["mlflow run . -e", entry, *words])


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """What was given of `--name value` and `--name=value`; what `mlflow run` adds by itself, `auto`, is left out."""
    pairs = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    found = {name[2:]: value for name, value in zip(pairs[::2], pairs[1::2], strict=False)}
    return {name: value for name, value in found.items() if value != "auto"}
