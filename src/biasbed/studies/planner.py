"""Planner of a study: hours that it takes, by measured steps, and the difference that its seeds can show.

Answers: What does a study cost on this machine, and what can it decide?
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.errors import Failure, UsageError
from biasbed.studies import ledger
from biasbed.studies.launchers import Launcher, StartedTraining, TrainCommand
from biasbed.studies.plan import PlannedRun, plan_trainings
from biasbed.system.terminal import format_duration
from biasbed.tracking.folder import evaluations

if TYPE_CHECKING:
    from biasbed.training.job import Job

STEPS = 3  # measured steps, after as many that warm up
TEST_IMAGES = 32  # of each set, in the measured training
# Passes of an image through a network. A measurement would take as long as a shorter study.
WORTH_MEASURING = 1_000_000
PATIENCE = 300.0  # seconds for the measurement
PAUSE = 0.1  # seconds between looks
QUICK = {"tracking": "offline", "keep": "none", "log_model": "false", "test_every": ""}


def describe_cost(
    runs: Sequence[PlannedRun], units: float, launcher: Launcher, workers: int, folder: Path
) -> str | None:
    """Return a text on how long the trainings take, estimated from a few real steps of the first one.

    units: epochs or steps of all trainings together. folder: of the study, for the short training. Returns None if a
    queue starts the trainings, if the study is short, or if the steps fail: the real training will report the error.
    """
    trained = [run for run in runs if run.kind == "train"]
    if launcher.detached or not trained:
        return None
    seconds = None
    with contextlib.suppress(Failure, UsageError):
        seconds = _measure(trained[0], units, launcher, workers, folder / "measured")
    if seconds is None:
        return None
    return (
        f"about {format_duration(units * seconds / workers)} by {STEPS} measured steps of {trained[0].row}, an estimate"
    )


def _measure(run: PlannedRun, units: float, launcher: Launcher, workers: int, folder: Path) -> float | None:
    """Return seconds per epoch or step, evaluation included. None for a short study, or if the training fails."""
    full, _ = plan_trainings(run.overrides, [run.seed], launcher)
    batch = full.config.batch_size
    if units * (batch if run.unit == "step" else _num_images(full)) < WORTH_MEASURING:
        return None
    overrides = {name: value for name, value in run.overrides.items() if name not in ("epochs", "steps")}
    overrides |= {**QUICK, "output_dir": str(folder), "limit": str(TEST_IMAGES)}
    if run.unit == "step":
        overrides |= {"steps": str(2 * STEPS), "evaluate_every": str(STEPS)}
    else:
        overrides |= {"epochs": "2", "evaluate_every": "1", "limit": str(max(TEST_IMAGES, STEPS * batch))}
    shutil.rmtree(folder, ignore_errors=True)
    try:
        part, (short,) = plan_trainings(overrides, [run.seed], launcher)
        records = evaluations(_train(short, launcher, workers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if len(records) < 2:
        return None
    metrics = records[-1]["metrics"]
    per_unit = float(metrics["time/epoch_seconds"]) / short.cadence
    if run.unit == "epoch":
        per_unit *= _num_images(full) / _num_images(part)
    all_images = sum(tested.images for tested in full.protocol.sets)
    measured_images = sum(tested.images for tested in part.protocol.sets)
    evaluation = float(metrics["time/evaluation_seconds"]) * all_images / measured_images
    return per_unit + evaluation / run.cadence


def _train(run: PlannedRun, launcher: Launcher, workers: int) -> list[dict[str, Any]]:
    """Train to the end with a slot's share of the machine, and return the journal."""
    folder = run.folder()
    folder.path.mkdir(parents=True)
    command = TrainCommand(
        name=run.name,
        overrides=run.overrides,
        environment=run.environment,
        log=ledger.log_file(folder),
        slot=0,
        slots=workers,
        processes=run.processes,
    )
    training = launcher.start(command)
    try:
        _wait(training)
    finally:
        training.kill()
    return folder.read_journal()


def _wait(training: StartedTraining) -> None:
    """Wait for the end, at most `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while training.poll() is None and time.monotonic() < deadline:
        time.sleep(PAUSE)


def _num_images(job: Job) -> int:
    return len(job.suite.source(job.suite.train_name))


# --- statistical power ------------------------------------------------------------------------------------------------


def describe_power(runs: Iterable[PlannedRun], suite: str, num_seeds: int) -> str | None:
    """Return a sentence on the difference that this number of seeds can show; None if there is nothing to compare.

    On one data set, rows are compared by the means over their seeds, whose spread is taken from published repeats.
    """
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.sections.published_rows import seed_deviation
    from biasbed.analysis.statistics import power

    rows: set[str] = set()
    rule = ""
    blocks: dict[str, set[str]] = {}
    for run in runs:
        if run.protocol is None:  # it is only tested
            continue
        rows.add(run.row)
        rule = run.protocol.default_selection
        for column in run.protocol.judged(run.test_domains):
            blocks.setdefault(column.block or column.name, set()).add(column.name)
    num_rows = len(rows)
    if num_rows < 2 or not blocks:
        return None
    alpha = AnalyzeOptions().alpha
    if len(blocks) > 1:
        fewest = power.reach(num_rows, 1, alpha).smallest_num_sets
        verdict = "" if len(blocks) >= fewest else ", so no difference over them can be shown"
        return f"tests of {num_rows} rows take at least {fewest} data sets, and these are {len(blocks)}{verdict}"
    if num_seeds < 2:
        return "one seed of each row shows no difference"
    ((name, columns),) = blocks.items()
    deviation = seed_deviation(suite, rule, columns)
    return _describe_seeds(name, deviation, num_seeds, num_rows)


def _describe_seeds(name: str, deviation: float | None, num_seeds: int, num_rows: int) -> str:
    """Return a sentence on the lead that the seeds show, and the number of seeds for the lead that analysis asks for.

    deviation: standard deviation between seeds on the data set `name`; None if unknown.
    """
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.statistics.planner import TARGET
    from biasbed.analysis.statistics.seed_power import MOST_SEEDS, detectable, seeds_for

    options, num_pairs = AnalyzeOptions(), num_rows * (num_rows - 1) // 2
    level = options.alpha / num_pairs
    together = f" ({num_pairs} pairs together)" if num_pairs > 1 else ""
    shown = f"{num_seeds} seeds of each row show, with {TARGET:.0%} probability{together}, a lead of"
    if deviation is None:
        return f"{shown} {detectable(1.0, num_seeds, level):.1f} standard deviations between seeds"
    needed = seeds_for(options.difference, 100 * deviation, level)
    return (
        f"{shown} {100 * detectable(deviation, num_seeds, level):.1f} points on {name} as a whole; a lead of "
        f"{options.difference:g} points takes {needed or f'more than {MOST_SEEDS}'} seeds, if they differ as published "
        f"repeats do, by {100 * deviation:.1f} points"
    )
