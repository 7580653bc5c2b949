"""Single evaluation sets: what runs show on each set alone, by tests over runs.

Their results hold for the one set only; tests over sets generalise to other sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    interval,
    make_table,
    named,
    number,
    p_value,
    prepared,
)
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.report.wording import count, listing, percent
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, Section, Sentences, ShownPart
from biasbed.analysis.sections.single_runs import SINGLE_RUNS
from biasbed.analysis.statistics import per_set, power
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.per_set import SetTests

FILE, PAIRS_FILE = "per_set.csv", "per_set_pairs.csv"
MOST_ALONE = 3  # sets, and pairs on each, where one set at a time is tested
MOST_ON_PAGE = 1000  # pairs on single sets; more are in the file alone


class SingleSets(Section[SetTests]):
    """Kruskal-Wallis test on each set, and Mann-Whitney tests of its pairs."""

    name = "single"
    title = "On single sets"
    of_tests = True

    def compute(self, analysis: Analysis) -> SetTests:
        return analysis.pairwise.on_sets

    def files(self, data: SetTests, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(FILE, data.sets, "Kruskal-Wallis test over the runs of every set")
        yield CsvFile(PAIRS_FILE, data.pairs, "Mann-Whitney tests over the runs of every set and pair")

    def show(self, data: SetTests, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        sentences = describe(analysis)
        if sentences:
            yield Sentences(tuple(sentences))
        if (data.sets["skipped"] == "").any():
            yield make_set_table(data, analysis)
        if len(data.pairs) <= MOST_ON_PAGE:
            has_legend = True
            for name in analysis.set_names:
                table = make_pair_table(analysis, links, name, has_legend)
                if table is not None:
                    yield table
                    has_legend = False

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        if not (analysis.collection.is_table and analysis.comparisons[0].skipped):
            return ()
        sentences = () if analysis.data(SINGLE_RUNS).applies else tuple(describe(analysis))
        return [Sentences(sentences)] if sentences else []


SINGLE_SETS = SingleSets()

# --- sentences --------------------------------------------------------------------------------------------------------


def describe(analysis: Analysis) -> list[str]:
    """Say on how many sets the runs show a difference, and for how many pairs; nothing without runs."""
    sets, pairs = analysis.data(SINGLE_SETS)
    tested = sets[sets["skipped"] == ""]
    if tested.empty:
        reasons = sorted(set(sets["skipped"]) - {""})
        return [f"No test on a single set: {listing(reasons)}."] if reasons else []
    significant = [str(name) for name in tested.loc[tested["significant"].astype(bool), "dataset"]]
    if not significant:
        tests = count(len(tested), "set")
        return [f"On no single set do the runs show that the algorithms differ ({tests} tested)."]
    is_every = 1 < len(significant) == len(tested)
    names = "each of them" if is_every else listing(map(analysis.label, significant))
    apart = int(pairs["significant"].astype(bool).sum())
    return [
        f"Set by set, the runs show that the algorithms differ on {len(significant)} of "
        f"{count(len(tested), 'tested set')} (Kruskal-Wallis with Holm's correction): {names}. This holds for the set "
        "alone, not for others.",
        f"Pair by pair on one set, {apart} of {count(len(pairs), 'comparison')} are told apart (Mann-Whitney with "
        "Holm's correction within the set).",
    ]


def describe_alone(analysis: Analysis) -> list[str]:
    """Say what the runs show on each set alone, and what a test over sets takes, if there is one set to compare on.

    Empty if there are several, or if no set has a test over runs.
    """
    comparison, tests = main_comparison(analysis), analysis.data(SINGLE_SETS).sets
    tests = tests[tests["skipped"] == ""]
    if not comparison.skipped or len(comparison.sets) != 1 or tests.empty:
        return []
    lines = [_describe_set(analysis, row) for row in tests.head(MOST_ALONE).to_dict("records")]
    if len(tests) > MOST_ALONE:
        lines.append(
            f"Of {count(len(tests), 'set')} tested alone, these are the first {MOST_ALONE}; the table of single sets "
            "has all."
        )
    if tests["significant"].any():
        lines += describe(analysis)[1:]
    return [*lines, describe_other_sets(comparison)]


def describe_other_sets(comparison: RankTests) -> str:
    """Say that nothing is said of other sets, and what a test over sets takes."""
    number_of_rows = len(comparison.algorithms)
    smallest = power.reach(number_of_rows, 1, comparison.alpha, comparison.noun).smallest_num_sets
    return (
        f"Of other sets this says nothing: {comparison.skipped}, and with {count(number_of_rows, 'algorithm')} no "
        f"outcome is significant on fewer than {count(smallest, comparison.noun)}."
    )


def _describe_set(analysis: Analysis, test: dict[Any, Any]) -> str:
    """Say whether the algorithms differ on one set, and by how much the best leads each other one."""
    pairs = analysis.data(SINGLE_SETS).pairs
    on_set = pairs[pairs["dataset"] == test["dataset"]]
    leads = sorted(on_set.to_dict("records"), key=lambda row: -abs(row["difference"]))
    verb = "show" if test["significant"] else "do not show"
    listed = "; ".join(_describe_lead(analysis, row) for row in leads[:MOST_ALONE])
    return (
        f"On {analysis.label(test['dataset'])} alone the runs {verb} that the algorithms differ (Kruskal-Wallis, "
        f"p {wording.p_value(test['p_holm'])}): {listed}."
    )


def _describe_lead(analysis: Analysis, row: dict[Any, Any]) -> str:
    """Say by how much one algorithm leads another on one set, with Welch's interval."""
    better, worse = row["a"], row["b"]
    if row["difference"] < 0:
        better, worse = worse, better
    of_set = analysis.runs[analysis.runs["dataset"] == row["dataset"]]
    values = []
    for name in (better, worse):
        values.append(of_set.loc[of_set["algorithm"] == name, "score"].dropna().to_numpy(dtype="float64"))
    low, high, _ = per_set.welch(values[0], values[1], 1 - analysis.alpha)
    if values[0].mean() < values[1].mean():  # lower is better
        low, high = -high, -low
    return wording.lead_clause(analysis, better, worse, abs(row["difference"]), low, high)


