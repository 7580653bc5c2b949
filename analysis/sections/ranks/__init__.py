"""Ranks of the algorithms over the sets, and their pairs: omnibus test, Nemenyi's and Wilcoxon's tests, effects."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links, TableCell, TableColumn, make_table, prepared
from biasbed.analysis.report.verdicts import verdicts
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks.conclusions import concluded
from biasbed.analysis.sections.ranks.files import make_files
from biasbed.analysis.sections.ranks.tables import (
    make_nemenyi_table,
    make_pair_table,
    make_printed_ranks,
    make_rank_table,
)
from biasbed.analysis.sections.section import (
    CsvFile,
    ForSets,
    JsonFile,
    PlannedFigure,
    PrintedTable,
    Section,
    Sentences,
    ShownPart,
)
from biasbed.analysis.statistics.friedman import RankTests

MOST_IN_DIAGRAM = 20  # algorithms that a diagram tells apart; `rank_sets` and the map of ranks draw any number


class Ranks(Section[None]):
    """Tests over sets, for each choice of sets."""

    name = "ranks"
    title = "Ranks and pairs"

    def compute(self, analysis: Analysis) -> None:
        """Compute nothing: the tests are those of the analysis."""

    def files(self, data: None, analysis: Analysis) -> Iterator[CsvFile | JsonFile]:
        yield from make_files(analysis)

    def opening(self, analysis: Analysis) -> Iterator[ShownPart]:
        from biasbed.analysis.sections.ranks.diagrams import critical_difference

        for comparison in analysis.comparisons:
            if comparison.nemenyi is None or comparison.skipped or len(comparison.algorithms) > MOST_IN_DIAGRAM:
                continue
            more = "Bars join algorithms that Nemenyi's test does not tell apart."
            if not comparison.significant:
                more = "The omnibus test is not significant, so no pair is told apart."
            figure = PlannedFigure(
                f"critical_difference{comparison.suffix}",
                functools.partial(critical_difference, analysis, comparison),
                description=f"average ranks and critical difference, {wording.setting_label(comparison)}",
                alt="critical-difference diagram",
                caption=f"Average ranks, best at the left. {more}",
            )
            yield ForSets(comparison.setting, (figure,))

    def show(self, data: None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            if not comparison.skipped:
                yield ForSets(comparison.setting, tuple(_show_setting(analysis, comparison, links)))
        yield from _printed_tables(analysis, links)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return [ForSets(comparison.setting, _on_terminal(analysis, comparison)) for comparison in analysis.comparisons]


RANKS = Ranks()


def _on_terminal(analysis: Analysis, comparison: RankTests) -> tuple[ShownPart, ...]:
    """Return what a choice of sets leaves out, average ranks, and what the tests say."""
    parts: list[ShownPart] = []
    about = wording.setting_sentence(analysis, comparison)
    if about:
        parts.append(Sentences((about,)))
    if comparison.reach is not None:
        columns = [TableColumn("average rank", prepared("name")), TableColumn("1 = best", prepared("rank"))]
        records = []
        for name, value in comparison.mean_ranks.items():
            records.append({"name": TableCell(analysis.label(name)), "rank": TableCell(f"{value:.2f}")})
        parts.append(make_table("", columns, records, oracle=analysis.rule.oracle))
    power = wording.power_sentence(comparison)
    lines = [*wording.friedman_sentences(comparison), *concluded(analysis, comparison), *([power] if power else [])]
    return (*parts, Sentences(tuple(lines)))


def _show_setting(analysis: Analysis, comparison: RankTests, links: Links) -> Iterator[ShownPart]:
    """Yield figures and tables of one choice of sets."""
    from biasbed.analysis.sections.ranks import diagrams, forest

    where, suffix = wording.setting_label(comparison), comparison.suffix
    yield PlannedFigure(
        f"ranks{suffix}",
        functools.partial(diagrams.rank_map, analysis, comparison),
        description=f"rank of each algorithm on each set, {where}",
        alt="ranks on every set",
        caption="Where the average ranks come from.",
    )
    yield make_rank_table(analysis, comparison, links)
    pairs = forest.choose_drawn(verdicts(analysis, comparison))
    if pairs:
        yield PlannedFigure(
            f"effects{suffix}",
            functools.partial(forest.draw_forest, analysis, comparison, pairs),
            description=f"mean difference of every pair with its interval, {where}",
            alt="forest plot of effects",
            caption=(
                "Mean differences over the sets with bootstrap intervals; right of 0 the first of a pair is better. An "
                "interval tells of this pair alone; filled points are told apart by a test that accounts for all pairs."
            ),
        )
    if comparison.nemenyi is not None:
        yield PlannedFigure(
            f"p_values{suffix}",
            functools.partial(diagrams.p_values, analysis, comparison),
            description=f"p-values of all pairs, {where}",
            alt="p-values of all pairs",
            caption="p-values of all pairs by both tests: the darker, the surer is it that a pair differs.",
        )
    table = make_pair_table(analysis, comparison, links)
    if table is not None:
        yield table


def _printed_tables(analysis: Analysis, links: Links) -> Iterator[PrintedTable]:
    """Yield the tables of LaTeX files: average ranks, then Nemenyi's test and the pairs of each choice of sets."""
    table = make_printed_ranks(analysis, links)
    if table is not None:
        yield PrintedTable("ranks", table, "average ranks and omnibus test")
    for comparison in analysis.comparisons:
        where, suffix = wording.setting_label(comparison), comparison.suffix
        if comparison.nemenyi is not None:
            table = make_nemenyi_table(analysis, comparison, links)
            yield PrintedTable(f"nemenyi{suffix}", table, f"p-values of Nemenyi's test, {where}")
        table = make_pair_table(analysis, comparison, links)
        if table is not None:
            about = f"differences of all pairs with intervals and tests, {where}"
            yield PrintedTable(f"pairs{suffix}", table, about)
