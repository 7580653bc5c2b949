"""Ranks that each algorithm can have, and the algorithms that may be first.

Answers: Which ranks can an algorithm have?
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from biasbed.analysis.columns import blocks
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import STAR, Links, ScoreColumn, TableCell, number_cell
from biasbed.analysis.report.verdicts import claims, main_comparison
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks import conclusions
from biasbed.analysis.sections.section import (
    CsvFile,
    ForSets,
    PlannedFigure,
    Section,
    SectionAnswer,
    ShownPart,
)
from biasbed.analysis.statistics import sign_flips
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.stability import NEMENYI, WILCOXON

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMES = 6  # algorithms that are named
MOST_WITH_RANKS = 3  # of these are named with their ranks, which the table has too


class RankSets(Section[pd.DataFrame]):
    """Rank sets of `RankTests`: a column of every table of scores, a sentence of the answer, a CSV file."""

    name = "rank_sets"
    title = "Ranks"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        """Return a row for each choice of sets and algorithm: its average, best and worst rank."""
        rows = []
        for comparison in analysis.comparisons:
            for name, ranks in comparison.rank_sets.items():
                rows.append((comparison.setting, name, comparison.mean_ranks[name], ranks.best, ranks.worst))
        return pd.DataFrame(rows, columns=["setting", "algorithm", "average_rank", "best_rank", "worst_rank"])

    def answer(self, analysis: Analysis) -> SectionAnswer:
        """Say which algorithms may be first; without tests over sets, what runs and images show."""
        comparison = main_comparison(analysis)
        if comparison.skipped:
            return SectionAnswer((conclusions.verdict(analysis),), False)
        is_shown = comparison.significant or len(_first(comparison)) < len(comparison.algorithms)
        first = " ".join([describe(analysis, comparison), *conclusions.other_pools(analysis)])
        return SectionAnswer((first, *_describe_pair_tests(analysis, comparison)), is_shown)

    def score_columns(self, analysis: Analysis) -> Iterator[ScoreColumn]:
        """Yield the ranks, and the mean over the sets if they have one unit."""
        comparison = main_comparison(analysis)
        if comparison.skipped:
            return
        level = wording.percent(1 - analysis.alpha)
        legend = (
            f" Ranks: those that an algorithm can have over {comparison.size}, {level} confidence in all together; "
            f"{STAR} may be first by them."
        )
        yield ScoreColumn("ranks", "", rank_cells(comparison), legend, is_printed=False)
        means = _mean_cells(analysis, comparison)
        if means:
            yield ScoreColumn("mean", "", means, f" Mean: over {comparison.size}.", is_printed=False)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile("rank_sets.csv", data, "ranks that each algorithm can have")

    def opening(self, analysis: Analysis) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            if comparison.skipped:
                continue
            level = wording.percent(1 - comparison.alpha)
            figure = PlannedFigure(
                f"rank_sets{comparison.suffix}",
                functools.partial(draw, analysis, comparison),
                description=f"ranks that each algorithm can have, {wording.setting_label(comparison)}",
                alt="ranks that each algorithm can have",
                caption=(
                    f"Ranks that each algorithm can have (line; {level} confidence in all together), and average rank "
                    f"over {comparison.size} (dot). Coloured lines reach rank 1: these may be first."
                ),
            )
            yield ForSets(comparison.setting, (figure,))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()  # stands below the scores


RANK_SETS = RankSets()


def describe(analysis: Analysis, comparison: RankTests) -> str:
    """Say which algorithms may be first: those that are not shown to be worse than any other."""
    first, number = _first(comparison), len(comparison.algorithms)
    level = wording.percent(1 - analysis.alpha)
    extent = f"over {comparison.size}, {level} confidence in all ranks together"
    any_of = f"Any of the {number} algorithms may be first ({STAR})"
    if sign_flips.least_p(len(comparison.sets)) >= analysis.alpha:
        return f"{any_of}: {comparison.size} can show no other rank ({extent})."
    if len(first) == number:
        return f"{any_of}: none is shown to be worse by average rank ({extent})."
    if len(first) <= MOST_WITH_RANKS:
        names = [_with_ranks(analysis, comparison, name) for name in first]
    else:
        names = [analysis.label(name) for name in first]
    if len(names) > MOST_NAMES:
        names = [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
    who = f"One of {number} algorithms is" if len(first) == 1 else f"{len(first)} of {number} algorithms may be"
    others = "the other is" if number - len(first) == 1 else "the others are"
    rest = f"{others} shown to be worse than some algorithm ({extent})"
    return f"{who} first ({STAR}): {wording.listing(names)}; {rest}."


def _describe_pair_tests(analysis: Analysis, comparison: RankTests) -> Iterator[str]:
    """Say how many algorithms that may be first a test of pairs puts behind another; nothing if none."""
    claimed, first = claims(analysis, comparison), _first(comparison)
    for test, puts in (
        (NEMENYI, "Nemenyi's test, exact only if all algorithms are alike, puts"),
        (WILCOXON, "Wilcoxon tests with Holm's correction put"),
    ):
        worse = {claim.worse for claim in claimed if claim.test == test}
        if worse.intersection(first):
            yield f"{puts} {len(worse.intersection(first))} of these behind another."


def _with_ranks(analysis: Analysis, comparison: RankTests, name: str) -> str:
    """Return `SagNet (ranks 1 to 3)`."""
    ranks = comparison.rank_sets[name]
    return f"{analysis.label(name)} (rank{'s' * (ranks.best < ranks.worst)} {ranks})"


def rank_cells(comparison: RankTests) -> dict[str, TableCell]:
    """Return the ranks of each algorithm, with a star if it may be first."""
    cells = {}
    for name, ranks in comparison.rank_sets.items():
        cells[name] = TableCell(str(ranks), value=sum(ranks) / 2, sign=STAR if ranks.best == 1 else "")
    return cells


def _mean_cells(analysis: Analysis, comparison: RankTests) -> dict[str, TableCell]:
    """Return each algorithm's mean over the sets, in bold if it is the best; empty if sets have several units."""
    columns = [block[0] for name, block in blocks(analysis.sets).items() if name in comparison.sets]
    if len({(column.unit, column.higher_is_better) for column in columns}) != 1:
        return {}
    sign, choose = (1, max) if columns[0].higher_is_better else (-1, min)
    means = {str(name): sign * float(mean) for name, mean in comparison.oriented.mean().items()}
    best = number_cell(choose(means.values()), columns[0].digits).text
    cells = {name: number_cell(mean, columns[0].digits) for name, mean in means.items()}
    return {name: cell._replace(bold=cell.text == best) for name, cell in cells.items()}


