"""Several runs planned together, as a YAML of `sweeps/` says; so far the one behind `mlflow run .`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.processes import Interrupted, die_with_parent, interruptible
from biasbed.server import experiment_id, guarded, resolve_uri, writer
from biasbed.settings import setting
from biasbed.tracking import take_run_id

SWEEPS = Path(__file__).resolve().parent / "sweeps"


@dataclass(frozen=True)
class MainOptions:
    """The whole story on the embedded suite."""

    seeds: tuple[int, ...] = setting((0, 1), "seeds of each method")
    workers: int | Literal["auto"] = setting("auto", "trainings at a time (auto: 1 with a GPU, else one per core)")
    output_dir: str = setting("auto", "folder of runs and of the report")


def main_study(options: MainOptions) -> None:
    """Train every method of `sweeps/main.yaml` with every seed, under one parent run, then analyse them.

    Runs that are finished already are left alone, unfinished ones continued. Failure names the runs that failed.
    """
    study, uri = load_study("main"), resolve_uri()
    with guarded(uri):
        parent = _parent_run(uri, study)
    status = "FAILED"
    try:
        with interruptible():
            failed = _train_all(uri, parent, study, options)
        if failed:
            raise Failure(f"these runs failed: {'; '.join(failed)}. The same command continues them and does the rest")
        status = "FINISHED"
    except (Interrupted, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        with guarded(uri):
            _finish(uri, parent, status)
    from biasbed.analysis import AnalyzeOptions, analyze

    analyze(AnalyzeOptions(suite=study["suite"], study=study["study"], output_dir=_report_folder(options)))


def _report_folder(options: MainOptions) -> str:
    return "auto" if options.output_dir == "auto" else str(Path(options.output_dir) / "report")


def _train_all(uri: str, parent: str, study: Mapping[str, Any], options: MainOptions) -> list[str]:
    """Train every combination, several at a time; the names of those that failed."""
    workers = _workers(options.workers)
    runs = [(algorithm, seed) for algorithm in study["algorithms"] for seed in options.seeds]
    print(f"{len(runs)} trainings, {workers} at a time", file=sys.stderr, flush=True)

    running: list[subprocess.Popen[str]] = []

    def train(run: tuple[str, int]) -> int:
        process = _start(uri, parent, study, *run, options.output_dir, threads=max(1, (os.cpu_count() or 1) // workers))
        running.append(process)
        return _relay(process, f"[{run[0]}-seed{run[1]}]")

    pool = ThreadPoolExecutor(workers)
    try:
        codes = list(pool.map(train, runs))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        raise
    return [f"{algorithm} seed {seed}" for (algorithm, seed), code in zip(runs, codes, strict=True) if code]


def _workers(wanted: int | str) -> int:
    if wanted != "auto":
        return int(wanted)
    import torch

    return 1 if torch.cuda.is_available() else max(1, os.cpu_count() or 1)


def load_study(name: str) -> dict[str, Any]:
    """A study's table: suite, study, algorithms and settings that all its runs share."""
    path = SWEEPS / f"{name}.yaml"
    table: dict[str, Any] = yaml.safe_load(path.read_text())
    missing = {"suite", "study", "algorithms"} - set(table)
    if missing:
        raise UsageError(f"{path} lacks {', '.join(sorted(missing))}")
    return table


def _start(
    uri: str, parent: str, study: Mapping[str, Any], algorithm: str, seed: int, output_dir: str, threads: int
) -> subprocess.Popen[str]:
    """One training in a process of its own that ends with this one."""
    settings = {**study.get("settings", {}), "suite": study["suite"], "study": study["study"]}
    settings |= {"algorithm": algorithm, "seed": seed, "resume": "once", "output_dir": output_dir}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "BIASBED_PARENT_RUN": parent}
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    return subprocess.Popen(
        [sys.executable, "-m", "biasbed", "train", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    )


def _relay(process: subprocess.Popen[str], name: str) -> int:
    """Show a training's lines with its name before them; its exit code."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{name} {line}", end="", file=sys.stderr, flush=True)
    return process.wait()


def _parent_run(uri: str, study: Mapping[str, Any]) -> str:
    """The run that the trainings are nested under: that of `mlflow run`, or a new one."""
    client = writer(uri)
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
    writer(uri).set_terminated(parent, status)
