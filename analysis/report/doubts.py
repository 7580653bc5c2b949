"""What the report says against its own conclusions: what weakens them, what could flip them, what could not be seen."""

from __future__ import annotations

import math

import pandas as pd

from biasbed.analysis import scores
from biasbed.analysis.report import words
from biasbed.analysis.report.compared import of_each
from biasbed.analysis.report.findings import MOST, TEST_NAMES, changes, procedure
from biasbed.analysis.report.verdicts import Overturned, asked, claims, firm, overturned
from biasbed.analysis.report.words import count, listing, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import planner, stability
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.pairwise import Limits

# --- what weakens it --------------------------------------------------------------------------------------------------


def weaknesses(analysis: Analysis) -> list[str]:
    """What makes the tests find more than they should: few runs, sets that share images."""
    lines = []
    for limits in analysis.pairwise.limits[:1]:
        if limits.luck is not None and limits.luck.passes_for_a_difference:
            lines.append(_luck(limits.luck))
        if not limits.model.knows_runs:
            lines.append(
                "No algorithm has two runs with a score on every set, so the spread between runs is not known: a "
                "difference between two trainings may be taken for one between methods."
            )
    return lines + [f"Not independent: {note}." for note in scores.shared_images_note(analysis.sets)]


def _luck(luck: planner.Luck) -> str:
    """Said only where the simulations tell the rate from alpha and from the test's own rate without runs' luck."""
    return (
        f"Among equal methods whose runs differ as these do, {procedure(luck.procedure)} finds a difference in "
        f"{words.rate_text(luck.with_it)} of the cases, not in {words.percent(luck.alpha)}, and would in "
        f"{words.rate_text(luck.without_it)} if no run were better or worse on all sets at once. The difference, "
        f"{100 * luck.excess[0]:.1f} to {100 * luck.excess[1]:.1f} points (95% interval, of the simulation alone), is "
        "the luck of few runs, which passes for a difference between methods."
    )


# --- what could flip it -----------------------------------------------------------------------------------------------


