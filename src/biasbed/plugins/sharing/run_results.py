"""Results of one tracked run at the step of its best weights, with intervals, seeds and provenance, to export.

Answers: Which numbers of a run are exported, and of which epoch?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbed import __version__, limits, measures, record
from biasbed.errors import UsageError
from biasbed.evaluation import prediction_files, report
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.intervals import RESAMPLES, count_distinct
from biasbed.record import MetricName
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import artifact_bytes, fetch_protocol, guarded, writer

# Measures that may lie outside of 0 to 1 although they are shown in percent.
UNBOUNDED = ("gap_r", *measures.RATIOS)
# Name in exported files -> tag with the provenance of a run.
PROVENANCE = {
    "study": record.STUDY,
    "suite": record.SUITE,
    "kind": record.KIND,
    "row": record.ROW,
    "algorithm": record.ALGORITHM,
    "cell": record.CELL,
    "seed": record.SEED,
    "test_domains": record.TEST_DOMAINS,
    "training_data": record.TRAINING_DATA,
    "init": record.INIT,
    "normalisation": record.NORMALISATION,
    "parameters": record.PARAMETERS,
    "weights": record.WEIGHTS,
    "protocol": record.PROTOCOL_HASH,
    "tested": record.TESTED,
    "config_hash": record.CONFIG_HASH,
    "run_key": record.RUN_KEY,
    "data_fingerprint": record.DATA_FINGERPRINT,
    "code_hash": record.CODE_HASH,
    "git_commit": record.GIT_COMMIT,
    "git_dirty": record.GIT_DIRTY,
    "source": record.SOURCE,
    "oracle": record.ORACLE,
    "origin_run": record.ORIGIN_RUN,
}


@dataclass(frozen=True)
class SeedSpread:
    """Mean and standard deviation of a value over the runs of one study that differ in their seed alone."""

    runs: int
    mean: float
    deviation: float  # n - 1; NaN for one run


@dataclass(frozen=True)
class Result:
    """Value of one measure on one set, or on a group of its images."""

    metric: MetricName
    value: float
    unit: str
    higher_is_better: bool
    images: int | None = None  # None if unknown
    low: float = math.nan  # 95 % interval over images; NaN without one
    high: float = math.nan
    is_bootstrapped: bool = False  # the interval; else it is Wilson's
    seeds: SeedSpread | None = None  # None if there is one run

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)

    @property
    def is_proportion(self) -> bool:
        """True for a fraction that can't lie outside of 0 to 1."""
        is_inside = 0 <= self.value <= 1 and self.metric.measure not in UNBOUNDED
        return self.unit == measures.FRACTION and is_inside

    @property
    def interval_method(self) -> str:
        """Name of the interval's method."""
        return f"bootstrap over images, {RESAMPLES} resamples" if self.is_bootstrapped else "Wilson"


@dataclass(frozen=True)
class RunResults:
    """Everything that is exported of a run besides its weights."""

    id: str
    name: str
    ended: int  # milliseconds since 1970
    step: int
    provenance: Mapping[str, str]
    settings: Mapping[str, str]  # resolved config by dotted name
    protocol: record.Protocol
    results: tuple[Result, ...]
    decisions: Mapping[str, Decisions] = field(default_factory=dict)  # set -> decisions of that step

    @property
    def row(self) -> str:
        """Name of the run's row in tables."""
        return self.provenance.get("row") or self.provenance.get("algorithm", "") or self.name

    @property
    def suite(self) -> str:
        return self.protocol.suite

    @property
    def limit_note(self) -> str:
        """Note beside every number of a run on a part of the images; empty for a run on all of them."""
        return limits.note(self.protocol.limit)

    def set_record(self, name: str | None) -> record.SetRecord | None:
        """Return what the protocol says of a set; None for a value that is derived of several."""
        return next((member for member in self.protocol.sets if member.name == name), None)

    def describe_provenance(self) -> dict[str, Any]:
        """Return the provenance as JSON: what made these numbers, and on which code, data and settings."""
        facts = {
            "biasbed": __version__,
            "run": self.id,
            "step": self.step,
            "step_unit": self.protocol.step_unit,
            "step_chosen_by": self.protocol.monitor,
            **self.provenance,
        }
        if self.limit_note:
            facts |= {"limit": self.protocol.limit, "note": self.limit_note}
        return {**facts, "settings": dict(self.settings)}


