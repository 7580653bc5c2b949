"""The command: a model that is trained already, or decisions that somebody recorded, is tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed import suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.evaluation import recorded
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.settings import as_flags, build, specs
from biasbed.system import files

OWN = tuple(specs(EvaluateOptions))
FILES = ("model", "weights", "label_map")  # settings that may name a file


def settings(suite: str) -> tuple[str, ...]:
    """All that the command can be told under a suite."""
    return (*OWN, *EVALUATE_SHARED, *suites.REGISTRY.own_settings(suite))


def settled(name: str, value: str) -> str:
    """A setting's value, of those that may name a file with its whole path."""
    return files.settled(value) if name in FILES else value


def read(flags: Mapping[str, Any]) -> tuple[EvaluateOptions, dict[str, Any]]:
    """(what the command alone is told, what it shares with `train`)."""
    options = build(EvaluateOptions, {name: value for name, value in flags.items() if name in OWN})
    return options, {name: value for name, value in flags.items() if name not in OWN and value != "auto"}


def evaluate(flags: Mapping[str, Any]) -> dict[str, float] | int:
    """Test what `model=` names, track the result and return its metrics; of several processes the exit code."""
    options, given = read(flags)
    if options.model == "none":
        raise UsageError(
            "say what to test: model=<checkpoint, run id, torchvision:<name>, timm:<name> or decisions.csv>"
        )
    decisions = recorded.files(options.model)
    if decisions:
        return recorded.evaluate_recorded(options, given, decisions)
    from biasbed.compute.device import run_torchrun, settle_device
    from biasbed.evaluation.evaluate_model import evaluate_model, load, plan
    from biasbed.system.processes import in_torchrun

    place = build(Config, {name: given[name] for name in ("device", "nproc") if name in given})
    _, count = settle_device(place.device, place.nproc)
    if count > 1 and not in_torchrun():
        plan(
            options, given, load(options, given)
        )  # a wrong command is refused here, once, rather than by every process
        return run_torchrun(count, ["evaluate", *as_flags(flags)])
    return evaluate_model(options, given)
