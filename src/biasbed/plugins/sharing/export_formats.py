"""Formats of `export`: `every_eval_ever` writes results, `huggingface` a model's folder for a hub. Uploads nothing."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.errors import UsageError, listed
from biasbed.options import ExportOptions
from biasbed.settings import setting
from biasbed.system import commands
from biasbed.system.files import scratch_folder, write_whole
from biasbed.tracking.export_formats import ExportFormat
from biasbed.tracking.server import download_checkpoint, resolve_uri

if TYPE_CHECKING:
    from biasbed.plugins.sharing.model_folder import ModelFolder
    from biasbed.plugins.sharing.run_results import RunResults

TRAININGS = ("train", "trial", "reproduction")  # kinds of runs with weights
MOST_NAMED = 5  # runs in a message
AUTO_ORGANISATION = "local"  # of models that have no name on a hub
MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class FolderOptions(ExportOptions):
    """Settings of formats that are folders."""

    model_id: str = setting("auto", "name on a hub, <organisation>/<model> (auto: local/<suite>-<row>)")

    def __post_init__(self) -> None:
        if self.file == "none" or self.file.endswith(".zip"):
            raise UsageError(f"file={self.file}: format={self.format} is a folder: give its name")
        if self.model_id != "auto" and not MODEL_ID.fullmatch(self.model_id):
            raise UsageError(f"model_id={self.model_id}: should be <organisation>/<model>")
        super().__post_init__()


@dataclass(frozen=True)
class ResultsOptions(FolderOptions):
    """Settings of the format every_eval_ever."""

    samples: bool = setting(True, "every_eval_ever: also the decision on each image, by its id")


@dataclass(frozen=True)
class ModelOptions(FolderOptions):
    """Settings of the format huggingface."""

    algorithm: str = setting("auto", "huggingface: the run's method, if it is your own: <file>.py:<Class>")


class EveryEvalEver(ExportFormat):
    """Results of every finished run in the schema of Every Eval Ever."""

    Settings = ResultsOptions

    def write(self) -> Path:
        return _export_results(self.options)


class HubFolder(ExportFormat):
    """One training as a folder for a hub: weights, configuration, card, results and provenance."""

    Settings = ModelOptions

    def write(self) -> Path:
        return _export_model(self.options)


def _export_results(options: ResultsOptions) -> Path:
    """Write the results of every finished run with results, for Every Eval Ever."""
    from biasbed.plugins.sharing import every_eval_ever

    folder = _choose_folder(options.file)
    runs = _read_results(options)
    rows = {run.row for run in runs}
    if options.model_id != "auto" and len(rows) > 1:
        raise UsageError(f"model_id={options.model_id} names one model, and there are {len(rows)} rows: give run=")
    with _new_folder(folder) as temporary:
        for run in runs:
            model_id = _name_on_hub(options, run)
            organisation = model_id.partition("/")[0]
            every_eval_ever.write_run(temporary, run, model_id, organisation, options.samples)
    print(f"{len(runs)} runs in {folder / every_eval_ever.ROOT}, in the schema of Every Eval Ever", flush=True)
    print(f"to check them: cd {shlex.quote(str(folder))} && every_eval_ever validate 'data/*/*/*/*'", flush=True)
    return folder


def _read_results(options: ExportOptions) -> list[RunResults]:
    """Return the results of the runs that are asked for. Of a study, runs without results or unfinished are left out.

    Raises UsageError if none is left.
    """
    from biasbed.plugins.sharing.run_results import read_run
    from biasbed.tracking.transfer import select_runs

    uri = resolve_uri()
    results: list[RunResults] = []
    histories: dict[str, Any] = {}
    for run in select_runs(uri, options):
        has_results = run.data.tags.get(record.KIND) in ("train", "trial", "evaluate", "published", "reproduction")
        is_finished = run.info.status == "FINISHED"
        if options.run != "none" or (has_results and is_finished):
            results.append(read_run(uri, run, histories))
        elif has_results:
            print(f"left out, as it has not finished: {run.info.run_name} ({run.info.run_id})")
    if not results:
        raise UsageError(f"study={options.study}: no finished run with results")
    return results


def _export_model(options: ModelOptions) -> Path:
    """Write one training as a folder for a hub: weights, configuration, card, results and provenance."""
    from biasbed.plugins.sharing import model_card, model_folder
    from biasbed.plugins.sharing.run_results import read_run
    from biasbed.tracking.transfer import select_runs

    folder = _choose_folder(options.file)
    uri = resolve_uri()
    run = _choose_training(select_runs(uri, options))
    results = read_run(uri, run)
    name = _name_on_hub(options, results)
    with _new_folder(folder) as temporary, scratch_folder() as download:
        best = download_checkpoint(run.info.run_id, download)
        model = model_folder.write_model(best, temporary, f"run {run.info.run_id}", options.algorithm)
        model_card.write_card(temporary, results, model, name)
        _write_side_file(temporary, results, model)
    print(f"{name} in {folder}, in {model.layout}'s layout", flush=True)
    for remark in filter(None, (*model.remarks, results.limit_note)):
        print(f"note: {remark}")
    loaded = f"timm:local-dir:{folder}" if model.layout == model_folder.TIMM else str(folder)
    test = {"model": loaded, "suite": results.suite}
    print(f"to test it: {commands.format_command('evaluate', test)}", flush=True)
    return folder


def _choose_training(runs: Sequence[Any]) -> Any:
    """Return the one training among the runs. Raises UsageError if there is none, or more than one."""
    trainings = [run for run in runs if run.data.tags.get(record.KIND, "") in TRAININGS]
    if len(trainings) != 1:
        named = listed([f"{run.info.run_id} ({run.info.run_name})" for run in trainings or runs], MOST_NAMED)
        raise UsageError(
            f"format=huggingface takes one training, as only trainings have weights and a folder of a hub holds one "
            f"model; {len(trainings)} of these runs are trainings: give run=<id>: {named}"
        )
    return trainings[0]


def _write_side_file(folder: Path, results: RunResults, model: ModelFolder) -> None:
    """Write what the card has no place for: provenance, settings, protocol, every value with its interval."""
    from biasbed.plugins.sharing.model_card import SIDE_FILE

    values = []
    for result in results.results:
        fields: dict[str, Any] = {"metric": str(result.metric), "value": result.value, "unit": result.unit}
        fields["images"] = result.images
        if result.has_interval:
            fields["interval_95"] = [result.low, result.high]
        if result.seeds is not None:
            spread = asdict(result.seeds)
            fields["seeds"] = {key: value for key, value in spread.items() if not math.isnan(value)}
        values.append(fields)
    content = {
        "format": "biasbed-export",
        "version": 1,
        "provenance": results.describe_provenance(),
        "model": asdict(model),
        "values": values,
        "protocol": json.loads(results.protocol.to_json()),
    }
    write_whole(folder / SIDE_FILE, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _name_on_hub(options: FolderOptions, results: RunResults) -> str:
    """Return the name on a hub, `<organisation>/<model>`: the option, by default `local/<suite>-<row>`."""
    if options.model_id != "auto":
        return options.model_id
    parts = [results.suite, results.row, results.provenance.get("cell", "")]
    return f"{AUTO_ORGANISATION}/{'-'.join(record.slug(part) for part in parts if part)}"


def _choose_folder(file: str) -> Path:
    """Return the folder to write, as an absolute path. Raises UsageError if it is there already and not empty."""
    folder = Path(file).expanduser().absolute()
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not is_empty:
        raise UsageError(f"file={folder} is there already: give another name, or remove it")
    return folder


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which takes the name of `folder` at the end of the block; an error leaves nothing."""
    temporary = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
