"""Numbers that a table prints: contradictions, claims without support, and tests from its means and deviations.

Answers: Which printed numbers of a table can't be right?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed.analysis.comparisons.printed_tests import printed_tests
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableColumn,
    interval,
    make_table,
    named,
    p_value,
    prepared,
    text_cell,
)
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.report.wording import count
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, Section, SectionAnswer, Sentences, ShownPart
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.tables.findings import COLUMNS, Checked

MOST_LINES = 10  # tests on the terminal
CHECK_FILE, TESTS_FILE = "check.csv", "printed_tests.csv"


@dataclass(frozen=True)
class PrintedEvidence:
    """Result of the check, if it was asked for, and Welch's tests."""

    checked: Checked | None
    tests: pd.DataFrame  # `printed_tests.COLUMNS`
    num_spreads: int

    @property
    def findings(self) -> pd.DataFrame:
        """Findings of the check, a row each."""
        rows = [] if self.checked is None else [finding.as_row() for finding in self.checked.findings]
        return pd.DataFrame(rows, columns=list(COLUMNS))


class PrintedNumbersOfTable(Section[PrintedEvidence]):
    """Check of a user's table, and tests from its printed deviations; nothing for tracked runs."""

    name = "printed_numbers"
    title = "Printed numbers"
    is_open = True

    def compute(self, analysis: Analysis) -> PrintedEvidence:
        scores = analysis.inputs.user_scores
        if scores is None:
            return PrintedEvidence(None, pd.DataFrame(), 0)
        return PrintedEvidence(scores.checked, printed_tests(scores, analysis.alpha), len(scores.spreads))

    def files(self, data: PrintedEvidence, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(CHECK_FILE, data.findings, "printed numbers that contradict each other, and unsupported claims")
        yield CsvFile(TESTS_FILE, data.tests, "Welch's test of every pair on each set, from printed deviations")

    def answer(self, analysis: Analysis) -> SectionAnswer:
        checked = analysis.data(self).checked
        return SectionAnswer((checked.sentence,) if checked is not None else (), False)

    def show(self, data: PrintedEvidence, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data.checked is not None:
            yield Sentences((data.checked.extent,))
            if data.checked.findings:
                yield _make_finding_table(data)
        lines = describe_tests(data, analysis)
        if lines:
            yield Sentences(tuple(lines[:1]))
            if len(data.tests):
                yield _make_test_table(data.tests, analysis)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        data = analysis.data(self)
        lines = [] if data.checked is None else data.checked.lines
        return [Sentences((*lines, *describe_tests(data, analysis)))]


PRINTED_NUMBERS = PrintedNumbersOfTable()


def describe_tests(data: PrintedEvidence, analysis: Analysis) -> list[str]:
    """Return the sentences on Welch's tests, how many are significant first; none without printed deviations."""
    if not data.num_spreads:
        return []
    table = data.tests
    if table.empty:
        return [
            f"The table prints {data.num_spreads} deviations and not of how many runs: say it as seeds=3 for tests on "
            "each data set."
        ]
    significant = table[table["significant"]].sort_values("p_holm")
    num_tested = int(table["p_holm"].notna().sum())
    smallest_p = ""
    if significant.empty and num_tested:
        smallest_p = f"; the smallest corrected p is {table['p_holm'].min():.2g}"
    lines = [
        "From printed means and deviations, not from runs (Welch's test on each data set, Holm's correction over "
        f"{num_tested} comparisons): {len(significant)} are significant at {analysis.alpha:g}{smallest_p}."
    ]
    num_untested = len(table) - num_tested
    if num_untested:
        verb = "has" if num_untested == 1 else "have"
        lines.append(f"{count(num_untested, 'comparison')} {verb} no test, as both deviations are printed as 0.")
    lower = {column.name for column in analysis.sets if not column.higher_is_better}
    for test in _best_first(significant, main_comparison(analysis)).head(MOST_LINES).to_dict("records"):
        a_is_higher, lower_is_better = test["difference"] > 0, test["dataset"] in lower
        better, worse = ("a", "b") if a_is_higher != lower_is_better else ("b", "a")
        least, most = sorted((abs(test["low"]), abs(test["high"])))
        lead = f"{test[better]} better than {test[worse]} by {least:.3g} to {most:.3g}"
        lines.append(f"{test['dataset']}: {lead} (p = {test['p_holm']:.2g})")
    if len(significant) > MOST_LINES:
        lines.append(f"and {len(significant) - MOST_LINES} more (printed_tests)")
    return lines


def _best_first(tests: pd.DataFrame, comparison: RankTests) -> pd.DataFrame:
    """Return the tests, those of the algorithm with the best average rank first."""
    if comparison.skipped:
        return tests
    best = next(iter(comparison.mean_ranks))
    is_of_best = (tests["a"] == best) | (tests["b"] == best)
    return pd.concat([tests[is_of_best], tests[~is_of_best]])


def _make_finding_table(data: PrintedEvidence) -> ReportTable:
    """Return a row for each finding: what is printed, where, and what it should be."""
    assert data.checked is not None
    records = []
    for finding in data.checked.findings:
        values = zip(COLUMNS, finding.as_row(), strict=True)
        records.append({name: text_cell(value) for name, value in values})
    columns = [TableColumn(name, prepared(name)) for name in COLUMNS]
    return make_table("", columns, records, CHECK_FILE, oracle=False)


def _make_test_table(tests: pd.DataFrame, analysis: Analysis) -> ReportTable:
    """Return the significant tests; all if none is."""
    rows = tests[tests["significant"]] if tests["significant"].any() else tests
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("a", named("a", analysis.label)),
        TableColumn("b", named("b", analysis.label)),
        TableColumn("a - b", interval("difference", "low", "high", 2)),
        TableColumn("p (Holm)", p_value("p_holm", analysis.alpha)),
    ]
    level = f"{100 * (1 - analysis.alpha):g}"
    caption = f"Welch's tests from printed deviations: differences as printed with {level} % intervals."
    records = rows.sort_values("p_holm", kind="stable").to_dict("records")
    return make_table(caption, columns, records, TESTS_FILE, oracle=False)
