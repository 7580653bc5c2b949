"""Several runs planned together, as a YAML of `sweeps/` says; so far the one behind `mlflow run .`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.server import experiment_id, guarded, resolve_uri
from biasbed.settings import setting
from biasbed.tracking import take_run_id

SWEEPS = Path(__file__).resolve().parent / "sweeps"


@dataclass(frozen=True)
class MainOptions:
    """The whole story on the embedded suite."""

    seeds: tuple[int, ...] = setting((0, 1), "seeds of each method")
    output_dir: str = setting("auto", "folder of runs and of the report")


def main_study(options: MainOptions) -> None:
    """Train every method of `sweeps/main.yaml` with every seed, under one parent run, then analyse them.

    Runs that are finished already are left alone, unfinished ones continued.
    """
    study = load_study("main")
    uri = resolve_uri()
    with guarded(uri):
        parent = _parent_run(uri, study)
    failed = []
    runs = [(algorithm, seed) for algorithm in study["algorithms"] for seed in options.seeds]
    try:
        for number, (algorithm, seed) in enumerate(runs, start=1):
            print(f"[{number}/{len(runs)}] {algorithm}, seed {seed}", file=sys.stderr, flush=True)
            if _train(uri, parent, study, algorithm, seed, options.output_dir):
                failed.append(f"{algorithm} seed {seed}")
    except BaseException:
        _finish(uri, parent, "FAILED")
        raise
    _finish(uri, parent, "FAILED" if failed else "FINISHED")
    if failed:
        raise Failure(f"these runs failed: {'; '.join(failed)}. The same command continues them and does the rest")
    from biasbed.analysis import AnalyzeOptions, analyze

    analyze(AnalyzeOptions(suite=study["suite"], study=study["study"], output_dir=options.output_dir))


def load_study(name: str) -> dict[str, Any]:
    """A study's table: suite, study, algorithms and settings that all its runs share."""
    path = SWEEPS / f"{name}.yaml"
    table: dict[str, Any] = yaml.safe_load(path.read_text())
    missing = {"suite", "study", "algorithms"} - set(table)
    if missing:
        raise UsageError(f"{path} lacks {', '.join(sorted(missing))}")
    return table


def _train(uri: str, parent: str, study: Mapping[str, Any], algorithm: str, seed: int, output_dir: str) -> int:
    """The exit code of one training, in a process of its own."""
    settings = {**study.get("settings", {}), "suite": study["suite"], "study": study["study"]}
    settings |= {"algorithm": algorithm, "seed": seed, "resume": "once", "output_dir": output_dir}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "BIASBED_PARENT_RUN": parent}
    return subprocess.run([sys.executable, "-m", "biasbed", "train", *flags], env=environment, check=False).returncode


def _parent_run(uri: str, study: Mapping[str, Any]) -> str:
    """The run that the trainings are nested under: that of `mlflow run`, or a new one."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    tags = {record.KIND: "study", record.STUDY: study["study"], record.SUITE: study["suite"]}
    given = take_run_id()
    if given is None:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or experiment_id(client, uri, f"biasbed-{study['suite']}")
        return str(
            client.create_run(experiment, tags={**tags, "mlflow.runName": f"study-{study['study']}"}).info.run_id
        )
    for name, value in tags.items():
        client.set_tag(given, name, value)
    return given


def _finish(uri: str, parent: str, status: str) -> None:
    from mlflow import MlflowClient

    with guarded(uri):
        MlflowClient(uri).set_terminated(parent, status)