# --- tables -----------------------------------------------------------------------------------------------------------


def make_set_table(tests: SetTests, analysis: Analysis) -> ReportTable:
    """Return the test on each set, and how many pairs are told apart there."""
    records = []
    for row in tests.sets.to_dict("records"):
        of_set = tests.pairs[tests.pairs["dataset"] == row["dataset"]]
        apart = int(of_set["significant"].astype(bool).sum())
        cell = TableCell(f"{apart} of {len(of_set)}", value=apart)
        records.append({**row, "apart": TableCell(row["skipped"]) if row["skipped"] else cell})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("runs", number("num_runs", 0)),
        TableColumn("H", number("h", 2)),
        TableColumn("p", p_value("p_holm", analysis.alpha, bold="significant")),
        TableColumn("pairs told apart", prepared("apart")),
    ]
    caption = (
        "Do the algorithms differ on one set? Kruskal-Wallis over the runs, p with Holm's correction over the sets; "
        "pairs by Mann-Whitney with Holm's correction within the set."
    )
    return make_table(caption, columns, records, PAIRS_FILE, oracle=analysis.rule.oracle)


def make_pair_table(analysis: Analysis, links: Links, name: str, has_legend: bool = True) -> ReportTable | None:
    """Return every pair on one set, the largest difference first; None without tests over runs."""
    pairs = analysis.data(SINGLE_SETS).pairs
    of_set = pairs[pairs["dataset"] == name]
    if of_set.empty:
        return None
    records = []
    for row in per_set.pair_intervals(of_set, analysis.runs, analysis.alpha).to_dict("records"):
        records.append(_turn_pair(row) if row["difference"] < 0 else row)
    records.sort(key=lambda row: -row["difference"])
    digits = next(column.digits for column in analysis.sets if column.name == name)
    columns = [
        TableColumn("a", links.algorithm("a")),
        TableColumn("b", links.algorithm("b")),
        TableColumn("a better by", interval("difference", "low", "high", digits)),
        TableColumn("p (Holm)", p_value("p_holm", analysis.alpha, bold="significant")),
        TableColumn("smallest p possible", p_value("smallest_p", analysis.alpha)),
    ]
    number_of_tests = records[0]["num_tests"]
    together = "of this one pair"
    if number_of_tests > 1:
        together = f"both corrected for {number_of_tests} pairs (intervals by Bonferroni, p by Holm)"
    caption = f"Pairs on {analysis.label(name)}."
    if has_legend:
        caption += (
            f" By how many {wording.unit(analysis)} the runs of a are better than those of b, with the "
            f"{percent(1 - analysis.alpha)} interval (Welch's t) and Mann-Whitney's p, {together}; bold: significant, "
            "under a significant Kruskal-Wallis test of this set. No p can be below the smallest possible: that takes "
            "more runs."
        )
    return make_table(caption, columns, records, PAIRS_FILE, oracle=analysis.rule.oracle)


def _turn_pair(row: dict[Any, Any]) -> dict[Any, Any]:
    """Return the same pair seen from the other side."""
    turned = {"a": row["b"], "b": row["a"], "difference": -row["difference"]}
    return row | turned | {"low": -row["high"], "high": -row["low"]}
