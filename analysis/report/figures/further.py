"""Figures of the further tests (`further=`): Wilcoxon's cliques, performance profiles, multi-comparison matrix."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.colors import CenteredNorm

from biasbed.analysis.report import wording
from biasbed.analysis.report.figures import ranks
from biasbed.analysis.report.figures.style import GREY, Sheet, legend, look, text_on
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import PlannedFigure
from biasbed.analysis.statistics.friedman import RankTests

CELL = (0.92, 0.52)  # inches
COLOURS = "PuOr"


def planned(analysis: Analysis, comparison: RankTests) -> Iterator[PlannedFigure]:
    """Yield the figures of the further frames that one setting has."""
    where, suffix = wording.setting_file(comparison), comparison.suffix
    cliques = rows_of(analysis, comparison, "cliques")
    if len(cliques):
        draw = functools.partial(ranks.critical_difference, analysis, comparison, cliques)
        description = f"average ranks and Wilcoxon's cliques, {where}"
        yield PlannedFigure(f"critical_difference_wilcoxon{suffix}", draw, description)
    profiles = rows_of(analysis, comparison, "profiles")
    if len(profiles):
        draw = functools.partial(performance_profiles, analysis, profiles)
        yield PlannedFigure(f"profiles{suffix}", draw, f"share of scores better than each threshold, {where}")
    matrix = rows_of(analysis, comparison, "comparison_matrix")
    if len(matrix) and matrix["a"].nunique() > 1 and matrix["b"].nunique() > 1:
        draw = functools.partial(comparison_matrix, analysis, comparison, matrix)
        description = f"mean difference, wins and p of every pair, {where}"
        yield PlannedFigure(f"comparison_matrix{suffix}", draw, description)


def rows_of(analysis: Analysis, comparison: RankTests, name: str) -> pd.DataFrame:
    """Return the rows of a further frame in this setting; an empty frame if it was not requested."""
    frame = analysis.pairwise.further.get(name)
    if frame is None:
        return pd.DataFrame()
    return frame[frame["setting"] == comparison.setting]


def performance_profiles(analysis: Analysis, profiles: pd.DataFrame) -> Sheet:
    """Draw the share of scores better than each threshold, with its band (Agarwal et al. 2021, figure 8)."""
    figure = Sheet(figsize=(6.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in profiles.groupby("algorithm", sort=False):
        colour, line, _ = look(analysis.algorithms.index(str(name)))
        x = rows["threshold"].to_numpy()
        axes.plot(x, rows["share"], color=colour, ls=line, lw=1.4, label=analysis.label(str(name)))
        axes.fill_between(x, rows["low"].to_numpy(), rows["high"].to_numpy(), color=colour, alpha=0.15, lw=0)
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of runs and sets with a better score")
    axes.set_xlabel(f"score, {analysis.units}")
    axes.grid(color="#ececec", lw=0.7)
    legend(figure, axes)
    return figure


def comparison_matrix(analysis: Analysis, comparison: RankTests, matrix: pd.DataFrame) -> Sheet:
    """Draw every pair's mean difference as colour and number, with wins/ties/losses and uncorrected p below it."""
    names = list(dict.fromkeys(matrix["a"]))
    k = len(names)
    position = {name: i for i, name in enumerate(names)}
    table = np.full((k, k), np.nan)
    rows, columns = matrix["a"].map(position).to_numpy(), matrix["b"].map(position).to_numpy()
    table[rows, columns] = matrix["mean_difference"].to_numpy()
    figure = Sheet(figsize=(2.2 + CELL[0] * k, 1.6 + CELL[1] * k), layout="constrained")
    axes = figure.add_subplot()
    widest = float(np.nanmax(np.abs(table))) or 1.0
    mesh = axes.pcolormesh(np.ma.masked_invalid(table), cmap=COLOURS, norm=CenteredNorm(0, widest), ec="white", lw=1.2)
    for row in matrix.to_dict("records"):
        i, j = position[str(row["a"])], position[str(row["b"])]
        red, green, blue, _ = mesh.cmap(mesh.norm(row["mean_difference"]))
        counts = f"{row['wins']} / {row['ties']} / {row['losses']}"
        text = f"{row['mean_difference']:+.2f}\n{counts}\np {wording.short_p(row['p'], comparison.alpha)}"
        weight = "bold" if row["p"] < comparison.alpha else "normal"
        colour = text_on(float(red), float(green), float(blue))
        ranks.write_in_cell(axes, j + 0.5, i + 0.5, text, 7.0, color=colour, weight=weight)
        pair = f"{analysis.label(row['a'])} \N{MINUS SIGN} {analysis.label(row['b'])}"
        figure.tip(axes, j, i, f"{pair}: {text}".replace("\n", ", "), 1, 1)
    centres = [i + 0.5 for i in range(k)]
    shown = [*map(analysis.label, names)]
    ranks.label_map(axes, centres, shown, shown)
    lines = f"row \N{MINUS SIGN} column: mean difference, {wording.unit(analysis)}; wins / ties / losses of the row"
    axes.set_xlabel(
        f"{lines}\nWilcoxon's p, not corrected; bold: below {comparison.alpha:g}; {comparison.size}",
        fontsize=8,
        color=GREY,
    )
    return figure
