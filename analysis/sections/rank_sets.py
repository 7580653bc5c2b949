"""Ranks that each algorithm can have, and who may be first: what a reader of a table asks first.

Answers: Which ranks can an algorithm have?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links, ScoreColumn, TableCell
from biasbed.analysis.report.verdicts import main
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, Section, SectionAnswer, Sentences, ShownPart
from biasbed.analysis.statistics import sign_flips
from biasbed.analysis.statistics.friedman import RankTests

MOST_NAMES = 6  # algorithms that are named


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
        comparison = main(analysis)
        if comparison.skipped:
            return SectionAnswer((), False)
        return SectionAnswer((describe(analysis, comparison),), len(_first(comparison)) < len(comparison.algorithms))

    def score_columns(self, analysis: Analysis) -> Iterator[ScoreColumn]:
        comparison = main(analysis)
        if comparison.skipped:
            return
        cells = {}
        for name, ranks in comparison.rank_sets.items():
            cells[name] = TableCell(str(ranks), value=sum(ranks) / 2)
        level = wording.percent(1 - analysis.alpha)
        legend = f" Ranks: those that an algorithm can have over {comparison.size}, {level} confidence in all together."
        yield ScoreColumn("ranks", "", cells, legend)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile("rank_sets.csv", data, "ranks that each algorithm can have")

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        comparison = main(analysis)
        return () if comparison.skipped else (Sentences((describe(analysis, comparison),)),)


RANK_SETS = RankSets()


def describe(analysis: Analysis, comparison: RankTests) -> str:
    """Say which algorithms may be first, those that are not shown to be worse than any other."""
    first, number = _first(comparison), len(comparison.algorithms)
    level = wording.percent(1 - analysis.alpha)
    over = f"over {comparison.size}, {level} confidence in all ranks together"
    if sign_flips.least_p(len(comparison.sets)) >= analysis.alpha:
        return f"Any of the {number} algorithms may be first: {comparison.size} can show no other rank ({over})."
    if len(first) == number:
        return f"Any of the {number} algorithms may be first: none is shown to be worse than another ({over})."
    names = [f"{analysis.label(name)} (ranks {comparison.rank_sets[name]})" for name in first]
    if len(names) > MOST_NAMES:
        names = [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
    who = "One algorithm is" if len(first) == 1 else f"{len(first)} of {number} algorithms may be"
    return f"{who} first: {wording.listing(names)}; the others are shown to be worse than some algorithm ({over})."


def _first(comparison: RankTests) -> list[str]:
    """Return the algorithms that can have the first rank, best average rank first."""
    return [name for name, ranks in comparison.rank_sets.items() if ranks.best == 1]
