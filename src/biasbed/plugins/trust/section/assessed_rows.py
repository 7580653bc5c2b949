"""Trust beyond accuracy, from stored scores: calibration, conformal sets and detection, of every row on every set.

Every run calibrates with one half of its validation images (or of the set that `calibrate` names), at the step that the
selection rule chose. A row's value is the mean over its runs. Its interval is about other images of the kind for these
very weights: resamples draw images, the same for all runs of all rows, so that differences are paired. `std` is over
the runs, and so is a second interval of each difference (Welch's t).

A temperature at one of its limits is a bound and no estimate: it is left out of the mean temperature and counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Collection, Run, runs_by_row
from biasbed.analysis.selection.select import steps_of
from biasbed.analysis.statistics import per_set
from biasbed.errors import Failure
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.trust import metrics
from biasbed.plugins.trust.assessment import SCALED, Assessment, Calibrated, ResampledValue
from biasbed.plugins.trust.options import trust_options
from biasbed.settings import refuse_unknown
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.predictions import DecisionReader

REFERENCE = "erm"  # if no control is named
TEMPERATURE = "temperature"
DRAWS = 20_000_000  # of images for one run on one set: larger sets have fewer resamples, of which they need fewer
FEWEST = 200  # resamples
COLUMNS = (
    *("dataset", "cell", "algorithm", "measure", "mean", "std", "low", "high", "num_runs", "num_at_limit", "images"),
    *("reference", "difference", "difference_low", "difference_high", "runs_low", "runs_high"),
)
GROUP_COLUMNS = ("dataset", "cell", "algorithm", "group", "measure", "mean", "std", "num_runs", "images")


class LimitedTemperature(NamedTuple):
    """Run whose temperature is at a limit."""

    algorithm: str
    cell: str
    seed: str
    temperature: float


@dataclass(frozen=True)
class TrustTables:
    """Trust measures of all rows whose scores are stored. Fractions are in percent."""

    table: pd.DataFrame  # `COLUMNS`
    groups: pd.DataFrame  # `GROUP_COLUMNS`
    calibrating: tuple[str, ...]  # sets, half of whose images calibrate
    left_out: tuple[str, ...]  # what has no value, and why
    at_limit: tuple[LimitedTemperature, ...] = ()

    @property
    def applies(self) -> bool:
        """True if some run was to store scores."""
        return bool(len(self.table) or self.left_out)


def is_stored(run: Run) -> bool:
    """Return True if the run was to store the scores of all classes."""
    return run.config.get("scores.keep", "no") != "no"


def assess_rows(
    decisions: DecisionReader,
    collection: Collection,
    sets: Sequence[Column],
    selected: pd.DataFrame,
    options: AnalyzeOptions,
) -> TrustTables:
    """Return the trust measures of every row on every set; empty for a search, whose trials are no rows.

    selected: steps that the selection rule chose (`select.SELECTED_COLUMNS`).
    """
    runs = () if collection.is_search else tuple(filter(is_stored, collection.unpublished))
    _refuse_unknown_calibration(runs, collection, trust_options(options).calibrate)
    reader = _ScoreReader(decisions, collection, steps_of(selected), options)
    cells = list(dict.fromkeys(column.cell for column in sets))
    lines: list[dict[str, Any]] = []
    group_lines: list[dict[str, Any]] = []
    with ProgressBar(len(runs) * (len(sets) + 1) if runs else 0, "file of scores") as progress:
        for cell in cells if runs else ():
            rows = runs_by_row(runs, cell, cells)
            for dataset, column in _assessed_sets(reader, rows, [column for column in sets if column.cell == cell]):
                scored = _measure_rows(reader, rows, dataset, column, progress)
                about = {"dataset": dataset, "cell": cell}
                lines += _measure_lines(scored, about, options)
                group_lines += _group_lines(scored, about)
    table = pd.DataFrame(lines, columns=list(COLUMNS))
    groups = pd.DataFrame(group_lines, columns=list(GROUP_COLUMNS))
    return TrustTables(table, groups, tuple(reader.calibrating), tuple(reader.reasons), tuple(reader.at_limit))


def _refuse_unknown_calibration(runs: Sequence[Run], collection: Collection, calibrate: str) -> None:
    """Raise UsageError if `calibrate` names no set of the runs that store scores."""
    names: dict[str, None] = {}
    for run in runs:
        protocol = collection.protocol_of(run)
        names.update(dict.fromkeys([*protocol.validation_sets, *(member.name for member in protocol.sets)]))
    problem = "there is no such set" if runs else "no run stores scores (scores.keep=fp16 does)"
    refuse_unknown(calibrate, ["auto", *names], f"calibrate={calibrate}: {problem}")


class _AssessedSet(NamedTuple):
    """Set to assess, and the column whose selected steps are used."""

    name: str
    column: Column


def _assessed_sets(
    reader: _ScoreReader, rows: Mapping[str, Sequence[Run]], columns: Sequence[Column]
) -> Iterator[_AssessedSet]:
    """Yield the sets to assess: first calibrating sets without a column, then the sets of the columns."""
    of_cell = list(itertools.chain.from_iterable(rows.values()))
    own_images = set()
    names: dict[str, None] = {}
    for run in of_cell:
        own_images |= {member.name for member in reader.collection.protocol_of(run).sets}
        names.update(dict.fromkeys(reader.calibrating_sets(run)))
    tested = {column.set_record.name: column for column in columns if column.set_record.name in own_images}
    if tested:
        first = next(iter(tested.values()))
        for name in names:
            if name not in tested:
                yield _AssessedSet(name, first)
    for name, column in tested.items():
        yield _AssessedSet(name, column)


class _AssessedRun(NamedTuple):
    """Assessment of one run on one set, and the calibration that it rests on."""

    assessment: Assessment
    calibrated: Calibrated


@dataclass
class _ScoreReader:
    """Reader of scores, which calibrates each run once for each step."""

    decisions: DecisionReader
    collection: Collection
    steps: Mapping[tuple[str, str], int | None]
    options: AnalyzeOptions
    calibrating: dict[str, None] = field(default_factory=dict)  # sets that have calibrated
    reasons: dict[str, None] = field(default_factory=dict)  # what has no value, and why
    at_limit: dict[LimitedTemperature, None] = field(default_factory=dict)
    _calibrated: dict[tuple[str, int | None], Calibrated] = field(default_factory=dict)

    def calibrating_sets(self, run: Run) -> tuple[str, ...]:
        """Return the sets, half of whose images calibrate: those that are named, else those of validation."""
        for name in (trust_options(self.options).calibrate, run.config.get("scores.calibrate", "auto")):
            if name != "auto":
                return (name,)
        protocol = self.collection.protocol_of(run)
        domains = {tested.name: tested.domain for tested in protocol.sets}
        return tuple(name for name in protocol.validation_sets if domains.get(name) not in run.held_out)

    def assess(self, run: Run, dataset: str, column: Column) -> _AssessedRun:
        """Return the assessment of a run on a set, and its calibration. Raises Failure if there is none."""
        step = self.steps.get((run.id, column.name), -1)
        if step is not None and step < 0:
            raise Failure("its run has no value there")
        calibrated = self._calibrate(run, step)
        images = metrics.scored_images(self._read_scored(run, dataset, step))
        calibrates = dataset in self.calibrating_sets(run)
        assessment = None
        if images is not None:
            assessment = metrics.assess(images, calibrated, calibrates, trust_options(self.options).miss)
        if assessment is None:
            raise Failure("its classes are not those of the calibrating images")
        if calibrated.is_at_limit:
            self.at_limit[LimitedTemperature(run.algorithm, column.cell, run.seed, calibrated.temperature)] = None
        return _AssessedRun(assessment, calibrated)

    def _read_scored(self, run: Run, dataset: str, step: int | None) -> Decisions:
        """Return the decisions on a set, with scores. Raises Failure if there are none."""
        decisions = self.decisions.decisions(run, dataset, step)
        if decisions.log_probability is None:
            raise Failure("no scores of all classes are stored (scores.keep=fp16 stores them)")
        return decisions

    def _calibrate(self, run: Run, step: int | None) -> Calibrated:
        """Return the calibration of a run at a step. Raises Failure if there are too few images, or no scores."""
        if (run.id, step) not in self._calibrated:
            names = self.calibrating_sets(run)
            if not names:
                raise Failure("no set calibrates: name one of the training distribution with calibrate=<set>")
            calibrated = metrics.calibrate(self._read_calibrating(run, names, step))
            if calibrated is None:
                raise Failure(f"it can't be calibrated on {', '.join(names)}: they have too few images")
            self._calibrated[run.id, step] = calibrated
            self.calibrating.update(dict.fromkeys(names))
        return self._calibrated[run.id, step]

    def _read_calibrating(self, run: Run, names: Sequence[str], step: int | None) -> list[Decisions]:
        """Return the decisions on the calibrating sets. A run that holds out domains was not validated on theirs."""
        decided, failures = [], []
        for name in names:
            try:
                decided.append(self._read_scored(run, name, step))
            except Failure as failure:
                failures.append(f"it can't be calibrated on {name}: {failure}")
        if failures and not (run.held_out and decided):
            raise Failure(failures[0])
        return decided


@dataclass
class _MeasuredRow:
    """Trust measures of a row on a set, over its runs."""

    estimates: dict[str, list[ResampledValue]] = field(default_factory=dict)
    groups: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # (group, measure) -> values of runs
    images: int = 0
    group_images: dict[str, int] = field(default_factory=dict)
    temperatures: list[float] = field(default_factory=list)  # without those at a limit
    num_at_limit: int = 0
    calibrates: bool = False


def _measure_rows(
    reader: _ScoreReader, rows: Mapping[str, Sequence[Run]], dataset: str, column: Column, progress: ProgressBar
) -> dict[str, _MeasuredRow]:
    """Return the measures of each row on a set. Adds reasons to the reader for runs without any."""
    scored: dict[str, _MeasuredRow] = {}
    for name, runs in rows.items():
        for run in runs:
            progress.tick()
            try:
                assessment, calibrated = reader.assess(run, dataset, column)
            except Failure as failure:
                reader.reasons[f"{dataset}, {name}: {failure}"] = None
                continue
            row = scored.setdefault(name, _MeasuredRow())
            row.images = len(assessment.images)
            row.num_at_limit += calibrated.is_at_limit
            row.calibrates |= dataset in reader.calibrating_sets(run)
            if not calibrated.is_at_limit:
                row.temperatures.append(calibrated.temperature)
            number = max(FEWEST, min(reader.options.bootstrap, DRAWS // row.images))
            for measure, estimate in assessment.estimates(number).items():
                row.estimates.setdefault(measure, []).append(estimate)
            for group, values in assessment.values_by_group().items():
                row.group_images[group] = int(values.pop("images"))
                for measure, value in values.items():
                    row.groups.setdefault((group, measure), []).append(value)
    return scored


def _measure_lines(
    scored: Mapping[str, _MeasuredRow], about: Mapping[str, str], options: AnalyzeOptions
) -> Iterator[dict[str, Any]]:
    """Yield the lines of `COLUMNS` of one set."""
    reference = options.control_name or REFERENCE
    for name, row in scored.items():
        named = {**about, "algorithm": name, "images": row.images}
        if row.calibrates:
            spread = {**_mean_and_std(row.temperatures), "num_runs": len(row.temperatures)}
            yield {**named, "measure": TEMPERATURE, **spread, "num_at_limit": row.num_at_limit, "reference": ""}
        for measure, estimates in row.estimates.items():
            scale = measures.scale(measures.find_measure(measure).unit)
            line: dict[str, Any] = {**named, "measure": measure, "num_runs": len(estimates), "reference": ""}
            line["num_at_limit"] = row.num_at_limit if measure.endswith(SCALED) else 0
            values = scale * _run_values(estimates)
            line |= _mean_and_std(values)
            resampled = _mean_resampled(estimates)
            line["low"], line["high"] = _percentile_bounds(scale * resampled, options.alpha)
            compared = scored[reference].estimates.get(measure) if reference in scored else None
            if compared and name != reference and row.images == scored[reference].images:
                line["reference"] = reference
                others = scale * _run_values(compared)
                line["difference"] = line["mean"] - float(others.mean())
                differences = scale * (resampled - _mean_resampled(compared))
                line["difference_low"], line["difference_high"] = _percentile_bounds(differences, options.alpha)
                line["runs_low"], line["runs_high"], _ = per_set.welch(
                    values.round(9), others.round(9), 1 - options.alpha
                )
            yield line


def _group_lines(scored: Mapping[str, _MeasuredRow], about: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of `GROUP_COLUMNS` of one set."""
    for name, row in scored.items():
        for (group, measure), values in row.groups.items():
            scale = measures.scale(measures.find_measure(measure.removeprefix("own_")).unit)
            named = {**about, "algorithm": name, "group": group, "measure": measure}
            counts = {"num_runs": len(values), "images": row.group_images[group]}
            yield {**named, **_mean_and_std([scale * value for value in values]), **counts}


def _run_values(estimates: Sequence[ResampledValue]) -> np.ndarray:
    """Return the value of each run."""
    return np.array([estimate.value for estimate in estimates])


def _mean_and_std(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    mean = float(np.mean(values)) if len(values) else math.nan
    std = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return {"mean": mean, "std": std}


def _mean_resampled(estimates: Sequence[ResampledValue]) -> np.ndarray:
    """Return the mean over runs [R] of each resample of images."""
    mean: np.ndarray = np.mean([estimate.resampled for estimate in estimates], axis=0)
    return mean


def _percentile_bounds(values: np.ndarray, alpha: float) -> tuple[float, float]:
    low, high = np.quantile(values, [alpha / 2, 1 - alpha / 2]).tolist()
    return low, high
