"""The result as figures, PNG to look at and PDF to print. No pyplot: nothing global is touched, nothing stays open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from biasbed import record
from biasbed.analysis import aggregate
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import Comparison

# Okabe and Ito's palette, distinguishable with any colour vision; line styles carry on where it ends.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.edgecolor": "#444444",
    "savefig.bbox": "tight",
    "savefig.dpi": 160,
    "pdf.fonttype": 42,  # text stays text
}
GREY = "#777777"
WARNING = "#B00020"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Draws all figures that the result allows and returns file name -> one line that says what it is."""
    (folder / "figures").mkdir(exist_ok=True)
    files: dict[str, str] = {}
    with matplotlib.rc_context(STYLE):
        for name, figure, description in _all(analysis):
            FigureCanvasAgg(figure)
            figure.savefig(folder / "figures" / f"{name}.png")
            figure.savefig(folder / "figures" / f"{name}.pdf", metadata={"CreationDate": None})
            figure.clear()
            files |= {f"figures/{name}.{kind}": description for kind in ("png", "pdf")}
    return files


def _all(analysis: Analysis) -> Iterator[tuple[str, Figure, str]]:
    for comparison in analysis.comparisons:
        if comparison.nemenyi is not None:
            description = f"average ranks and critical difference, {comparison.setting} sets"
            yield (
                f"critical_difference{comparison.suffix}",
                critical_difference(comparison, _mark(analysis)),
                description,
            )
    yield "scores", scores(analysis), "scores of the algorithms on the sets"
    if analysis.curves.groupby("run_id")["step"].nunique().max() > 1:
        yield "epochs", epochs(analysis), "scores over epochs, mean and standard deviation over runs"
    points = shape_bias_points(analysis)
    if len(points):
        yield "shape_bias", shape_bias(analysis, points), "shape bias against validation accuracy, one point per run"


def _mark(analysis: Analysis) -> str:
    """What every figure of oracle-selected numbers carries."""
    return "ORACLE: selected on the test images" if analysis.rule.oracle else ""


def _look(position: int) -> tuple[str, str, str]:
    """Colour, line style and marker of an algorithm; the first 64 differ in colour or marker."""
    turn, index = divmod(position, len(COLOURS))
    return COLOURS[index], STYLES[turn % len(STYLES)], MARKERS[(index + 3 * turn) % len(MARKERS)]


# --- critical difference ----------------------------------------------------------------------------------------------


def critical_difference(comparison: Comparison, mark: str = "") -> Figure:
    """Average ranks on an axis, best left; bars join algorithms that are not told apart (Demsar 2006, figure 1).

    Bars are drawn under a significant omnibus test only.
    """
    ranks = comparison.mean_ranks
    groups = comparison.groups() if comparison.significant else []
    k = len(ranks)
    depth = 0.55 + 0.22 * len(groups) + 0.36 * ((k + 1) // 2)
    figure = Figure(figsize=(6.8, 1.0 + 0.62 * depth))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(1 - 0.28 * (k - 1), k + 0.28 * (k - 1))
    axes.set_ylim(depth, -1.25)
    _rank_axis(axes, k)
    _ruler(axes, comparison)
    for level, group in enumerate(groups):
        y = 0.26 + 0.22 * level
        reach = 0.012 * (k - 1)
        ends = [ranks[group[0]] - reach, ranks[group[-1]] + reach]
        axes.plot(ends, [y, y], color="#3a3a3a", lw=4, solid_capstyle="butt", zorder=1)
    _rank_labels(axes, comparison, 0.5 + 0.22 * len(groups))
    verdict = "" if comparison.significant else "omnibus test not significant: no pair is told apart"
    remarks = [f"{len(comparison.sets)} sets", verdict, mark]
    colour = WARNING if mark else GREY
    text = "; ".join(filter(None, remarks))
    axes.text(k + 0.28 * (k - 1), -1.15, text, ha="right", va="top", color=colour, fontsize=8)
    return figure


def _rank_axis(axes: Axes, k: int) -> None:
    axes.plot([1, k], [0, 0], color="black", lw=1)
    for value in range(1, k + 1):
        axes.plot([value, value], [0, -0.12], color="black", lw=1)
        axes.text(value, -0.17, str(value), ha="center", va="bottom")


def _ruler(axes: Axes, comparison: Comparison) -> None:
    """The critical difference as a length, beginning at rank 1; left out where it is longer than the axis."""
    cd = comparison.reach.critical_difference if comparison.reach else None
    if cd is None:
        return
    k = len(comparison.algorithms)
    if cd > k - 1:
        text = f"critical difference {cd:.2f}: longer than the axis, no pair can be told apart"
        axes.text(1, -0.75, text, ha="left", va="center", fontsize=8)
        return
    axes.plot([1, 1 + cd], [-0.75, -0.75], color="black", lw=1.2)
    for end in (1, 1 + cd):
        axes.plot([end, end], [-0.83, -0.67], color="black", lw=1.2)
    axes.text(1 + cd + 0.02 * k, -0.75, f"critical difference {cd:.2f}", ha="left", va="center", fontsize=8)


def _rank_labels(axes: Axes, comparison: Comparison, top: float) -> None:
    """Names, the better half at the left and the others at the right, each joined to its rank by a line."""
    ranks = comparison.mean_ranks
    k = len(ranks)
    half = (k + 1) // 2
    for position, (name, value) in enumerate(ranks.items()):
        left = position < half
        y = top + 0.36 * (position if left else k - 1 - position)
        edge = 1 - 0.04 * (k - 1) if left else k + 0.04 * (k - 1)
        colour = _look(comparison.algorithms.index(name))[0]
        axes.plot([value, value, edge], [0, y, y], color=colour, lw=1)
        axes.plot([value], [0], marker="o", ms=4, color=colour, zorder=3)
        axes.text(
            edge + (-0.01 if left else 0.01) * k,
            y,
            f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}",
            ha="right" if left else "left",
            va="center",
        )


