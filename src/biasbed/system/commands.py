"""Commands of biasbed as they are typed: as a program of its own, or through `mlflow run`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from biasbed.errors import UsageError
from biasbed.redaction import SHOWN_NOWHERE
from biasbed.system import places
from biasbed.system.processes import read_launcher

RUN = "MLFLOW_RUN_ID"  # set by `mlflow run`, which has opened a run for this process

LAUNCHED_AS = "BIASBED_LAUNCHED_AS"  # environment variable: the `mlflow run` that was typed, as JSON, also for children
SERVER = "MLFLOW_TRACKING_URI"
KEPT = (  # options of `mlflow run` that are given again
    *(("--env-manager",), ("--experiment-name",), ("--experiment-id",), ("-v", "--version"), ("-b", "--backend")),
    *(("-c", "--backend-config"), ("-A", "--docker-args"), ("--storage-dir",)),
)
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
    """Raise UsageError for a password in a setting that we record nowhere, if `mlflow run` has logged it."""
    for name, variable in SHOWN_NOWHERE.items():
        value = settings.get(name, "")
        if is_launched() and places.has_secret(value):
            raise UsageError(
                f"{name}={places.public_value(value)}: `mlflow run` has logged its password as a parameter: delete "
                f"that run, change the password, and set {variable} instead"
            )


def note_launcher() -> None:
    """Note the `mlflow run` that started this process, as it was typed, for this process and its children."""
    if is_launched() and LAUNCHED_AS not in os.environ:
        arguments, variables = read_launcher()
        launch = {"server": places.public_uri(variables.get(SERVER, "")), **_read_launch(arguments)}
        os.environ[LAUNCHED_AS] = json.dumps(launch)


def _read_launch(arguments: Sequence[str]) -> dict[str, Any]:
    """Return project, entry point, parameters and further options of `mlflow run` as they were typed.

    The entry point is empty if another program runs the project.
    """
    programs = [word.rpartition("/")[2] for word in arguments]
    start = next(
        (at for at in range(len(arguments) - 1) if programs[at] == "mlflow" and arguments[at + 1] == "run"), None
    )
    if start is None:
        return {"project": ".", "entry": "", "parameters": {}, "options": []}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("project")
    parser.add_argument("-e", "--entry-point", default="main")
    parser.add_argument("-P", "--param-list", action="append", default=[])
    for names in (*KEPT, ("--run-id",), ("--run-name",)):
        parser.add_argument(*names, action="append", default=[])
    values = vars(parser.parse_known_args(arguments[start + 2 :])[0])
    options: list[str] = []
    for names in KEPT:
        for value in values[names[-1][2:].replace("-", "_")]:
            options += [names[-1], places.public_value(value)]
    return {
        "project": places.public_value(values["project"]),
        "entry": values["entry_point"],
        "parameters": public(dict(setting.split("=", 1) for setting in values["param_list"])),
        "options": options,
    }


def typed(name: str, settings: Mapping[str, str], open_end: str = "", is_for_others: bool = False) -> str:
    """Return a command in the form in which this process was started, ready to be typed: with the tracking server.

    open_end: what stands behind it for the user to fill in, as `...` or `algorithms=<names>`. is_for_others: somebody
    types it on another machine, with a server of their own.
    """
    launch = json.loads(os.environ.get(LAUNCHED_AS, "null"))
    server = os.environ.get(SERVER, "") if launch is None else launch["server"]
    variable = ""
    if server and not is_for_others and name not in SERVERLESS and "tracking_uri" not in settings:
        variable = f"{SERVER}={_quoted(places.public_uri(server))}"
    if launch is None:
        flags = (f"--{setting} {_quoted(value)}" for setting, value in public(settings).items())
        arguments = ["biasbed", name, *flags]
    else:
        arguments = [through_mlflow(name, settings, launch["project"]), *map(_quoted, launch["options"])]
    return " ".join(filter(None, [variable, *arguments, open_end]))


def typed_again(arguments: Sequence[str]) -> str:
    """Return the command that was typed, to go on with it. arguments: of this process, unless MLflow started it."""
    launch = json.loads(os.environ.get(LAUNCHED_AS, "null"))
    if launch is None or not launch["entry"]:
        name, settings = arguments[0], settings_of(arguments[1:])
    else:
        name, settings = launch["entry"], launch["parameters"]
    return typed(name, {setting: value for setting, value in settings.items() if setting != "resume"})


def through_mlflow(name: str, settings: Mapping[str, str], project: str = ".") -> str:
    """Return a command as `mlflow run` takes it, in a checkout."""
    parameters = (f"-P {setting}={_quoted(value)}" for setting, value in public(settings).items())
    return " ".join(["mlflow run", _quoted(project), "-e", name, *parameters])


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
