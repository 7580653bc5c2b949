"""Is the second training the first one? Per metric: bit-equal, no further away than another seed, or different.

Two trainings that differ by their seed alone are two draws from one distribution, so that their difference has the
variance 2 sigma^2. With s, estimated from n further seeds, |difference| / (s sqrt 2) has Student's t distribution with
n - 1 degrees of freedom (normal scores assumed): the two-sample t-test with one run in each sample and a variance from
elsewhere. p-values are corrected for the number of metrics (Holm 1979), so that a run that is as far away as another
seed is called different with probability alpha at most, all metrics taken together.
"""

from __future__ import annotations

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
NOT_EQUAL = "not bit-equal"  # of metrics that don't decide
ORDER = (BIT_EQUAL, WITHIN, NO_SPREAD, MISSING, DIFFERENT)  # from good to bad
REPRODUCED = (BIT_EQUAL, WITHIN)
LEAST_SEEDS = 3  # other seeds that make a spread


@dataclass(frozen=True)
class Compared:
    """One metric of both trainings. Values are those of each training's own best epoch by the monitor."""

    metric: str
    decides: bool  # the monitor, a set's headline measure, a loss
    epochs: int  # evaluations of the first training
    equal_epochs: int  # of these, those with identical values
    largest_difference: float  # over all evaluations; NaN where there is none to compare
    recorded: float
    here: float
    verdict: str = NOT_EQUAL
    seeds: int = 0  # other seeds behind the spread
    spread: float = math.nan  # their standard deviation
    p: float = math.nan  # after Holm's correction
    limit: float = math.nan  # a difference as large as this is called different in any case

    @property
    def difference(self) -> float:
        return self.here - self.recorded


def compare(
    protocol: record.Protocol, first: Curves, second: Curves, others: Sequence[Curves], alpha: float
) -> list[Compared]:
    """Every metric of the first training, those that decide first. others: of further seeds, for the spread."""
    ends = best_step(protocol, first), best_step(protocol, second)
    rows = [_compared(name, name in _deciding(protocol, first), first, second, ends) for name in first]
    rows.sort(key=lambda row: not row.decides)
    tested = []
    for number, row in enumerate(rows):
        if row.decides and row.verdict == NOT_EQUAL:
            rows[number] = _with_spread(row, [_at_best(protocol, other, row.metric) for other in others])
            if not math.isnan(rows[number].p):
                tested.append(number)
    for number, p in zip(tested, _holm([rows[number].p for number in tested]), strict=True):
        limit = _limit(rows[number], alpha / len(tested))
        rows[number] = replace(rows[number], p=p, limit=limit, verdict=DIFFERENT if p < alpha else WITHIN)
    return rows


def overall(rows: Iterable[Compared]) -> str:
    """The worst verdict among the metrics that decide."""
    return max((row.verdict for row in rows if row.decides), key=ORDER.index, default=MISSING)


def best_step(protocol: record.Protocol, history: Curves) -> int | None:
    """The first step with the best finite value of the monitor; None where there is none.

    A test without training has no monitor, and one step.
    """
    steps = {step for curve in history.values() for step in curve}
    if protocol.monitor not in history and len(steps) == 1:
        return steps.pop()
    sign = 1 if protocol.monitor_higher_is_better else -1
    curve = {step: value for step, value in history.get(protocol.monitor, {}).items() if record.is_finite(value)}
    return max(curve, key=lambda step: (sign * curve[step], -step), default=None)


def _deciding(protocol: record.Protocol, history: Curves) -> set[str]:
    headlines = {str(record.MetricName("test", entry.headline, entry.name)) for entry in protocol.columns}
    losses = {name for name in history if (p := record.parse_metric(name)) and p.measure == "loss" and not p.group}
    return {protocol.monitor, *headlines, *losses}


def _compared(name: str, decides: bool, first: Curves, second: Curves, ends: tuple[int | None, int | None]) -> Compared:
    """Equality, epoch by epoch."""
    there, here = first[name], second.get(name, {})
    pairs = [(there[step], here[step]) for step in there if step in here]
    equal = sum(same(*pair) for pair in pairs)
    largest = max((0.0 if same(a, b) else abs(a - b) for a, b in pairs), default=math.nan)
    verdict = MISSING if not here else BIT_EQUAL if equal == len(there) == len(here) else NOT_EQUAL
    return Compared(name, decides, len(there), equal, largest, _at(there, ends[0]), _at(here, ends[1]), verdict)


def _with_spread(row: Compared, values: Iterable[float]) -> Compared:
    """With the standard deviation of other seeds, and the p-value before correction; NaN where there are too few."""
    finite = [value for value in values if record.is_finite(value)]
    spread = statistics.stdev(finite) if len(finite) > 1 else math.nan
    row = replace(row, seeds=len(finite), spread=spread, verdict=NO_SPREAD)
    # Seeds that are all equal, as with an accuracy of 100 %, show no spread rather than one of zero.
    if len(finite) < LEAST_SEEDS or not spread:
        return row
    if same(row.recorded, row.here) or not record.is_finite(row.difference):
        return replace(row, p=float(same(row.recorded, row.here)))
    from scipy import stats

    return replace(row, p=float(2 * stats.t.sf(abs(row.difference) / (spread * math.sqrt(2)), len(finite) - 1)))


def _limit(row: Compared, alpha: float) -> float:
    """The difference whose p-value is alpha."""
    from scipy import stats

    return float(stats.t.isf(alpha / 2, row.seeds - 1)) * row.spread * math.sqrt(2)


def _at_best(protocol: record.Protocol, history: Curves, metric: str) -> float:
    return _at(history.get(metric, {}), best_step(protocol, history))


def _at(curve: Mapping[int, float], step: int | None) -> float:
    return math.nan if step is None else curve.get(step, math.nan)


def _holm(p: Sequence[float]) -> list[float]:
    import numpy as np

    from biasbed.analysis.statistics.exact import holm

    return [float(value) for value in holm(np.array(p, dtype=float))]


def same(a: float, b: float) -> bool:
    """Identical, NaN included."""
    return a == b or (math.isnan(a) and math.isnan(b))


# --- decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Decisions of both trainings on the images of one set."""

    set: str
    which: str  # best or last evaluation
    images: int  # that both have
    equal: int

    @property
    def share(self) -> float:
        return self.equal / self.images


def agreement(name: str, which: str, first: Mapping[str, str], second: Mapping[str, str]) -> Agreement | None:
    """first, second: image -> decided class. None where they have no image in common."""
    common = first.keys() & second.keys()
    if not common:
        return None
    return Agreement(name, which, len(common), sum(first[image] == second[image] for image in common))
