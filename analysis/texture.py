"""Does a row rely less on texture than the reference? Its shape bias beside the reference's, over runs.

Shape bias (Geirhos et al., ICLR 2019, section 3): of the decisions on cue conflicts that are for either cue, the part
that is for the shape. It says nothing of how many there are: that is the coverage.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbed import record
from biasbed.analysis.statistics import exact

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

COVERAGE = "cue_coverage"
REFERENCE = "erm"  # where no control is named
# All but p in percent and points. low, high: of the difference; p: Welch's, p_holm: over all rows and sets.
COLUMNS = (
    *("dataset", "algorithm", "mean", "std", "num_runs", "coverage"),
    *("reference", "difference", "low", "high", "p", "p_holm", "significant"),
)


def table(runs: pd.DataFrame, algorithms: Sequence[str], options: AnalyzeOptions) -> pd.DataFrame:
    """`COLUMNS`: one row per set of cue conflicts and algorithm; empty where no run has a shape bias.

    runs: `scores.run_table`. The reference is the control; where none is named the row `erm`, if there is one.
    """
    if record.SHAPE_BIAS not in runs:
        return pd.DataFrame(columns=list(COLUMNS))
    known = runs[runs[record.SHAPE_BIAS].notna()]
    wanted = options.control if options.control != "none" else REFERENCE
    rows = [
        _row(str(dataset), name, _values(own), wanted)
        for dataset, own in known.groupby("dataset", sort=False)
        for name in algorithms
        if name in set(own["algorithm"])
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    tested = frame["p"].notna()
    frame.loc[tested, "p_holm"] = exact.holm(frame.loc[tested, "p"].to_numpy(dtype="float64"))
    return frame.assign(significant=frame["p_holm"].astype(float) < options.alpha)


def _values(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Algorithm -> shape bias and coverage of its runs, in percent."""
    runs = runs.reindex(columns=["algorithm", record.SHAPE_BIAS, COVERAGE])
    return {str(name): own.drop(columns="algorithm").astype(float) for name, own in runs.groupby("algorithm")}


def _row(dataset: str, name: str, values: Mapping[str, pd.DataFrame], wanted: str) -> tuple[object, ...]:
    own = values[name][record.SHAPE_BIAS]
    about = (dataset, name, float(own.mean()), float(own.std()), len(own), float(values[name][COVERAGE].mean()))
    if wanted not in values or name == wanted:
        return (*about, wanted if wanted in values else "", *[math.nan] * 5, False)
    other = values[wanted][record.SHAPE_BIAS]
    return (*about, wanted, float(own.mean() - other.mean()), *_welch(own, other), math.nan, False)


def _welch(own: pd.Series[float], other: pd.Series[float]) -> tuple[float, float, float]:
    """95 % interval of the difference, and p; NaN without two runs of each, or where none of them vary."""
    if min(len(own), len(other)) < 2 or not (own.std() or other.std()):
        return math.nan, math.nan, math.nan
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the runs of one side are alike
        found = stats.ttest_ind(own, other, equal_var=False)
        between = found.confidence_interval(0.95)
    return float(between.low), float(between.high), float(found.pvalue)


def sentences(frame: pd.DataFrame) -> list[str]:
    """The answer for each set, in a sentence or two."""
    return [_sentence(own) for _, own in frame.groupby("dataset", sort=False)]


def _sentence(own: pd.DataFrame) -> str:
    lines, reference = own.to_dict("records"), str(own["reference"].iloc[0])
    where = f" on {own['dataset'].iloc[0]}"
    others = [row for row in lines if row["algorithm"] != reference]
    if not reference or not others:
        each = ", ".join(f"{row['algorithm']} {row['mean']:.1f}" for row in lines)
        return f"Shape bias{where}, percent: {each}; there is no reference to compare it with: control=<row> names one."
    shown = [row for row in others if row["significant"]]
    parts: list[str] = []
    for word, sign in (("less", 1), ("more", -1)):
        of_sign = [row for row in shown if row["difference"] * sign > 0]
        if of_sign:
            verb = "relies" if parts else "Relies"
            parts.append(f"{verb} {word} on texture than {reference}: {', '.join(map(_difference, of_sign))}")
    left = [row for row in others if not row["significant"]]
    if left:
        each = ", ".join(map(_difference, left))
        parts.append(
            f"not shown for {each}" if parts else f"No row is shown to rely less on texture than {reference}: {each}"
        )
    return f"{'; '.join(parts)} (shape bias{where} in points, over runs, 95 %)."


def _difference(row: Mapping[Hashable, Any]) -> str:
    low, high = float(row["low"]), float(row["high"])
    interval = "one run" if math.isnan(low) else f"{low:+.1f} to {high:+.1f}"
    return f"{row['algorithm']} {row['difference']:+.1f} [{interval}]"
