"""Limitations of the conclusions: what weakens them, what could flip them, what could not be seen.

Answers: What could the comparison not show?
"""

from __future__ import annotations

import math

import pandas as pd

from biasbed.analysis import scores
from biasbed.analysis.report import wording
from biasbed.analysis.report.findings import MOST, change_kind
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.study_design import of_each
from biasbed.analysis.report.verdicts import Claim, Overturned, claims, firm, is_compared, overturned
from biasbed.analysis.report.wording import capitalized, count, listing, plural, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.seen import UNKNOWN, read_seen
from biasbed.analysis.statistics import planner, stability
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.pairwise import Limits

# --- what weakens the tests -------------------------------------------------------------------------------------------


def weaknesses(analysis: Analysis) -> list[str]:
    """Say what makes the tests find more than they should: few runs, sets that share images."""
    lines = []
    for limits in analysis.pairwise.limits[:1]:
        if limits.luck is not None and limits.luck.passes_for_a_difference:
            lines.append(_luck(limits.luck))
        if not limits.model.knows_runs:
            lines.append(say("weak_runs_unknown"))
    lines += seen_before(analysis)
    notes = scores.shared_images_note(analysis.sets, analysis.label)
    return lines + [say("weak_shared_images", note=note) for note in notes]


def seen_before(analysis: Analysis) -> list[str]:
    """Say that rows are ranked across weights that have seen different data, and which have seen images of the web."""
    rows_by_data: dict[str, dict[str, None]] = {}
    web: dict[str, None] = {}
    for run in analysis.collection.unpublished:
        seen = read_seen(run)
        rows_by_data.setdefault(seen.text, {})[run.algorithm] = None
        protocol = analysis.collection.protocols[run.protocol]
        names = [*protocol.training_sets, *(tested.name for tested in protocol.sets)]
        if seen.is_web or seen.find_sets(names):
            web[run.algorithm] = None
    lines = []
    if len(rows_by_data) > 1:
        groups = []
        for data, rows in rows_by_data.items():
            groups.append(say("weak_seen_group", data=data, algorithms=listing(map(analysis.label, rows))))
        lines.append(say("weak_seen", groups="; ".join(groups)))
        if UNKNOWN in rows_by_data:
            lines.append(say("seen_unknown"))
    if web:
        lines.append(say("weak_seen_web", algorithms=listing(map(analysis.label, web))))
    return lines


def _luck(luck: planner.Luck) -> str:
    """Return by how much the luck of few runs raises the rate of false positives."""
    return say(
        "weak_luck",
        test=procedure_name(luck.procedure),
        rate=wording.rate_text(luck.with_it),
        alpha=wording.percent(luck.alpha),
        without=wording.rate_text(luck.without_it),
        low=100 * luck.excess[0],
        high=100 * luck.excess[1],
    )


def procedure_name(procedure: str) -> str:
    """Return a test's name from its name in power.json."""
    return say(f"procedures.{procedure}")


# --- what could flip it -----------------------------------------------------------------------------------------------


