"""Scores over training: every set's headline at each step at which runs were tested."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.columns import Column
from biasbed.analysis.report import wording
from biasbed.analysis.report.groups import groups
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run
from biasbed.analysis.sections.section import PlannedFigure, Section, ShownPart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 20


class Epochs(Section[bool]):
    """Scores over training. Data: True if some run was tested at several steps."""

    name = "epochs"
    title = "Over training"

    def compute(self, analysis: Analysis) -> bool:
        return any(len(values.curve) > 1 for values in _tested_curves(analysis))

    def show(self, data: bool, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data:
            yield PlannedFigure(
                "epochs",
                functools.partial(draw, analysis),
                description="scores over epochs, mean and standard deviation over runs",
                alt="scores over epochs",
                caption=(
                    "Mean over runs and a band of one standard deviation, at every epoch. Where curves swing, the "
                    "selection rule decides the result."
                ),
                marked=True,
            )


EPOCHS = Epochs()


class _TestedCurve(NamedTuple):
    run: Run
    column: Column
    curve: Mapping[int, float]  # step -> stored value


def _tested_curves(analysis: Analysis) -> Iterator[_TestedCurve]:
    """Yield the curve of every run on every column of its cells. Published runs are left out if there are others."""
    collection, cells = analysis.collection, [column.cell for column in analysis.columns]
    for run in collection.unpublished or collection.runs:
        counted = run.among(cells)
        for column in analysis.columns:
            if column.cell in counted:
                yield _TestedCurve(run, column, analysis.inputs.histories[run.id].curve(column.metric))


def curve_table(analysis: Analysis) -> pd.DataFrame:
    """Return every set's headline at every step of every run, as shown: algorithm, run_id, dataset, step, score.

    There may be millions of rows, so names are categories.
    """
    tested = list(_tested_curves(analysis))
    names = ["algorithm", "run_id", "dataset"]
    identities = [(run.algorithm, run.id, column.name, column.scale) for run, column, _ in tested]
    table = pd.DataFrame(identities, columns=[*names, "scale"]).astype(dict.fromkeys(names, "category"))
    frame = table.loc[table.index.repeat([len(curve) for *_, curve in tested])].reset_index(drop=True)
    steps = itertools.chain.from_iterable(curve for *_, curve in tested)
    frame["step"] = np.fromiter(steps, "int64", len(frame))
    values = itertools.chain.from_iterable(curve.values() for *_, curve in tested)
    scores = np.fromiter(values, "float64", len(frame)) * frame["scale"]
    return frame.assign(score=scores).drop(columns="scale")


def draw(analysis: Analysis) -> Figure:
    """Draw every column's score over epochs: mean and one standard deviation over runs (Kalischek 2023, figure 2).

    Of more than `MOST_PANELS` columns the first of each data set is drawn, as far as they fit.
    """
    from biasbed.analysis.report.figures.style import Sheet, legend

    sets = analysis.sets
    if len(sets) > MOST_PANELS:
        sets = tuple(group.counted[0] for group in groups(analysis))[:MOST_PANELS]
    number = len(sets)
    columns = number if number <= 4 else min((4, 3, 5), key=lambda wide: -number % wide)  # fewest empty panels
    rows = -(-number // columns)
    figure = Sheet(figsize=(max(4.5, 2.5 * columns), 2.0 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    panels = list(grid.flat)
    unit = analysis.collection.protocol.step_unit
    by_step = curve_table(analysis).groupby(["dataset", "algorithm", "step"], observed=True)
    over_runs = by_step["score"].agg(["mean", "std"])
    for axes, column in zip(panels, sets, strict=False):
        of_set = over_runs[over_runs.index.get_level_values("dataset") == column.name].droplevel("dataset")
        _draw_epochs(axes, analysis, column, of_set)
        axes.set_title(analysis.label(column.name))
    for axes in panels[number:]:
        axes.set_axis_off()
    for axes in panels[max(0, number - columns) : number]:
        axes.set_xlabel(unit)
        axes.tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel(wording.headline_label(sets))
    legend(figure, *panels)
    return figure


def _draw_epochs(axes: Axes, analysis: Analysis, column: Column, over_runs: pd.DataFrame) -> None:
    """Draw one set. over_runs: mean and std by algorithm and step."""
    import matplotlib
    from matplotlib.collections import PolyCollection

    from biasbed.analysis.report.figures.style import CHANCE, GREY, look

    bands, colours = [], []
    for position, algorithm in enumerate(analysis.algorithms):
        colour, style, _ = look(position)
        if algorithm not in over_runs.index:
            continue  # published: there are no curves
        of_row = over_runs.loc[algorithm]
        steps, mean, spread = of_row.index.to_numpy(), of_row["mean"].to_numpy(), of_row["std"].fillna(0.0).to_numpy()
        axes.plot(steps, mean, color=colour, ls=style, lw=1.3, label=analysis.label(algorithm))
        outline = np.concatenate([mean - spread, (mean + spread)[::-1]])
        bands.append(np.column_stack([np.concatenate([steps, steps[::-1]]), outline]))
        colours.append(colour)
    # All at once: the axes are scaled anew with everything that is added.
    axes.add_collection(PolyCollection(bands, facecolors=colours, alpha=0.15, lw=0))
    if column.chance:
        axes.axhline(column.chance, color=GREY, lw=0.8, ls=":", label=CHANCE)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, integer=True))
