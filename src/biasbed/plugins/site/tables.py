"""Tables of the results site: the report's own, with ranks as confidence sets, and those of one method or set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from biasbed.analysis import sections
from biasbed.analysis.columns import Column
from biasbed.analysis.report import score_tables, wording
from biasbed.analysis.report.charts import Chart, Mark, make_chart
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import (
    MISSING,
    Links,
    ReportTable,
    ScoreColumn,
    TableCell,
    TableColumn,
    count_cell,
    make_table,
    number_cell,
    prepared,
    prepared_columns,
    score_cell,
    without_columns,
)
from biasbed.analysis.report.verdicts import claims, control_of, main
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import bootstrap, stability
from biasbed.analysis.statistics.rank_sets import RankSet, rank_sets

DecisionCounts = Mapping[tuple[str, str], str]  # (algorithm, set) -> summary of the stored predictions
SetRanks = Mapping[str, Mapping[str, RankSet]]  # set -> algorithm -> its ranks there
BASELINE = "erm"  # method that only minimises the training error
ON_SET = "mann_whitney"  # test over the runs of one set
TESTS = {stability.NEMENYI: "Nemenyi", stability.WILCOXON: "Wilcoxon, Holm", ON_SET: "Mann-Whitney, Holm"}
CONFIDENCE = {
    stability.NEMENYI: "{level} confidence in all ranks together only if all methods are equal",
    stability.WILCOXON: "{level} confidence in all ranks together",
    ON_SET: "{level} confidence in all ranks on a set together; pairs count only if Kruskal-Wallis finds a difference",
}


class SiteLinks(Links):
    """Links of one analysis into the pages of its methods, which hold several analyses."""

    def __init__(self, analysis: Analysis, prefix: str, methods: Mapping[str, str]) -> None:
        """prefix: of the anchors, one for each analysis; methods: name -> file of its page."""
        super().__init__(analysis)
        self.prefix, self.methods = prefix, methods
        self.algorithms = {name: f"{prefix}-{anchor}" for name, anchor in self.algorithms.items()}
        self.runs = {run_id: f"{prefix}-{anchor}" for run_id, anchor in self.runs.items()}
        self.sets = {name: f"{prefix}-set-{position}" for position, name in enumerate(analysis.set_names)}
        runs = (*analysis.collection.runs, *analysis.collection.duplicates)
        self._method_of_run = {run.id: run.algorithm for run in runs}

    def to_algorithm(self, name: str) -> str:
        """Return the link to the analysis on a method's page."""
        return f"{self.methods[name]}#{self.prefix}" if name in self.algorithms else ""

    def to_run(self, run_id: str | None) -> str:
        """Return the link to a run on its method's page; empty for None."""
        return f"{self.methods[self._method_of_run[run_id]]}#{self.runs[run_id]}" if run_id else ""

    def to_cell(self, algorithm: str, name: str) -> str:
        """Return the link to a method's line for one set, below which its runs stand."""
        return f"{self.methods[algorithm]}#{self.sets[name]}"


# --- baseline ---------------------------------------------------------------------------------------------------------


def baselines(analysis: Analysis) -> tuple[str, ...]:
    """Return the rows that others are measured against: the control if there is one, else those of plain training."""
    control = control_of(analysis, main(analysis))
    if control != "none":
        return (control,)
    plain = {run.algorithm for run in analysis.collection.runs if run.method == BASELINE}
    if BASELINE in plain:  # other rows of the method have other networks, data or settings
        plain = {BASELINE}
    return tuple(name for name in analysis.algorithms if name in plain)


def label_of(analysis: Analysis, name: str) -> str:
    """Return a method's display name, with a word behind it if it is the baseline."""
    return f"{analysis.label(name)} ({say('site_baseline')})" if name in baselines(analysis) else analysis.label(name)


