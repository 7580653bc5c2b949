"""Figure of cue profiles: a point with its interval for each measure of a cue, people beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from biasbed import measures
from biasbed.analysis.report.cue_tables import digits_of, measure_label
from biasbed.analysis.report.figures.style import GREY, LIGHT, SMALL, Sheet, legend, look
from biasbed.analysis.report.table_model import TableRecord, interval_text
from biasbed.analysis.result import Analysis

MOST = 6  # rows in one figure
INCHES = 0.3  # height of a measure


def cue_profile(analysis: Analysis, names: Sequence[str]) -> Sheet:
    """Draw the values of these rows, percentages and ratios in panels of their own."""
    frame = analysis.cue_profiles
    frame = frame[frame["algorithm"].isin(names)]
    keys = frame.drop_duplicates(["measure", "dataset"])[["cue", "meaning", "measure", "dataset", "unit"]]
    units = [unit for unit in (measures.FRACTION, "ratio") if unit in set(keys["unit"])]
    heights = [int((keys["unit"] == unit).sum()) for unit in units]
    figure = Sheet(figsize=(7.2, 0.9 + INCHES * sum(heights) + 0.5 * len(units)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, unit in zip(panels, units, strict=True):
        _draw(figure, axes, analysis, frame[frame["unit"] == unit], keys[keys["unit"] == unit], names, unit)
    legend(figure, *panels)
    return figure


def _draw(
    figure: Sheet,
    axes: Axes,
    analysis: Analysis,
    frame: pd.DataFrame,
    keys: pd.DataFrame,
    names: Sequence[str],
    unit: str,
) -> None:
    """Draw one panel: measures from top to bottom, in the order of the table."""
    position = {(key.measure, key.dataset): row for row, key in enumerate(keys.itertuples())}
    for line in range(len(keys)):
        axes.axhline(line, color=LIGHT, lw=0.8, zorder=0)
    step = 0.6 / max(1, len(names))
    for number, name in enumerate(names):
        colour, _, marker = look(analysis.algorithms.index(name))
        rows = frame[frame["algorithm"] == name]
        heights = [
            position[key] + (number - (len(names) - 1) / 2) * step
            for key in zip(rows["measure"], rows["dataset"], strict=True)
        ]
        for values, height in zip(rows.to_dict("records"), heights, strict=True):
            figure.tip(axes, values["value"], height, _describe(analysis.label(name), values))
        axes.hlines(heights, rows["low"], rows["high"], color=colour, lw=1.6)
        axes.plot(rows["value"], heights, marker, color=colour, ms=5, label=analysis.label(name))
    people = frame.dropna(subset=["people"]).drop_duplicates(["measure", "dataset"])
    if len(people):
        heights = [position[key] for key in zip(people["measure"], people["dataset"], strict=True)]
        axes.plot(people["people"], heights, "D", mfc="none", color=GREY, ms=6, label="people")
    labels = [measure_label(str(key.cue), str(key.meaning)) for key in keys.itertuples()]
    axes.set_yticks(range(len(keys)), labels, fontsize=SMALL)
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if unit == measures.FRACTION:
        axes.set_xlim(min(-2.0, float(frame["low"].min()) - 2), 102)
        axes.set_xlabel("%")
    else:
        axes.axvline(1, color=GREY, lw=0.8, ls=":")
        axes.set_xlabel("error by the error on all images")


def _describe(label: str, row: TableRecord) -> str:
    """Return a value as a tooltip: row, measure, value and interval."""
    digits = digits_of(row["unit"])
    interval = interval_text(row["low"], row["high"], digits)
    return f"{label}, {row['meaning']}: {row['value']:.{digits}f}" + (f" ({interval})" if interval else "")
