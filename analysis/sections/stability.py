"""Stability of the conclusions: which survive every change that was tried, and which a change overturns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links, ReportTable, TableColumn, count_cell, make_table, prepared, text
from biasbed.analysis.report.verdicts import Claim, Overturned, claims, firm, is_compared, overturned
from biasbed.analysis.report.wording import TEST_NAMES, count, listing
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, ForSets, Prose, Section, ShownPart, Unfolding
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.pairwise import Stability

FILE = "sensitivity.csv"
MOST = 6  # conclusions that are put into words; the table has all
WORDS = 60  # before anything unfolds


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
            parts: list[ShownPart] = []
            sentences = describe(analysis, comparison)
            if sentences:
                parts.append(Prose(tuple(sentences), WORDS))
            table = None if comparison.skipped else make_flip_table(analysis, comparison)
            if table is not None:
                parts.append(Unfolding("The table of what does not survive", (table,)))
            yield ForSets(comparison.setting, tuple(parts))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()


STABILITY = StabilityOfConclusions()

# --- changes ----------------------------------------------------------------------------------------------------------


def name_change(analysis: Analysis, change: str) -> str:
    """Return the kind of a change (`stability.Variant.change`) in words."""
    kinds = {
        "leave_one_algorithm_out": "one algorithm less",
        "leave_one_set_out": f"one {analysis.comparisons[0].noun} less",
        "one_run_less": f"one {wording.repeated(analysis)} less",
        "selection_rule": "another selection rule",
        "alpha": "another level of significance",
    }
    return kinds[change]


def describe_trials(analysis: Analysis, change: str, number: int) -> str:
    """Say how many changes of a kind were tried."""
    trials = {
        "leave_one_algorithm_out": f"leaving out each of {number} algorithms",
        "leave_one_set_out": f"each of {number} {analysis.comparisons[0].noun}s",
        "one_run_less": f"each of {number} {wording.repeated(analysis)}s",
        "selection_rule": f"{number} further {wording.plural('selection rule', number)}",
        "alpha": f"{number} other levels of significance",
    }
    return trials[change]


def describe_change(analysis: Analysis, change: str, changed: str) -> str:
    """Return one change in words. changed: what is left out or set; a run by its id."""
    run_names = {run.id: f"{analysis.label(run.algorithm)} seed {run.seed}" for run in analysis.collection.runs}
    name = run_names.get(changed, analysis.label(changed))
    changes = {
        "leave_one_algorithm_out": f"without {name}",
        "leave_one_set_out": f"without the {analysis.comparisons[0].noun} {name}",
        "one_run_less": f"without the {wording.repeated(analysis)} {name}",
        "selection_rule": f"selected by {name}",
        "alpha": f"at a level of {name}",
    }
    oracles = analysis.selection.loc[analysis.selection["oracle"].astype(bool), "rule"]
    is_oracle = change == "selection_rule" and changed in set(oracles)
    return changes[change] + (" (ORACLE)" if is_oracle else "")


def list_changes(analysis: Analysis, comparison: RankTests, tests: Iterable[str]) -> str:
    """List the changes after which the conclusions of these tests were drawn again: of all, then what some add."""
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


# --- sentences --------------------------------------------------------------------------------------------------------


def describe(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say which conclusions survive every change that was tried, and which do not and why."""
    if comparison.skipped:
        return []
    frames = analysis.data(STABILITY)
    checks = frames.checks[frames.checks["setting"] == comparison.setting]
    if not (checks["claims"] > 0).any():
        return []
    flips = overturned(frames.flips, comparison.setting)
    flips_by_claim = {(flip.test, frozenset((flip.a, flip.b))): flip for flip in flips}
    lines = _describe_tried(analysis, checks)
    lines.append(_describe_omnibus(analysis, comparison, flips_by_claim))
    lines += _describe_pairs(analysis, comparison, flips_by_claim)
    lines += _describe_new_pairs(analysis, comparison, flips)
    return [line for line in lines if line]


FlipsByClaim = dict[tuple[str, frozenset[str]], Overturned]


