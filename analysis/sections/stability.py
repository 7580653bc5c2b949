"""Stability of the conclusions: which survive every change that was tried, and which a change overturns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links, ReportTable, TableColumn, count_cell, make_table, prepared, text
from biasbed.analysis.report.verdicts import Overturned, overturned_conclusions
from biasbed.analysis.report.wording import TEST_NAMES, count, listing
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, ForSets, Section, Sentences, ShownPart, Unfolding
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.pairwise import Stability

FILE = "sensitivity.csv"


class StabilityOfConclusions(Section[Stability]):
    """Conclusions without an algorithm, a set or a run, by another rule, at another level."""

    name = "flip"
    title = "What could flip it"
    of_tests = True
    is_open = True
    if_empty = "There is no conclusion to check under other choices."

    def compute(self, analysis: Analysis) -> Stability:
        return analysis.pairwise.stability

    def files(self, data: Stability, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(FILE, data.flips, "every conclusion that is another one if something is changed")
        about = "how many conclusions were checked, and how many flip"
        yield CsvFile("sensitivity_checks.csv", data.checks, about)

    def show(self, data: Stability, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            sentence, table = describe(analysis, comparison), make_flip_table(analysis, comparison)
            parts: list[ShownPart] = [Sentences((sentence,))] if sentence else []
            if table is not None:
                parts.append(Unfolding("The table of what does not survive", (table,)))
            yield ForSets(comparison.setting, tuple(parts))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()


STABILITY = StabilityOfConclusions()

# --- changes ----------------------------------------------------------------------------------------------------------


def name_change(analysis: Analysis, change: str) -> str:
    """Return the kind of a change (`stability.Variants.change`) in words."""
    kinds = {
        "leave_one_algorithm_out": "one algorithm less",
        "leave_one_set_out": f"one {analysis.comparisons[0].noun} less",
        "one_run_less": f"one {wording.replicate_noun(analysis)} less",
        "selection_rule": "another selection rule",
        "alpha": "another level of significance",
    }
    return kinds[change]


def describe_change(analysis: Analysis, change: str, changed: str) -> str:
    """Return one change in words. changed: what is left out or set; a run by its id."""
    run_names = {run.id: f"{analysis.label(run.algorithm)} seed {run.seed}" for run in analysis.collection.runs}
    name = run_names.get(changed, analysis.label(changed))
    changes = {
        "leave_one_algorithm_out": f"without {name}",
        "leave_one_set_out": f"without the {analysis.comparisons[0].noun} {name}",
        "one_run_less": f"without the {wording.replicate_noun(analysis)} {name}",
        "selection_rule": f"selected by {name}",
        "alpha": f"at a level of {name}",
    }
    oracles = analysis.selection.loc[analysis.selection["oracle"].astype(bool), "rule"]
    is_oracle = change == "selection_rule" and changed in set(oracles)
    return changes[change] + (" (ORACLE)" if is_oracle else "")


def list_changes(analysis: Analysis, comparison: RankTests, tests: Iterable[str]) -> str:
    """List the changes after which the conclusions of these tests were drawn again.

    First those that were tried with all tests, then the further ones of single tests.
    """
    frame = analysis.data(STABILITY).checks
    checks = frame[(frame["setting"] == comparison.setting) & (frame["claims"] > 0)]
    changes_by_test = {test: list(checks.loc[checks["test"] == test, "change"].unique()) for test in tests}
    common = []
    for change in checks["change"].unique():
        if all(change in changes for changes in changes_by_test.values()):
            common.append(change)
    names = listing(name_change(analysis, change) for change in common)
    for test, changes in changes_by_test.items():
        more = [name_change(analysis, change) for change in changes if change not in common]
        if more:
            names += f"; for {TEST_NAMES[test]} also {listing(more)}"
    return names


# --- sentences and table ----------------------------------------------------------------------------------------------


def describe(analysis: Analysis, comparison: RankTests) -> str:
    """Say what was tried, and how many conclusions survive it; empty if no conclusion was drawn again."""
    data = analysis.data(STABILITY)
    of_setting = data.checks[data.checks["setting"] == comparison.setting]
    tests = of_setting.loc[of_setting["claims"] > 0, "test"].unique()
    if not len(tests):
        return ""
    tried = list_changes(analysis, comparison, tests)
    flips = overturned_conclusions(data.flips, comparison.setting)
    if not flips:
        return f"Every conclusion survives all that was tried: {tried}."
    differ = sum(flip.positive for flip in flips)
    return (
        f"{count(differ, 'conclusion')} that something differs, and {len(flips) - differ} that no difference is shown, "
        f"do not survive all that was tried: {tried}."
    )


def _describe_outcome(analysis: Analysis, conclusion: Overturned, outcome: str) -> str:
    """Return an outcome of sensitivity.csv with display names: `SagNet before ERM`. conclusion: whose pair it is of."""
    a, b = conclusion.a, conclusion.b
    for before, after in ((a, b), (b, a)):
        if outcome == f"{before} before {after}":
            return f"{analysis.label(before)} before {analysis.label(after)}"
    return outcome


def make_flip_table(analysis: Analysis, comparison: RankTests) -> ReportTable | None:
    """Return every conclusion that some change overturns, with the changes; None without any."""
    records = []
    for conclusion in overturned_conclusions(analysis.data(STABILITY).flips, comparison.setting):
        about = _describe_outcome(analysis, conclusion, conclusion.before)
        if not conclusion.a:
            about = f"all algorithms: {about}"
        elif conclusion.test == stability.RANK_SETS:
            about = f"{analysis.label(conclusion.a)}: {about}"
        elif conclusion.before == stability.SAME:
            about = f"{analysis.label(conclusion.a)}, {analysis.label(conclusion.b)}: {about}"
        changes = [describe_change(analysis, change.kind, change.changed) for change in conclusion.changes]
        outcomes = dict.fromkeys(_describe_outcome(analysis, conclusion, change.after) for change in conclusion.changes)
        records.append(
            {
                "conclusion": about,
                "test": TEST_NAMES[conclusion.test],
                "number": count_cell(len(changes)),
                "outcomes": "; ".join(outcomes),
                "changes": "; ".join(changes),
            }
        )
    if not records:
        return None
    columns = [
        TableColumn("conclusion", text("conclusion")),
        TableColumn("by", text("test")),
        TableColumn("changes", prepared("number")),
        TableColumn("becomes", text("outcomes")),
        TableColumn("by these", text("changes")),
    ]
    caption = "Conclusions that some change overturns, those that claim a difference first."
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)