def _with_baseline(analysis: Analysis, name: str, cell: TableCell) -> TableCell:
    """Return a cell of a method's name, marked if it is the baseline."""
    return cell._replace(mark=say("site_baseline") if name in baselines(analysis) else "")


# --- ranks ------------------------------------------------------------------------------------------------------------


def ranks_over_sets(analysis: Analysis) -> dict[str, dict[str, RankSet]]:
    """Return test -> algorithm -> ranks that it can have, by the pairs that the report's test tells apart."""
    comparison = main(analysis)
    if comparison.skipped:
        return {}
    apart: dict[str, list[tuple[str, str]]] = {}
    if comparison.nemenyi is not None:
        apart[stability.NEMENYI] = []
    if comparison.pair is not None or not analysis.pairwise.skipped:
        apart[stability.WILCOXON] = []
    for claim in claims(analysis, comparison):
        apart[claim.test].append((claim.better, claim.worse))
    return {test: rank_sets(comparison.algorithms, pairs) for test, pairs in apart.items()}


def confidence(analysis: Analysis, test: str) -> str:
    """Return how sure the ranks by a test are, and on which condition."""
    return CONFIDENCE[test].format(level=wording.percent(1 - analysis.alpha))


def rank_column(test: str) -> str:
    """Return the head of the column with the ranks by a test."""
    return f"ranks ({TESTS[test]})"


def ranks_sentence(analysis: Analysis, tests: Iterable[str]) -> str:
    """Say what ranks are, and how sure those by each test are; empty without a test."""
    parts = [f"{TESTS[test]}: {confidence(analysis, test)}" for test in tests]
    if not parts:
        return ""
    return f"A range of ranks: those that the test does not rule out. {'. '.join(parts)}."


def order_sentence(analysis: Analysis) -> str:
    """Say in which order rows stand."""
    comparison = main(analysis)
    if comparison.skipped:
        return say("site_order_untested")
    rest = say("site_order_rest") if set(analysis.algorithms) - set(comparison.algorithms) else ""
    return say("site_order", rest=rest)


def ranks_on_set(analysis: Analysis, name: str) -> dict[str, RankSet]:
    """Return the ranks on one set, by Mann-Whitney tests over runs; empty if the set has too few runs to test."""
    frame = analysis.pairwise.set_pairs
    rows = frame[frame["dataset"] == name]
    apart = []
    for row in rows[rows["significant"].astype(bool)].to_dict("records"):
        is_a_ahead = row["cliffs_delta"] > 0
        apart.append((row["a"], row["b"]) if is_a_ahead else (row["b"], row["a"]))
    return rank_sets(list(dict.fromkeys([*rows["a"], *rows["b"]])), apart)


def rank_cell(ranks: Mapping[str, RankSet], algorithm: str) -> TableCell:
    """Return an algorithm's rank set, sorted by its middle; a dash if the algorithm was not tested."""
    if algorithm not in ranks:
        return TableCell(MISSING, value=math.inf)
    return TableCell(str(ranks[algorithm]), value=sum(ranks[algorithm]) / 2)


# --- tables -----------------------------------------------------------------------------------------------------------


def score_table(analysis: Analysis, links: SiteLinks) -> ReportTable:
    """Return the report's table of scores, the rank sets first and every score leading to its runs."""
    table = score_tables.scores(analysis, links, sections.score_columns(analysis))
    by_test = ranks_over_sets(analysis)
    rank_columns = [TableColumn(rank_column(test), prepared(test)) for test in by_test]
    averages = main(analysis).mean_ranks if by_test else {}
    if averages:
        rank_columns.append(TableColumn("average rank", prepared("average")))
    rows = []
    for algorithm, row in zip(analysis.algorithms, table.rows, strict=True):
        cells = [rank_cell(ranks, algorithm) for ranks in by_test.values()]
        if averages:
            is_tested = algorithm in averages
            cells.append(number_cell(averages[algorithm], 2) if is_tested else TableCell(MISSING, value=math.inf))
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if column.name in links.sets:
                cell = cell._replace(href=links.to_cell(algorithm, column.name))
            cells.append(cell)
        rows.append((_with_baseline(analysis, algorithm, row[0]), *cells))
    columns = (table.columns[0], *rank_columns, *table.columns[1:])
    return dataclasses.replace(table, columns=columns, rows=tuple(rows))


