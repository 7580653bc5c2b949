"""What the chosen epochs score by the measures of biased data, beside each set's headline.

The Align-Conflict paper's tables have several measures of the same runs at the same epochs: a rule chooses once, and
every measure is taken there. Of sets whose images agree or conflict with a bias; others have none of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, measured_by, summary_metrics
from biasbed.analysis.runs.store import BIASED
from biasbed.analysis.selection.pools import Candidate, Choice, History, Pool
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics.friedman import DIGITS

UNBIASED, CONFLICTING = "accuracy", "conflicting_accuracy"
DIFFERENCE, OPPORTUNITY, SCORE = "accuracy_difference", "equality_of_opportunity", "ac_score"
MEASURES = (SCORE, UNBIASED, CONFLICTING, DIFFERENCE, OPPORTUNITY)
# Of the biased classifier that a method has, on the set that validates.
BIASED_ALIGNED, BIASED_CONFLICTING = (f"{BIASED}/{kind}_accuracy" for kind in ("aligned", "conflicting"))
# value as it is shown; printed_std, printed_runs: of a published mean in place of runs, else NaN.
COLUMNS = ("algorithm", "dataset", "run_id", "measure", "value", "printed_std", "printed_runs")
Measurement = tuple[str, float, float, float]  # from measure on


def measured(selected: Selected, columns: Sequence[Column], protocols: Mapping[str, record.Protocol]) -> pd.DataFrame:
    """`COLUMNS`, one row per chosen run, column and measure that it has there. protocols: hash -> protocol."""
    places = {(column.cell, column.entry.name): column for column in columns}
    known = _by_measure(selected, places, protocols)
    rows: list[tuple[object, ...]] = []
    for pool, choice in selected.choices:
        found = known[pool.cell, choice.set]
        if not found:
            continue
        candidate = pool.by_run[choice.run]
        about = (pool.algorithm, places[pool.cell, choice.set].name, choice.run)
        values = [(name, *taken(candidate.history, column, choice.steps)) for name, column in found.items()]
        values += _of_biased(candidate, choice, protocols[candidate.run.protocol])
        rows += [(*about, *value) for value in values if not math.isnan(value[1])]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def _by_measure(
    selected: Selected, places: Mapping[tuple[str, str], Column], protocols: Mapping[str, record.Protocol]
) -> dict[tuple[str, str], dict[str, Column]]:
    """(cell, set) -> measure -> the column with it; none where images do not conflict with anything.

    As one's own protocol has it, where published rows stand beside.
    """
    found: dict[tuple[str, str], dict[str, Column]] = {}
    for pool, choice in sorted(selected.choices, key=lambda one: one[0].candidates[0].run.kind == "published"):
        place = pool.cell, choice.set
        if place not in found:
            protocol = _protocol(pool, choice, protocols)
            own = {name: measured_by(places[place], name, protocol) for name in MEASURES}
            has_both = own[UNBIASED] is not None and own[CONFLICTING] is not None
            found[place] = {name: one for name, one in own.items() if one is not None} if has_both else {}
    return found


def _protocol(pool: Pool, choice: Choice, protocols: Mapping[str, record.Protocol]) -> record.Protocol:
    return protocols[pool.by_run[choice.run].run.protocol]


def taken(history: History, column: Column, steps: Sequence[int]) -> tuple[float, float, float]:
    """Its mean over the steps, and of a published mean what stands beside it: the deviation, and of how many runs."""
    std, number = (_first(history, summary_metrics(column, name), steps) for name in ("std_over_runs", "num_runs"))
    scale = column.scale
    return scale * _mean(history.curve(column.metric), steps), scale * std, number


def _first(history: History, names: Iterable[record.MetricName], steps: Sequence[int]) -> float:
    curve = next(filter(None, map(history.curve, names)), {})
    return _mean(curve, steps)


def _mean(curve: Mapping[int, float], steps: Sequence[int]) -> float:
    """NaN where it has no value at one of the steps."""
    values = [curve.get(step, math.nan) for step in steps]
    return math.fsum(values) / len(values) if all(map(record.is_finite, values)) else math.nan


def _of_biased(candidate: Candidate, choice: Choice, protocol: record.Protocol) -> list[Measurement]:
    """What the method's biased classifier scores on validation images, at the same steps.

    One that has a stage of its own is as it was at that stage's end, whose epochs have numbers of their own.
    """
    monitor, history = record.parse_metric(protocol.monitor), candidate.history
    if monitor is None or monitor.set is None:
        return []
    is_stage = bool(history.curve(f"{BIASED}/loss"))
    found = []
    for name in (BIASED_ALIGNED, BIASED_CONFLICTING):
        curve = history.curve(f"{name}/{monitor.set}")
        steps = tuple(curve)[-1:] if is_stage else choice.steps
        value = _mean(curve, steps) if curve else math.nan
        found.append((name, measures.scale(measures.FRACTION) * value, math.nan, math.nan))
    return found
