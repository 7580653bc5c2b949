"""Shape bias beside the reference's, over runs and by category of the shape.

Shape bias (Geirhos et al., ICLR 2019, section 3): the share of decisions for the shape among those for either cue of a
cue conflict. It does not say how many decisions those are: that is the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import measures, record
from biasbed.analysis.runs.predictions import Cues, DecisionReader, steps_of
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.statistics import exact, per_set
from biasbed.errors import Failure
from biasbed.published.shape_bias_figure import MOST
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

COVERAGE = "cue_coverage"
REFERENCE = "erm"  # if no control is named
# In percent and points but for p. low, high: of this difference alone; p: Welch's; p_holm: over all rows and sets, as
# low_holm and high_holm, which leave out 0 exactly where p_holm is below alpha.
COLUMNS = (
    *("dataset", "algorithm", "mean", "std", "num_runs", "coverage"),
    *("reference", "difference", "low", "high", "p", "p_holm", "significant", "low_holm", "high_holm"),
)


def shape_bias_table(runs: pd.DataFrame, algorithms: Sequence[str], options: AnalyzeOptions) -> pd.DataFrame:
    """Return `COLUMNS`, one row per set of cue conflicts and algorithm; empty if no run has a shape bias.

    runs: `scores.run_table`. The reference is the control, by default the row `erm` if there is one.
    """
    if record.SHAPE_BIAS not in runs:
        return pd.DataFrame(columns=list(COLUMNS))
    reference = options.control if options.control != "none" else REFERENCE
    rows, tested = [], []
    for dataset, of_set in runs[runs[record.SHAPE_BIAS].notna()].groupby("dataset", sort=False):
        values = {}
        for name, of_row in of_set.groupby("algorithm"):
            values[str(name)] = of_row.reindex(columns=[record.SHAPE_BIAS, COVERAGE]).astype(float)
        for name in (name for name in algorithms if name in values):
            rows.append(_row(str(dataset), name, values, reference, 1 - options.alpha))
            tested.append(_biases(values, name, reference))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    p = frame["p"].to_numpy(dtype="float64")
    p_holm, levels = exact.holm(p), exact.holm_levels(p, options.alpha)
    bounds = [per_set.welch(*sides, 1 - level)[:2] for sides, level in zip(tested, levels, strict=True)]
    low, high = np.array(bounds, dtype="float64").reshape(-1, 2).T
    return frame.assign(p_holm=p_holm, significant=p_holm < options.alpha, low_holm=low, high_holm=high)


def _biases(values: Mapping[str, pd.DataFrame], name: str, reference: str) -> tuple[exact.Array, exact.Array]:
    """Return the shape biases of a row's runs and of the reference's; none of a row that is not compared."""
    if reference not in values or name == reference:
        return np.empty(0), np.empty(0)
    of_row, others = (values[row][record.SHAPE_BIAS].to_numpy(dtype="float64") for row in (name, reference))
    return of_row, others


def _row(
    dataset: str, name: str, values: Mapping[str, pd.DataFrame], reference: str, level: float
) -> tuple[object, ...]:
    """Return one row of `COLUMNS`. values: algorithm -> shape bias and coverage of its runs, in percent."""
    biases = values[name][record.SHAPE_BIAS]
    coverage = float(values[name][COVERAGE].mean())
    about = (dataset, name, float(biases.mean()), float(biases.std()), len(biases), coverage)
    if reference not in values or name == reference:
        return (*about, reference if reference in values else "", *[math.nan] * 5, False, math.nan, math.nan)
    others = values[reference][record.SHAPE_BIAS]
    tested = per_set.welch(*_biases(values, name, reference), level)
    return (*about, reference, float(biases.mean() - others.mean()), *tested, math.nan, False, math.nan, math.nan)


# --- by category ------------------------------------------------------------------------------------------------------

# shape, texture: decisions for either cue of `num_runs` runs together; shape_bias: in percent.
CATEGORY_COLUMNS = ("dataset", "algorithm", "category", "shape", "texture", "shape_bias", "num_runs")


def count_by_category(
    decisions: DecisionReader, collection: Collection, biases: pd.DataFrame, selected: pd.DataFrame
) -> pd.DataFrame:
    """Return `CATEGORY_COLUMNS` of the rows that are drawn, if decisions of their runs are stored.

    That is what Geirhos et al. (2019) draw in figure 4. One file is fetched for every run of these rows, which are few:
    the reference and the rows with the highest shape bias. Trials of a search are no rows.

    biases: `shape_bias_table`; selected: `select.SELECTED_COLUMNS`.
    """
    drawn = [] if collection.is_search else _choose_drawn(biases)
    runs = {name: [run for run in collection.unpublished if run.algorithm == name] for _, name in drawn}
    steps, rows = steps_of(selected) if drawn else {}, []
    with ProgressBar(sum(len(runs[name]) for _, name in drawn), "file") as progress:
        for dataset, name in drawn:
            number, totals = 0, pd.DataFrame(columns=["shape", "texture"], dtype="int64")
            for run in runs[name]:
                progress.tick()
                counts = pd.DataFrame.from_dict(
                    _counts(decisions, run, dataset, steps), "index", columns=totals.columns
                )
                number, totals = number + bool(len(counts)), totals.add(counts, fill_value=0)
            for category, shape, texture in totals.sort_index().itertuples(name=None):
                bias = 100 * measures.shape_bias(shape, texture)
                rows.append((dataset, name, category, int(shape), int(texture), bias, number))
    return pd.DataFrame(rows, columns=list(CATEGORY_COLUMNS))


def _choose_drawn(biases: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (set, row): of each set the reference, and as many more rows as a figure holds."""
    drawn = []
    for dataset, rows in biases.groupby("dataset", sort=False):
        is_reference = rows["algorithm"] == rows["reference"]
        ordered = rows.assign(first=is_reference).sort_values(["first", "mean"], ascending=False, kind="stable")
        drawn += [(str(dataset), str(name)) for name in ordered["algorithm"][:MOST]]
    return drawn


def _counts(decisions: DecisionReader, run: Run, dataset: str, steps: Mapping[tuple[str, str], int | None]) -> Cues:
    """Return one run's decisions for shape and texture by category; empty if none are stored for the selected step."""
    if (run.id, dataset) not in steps:
        return {}
    try:
        return decisions.cues(run, dataset, steps[run.id, dataset])
    except Failure:
        return {}