def read_run(uri: str, run: Any, cache: dict[str, Histories] | None = None) -> RunResults:
    """Return a finished run's test results at its best step. Raises UsageError if it has no results.

    cache: run id -> histories that were read already, as the runs of one study read each other's for their spread.
    """
    cache = {} if cache is None else cache
    where = f"run {run.info.run_id} ({run.info.run_name})"
    if run.info.status != "FINISHED":
        raise UsageError(f"{where} has not finished ({run.info.status}): only its zip file can be exported")
    protocol = fetch_protocol(uri, run.info.run_id)
    histories = _read_histories(uri, run, cache)
    step = _find_step(histories, protocol)
    decisions = _read_decisions(uri, run.info.run_id, protocol, step)
    spreads = _read_spreads(uri, run, protocol, cache)
    results = tuple(_test_results(histories, protocol, step, decisions, spreads))
    if not results:
        raise UsageError(f"{where} has no test results at step {step}")
    tags = run.data.tags
    provenance = {name: tags[tag] for name, tag in PROVENANCE.items() if tags.get(tag)}
    return RunResults(
        id=tags.get(record.ORIGIN_RUN, run.info.run_id),
        name=run.info.run_name or "",
        ended=run.info.end_time or 0,
        step=step,
        provenance=provenance,
        settings=_public_settings(run.data.params),
        protocol=protocol,
        results=results,
        decisions=decisions,
    )


PLACES = ("data_dir", "prepared_dir", "output_dir", "experiment", "tracking")  # settings about one machine


def _public_settings(params: Mapping[str, str]) -> dict[str, str]:
    """Return the resolved config without places of the machine; of a file's path only its name is kept."""
    settings: dict[str, str] = {}
    for key, value in params.items():
        name = key.removeprefix(record.CONFIG_PARAMETER)
        if name != key and name not in PLACES:
            values = value.split(",")
            settings[name] = ",".join(v.rpartition("/")[2] if v.startswith(("/", "~")) else v for v in values)
    return settings


Histories = Mapping[str, Mapping[int, float]]  # metric -> step -> value


def _read_histories(uri: str, run: Any, cache: dict[str, Histories]) -> Histories:
    """Return the test metrics and the `best/` metrics, from the cache or the server; of a step the last value."""
    if run.info.run_id in cache:
        return cache[run.info.run_id]
    client = writer(uri)
    histories: dict[str, dict[int, float]] = {}
    with guarded(uri):
        for name in run.data.metrics:
            if name.startswith((f"{record.BEST}/", "test/")):
                logged = client.get_metric_history(run.info.run_id, name)
                rows = sorted((row.step, row.timestamp, row.value) for row in logged)
                histories[name] = {step: value for step, _, value in rows}
    cache[run.info.run_id] = histories
    return histories


def _find_step(histories: Histories, protocol: record.Protocol) -> int:
    """Return the step of the run's best weights: the last step of a `best/` metric, else of any test metric."""
    best = [max(histories[short]) for short in protocol.best if short in histories]
    if best:
        return max(best)
    return max((max(history) for history in histories.values() if history), default=0)


def _read_decisions(uri: str, run_id: str, protocol: record.Protocol, step: int) -> dict[str, Decisions]:
    """Return set -> the stored decisions of a step, if there are any. Raises UsageError for a damaged file."""
    decisions: dict[str, Decisions] = {}
    for member in protocol.sets:
        for epoch in record.PREDICTION_EPOCHS:
            name = record.predictions_file(member.name, epoch)
            content = artifact_bytes(uri, run_id, name)
            if content is None:
                continue
            stored = prediction_files.read_predictions(Path(name), content)
            if stored.epoch in (step, None):
                decisions[member.name] = stored
                break
    return decisions