def _describe_tried(analysis: Analysis, checks: pd.DataFrame) -> list[str]:
    """Say which changes were tried, and which leave too little to test."""
    tried, not_testable = [], []
    for row in checks[checks["claims"] > 0].drop_duplicates("change").to_dict("records"):
        change, lost = str(row["change"]), int(row["not_testable"])
        tried.append(describe_trials(analysis, change, int(row["variants"])))
        if lost:
            kind = name_change(analysis, change)
            not_testable.append(f"Of these, {lost} of the kind '{kind}' could not be: nothing is left to test.")
    lines = [f"Tried: {listing(tried)}.", *not_testable]
    for test, rows in checks[checks["claims"] == 0].groupby("test", sort=False):
        kinds = listing(name_change(analysis, change) for change in rows["change"])
        about = f"for the conclusions of {TEST_NAMES[str(test)]}; too little is left to test."
        lines.append(f"Could not be tried: {kinds}, {about}")
    return lines


def _describe_omnibus(analysis: Analysis, comparison: RankTests, flips: FlipsByClaim) -> str:
    """Say if the conclusion over all algorithms survives; empty if two algorithms differ, which the pair says."""
    no_difference = "The conclusion that no difference is shown"
    if comparison.pair is None:
        conclusion = "The conclusion that the algorithms differ" if comparison.significant else no_difference
        return _describe_survival(analysis, conclusion, flips.get((stability.OMNIBUS, frozenset(("",)))))
    if comparison.significant:
        return ""
    flip = flips.get((stability.WILCOXON, frozenset(comparison.algorithms)))
    return _describe_survival(analysis, no_difference, flip)


def _describe_pairs(analysis: Analysis, comparison: RankTests, flips: FlipsByClaim) -> list[str]:
    """Say which pairs survive, and of those that do not which changes overturn them."""
    lines = []
    held = firm(analysis, comparison)
    if held:
        more = f"; and {len(held) - MOST} more" if len(held) > MOST else ""
        conclusions = "; ".join(_describe_claim(analysis, claim) for claim in held[:MOST])
        lines.append(f"Survives all that was tried: {conclusions}{more}.")
    shaky = []
    for claim in claims(analysis, comparison):
        flip = flips.get((claim.test, frozenset((claim.better, claim.worse))))
        if flip is not None:
            shaky.append(flip)
    for flip in shaky[:MOST]:
        is_a_better = flip.before == f"{flip.a} before {flip.b}"
        better, worse = (flip.a, flip.b) if is_a_better else (flip.b, flip.a)
        lines.append(_describe_survival(analysis, _describe_claim(analysis, Claim(flip.test, better, worse)), flip))
    if len(shaky) > MOST:
        number = len(shaky) - MOST
        lines.append(f"Further conclusions that do not survive everything: {number}; the table has them.")
    return lines


def _describe_new_pairs(analysis: Analysis, comparison: RankTests, flips: list[Overturned]) -> list[str]:
    """Count the pairs that a test tells apart only after some change."""
    pairs = set()
    for flip in flips:
        if flip.before == stability.SAME and is_compared(analysis, comparison, (flip.a, flip.b)):
            pairs.add(frozenset((flip.a, flip.b)))
    if not pairs or comparison.pair is not None:
        return []
    number = count(len(pairs), "pair")
    return [f"{number} that some test does not tell apart here would be told apart by it after some change."]


def _describe_claim(analysis: Analysis, claim: Claim) -> str:
    """Return `a before b by the test`."""
    return f"{analysis.label(claim.better)} before {analysis.label(claim.worse)} by {TEST_NAMES[claim.test]}"


def _describe_outcome(analysis: Analysis, conclusion: Overturned, outcome: str) -> str:
    """Return a conclusion on a pair, as in sensitivity.csv, with display names."""
    a, b = conclusion.a, conclusion.b
    for before, after in ((a, b), (b, a)):
        if outcome == f"{before} before {after}":
            return f"{analysis.label(before)} before {analysis.label(after)}"
    return outcome


def _describe_survival(analysis: Analysis, conclusion: str, flip: Overturned | None) -> str:
    if flip is None:
        return f"{conclusion} survives all that was tried."
    changes = [describe_change(analysis, change.kind, change.changed) for change in flip.changes]
    if len(changes) > MOST:
        changes[MOST:] = [count(len(changes) - MOST, "other change")]
    return f"{conclusion} does not hold {listing(changes)}."


# --- table ------------------------------------------------------------------------------------------------------------


def make_flip_table(analysis: Analysis, comparison: RankTests) -> ReportTable | None:
    """Return every conclusion that some change overturns, with the changes; None without any."""
    records = []
    for conclusion in overturned(analysis.data(STABILITY).flips, comparison.setting):
        about = _describe_outcome(analysis, conclusion, conclusion.before)
        if not conclusion.a:
            about = f"all algorithms: {about}"
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