def _first(comparison: RankTests) -> list[str]:
    """Return the algorithms that can have the first rank, best average rank first."""
    return [name for name, ranks in comparison.rank_sets.items() if ranks.best == 1]


# --- figure -----------------------------------------------------------------------------------------------------------


def draw(analysis: Analysis, comparison: RankTests) -> Figure:
    """Draw a line over the ranks of each algorithm and a dot at its average rank, the best at the top."""
    from matplotlib.ticker import MaxNLocator

    from biasbed.analysis.report.figures.style import GREY, LIGHT, Sheet, look

    number = len(comparison.rank_sets)
    figure = Sheet(figsize=(6.0, 0.8 + min(0.24 * number, 8.0)), layout="constrained")
    axes = figure.add_subplot()
    for row, (name, ranks) in enumerate(comparison.rank_sets.items()):
        average, label = comparison.mean_ranks[name], analysis.label(name)
        colour = look(analysis.algorithms.index(name))[0] if ranks.best == 1 else GREY
        axes.plot([ranks.best, ranks.worst], [row, row], color=colour, lw=2, marker="|", ms=7)
        axes.plot([average], [row], color=colour, marker="o", ms=5)
        figure.tip(axes, average, float(row), f"{label}: ranks {ranks}, average rank {average:.2f}")
    labels = [analysis.label(name) for name in comparison.rank_sets]
    axes.set_yticks(range(number), labels, fontsize=min(9.0, 8 * 72 / (1.3 * number)))
    axes.set_ylim(number - 0.4, -0.6)
    axes.set_xlim(0.5, number + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="x", color=LIGHT, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("rank (1: best)")
    return figure