def _read_spreads(uri: str, run: Any, protocol: record.Protocol, cache: dict[str, Histories]) -> dict[str, SeedSpread]:
    """Return test metric -> its spread over the finished runs of the same study, settings and held-out domains.

    Each run counts at its own best step; of a seed one run counts. Empty if there is one seed.
    """
    tags = run.data.tags
    if not tags.get(record.CONFIG_HASH) or not tags.get(record.STUDY) or tags.get(record.KIND) != "train":
        return {}
    alike = find_runs(uri, config_hash=tags[record.CONFIG_HASH], study=tags[record.STUDY], kind="train")
    by_seed: dict[str, Any] = {tags.get(record.SEED, ""): run}
    for sibling in alike:
        is_same = sibling.data.tags.get(record.TEST_DOMAINS) == tags.get(record.TEST_DOMAINS)
        if sibling.info.status == "FINISHED" and is_same:
            by_seed.setdefault(sibling.data.tags.get(record.SEED, ""), sibling)
    if len(by_seed) < 2:
        return {}
    values_by_metric: dict[str, list[float]] = {}
    for sibling in by_seed.values():
        histories = _read_histories(uri, sibling, cache)
        step = _find_step(histories, protocol)
        for name, history in histories.items():
            if step in history:
                values_by_metric.setdefault(name, []).append(history[step])
    spreads = {}
    for name, values in values_by_metric.items():
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        spreads[name] = SeedSpread(len(values), statistics.fmean(values), deviation)
    return spreads


def _test_results(
    histories: Histories,
    protocol: record.Protocol,
    step: int,
    decisions: Mapping[str, Decisions],
    spreads: Mapping[str, SeedSpread],
) -> Iterator[Result]:
    """Yield the finite test values of a step: the sets in the protocol's order, headlines first."""
    intervals = {name: report.metric_intervals(answers) for name, answers in decisions.items()}
    counts = {name: report.count_groups(answers) for name, answers in decisions.items()}
    bootstrapped = []  # sets on which some photograph has several decisions
    for name, answers in decisions.items():
        if count_distinct(answers.photograph_of_trial) < len(answers.label):
            bootstrapped.append(name)
    for metric in _sort_metrics(histories, protocol):
        value = histories[str(metric)].get(step, math.nan)
        if not record.is_finite(value):
            continue
        described = measures.describe_metric(protocol, str(metric))
        images, low, high = _count_images(metric, protocol, counts), math.nan, math.nan
        if metric.group is None and metric.measure in intervals.get(str(metric.set), {}):
            low, high, images = intervals[str(metric.set)][metric.measure]
        if not low <= value <= high:  # the stored decisions are others
            low = high = math.nan
        yield Result(
            metric=metric,
            value=value,
            unit=described.unit,
            higher_is_better=described.higher_is_better,
            images=images,
            low=low,
            high=high,
            is_bootstrapped=str(metric.set) in bootstrapped,
            seeds=spreads.get(str(metric)),
        )


def _sort_metrics(histories: Histories, protocol: record.Protocol) -> list[MetricName]:
    """Return the test metrics: by set, the headline before other measures, groups last."""
    names = [column.name for column in (*protocol.sets, *protocol.columns)]
    headlines = {(column.name, column.headline) for column in protocol.columns}
    keyed = []
    for name in histories:
        metric = record.parse_metric(name)
        if metric is not None and metric.phase == "test" and metric.set is not None:
            position = names.index(metric.set) if metric.set in names else len(names)
            is_headline = (metric.set, metric.measure) in headlines
            keyed.append((position, metric.group is not None, not is_headline, str(metric), metric))
    return [metric for *_, metric in sorted(keyed)]


def _count_images(metric: MetricName, protocol: record.Protocol, counts: Mapping[str, Mapping[str, int]]) -> int | None:
    """Return the number of images behind a value; None if it is unknown."""
    member = next((member for member in protocol.sets if member.name == metric.set), None)
    if member is None:
        return None
    if metric.group is None:
        return member.images or None
    counted = {**member.groups, **member.conditions, **member.labels, **counts.get(member.name, {})}
    return counted.get(metric.group)


def headline_results(results: RunResults) -> list[Result]:
    """Return the results on whole sets that are columns of the run's table, and shape bias."""
    headlines = {(column.name, column.headline) for column in results.protocol.columns}
    of_columns = []
    for result in results.results:
        metric = result.metric
        is_headline = (str(metric.set), metric.measure) in headlines or metric.measure == record.SHAPE_BIAS
        if is_headline and metric.group is None:
            of_columns.append(result)
    return of_columns
