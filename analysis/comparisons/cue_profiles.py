"""Cue profiles of rows: measures of shape, texture, background, watermark and factors at the selected epochs.

The interval of a row with several runs is over runs. A model that was only tested has the interval over images that its
evaluation computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed import measures, record
from biasbed.analysis.runs.predictions import DecisionReader
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.select import Selected
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.evaluation.cue_profile import OF_CONFLICTS, cue_order, find_cue

OVER_RUNS, OVER_IMAGES = "runs", "images"
# value, low, high and people's numbers: in percent if that is the unit. over: what the interval is over; empty if none.
# decisions: number of decisions that the value rests on; NaN unless an evaluation has counted them.
COLUMNS = (
    *("algorithm", "cue", "meaning", "measure", "dataset", "unit", "value", "low", "high", "over", "num_runs"),
    "decisions",
    *("people", "people_low", "people_high", "people_from"),
)
NUMBERS = ("value", "low", "high", "people", "people_low", "people_high")
LEVEL = 0.95


class _Key(NamedTuple):
    """Measure of a cue on a set."""

    measure: str
    dataset: str


def cue_profile_table(decisions: DecisionReader, selected: Selected, algorithms: Sequence[str]) -> pd.DataFrame:
    """Return `COLUMNS`, one row per algorithm and measure of a cue; empty if no set tells of any.

    Rows of several cells (training data) have none: their runs are not repeats of one another. Trainings that were
    tested on cue conflicts alone have none either: `shape_bias.shape_bias_table` tells as much.
    """
    runs, values, units = _read_values(selected)
    rows = []
    for algorithm in algorithms:
        of_row = {key: by_run for (name, key), by_run in values.items() if name == algorithm}
        evaluated = _read_evaluated(decisions, runs[algorithm]) if len(runs.get(algorithm, ())) == 1 else {}
        for key in sorted(of_row, key=lambda key: cue_order(key.measure, key.dataset)):
            cue = find_cue(key.measure, key.dataset)
            assert cue is not None
            row: dict[str, Any] = {
                "algorithm": algorithm,
                "cue": cue.cue,
                "meaning": cue.meaning,
                "measure": key.measure,
                "dataset": key.dataset,
                "unit": units[key],
                **_summarise(list(of_row[key].values()), evaluated.get(key, {})),
            }
            scale = measures.scale(units[key])
            rows.append(row | {name: scale * row[name] for name in NUMBERS})
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)
    tells_more = not set(frame["measure"]) <= {*OF_CONFLICTS} or (frame["over"] == OVER_IMAGES).any()
    return frame if tells_more else frame.iloc[:0]


class _Values(NamedTuple):
    """Values of the chosen runs at the chosen steps."""

    runs: dict[str, list[Run]]  # by algorithm
    values: dict[tuple[str, _Key], dict[str, float]]  # (algorithm, measure) -> run id -> value
    units: dict[_Key, str]


def _read_values(selected: Selected) -> _Values:
    runs: dict[str, dict[str, Run]] = {}
    values: dict[tuple[str, _Key], dict[str, float]] = {}
    units: dict[_Key, str] = {}
    cells = {chosen.pool.cell for chosen in selected.choices}
    cue_metrics: dict[str, list[tuple[str, _Key]]] = {}  # by run id, as a run is chosen for every column
    for pool, candidate, column, protocol, steps in selected.choices if len(cells) == 1 else ():
        run, history = candidate.run, candidate.history
        if run.kind == "published":
            continue
        runs.setdefault(pool.algorithm, {})[run.id] = run
        if run.id not in cue_metrics:
            keys = [(metric, _find_key(metric)) for metric in history.metrics]
            cue_metrics[run.id] = [(metric, key) for metric, key in keys if key is not None]
        for metric, key in cue_metrics[run.id]:
            # A set that is no column is measured at the steps of the first one.
            if key.dataset != column.set_record.name and not _is_uncounted(key.dataset, protocol):
                continue
            value = history.mean(metric, steps)
            if not math.isnan(value):
                values.setdefault((pool.algorithm, key), {}).setdefault(run.id, value)
                units[key] = measures.described(protocol, metric).unit
    return _Values({name: list(by_id.values()) for name, by_id in runs.items()}, values, units)


@functools.cache
def _find_key(metric: str) -> _Key | None:
    """Return the measure of a cue that a metric is; None for other metrics."""
    name = record.parse_metric(metric)
    if name is None or name.phase != "test" or name.group or name.set is None:
        return None
    return _Key(name.measure, name.set) if find_cue(name.measure, name.set) is not None else None


def _is_uncounted(name: str, protocol: record.Protocol) -> bool:
    """Return True for a set of the protocol that does not count."""
    return any(tested.name == name and not tested.counts for tested in protocol.sets)


def _summarise(values: Sequence[float], evaluated: Mapping[str, str]) -> dict[str, Any]:
    """Return the mean over runs with its interval and people's number. evaluated: the row of the only run's file."""
    from scipy import stats

    low, high, basis = math.nan, math.nan, ""
    if len(values) > 1 and np.ptp(values) > 0:
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        low, high, basis = float(np.mean(values)) - half, float(np.mean(values)) + half, OVER_RUNS
    elif len(values) == 1:
        low, high = _number(evaluated.get("low")), _number(evaluated.get("high"))
        basis = "" if math.isnan(low) else OVER_IMAGES
    return {
        "value": math.fsum(values) / len(values),
        "low": low,
        "high": high,
        "over": basis,
        "num_runs": len(values),
        "decisions": _number(evaluated.get("decisions")),
        "people": _number(evaluated.get("people")),
        "people_low": _number(evaluated.get("people_low")),
        "people_high": _number(evaluated.get("people_high")),
        "people_from": str(evaluated.get("people_from") or ""),
    }


def _read_evaluated(decisions: DecisionReader, runs: Sequence[Run]) -> dict[_Key, Mapping[str, str]]:
    """Return the rows of the file that an evaluation wrote, by measure and set; empty for another run."""
    rows: dict[_Key, Mapping[str, str]] = {}
    profile = decisions.cue_profile(runs[0])
    if len({row.get("observer") for row in profile}) > 1:  # of recorded decisions of several models
        return rows
    for row in profile:
        rows[_Key(str(row.get("measure")), str(row.get("set")))] = row
    return rows


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan
