"""Command `evaluate`: tests a trained model, or passes files of decisions to the plug-in that evaluates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from biasbed import redaction, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.plugin_loader import Offered
from biasbed.settings import as_flags, build, specs
from biasbed.system import files
from biasbed.system.processes import in_torchrun

OWN = tuple(specs(EvaluateOptions))
FILES = ("model", "weights", "label_map", "report")  # settings that may name a file


Metrics = dict[str, float]
# Functions of plug-ins that evaluate files other than models, by the files' ending.
FILES_OF_PLUGINS: Offered[Callable[[EvaluateOptions, Mapping[str, Any], Sequence[Path]], Metrics]] = Offered("model")


class EvaluateFlags(NamedTuple):
    """Flags of the command."""

    options: EvaluateOptions  # of this command alone
    shared: dict[str, Any]  # with `train`


def settings(suite: str) -> tuple[str, ...]:
    """Return the names of all settings that the command takes under a suite."""
    return (*OWN, *EVALUATE_SHARED, *suites.REGISTRY.own_settings(suite))


def with_absolute_path(name: str, value: str) -> str:
    """Return a setting's value; if it names a file, with the file's absolute path."""
    return files.with_absolute_path(value) if name in FILES and not value.startswith("{") else value


def read(flags: Mapping[str, Any]) -> EvaluateFlags:
    """Split flags into the command's own options and the settings that it shares with `train`."""
    options = build(EvaluateOptions, {name: value for name, value in flags.items() if name in OWN})
    shared = {name: value for name, value in flags.items() if name not in OWN and value != "auto"}
    return EvaluateFlags(options, shared)


def split_files(model: str) -> list[Path]:
    """Return the paths in `a.csv,b.csv` if plug-ins evaluate files with these endings; empty for a model."""
    paths = [Path(part.strip()).expanduser() for part in model.split(",") if part.strip()]
    return paths if all(path.suffix.lower() in FILES_OF_PLUGINS for path in paths) else []


def evaluate(flags: Mapping[str, Any]) -> dict[str, float] | int:
    """Test the model, or evaluate the files, that `model=` names, and track the result.

    Returns the metrics, or the exit code if several processes were started.
    """
    options, shared = read(flags)
    if options.model == "none":
        raise UsageError(
            "say what to test: model=<checkpoint, run id, torchvision:<name>, timm:<name>, transformers:<hub id or "
            "folder>, or what docs/evaluation.md has besides>"
        )
    files_of_plugin = split_files(options.model)
    if files_of_plugin:
        if options.report != "none":
            raise UsageError(
                f"report={options.report}: a card is of a model that is tested here, not of {options.model}"
            )
        return FILES_OF_PLUGINS[files_of_plugin[0].suffix.lower()](options, shared, files_of_plugin)
    if not in_torchrun():
        print(f"testing {redaction.public_value(options.model)}: loading PyTorch", flush=True)
    from biasbed.compute.device import choose_device, run_torchrun
    from biasbed.evaluation.evaluate_model import evaluate_model, load, plan

    config = build(Config, {name: shared[name] for name in ("device", "nproc") if name in shared})
    _, count = choose_device(config.device, config.nproc)
    if count > 1 and not in_torchrun():
        # Refuse a wrong command here, once, rather than in every process.
        plan(options, shared, load(options, shared))
        return run_torchrun(count, ["evaluate", *as_flags(flags)])
    return evaluate_model(options, shared)