def method_table(
    analysis: Analysis,
    links: SiteLinks,
    algorithm: str,
    ranks: SetRanks,
    sets: Mapping[str, str],
    decisions: DecisionCounts,
) -> ReportTable:
    """Return a method's score on every set. sets: name -> file of its page."""
    further = [column for column in sections.score_columns(analysis) if algorithm in column.cells]
    records: list[dict[str, TableCell]] = []
    for column in analysis.sets:
        cell = analysis.cells[algorithm, column.name]
        runs = f"#{links.algorithms[algorithm]}"
        record = {
            "set": TableCell(analysis.label(column.name), href=sets[column.name], left=True, name=column.name),
            "score": score_cell(cell, runs),
            **_further_cells(further, column.name, algorithm),
            "of": TableCell(measured(column), left=True),
            "runs": count_cell(cell.num_runs),
            rank_column(ON_SET): rank_cell(ranks[column.name], algorithm),
            "images of the set": TableCell(f"{column.images:,}" if column.images else MISSING, value=column.images),
            "predictions": TableCell(decisions.get((algorithm, column.name), MISSING), left=True),
        }
        records.append(record)
    measures = dict.fromkeys(map(measured, analysis.sets))
    caption = f"Score on every set, in {analysis.units}."
    caption += _legend(analysis, [record["score"] for record in records])
    if any(ranks[name] for name in analysis.set_names):
        caption += f" {ranks_sentence(analysis, [ON_SET])}"
    caption += "".join(dict.fromkeys(column.legend for column in further))
    if len(measures) == 1:
        caption += f" All are {next(iter(measures))}."
        for record in records:
            record["of"] = TableCell(MISSING)
    ids = tuple(links.sets[name] for name in analysis.set_names)
    columns = prepared_columns(records[0])
    table = make_table(caption, columns, records, oracle=analysis.rule.oracle, ids=ids)
    return without_columns(table, _is_missing)


def set_table(analysis: Analysis, links: SiteLinks, name: str, ranks: Mapping[str, RankSet]) -> ReportTable:
    """Return every method's score on one set, the best first, with its ranks there."""
    column = next(column for column in analysis.sets if column.name == name)
    further = [column for column in sections.score_columns(analysis) if column.dataset == name]
    records: list[dict[str, TableCell]] = []
    for algorithm in _by_score(analysis, column):
        cell = analysis.cells[algorithm, name]
        record = {
            "algorithm": _with_baseline(analysis, algorithm, links.algorithm_cell(algorithm)),
            "score": score_cell(cell, links.to_cell(algorithm, name)),
            **_further_cells(further, name, algorithm),
            "runs": count_cell(cell.num_runs),
        }
        if ranks:
            record[rank_column(ON_SET)] = rank_cell(ranks, algorithm)
        records.append(record)
    caption = f"{wording.capitalized(measured(column))}, in {analysis.units}. {say('site_order_on_set')}"
    caption += _legend(analysis, [record["score"] for record in records])
    caption += "".join(dict.fromkeys(column.legend for column in further))
    table = make_table(caption, prepared_columns(records[0]), records, oracle=analysis.rule.oracle)
    return without_columns(table, _is_missing)


def _further_cells(columns: Sequence[ScoreColumn], name: str, algorithm: str) -> dict[str, TableCell]:
    """Return a method's further measures of a set by their heads; dashes for those of other sets."""
    cells = {column.head: TableCell(MISSING, value=-math.inf) for column in columns}
    for column in columns:
        if column.dataset == name and algorithm in column.cells:
            cells[column.head] = column.cells[algorithm]
    return cells