# --- scores -----------------------------------------------------------------------------------------------------------


def scores(analysis: Analysis) -> Figure:
    """Mean and standard deviation over runs of every algorithm on every set; chance as a grey line."""
    names = analysis.set_names
    figure = Figure(figsize=(max(4.5, 0.95 * len(names) + 1.5), 3.8), layout="constrained")
    axes = figure.add_subplot()
    table = analysis.scores.set_index(["algorithm", "dataset"])
    width = 0.7 / max(1, len(analysis.algorithms))
    for position, algorithm in enumerate(analysis.algorithms):
        colour, _, marker = _look(position)
        rows = table.loc[algorithm].loc[list(names)]
        x = [i + width * (position - (len(analysis.algorithms) - 1) / 2) for i in range(len(names))]
        errors = rows["std"].fillna(0.0)
        axes.errorbar(x, rows["mean"], errors, fmt=marker, ms=4, color=colour, lw=1, label=algorithm)
    for i, entry in enumerate(analysis.sets):
        chance = entry.chance * aggregate.scale(entry.headline)
        axes.plot([i - 0.42, i + 0.42], [chance, chance], color=GREY, lw=1, ls=":", label="chance" if i == 0 else None)
        if i:
            axes.axvline(i - 0.5, color="#e5e5e5", lw=0.8, zorder=0)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel(_headline_label(analysis.sets))
    axes.set_title(_mark(analysis), color=WARNING)
    _legend(figure, axes)
    return figure


def _headline_label(sets: Sequence[record.SetRecord]) -> str:
    headlines = sorted({entry.headline for entry in sets})
    return ", ".join(f"{name.replace('_', ' ')} ({aggregate.unit(name)})" for name in headlines)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False)


# --- epochs -----------------------------------------------------------------------------------------------------------


def epochs(analysis: Analysis) -> Figure:
    """Every set's headline over epochs: mean over runs, and a band of one standard deviation."""
    number = len(analysis.sets)
    columns = number if number <= 4 else min((4, 3, 5), key=lambda wide: -number % wide)  # fewest empty panels
    rows = -(-number // columns)
    figure = Figure(figsize=(2.5 * columns, 2.0 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    panels = list(grid.flat)
    unit = analysis.collection.protocol.step_unit
    for axes, entry in zip(panels, analysis.sets, strict=False):
        _epoch_panel(axes, analysis, entry)
        axes.set_title(entry.name)
    for axes in panels[number:]:
        axes.set_axis_off()
    for axes in panels[max(0, number - columns) : number]:
        axes.set_xlabel(unit)
        axes.tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel(_headline_label(analysis.sets))
    _legend(figure, panels[0])
    return figure


def _epoch_panel(axes: Axes, analysis: Analysis, entry: record.SetRecord) -> None:
    of_set = analysis.curves[analysis.curves["dataset"] == entry.name]
    for position, algorithm in enumerate(analysis.algorithms):
        colour, style, _ = _look(position)
        groups = of_set[of_set["algorithm"] == algorithm].groupby("step")["score"]
        mean, spread = groups.mean(), groups.std().fillna(0.0)
        axes.plot(mean.index, mean, color=colour, ls=style, lw=1.3, label=algorithm)
        axes.fill_between(mean.index, mean - spread, mean + spread, color=colour, alpha=0.18, lw=0)
    axes.axhline(entry.chance * aggregate.scale(entry.headline), color=GREY, lw=0.8, ls=":", label="chance")
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, integer=True))


# --- shape bias -------------------------------------------------------------------------------------------------------


def shape_bias_points(analysis: Analysis) -> pd.DataFrame:
    """The runs' shape bias beside the validation score of the same epochs, where both were measured."""
    if "shape_bias" not in analysis.runs:
        return analysis.runs.iloc[:0]
    return analysis.runs.dropna(subset=["shape_bias", "monitor"])


def shape_bias(analysis: Analysis, points: pd.DataFrame) -> Figure:
    """One point per run: validation score against shape bias, 0 decides by texture only, 100 by shape only."""
    figure = Figure(figsize=(4.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for position, algorithm in enumerate(analysis.algorithms):
        colour, _, marker = _look(position)
        own = points[points["algorithm"] == algorithm]
        look: dict[str, Any] = dict(color=colour, marker=marker, s=28, alpha=0.85, lw=0)
        axes.scatter(own["monitor"], own["shape_bias"], label=algorithm, **look)
    axes.axhline(50, color=GREY, lw=0.8, ls=":")
    axes.set_ylim(-3, 103)
    axes.set_xlabel(f"validation: {analysis.collection.protocol.monitor} (%)")
    axes.set_ylabel("shape bias (%)")
    axes.set_title(_mark(analysis), color=WARNING)
    _legend(figure, axes)
    return figure