def flippable(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Which conclusions survive every change that was tried, and which do not and why."""
    if comparison.skipped:
        return []
    frame = analysis.pairwise.checks
    own_checks = frame[frame["setting"] == comparison.setting]
    tried = own_checks[own_checks["claims"] > 0].drop_duplicates("change")
    if tried.empty:
        return []
    named = changes(analysis)
    numbers = {str(row["change"]): (int(row["variants"]), int(row["not_testable"])) for _, row in tried.iterrows()}
    lines = [f"Tried: {listing(_number(named[change].tried, number) for change, (number, _) in numbers.items())}."]
    lines += [
        f"Of these, {lost} of the kind '{named[change].kind}' could not be: nothing is left to test."
        for change, (_, lost) in numbers.items()
        if lost
    ]
    lines += _untried(analysis, own_checks)
    found = overturned(analysis.pairwise.flips, comparison.setting)
    changed = {(one.test, frozenset((one.a, one.b))): one for one in found}
    if comparison.pair is not None and not comparison.significant:
        key = (stability.WILCOXON, frozenset(comparison.algorithms))
        lines.append(_survival("The conclusion that no difference is shown", changed.get(key), analysis))
    if comparison.pair is None:
        says = "that the algorithms differ" if comparison.significant else "that no difference is shown"
        lines.append(_survival(f"The conclusion {says}", changed.get((stability.OMNIBUS, frozenset(("",)))), analysis))
    own = claims(analysis, comparison)
    held = firm(analysis, comparison)
    if held:
        lines.append(
            f"Survives all that was tried: {'; '.join(_claim(*claim) for claim in held[:MOST])}{_more(len(held))}."
        )
    shaky = [changed[test, frozenset(pair)] for test, *pair in own if (test, frozenset(pair)) in changed]
    lines += [_survival(_claim(one.test, *_sides(one)), one, analysis) for one in shaky[:MOST]]
    if len(shaky) > MOST:
        lines.append(f"Further conclusions that do not survive everything: {len(shaky) - MOST}; the table has them.")
    new = len(
        {
            frozenset((one.a, one.b))
            for one in found
            if one.before == stability.SAME and asked(analysis, comparison, (one.a, one.b))
        }
    )
    if new and comparison.pair is None:
        lines.append(
            f"{count(new, 'pair')} that some test does not tell apart here would be told apart by it after some change."
        )
    return lines


def _untried(analysis: Analysis, checks: pd.DataFrame) -> list[str]:
    """Which changes leave too little for which test, so that its conclusions were not tried against them."""
    blind, named = checks[checks["claims"] == 0], changes(analysis)
    return [
        f"Could not be tried: {listing(named[change].kind for change in rows['change'])}, for the "
        f"conclusions of {TEST_NAMES[str(test)]}; too little is left to test."
        for test, rows in blind.groupby("test", sort=False)
    ]


def _more(number: int) -> str:
    return f"; and {number - MOST} more" if number > MOST else ""


def _sides(one: Overturned) -> tuple[str, str]:
    """(better, worse) of a conclusion on a pair."""
    return (one.a, one.b) if one.before == f"{one.a} before {one.b}" else (one.b, one.a)


def _claim(test: str, better: str, worse: str) -> str:
    return f"{better} before {worse} by {TEST_NAMES[test]}"


def _number(tried: str, number: int) -> str:
    return tried.format(number).replace("(s)", "s" * (number != 1))


def change_text(analysis: Analysis, change: str, what: str) -> str:
    """One change in words; a run by its algorithm and seed."""
    named = {run.id: f"{run.algorithm} seed {run.seed}" for run in analysis.collection.runs}
    oracles = analysis.selection.loc[analysis.selection["oracle"].astype(bool), "rule"]
    oracle = " (ORACLE)" if change == "selection_rule" and what in set(oracles) else ""
    return changes(analysis)[change].made.format(named.get(what, what)) + oracle


def _survival(conclusion: str, one: Overturned | None, analysis: Analysis) -> str:
    if one is None:
        return f"{conclusion} survives all that was tried."
    changes = [change_text(analysis, change, what) for change, what, _ in one.changes]
    shown = listing([*changes[:MOST], *([count(len(changes) - MOST, "other change")] if len(changes) > MOST else [])])
    return f"{conclusion} does not hold {shown}."


def pool(analysis: Analysis, comparison: RankTests) -> list[str]:
    """How far Nemenyi's verdicts hang on which algorithms stand in the comparison."""
    frame = analysis.pairwise.pool
    own = frame[frame["setting"] == comparison.setting]
    number = int(own["depends_on_pool"].astype(bool).sum())
    if not number:
        return []
    return [
        f"Nemenyi's verdict depends on which algorithms are compared: on {number} of {count(len(own), 'pair')} its "
        "critical difference alone would decide otherwise with fewer of them, or with up to as many added that are "
        "worst on every set. Wilcoxon's test sees only the two."
    ]


# --- what could not have been seen ------------------------------------------------------------------------------------


def unseen(analysis: Analysis) -> list[str]:
    """What this design could not have shown, whatever the truth."""
    skipped = analysis.pairwise.skipped
    lines = [f"What these tests could have missed is not known: {skipped}."] if skipped and _tested(analysis) else []
    for limits in analysis.pairwise.limits:
        where = words.setting_of(limits)
        found = [f"{limits.nemenyi.sentence}.", *detectable(analysis, limits)]
        lines += [where + line if where else line[0].upper() + line[1:] for line in found]
    for limits in analysis.pairwise.limits[:1]:
        needed = limits.smallest_num_runs
        if limits.num_runs < needed and not _pairs_on_a_set(analysis):
            lines.append(
                "On a single set no pair could have been told apart with these runs (Mann-Whitney with Holm's "
                f"correction): where all algorithms have the same number of runs, it takes {needed} of each."
            )
    return lines


def _tested(analysis: Analysis) -> bool:
    return any(not comparison.skipped for comparison in analysis.comparisons)


def _pairs_on_a_set(analysis: Analysis) -> bool:
    """Whether the clearest possible outcome would have told some pair apart on some set."""
    return bool((analysis.pairwise.set_pairs["smallest_p"].astype(float) < analysis.alpha).any())


def detectable(analysis: Analysis, limits: Limits) -> list[str]:
    """Which differences the design finds; begun in lower case, as a setting's name may stand before."""
    lines = []
    seen = [entry for entry in limits.detectable if entry.possible]
    blind = [procedure(entry.procedure) for entry in limits.detectable if not entry.possible]
    target = f"{planner.TARGET:.0%}"
    unit = words.unit(analysis)
    runs = f"{limits.num_sets} {limits.nemenyi.noun}s and {of_each(analysis, compared_in(analysis, limits.setting))}"
    if seen:
        needed = " or ".join(f"{entry.difference:.2g} {unit} ({procedure(entry.procedure)})" for entry in seen)
        others = "the other" if limits.num_algorithms == 2 else "all others"
        lines.append(
            f"to be found with a probability of {target} on {runs}, one algorithm must be better than {others} by "
            f"{needed}; smaller differences would have been missed more often."
        )
    if blind:
        lines.append(
            f"{listing(blind)} would have missed a difference of any size in more than {1 - planner.TARGET:.0%} of "
            "the cases."
        )
    if math.isfinite(limits.pair_alone) and limits.num_algorithms > 2:
        lines.append(
            f"even compared alone, half of the pairs here take {limits.pair_alone:.2g} {unit} or more, given how "
            f"their differences vary over the {limits.nemenyi.noun}s."
        )
    return lines


def compared_in(analysis: Analysis, setting: str) -> tuple[str, ...]:
    """The algorithms that a choice of sets compares."""
    return next((tuple(one.algorithms) for one in analysis.comparisons if one.setting == setting), analysis.algorithms)


def planned(analysis: Analysis) -> list[str]:
    """What would show the difference that `plan=` asks for."""
    plan = analysis.pairwise.plan
    if plan is None:
        return []
    wanted = points(analysis, analysis.options.difference)
    sets, run = f"{analysis.comparisons[0].noun}s", words.repeated(analysis)
    largest = f"{plan['num_sets'].max()} {sets} and {plan['num_runs'].max()} {run}s"
    lines = []
    for name in dict.fromkeys(plan["procedure"]):
        best = planner.cheapest(plan, name)
        if best is None:
            lines.append(f"{procedure(name)}: no design of up to {largest} shows {wanted}.")
        else:
            lines.append(
                f"{procedure(name)}: {wanted} take {best[0]} {sets} with {count(best[1], run)} of each algorithm."
            )
    return lines