def _is_missing(index: int, cells: Sequence[TableCell]) -> bool:
    """Return True for a column without any value."""
    return all(cell.text == MISSING for cell in cells)


def _by_score(analysis: Analysis, column: Column) -> list[str]:
    """Return the methods by their score on a set, the best first and those without a score last."""
    sign = -1 if column.higher_is_better else 1

    def position(name: str) -> float:
        mean = analysis.cells[name, column.name].mean
        return math.inf if math.isnan(mean) else sign * mean

    return sorted(analysis.algorithms, key=position)


def _legend(analysis: Analysis, cells: Sequence[TableCell]) -> str:
    """Say what ±, bold and † are; nothing of those that no cell of scores has."""
    parts = []
    if any(cell.spread for cell in cells):
        parts.append(f" ± is the {wording.error(analysis)} over {runs_of(analysis)} ({wording.error_by(analysis)}).")
    if any(cell.bold for cell in cells):
        parts.append(" Bold: the best method on the set.")
    if any(cell.dagger for cell in cells):
        parts.append(say("scores_dagger"))
    return "".join(parts)


def measured(column: Column) -> str:
    """Return what a set's score is, and which direction is better."""
    direction = "higher" if column.higher_is_better else "lower"
    return f"{column.headline.replace('_', ' ')}, {direction} is better"


def runs_of(analysis: Analysis) -> str:
    """Return what scores are means over: runs or replicates."""
    return f"{wording.repeated(analysis)}s"


def rows_about(table: ReportTable | None, algorithm: str) -> ReportTable | None:
    """Return a table with only the rows of one algorithm; None without any."""
    if table is None:
        return None
    position = [column.head for column in table.columns].index("algorithm")
    kept = [number for number, row in enumerate(table.rows) if row[position].name == algorithm]
    if not kept:
        return None
    ids = tuple(table.ids[number] for number in kept) if table.ids else ()
    return dataclasses.replace(table, rows=tuple(table.rows[number] for number in kept), ids=ids)


# --- charts -----------------------------------------------------------------------------------------------------------


def rank_charts(analysis: Analysis) -> list[Chart]:
    """Return a chart of rank sets for each test over sets, the average rank as the point; one if tests agree."""
    comparison, charts = main(analysis), []
    by_ranks: dict[tuple[tuple[str, RankSet], ...], list[str]] = {}
    for test, ranks in ranks_over_sets(analysis).items():
        by_ranks.setdefault(tuple(ranks.items()), []).append(TESTS[test])
    for items, names in by_ranks.items():
        ranks = dict(items)
        marks = []
        for name, average in comparison.mean_ranks.items():
            text = f"{ranks[name]}, average {average:.2f}"
            marks.append(Mark(label_of(analysis, name), text, average, *ranks[name]))
        caption = f"Ranks that each method can have ({' and '.join(names)}); the point is its average rank."
        charts.append(make_chart(caption, marks, whole_numbers=True))
    return [chart for chart in charts if chart is not None]


def mean_chart(analysis: Analysis) -> Chart | None:
    """Return the means over the sets with their bootstrap intervals; None if the sets have no common mean."""
    frame, comparison = analysis.pairwise.intervals, main(analysis)
    rows = frame[(frame["setting"] == comparison.setting) & (frame["dataset"] == bootstrap.OVER_SETS)]
    digits, level = analysis.sets[0].digits, wording.percent(1 - analysis.alpha)
    marks = []
    for row in rows.sort_values("mean", ascending=False, kind="stable").to_dict("records"):
        bounds = f"{row['low']:.{digits}f} to {row['high']:.{digits}f}"
        text = f"{row['mean']:.{digits}f} ({bounds})"
        name = row["algorithm"]
        marks.append(Mark(label_of(analysis, name), text, row["mean"], row["low"], row["high"]))
    return make_chart(f"Mean over the {comparison.noun}s with its {level} bootstrap interval.", marks)
