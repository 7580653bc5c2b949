"""Verdict of a reproduction for each metric: bit-equal, within the spread of seeds, or different.

Two trainings that differ only by their seed are two draws from one distribution, so their difference has the variance
2 sigma^2. With s estimated from n further seeds, |difference| / (s sqrt 2) has Student's t distribution with n - 1
degrees of freedom, for normally distributed scores. This is the two-sample t-test with one run per sample and an
external variance. p-values are corrected for the number of metrics (Holm 1979): a run that differs only by its seed is
called different with a probability of at most alpha over all metrics.

Answers: Is a training the one that was recorded?
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from biasbed import record
from biasbed.reproduce.original import Curves

BIT_EQUAL = "bit-equal"
WITHIN = "within the spread"
NO_SPREAD = "no spread to compare with"
MISSING = "missing"
DIFFERENT = "different"
NOT_EQUAL = "not bit-equal"  # verdict of metrics that don't decide
ORDER = (BIT_EQUAL, WITHIN, NO_SPREAD, MISSING, DIFFERENT)  # from best to worst
REPRODUCED = (BIT_EQUAL, WITHIN)
LEAST_SEEDS = 3  # smallest number of other seeds for a spread


@dataclass(frozen=True)
class Compared:
    """One metric of both trainings, with values of each training's own best epoch by the monitor."""

    metric: str
    decides: bool  # true of the monitor, headline measures of sets, and losses
    epochs: int  # number of evaluations of the first training
    equal_epochs: int  # number of them with identical values
    largest_difference: float  # over all evaluations; NaN if none can be compared
    recorded: float
    here: float
    verdict: str = NOT_EQUAL
    seeds: int = 0  # number of other seeds behind the spread
    spread: float = math.nan  # their standard deviation
    p: float = math.nan  # after Holm's correction
    limit: float = math.nan  # smallest difference that is called different in any case

    @property
    def difference(self) -> float:
        return self.here - self.recorded


def compare(
    protocol: record.Protocol, first: Curves, second: Curves, others: Sequence[Curves], alpha: float
) -> list[Compared]:
    """Return a row for every metric of the first training; those that decide come first.

    others: curves of further seeds, for the spread.
    """
    decisive = _select_decisive(protocol, first)
    best_steps = best_step(protocol, first), best_step(protocol, second)
    rows = [_compare_metric(name, name in decisive, first, second, best_steps) for name in first]
    rows.sort(key=lambda row: not row.decides)
    tested: list[int] = []  # positions of rows with an uncorrected p-value
    for position, row in enumerate(rows):
        if row.decides and row.verdict == NOT_EQUAL:
            values = [_best_value(protocol, curves, row.metric) for curves in others]
            rows[position] = _with_spread(row, values)
            if not math.isnan(rows[position].p):
                tested.append(position)
    corrected = _holm([rows[position].p for position in tested])
    for position, p in zip(tested, corrected, strict=True):
        row = rows[position]
        verdict = DIFFERENT if p < alpha else WITHIN
        rows[position] = replace(row, p=p, limit=_limit(row, alpha / len(tested)), verdict=verdict)
    return rows


def overall(rows: Iterable[Compared]) -> str:
    """Return the worst verdict among the metrics that decide."""
    return max((row.verdict for row in rows if row.decides), key=ORDER.index, default=MISSING)


def best_step(protocol: record.Protocol, history: Curves) -> int | None:
    """Return the first step with the best finite value of the monitor; None if there is none.

    An evaluation without training has no monitor, and one step.
    """
    steps = set(itertools.chain.from_iterable(history.values()))
    if protocol.monitor not in history and len(steps) == 1:
        return steps.pop()
    sign = 1 if protocol.monitor_higher_is_better else -1
    curve = {step: value for step, value in history.get(protocol.monitor, {}).items() if record.is_finite(value)}
    return max(curve, key=lambda step: (sign * curve[step], -step), default=None)


def _select_decisive(protocol: record.Protocol, history: Curves) -> set[str]:
    """Return the names of the metrics that decide: the monitor, headline measures, and losses."""
    names = {protocol.monitor}
    names.update(str(record.MetricName("test", column.headline, column.name)) for column in protocol.columns)
    for name in history:
        parsed = record.parse_metric(name)
        if parsed is not None and parsed.measure == "loss" and not parsed.group:
            names.add(name)
    return names


def _compare_metric(
    name: str, decides: bool, first: Curves, second: Curves, best_steps: tuple[int | None, int | None]
) -> Compared:
    """Return a metric's row without spread: values at the best steps of both trainings, and equal epochs."""
    there, here = first[name], second.get(name, {})
    equal, differences = 0, []
    for step in there:
        if step not in here:
            continue
        is_equal = same(there[step], here[step])
        equal += is_equal
        differences.append(0.0 if is_equal else abs(there[step] - here[step]))
    verdict = BIT_EQUAL if equal == len(there) == len(here) else NOT_EQUAL
    if not here:
        verdict = MISSING
    largest = max(differences, default=math.nan)
    values = _value_at(there, best_steps[0]), _value_at(here, best_steps[1])
    return Compared(name, decides, len(there), equal, largest, *values, verdict)


def _with_spread(row: Compared, values: Iterable[float]) -> Compared:
    """Return the row with the spread of other seeds and the uncorrected p-value; NaN if there are too few seeds."""
    finite = [value for value in values if record.is_finite(value)]
    spread = statistics.stdev(finite) if len(finite) > 1 else math.nan
    row = replace(row, seeds=len(finite), spread=spread, verdict=NO_SPREAD)
    # Equal values of all seeds, as at an accuracy of 100 %, are no spread rather than one of zero.
    if len(finite) < LEAST_SEEDS or not spread:
        return row
    if same(row.recorded, row.here) or not record.is_finite(row.difference):
        return replace(row, p=float(same(row.recorded, row.here)))
    from scipy import stats

    return replace(row, p=float(2 * stats.t.sf(abs(row.difference) / (spread * math.sqrt(2)), len(finite) - 1)))


def _limit(row: Compared, alpha: float) -> float:
    """Return the difference whose p-value is alpha."""
    from scipy import stats

    return float(stats.t.isf(alpha / 2, row.seeds - 1)) * row.spread * math.sqrt(2)


def _best_value(protocol: record.Protocol, history: Curves, metric: str) -> float:
    return _value_at(history.get(metric, {}), best_step(protocol, history))


def _value_at(curve: Mapping[int, float], step: int | None) -> float:
    return math.nan if step is None else curve.get(step, math.nan)


def _holm(p: Sequence[float]) -> list[float]:
    """Return the p-values with Holm's correction."""
    import numpy as np

    from biasbed.analysis.statistics.exact import holm

    return [float(value) for value in holm(np.array(p, dtype=float))]


def same(a: float, b: float) -> bool:
    """Return True for identical values; NaN equals NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))