def flippable(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say which conclusions survive every change that was tried, and which do not and why."""
    if comparison.skipped:
        return []
    frame = analysis.pairwise.checks
    checks = frame[frame["setting"] == comparison.setting]
    if not (checks["claims"] > 0).any():
        return []
    flips = overturned(analysis.pairwise.flips, comparison.setting)
    flips_by_claim = {(flip.test, frozenset((flip.a, flip.b))): flip for flip in flips}
    lines = _tried(analysis, checks)
    lines.append(_survival_of_omnibus(analysis, comparison, flips_by_claim))
    lines += _survival_of_pairs(analysis, comparison, flips_by_claim)
    lines += _new_pairs(analysis, comparison, flips)
    return [line for line in lines if line]


FlipsByClaim = dict[tuple[str, frozenset[str]], Overturned]


def _tried(analysis: Analysis, checks: pd.DataFrame) -> list[str]:
    """Say which changes were tried, and which leave too little to test."""
    changes, not_testable = [], []
    for row in checks[checks["claims"] > 0].drop_duplicates("change").to_dict("records"):
        change, number, lost = str(row["change"]), int(row["variants"]), int(row["not_testable"])
        slots = {"noun": analysis.comparisons[0].noun, "run": wording.repeated(analysis)}
        rules = plural("selection rule", number)
        changes.append(say(f"changes.{change}.tried", number=number, selection_rules=rules, **slots))
        if lost:
            kind = change_kind(analysis, change)
            not_testable.append(say("tried_not_testable", number=lost, kind=kind))
    lines = [say("tried", changes=listing(changes)), *not_testable]
    for test, rows in checks[checks["claims"] == 0].groupby("test", sort=False):
        kinds = listing(change_kind(analysis, change) for change in rows["change"])
        lines.append(say("not_tried", changes=kinds, test=say(f"test_names.{test!s}")))
    return lines


def _survival_of_omnibus(analysis: Analysis, comparison: RankTests, flips: FlipsByClaim) -> str:
    """Say if the conclusion over all algorithms survives; empty if two algorithms differ, which the pair says."""
    if comparison.pair is None:
        conclusion = say("conclusion_differ") if comparison.significant else say("conclusion_no_difference")
        return _survival(analysis, conclusion, flips.get((stability.OMNIBUS, frozenset(("",)))))
    if comparison.significant:
        return ""
    flip = flips.get((stability.WILCOXON, frozenset(comparison.algorithms)))
    return _survival(analysis, say("conclusion_no_difference"), flip)


def _survival_of_pairs(analysis: Analysis, comparison: RankTests, flips: FlipsByClaim) -> list[str]:
    """Say which pairs survive, and of those that do not which changes overturn them."""
    lines = []
    held = firm(analysis, comparison)
    if held:
        more = ""
        if len(held) > MOST:
            more = say("survive_more", number=len(held) - MOST)
        conclusions = "; ".join(claim_text(analysis, claim) for claim in held[:MOST])
        lines.append(say("survive_all", conclusions=conclusions, more=more))
    shaky = []
    for claim in claims(analysis, comparison):
        flip = flips.get((claim.test, frozenset((claim.better, claim.worse))))
        if flip is not None:
            shaky.append(flip)
    for flip in shaky[:MOST]:
        is_a_better = flip.before == f"{flip.a} before {flip.b}"
        better, worse = (flip.a, flip.b) if is_a_better else (flip.b, flip.a)
        lines.append(_survival(analysis, claim_text(analysis, Claim(flip.test, better, worse)), flip))
    if len(shaky) > MOST:
        lines.append(say("overturned_more", number=len(shaky) - MOST))
    return lines


def _new_pairs(analysis: Analysis, comparison: RankTests, flips: list[Overturned]) -> list[str]:
    """Count the pairs that a test tells apart only after some change."""
    pairs = set()
    for flip in flips:
        if flip.before == stability.SAME and is_compared(analysis, comparison, (flip.a, flip.b)):
            pairs.add(frozenset((flip.a, flip.b)))
    if not pairs or comparison.pair is not None:
        return []
    return [say("new_pairs", pairs=count(len(pairs), "pair"))]


def claim_text(analysis: Analysis, claim: Claim) -> str:
    """Return `a before b by the test`."""
    test = say(f"test_names.{claim.test}")
    return say("conclusion_pair", better=analysis.label(claim.better), worse=analysis.label(claim.worse), test=test)


def outcome_text(analysis: Analysis, conclusion: Overturned, outcome: str) -> str:
    """Return a conclusion on a pair, as in sensitivity.csv, with display names."""
    a, b = conclusion.a, conclusion.b
    for before, after in ((a, b), (b, a)):
        if outcome == f"{before} before {after}":
            return f"{analysis.label(before)} before {analysis.label(after)}"
    return outcome


def change_text(analysis: Analysis, change: str, changed: str) -> str:
    """Return one change in words. changed: what is left out or set; a run by its id."""
    run_names = {run.id: f"{analysis.label(run.algorithm)} seed {run.seed}" for run in analysis.collection.runs}
    oracles = analysis.selection.loc[analysis.selection["oracle"].astype(bool), "rule"]
    oracle = ""
    if change == "selection_rule" and changed in set(oracles):
        oracle = " (ORACLE)"
    slots = {"noun": analysis.comparisons[0].noun, "run": wording.repeated(analysis)}
    return say(f"changes.{change}.made", changed=run_names.get(changed, analysis.label(changed)), **slots) + oracle


def _survival(analysis: Analysis, conclusion: str, flip: Overturned | None) -> str:
    if flip is None:
        return say("survives", conclusion=conclusion)
    changes = [change_text(analysis, change.kind, change.changed) for change in flip.changes]
    if len(changes) > MOST:
        changes[MOST:] = [count(len(changes) - MOST, "other change")]
    return say("overturned", conclusion=conclusion, changes=listing(changes))


def pool(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say on how many pairs Nemenyi's verdict depends on which algorithms are compared."""
    frame = analysis.pairwise.pool
    rows = frame[frame["setting"] == comparison.setting]
    number = int(rows["depends_on_pool"].astype(bool).sum())
    if not number:
        return []
    return [say("depends_on_pool", number=number, pairs=count(len(rows), "pair"))]


# --- what could not have been seen ------------------------------------------------------------------------------------


def unseen(analysis: Analysis) -> list[str]:
    """Say what this design could not have shown, whatever the truth."""
    skipped, lines = analysis.pairwise.skipped, []
    if skipped and not all(comparison.skipped for comparison in analysis.comparisons):
        lines.append(say("missed_unknown", reason=skipped))
    for limits in analysis.pairwise.limits:
        setting = wording.setting_of(limits)
        for sentence in (f"{limits.nemenyi.sentence}.", *detectable(analysis, limits)):
            lines.append(setting + sentence if setting else capitalized(sentence))
    for limits in analysis.pairwise.limits[:1]:
        needed = limits.smallest_num_runs
        if limits.num_runs < needed and not _can_tell_pairs_on_a_set(analysis):
            lines.append(say("missed_on_a_set", number=needed))
    return lines


def _can_tell_pairs_on_a_set(analysis: Analysis) -> bool:
    """Return True if the clearest possible outcome would have told some pair apart on some set."""
    return bool((analysis.pairwise.set_pairs["smallest_p"].astype(float) < analysis.alpha).any())


def detectable(analysis: Analysis, limits: Limits) -> list[str]:
    """Say which differences the design finds; in lower case, as a setting's name may stand before."""
    unit, noun = wording.unit(analysis), limits.nemenyi.noun
    sizes, blind = [], []
    for size in limits.detectable:
        test = procedure_name(size.procedure)
        if size.possible:
            sizes.append(say("detectable_size", difference=size.difference, unit=unit, test=test))
        else:
            blind.append(test)
    lines = []
    if sizes:
        compared = of_each(analysis, algorithms_in(analysis, limits.setting))
        others = say("detectable_other") if limits.num_algorithms == 2 else say("detectable_others")
        sentence = say(
            "detectable",
            target=f"{planner.TARGET:.0%}",
            runs=say("detectable_runs", sets=limits.num_sets, noun=noun, of_each=compared),
            others=others,
            sizes=" or ".join(sizes),
        )
        lines.append(sentence)
    if blind:
        lines.append(say("blind", tests=listing(blind), share=f"{1 - planner.TARGET:.0%}"))
    if math.isfinite(limits.pair_alone) and limits.num_algorithms > 2:
        lines.append(say("pair_alone", difference=limits.pair_alone, unit=unit))
    return lines


def algorithms_in(analysis: Analysis, setting: str) -> tuple[str, ...]:
    """Return the algorithms that a choice of sets compares."""
    for comparison in analysis.comparisons:
        if comparison.setting == setting:
            return tuple(comparison.algorithms)
    return analysis.algorithms


def planned(analysis: Analysis) -> list[str]:
    """Say what would show the difference that `plan=` asks for."""
    plan = analysis.pairwise.plan
    if plan is None:
        return []
    difference, run = points(analysis, analysis.options.difference), wording.repeated(analysis)
    noun = analysis.comparisons[0].noun
    most = {"sets": plan["num_sets"].max(), "runs": plan["num_runs"].max()}
    largest = say("plan_largest", noun=noun, run=run, **most)
    lines = []
    for name in dict.fromkeys(plan["procedure"]):
        test, cheapest = procedure_name(name), planner.cheapest(plan, name)
        if cheapest is None:
            lines.append(say("plan_none", test=test, largest=largest, difference=difference))
            continue
        sets, runs = cheapest
        slots = {"test": test, "difference": difference, "noun": noun, "sets": sets, "runs": count(runs, run)}
        lines.append(say("plan_cheapest", **slots))
    return lines
