"""Shape bias beside the reference's, over runs and by category of the shape.

Shape bias (Geirhos et al., ICLR 2019, section 3): the share of decisions for the shape among those for either cue of a
cue conflict. It does not say how many decisions those are: that is the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
# In percent and points but for p. low, high: of the difference; p: Welch's; p_holm: over all rows and sets.
COLUMNS = (
    *("dataset", "algorithm", "mean", "std", "num_runs", "coverage"),
    *("reference", "difference", "low", "high", "p", "p_holm", "significant"),
)


def shape_bias_table(runs: pd.DataFrame, algorithms: Sequence[str], options: AnalyzeOptions) -> pd.DataFrame:
    """Return `COLUMNS`, one row per set of cue conflicts and algorithm; empty if no run has a shape bias.

    runs: `scores.run_table`. The reference is the control, by default the row `erm` if there is one.
    """
    if record.SHAPE_BIAS not in runs:
        return pd.DataFrame(columns=list(COLUMNS))
    reference = options.control if options.control != "none" else REFERENCE
    rows = []
    for dataset, of_set in runs[runs[record.SHAPE_BIAS].notna()].groupby("dataset", sort=False):
        values = {}
        for name, of_row in of_set.groupby("algorithm"):
            values[str(name)] = of_row.reindex(columns=[record.SHAPE_BIAS, COVERAGE]).astype(float)
        rows += [_row(str(dataset), name, values, reference) for name in algorithms if name in values]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    p_holm = exact.holm(frame["p"].to_numpy(dtype="float64"))
    return frame.assign(p_holm=p_holm, significant=p_holm < options.alpha)


def _row(dataset: str, name: str, values: Mapping[str, pd.DataFrame], reference: str) -> tuple[object, ...]:
    """Return one row of `COLUMNS`. values: algorithm -> shape bias and coverage of its runs, in percent."""
    biases = values[name][record.SHAPE_BIAS]
    coverage = float(values[name][COVERAGE].mean())
    about = (dataset, name, float(biases.mean()), float(biases.std()), len(biases), coverage)
    if reference not in values or name == reference:
        return (*about, reference if reference in values else "", *[math.nan] * 5, False)
    others = values[reference][record.SHAPE_BIAS]
    tested = per_set.welch(biases.to_numpy(), others.to_numpy(), 0.95)
    return (*about, reference, float(biases.mean() - others.mean()), *tested, math.nan, False)


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
