"""Conclusions of the report, and how sure they are; never stronger than the tests support.

The design is described in `study_design`, and what speaks against the conclusions in `limitations`.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from typing import Any, NamedTuple

from biasbed.analysis import scores
from biasbed.analysis.report import wording
from biasbed.analysis.report.further_findings import texture_sentences
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.study_design import replicates
from biasbed.analysis.report.verdicts import Claim, Verdict, claims, control_of, firm, main, mean_lead, verdicts
from biasbed.analysis.report.wording import capitalized, count, listing, plural, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.single_runs import SCOPE, SINGLE_RUNS, pairs_apart
from biasbed.analysis.statistics import per_set, power, stability
from biasbed.analysis.statistics.friedman import COMPLETE, STRICT, RankTests

MOST = 6  # pairs that are put into words; the tables have all
MOST_ALONE = 3  # sets, and pairs on each, where one set at a time is tested

# --- changes ----------------------------------------------------------------------------------------------------------


def change_kind(analysis: Analysis, change: str) -> str:
    """Return the kind of a change (`stability.Variant.change`) in words."""
    return say(f"changes.{change}.kind", noun=analysis.comparisons[0].noun, run=wording.repeated(analysis))


def changes_of(analysis: Analysis, comparison: RankTests, tests: Iterable[str]) -> str:
    """List the changes after which the conclusions of these tests were drawn again: of all, then what some add."""
    frame = analysis.pairwise.checks
    checks = frame[(frame["setting"] == comparison.setting) & (frame["claims"] > 0)]
    changes_by_test = {test: list(checks.loc[checks["test"] == test, "change"].unique()) for test in tests}
    common = []
    for change in checks["change"].unique():
        if all(change in changes for changes in changes_by_test.values()):
            common.append(change)
    text = listing(change_kind(analysis, change) for change in common)
    for test, changes in changes_by_test.items():
        more = [change_kind(analysis, change) for change in changes if change not in common]
        if more:
            text += say("changes_also", test=say(f"test_names.{test}"), changes=listing(more))
    return text


# --- what can be concluded --------------------------------------------------------------------------------------------


class RankedPair(NamedTuple):
    """Two algorithms that a test tells apart."""

    better: str
    worse: str


def answer_sentences(analysis: Analysis, most: int | None = None) -> list[str]:
    """Return the answer: which algorithm is better, over sets and over images, and which relies less on texture.

    What is shown comes first. most: sets of cue conflicts that are told of, all by default.
    """
    texture = texture_sentences(analysis.texture, analysis.alpha, analysis.label)[:most]
    comparison = main(analysis)
    is_texture_shown = analysis.texture["significant"].astype(bool).any()
    parts = [
        (comparison.significant and not comparison.skipped, [verdict(analysis)]),
        (True, [] if comparison.skipped else _apart_over_images(analysis)),  # else the verdict says it
        (is_texture_shown, texture),
    ]
    answer: list[str] = []
    for _, sentences in sorted(parts, key=lambda part: not part[0]):  # stable
        answer += sentences
    return answer


def _apart_over_images(analysis: Analysis) -> list[str]:
    """Return what tests over images tell apart, and how far that holds; empty if they tell nothing apart."""
    compared = analysis.data(SINGLE_RUNS)
    if not compared.table["significant"].astype(bool).any():
        return []
    return [pairs_apart(compared, analysis.alpha, analysis.label), SCOPE]


def verdict(analysis: Analysis) -> str:
    """Return the result in a sentence or two."""
    comparison = main(analysis)
    if comparison.skipped:
        return " ".join(without_tests_over_sets(analysis)) or say("nothing_tested", reason=comparison.skipped)
    pool = wording.pool(comparison)
    if not comparison.significant:
        if pool:
            return say("not_shown_in_pool", pool=pool)
        return say("not_shown")
    claimed, control = claims(analysis, comparison), control_of(analysis, comparison)
    if claimed:
        return say("differ_pairs", differ=_differ(comparison), pairs=_list_pairs(analysis, comparison, claimed))
    differ = _differ(comparison) if pool else say("differ")
    if control != "none":
        return say("differ_not_from_control", differ=differ, control=analysis.label(control))
    return say("differ_no_pair", differ=differ)


def _differ(comparison: RankTests) -> str:
    """Say that the algorithms differ, and over what."""
    pool = wording.pool(comparison)
    if not pool:
        return say("differ_over", size=comparison.size)
    if comparison.setting == COMPLETE:
        return say("differ_complete", pool=capitalized(pool))
    return say("differ_shared", pool=pool)


def caveats(analysis: Analysis) -> list[str]:
    """Return what must be read together with the verdict."""
    comparison = main(analysis)
    claimed = claims(analysis, comparison)
    lines = _survivors(analysis, claimed) if claimed else _strict_omnibus(analysis)
    lines += _complete(analysis)
    if comparison.significant and scores.shared_images_note(analysis.sets, analysis.label):
        lines.append(say("caveat_shared_images"))
    if min(replicates(analysis).values()) < 2:
        lines.append(say("caveat_single_run"))
    return lines


def _survivors(analysis: Analysis, claimed: Sequence[Claim]) -> list[str]:
    """Count the pairs that are told apart after every change, in the strict setting, and in both."""
    comparison = main(analysis)
    pairs = set(_pairs_of(claimed))
    such_pairs = count(len(pairs), "such pair")
    lines, surviving = [], []

    def add(phrase: str, kept: set[RankedPair], **slots: str) -> None:
        surviving.append(kept)
        names = _name_survivors(analysis, kept)
        lines.append(say(phrase, pairs=such_pairs, number=len(kept), named=names, **slots))

    if len(analysis.pairwise.checks):
        tests = dict.fromkeys(claim.test for claim in claimed)
        firm_claims = firm(analysis, comparison)
        kept = set(_pairs_of(firm_claims))
        names = [say(f"test_names.{test}") for test in dict.fromkeys(claim.test for claim in firm_claims or claimed)]
        changes = changes_of(analysis, comparison, tests)
        add("survive_changes", kept, tests=" or ".join(names), changes=changes)
    for strict in _strict(analysis):
        kept = pairs & set(_pairs_of(claims(analysis, strict)))
        add("survive_strict", kept, without=wording.strict_phrase(analysis, strict))
    if len(surviving) > 1:
        add("survive_both", surviving[0] & surviving[1])
    return lines


def _strict(analysis: Analysis) -> list[RankTests]:
    """Return the strict setting, if it has tests."""
    return [c for c in analysis.comparisons if c.setting == STRICT and not c.skipped]


def _strict_omnibus(analysis: Analysis) -> list[str]:
    lines = []
    for strict in _strict(analysis):
        phrase = "strict_differ" if strict.significant else "strict_not_shown"
        lines.append(say(phrase, without=wording.strict_phrase(analysis, strict)))
    return lines


def _complete(analysis: Analysis) -> list[str]:
    """Say the same of the algorithms that have all sets, if the headline is about the sets that all algorithms have."""
    lines = []
    for comparison in analysis.comparisons:
        if comparison.setting != COMPLETE or comparison is main(analysis):
            continue
        pool, claimed = wording.pool(comparison), claims(analysis, comparison)
        if comparison.skipped:
            lines.append(say("complete_nothing_tested", pool=pool, reason=comparison.skipped))
        elif claimed:
            pairs = _list_pairs(analysis, comparison, claimed)
            lines.append(say("differ_pairs", differ=_differ(comparison), pairs=pairs))
        else:
            phrase = "complete_differ" if comparison.significant else "complete_not_shown"
            lines.append(say(phrase, pool=pool))
    return lines


def _pairs_of(claimed: Iterable[Claim]) -> list[RankedPair]:
    """Return each pair once."""
    return list(dict.fromkeys(RankedPair(claim.better, claim.worse) for claim in claimed))


def _shown(analysis: Analysis, pair: RankedPair) -> dict[str, str]:
    """Return the display names of a pair by the slots of phrases."""
    return {"better": analysis.label(pair.better), "worse": analysis.label(pair.worse)}


def _name_survivors(analysis: Analysis, kept: Set[RankedPair]) -> str:
    """Return `: a over b; a over c`, best ranks first; nothing if there are none, or too many to read."""
    if not 0 < len(kept) <= MOST:
        return ""
    order = list(main(analysis).mean_ranks)
    pairs = sorted(kept, key=lambda pair: (order.index(pair.better), order.index(pair.worse)))
    return say("survive_names", pairs="; ".join(say("over", **_shown(analysis, pair)) for pair in pairs))


def concluded(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say if the algorithms differ over the sets, and which pairs."""
    if comparison.skipped:
        lines = without_tests_over_sets(analysis) if comparison is main(analysis) else []
        return lines or [say("concluded_no_tests", reason=comparison.skipped)]
    if comparison.pair is not None:
        return [*wording.of_two(comparison, analysis.label), *contradictions(analysis, comparison)]
    lines = [wording.omnibus(comparison)]
    if comparison.significant:
        lines += [_nemenyi_sentence(analysis, comparison), *wilcoxon_sentences(analysis, comparison)]
    return lines


def contradictions(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say where the means over the sets point the other way than the ranks, by which the tests go."""
    lines = []
    for pair in _pairs_of(claims(analysis, comparison)):
        if mean_lead(analysis, comparison, *pair) <= 0:
            lines.append(f"{_ranks_before(analysis, comparison, pair)}.")
    return lines


def _ranks_before(analysis: Analysis, comparison: RankTests, pair: RankedPair) -> str:
    lead = mean_lead(analysis, comparison, *pair)
    phrase = "ranks_before" if lead < 0 else "ranks_before_same"
    return say(phrase, **_shown(analysis, pair), points=points(analysis, -lead))


def _nemenyi_sentence(analysis: Analysis, comparison: RankTests) -> str:
    control = control_of(analysis, comparison)
    claimed = [claim for claim in claims(analysis, comparison) if claim.test == stability.NEMENYI]
    algorithms = len(comparison.algorithms)
    number = math.comb(algorithms, 2) if control == "none" else algorithms - 1
    return say(
        "nemenyi",
        number=len(claimed),
        pairs=count(number, "pair"),
        control=_with_control(analysis, control),
        named=_named_pairs(analysis, comparison, claimed),
    )


def _with_control(analysis: Analysis, control: str) -> str:
    if control == "none":
        return ""
    return say("with_control", control=analysis.label(control))


def wilcoxon_sentences(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say which pairs Wilcoxon's tests separate, and if they could; nothing without a significant omnibus test."""
    frame = analysis.pairwise.wilcoxon
    rows = frame[frame["setting"] == comparison.setting]
    if rows.empty or comparison.friedman is None or not comparison.significant:
        return []
    claimed = [claim for claim in claims(analysis, comparison) if claim.test == stability.WILCOXON]
    tests, smallest = int(rows["num_tests"].iloc[0]), float(rows["smallest_p"].iloc[0])
    blind = ""
    if smallest >= comparison.alpha:
        blind = say("wilcoxon_blind", tests=tests, size=comparison.size, p=smallest)
    sentence = say(
        "wilcoxon",
        number=len(claimed),
        pairs=count(tests, "pair"),
        control=_with_control(analysis, control_of(analysis, comparison)),
        blind=blind,
        named=_named_pairs(analysis, comparison, claimed),
    )
    return [sentence]


def _named_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    if claimed:
        return say("named_pairs", pairs=_list_pairs(analysis, comparison, claimed))
    return ""


def _list_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    """Return `a is better than b and c; d is better than c`; pairs that the means contradict apart, with the means."""
    pairs_by_better: dict[str, list[RankedPair]] = {}
    for pair in _pairs_of(claimed):
        pairs_by_better.setdefault(pair.better, []).append(pair)
    parts = []
    for better, pairs in pairs_by_better.items():
        contradicted = [pair for pair in pairs if mean_lead(analysis, comparison, *pair) <= 0]
        clear = [pair.worse for pair in pairs if pair not in contradicted]
        if clear:
            parts.append(say("better", better=analysis.label(better), worse=listing(map(analysis.label, clear))))
        parts += [_ranks_before(analysis, comparison, pair) for pair in contradicted]
    return "; ".join(parts)


def on_single_sets(analysis: Analysis) -> list[str]:
    """Say what holds on one set at a time, by tests over runs."""
    frame = analysis.pairwise.sets
    tested = frame[frame["skipped"] == ""]
    if tested.empty:
        reasons = sorted(set(frame["skipped"]) - {""})
        if reasons:
            return [say("single_no_test", reasons=listing(reasons))]
        return []
    significant = [str(name) for name in tested.loc[tested["significant"].astype(bool), "dataset"]]
    if not significant:
        return [say("single_not_shown", sets=count(len(tested), "set"))]
    is_every = 1 < len(significant) == len(tested)
    names = say("single_all") if is_every else listing(map(analysis.label, significant))
    sets = {"number": len(significant), "sets": count(len(tested), "tested set"), "names": names}
    pairs = analysis.pairwise.set_pairs
    apart = int(pairs["significant"].astype(bool).sum())
    return [say("single_shown", **sets), say("single_pairs", number=apart, comparisons=count(len(pairs), "comparison"))]


def without_tests_over_sets(analysis: Analysis) -> list[str]:
    """Return what is shown without any test over sets: by the runs on one set, by the images of single runs."""
    lines = on_sets_alone(analysis)
    items = pairs_apart(analysis.data(SINGLE_RUNS), analysis.alpha, analysis.label)
    if items:
        lines.append(items)
    return lines


def on_sets_alone(analysis: Analysis) -> list[str]:
    """Return what runs show on each set alone if there is one set to compare on, and what a test over sets takes.

    Empty if there are more, or if no set has a test over runs.
    """
    comparison, tests = main(analysis), analysis.pairwise.sets
    tests = tests[tests["skipped"] == ""]
    if not comparison.skipped or len(comparison.sets) != 1 or tests.empty:
        return []
    lines = [_alone(analysis, row) for row in tests.head(MOST_ALONE).to_dict("records")]
    if len(tests) > MOST_ALONE:
        lines.append(say("alone_more", sets=count(len(tests), "set"), number=MOST_ALONE))
    if tests["significant"].any():
        lines += on_single_sets(analysis)[1:]
    number = len(comparison.algorithms)
    smallest = power.reach(number, 1, comparison.alpha, comparison.noun).smallest_num_sets
    needed = count(smallest, comparison.noun)
    lines.append(say("alone_needed", reason=comparison.skipped, algorithms=count(number, "algorithm"), sets=needed))
    return lines


def _alone(analysis: Analysis, test: dict[Any, Any]) -> str:
    """Return the sentence on one set: whether the algorithms differ, and by how much the best leads each other one."""
    pairs = analysis.pairwise.set_pairs
    on_set = pairs[pairs["dataset"] == test["dataset"]]
    leads = sorted(on_set.to_dict("records"), key=lambda row: -abs(row["difference"]))
    phrase = "alone_differ" if test["significant"] else "alone_not_shown"
    listed_pairs = "; ".join(_lead_alone(analysis, row) for row in leads[:MOST_ALONE])
    return say(phrase, name=analysis.label(test["dataset"]), p=wording.p_value(test["p_holm"]), pairs=listed_pairs)


def _lead_alone(analysis: Analysis, row: dict[Any, Any]) -> str:
    """Return by how much one algorithm leads another on one set, with Welch's interval."""
    sign = 1 if row["difference"] >= 0 else -1
    better, worse = (row["a"], row["b"])[::sign]
    names = _shown(analysis, RankedPair(better, worse))
    if not row["difference"]:
        return say("alone_pair_even", **names)
    scores_of_run = analysis.runs[analysis.runs["dataset"] == row["dataset"]]
    values = [
        scores_of_run.loc[scores_of_run["algorithm"] == name, "score"].dropna().to_numpy(dtype="float64")
        for name in (better, worse)
    ]
    level = 1 - analysis.alpha
    low, high, _ = per_set.welch(values[0], values[1], level)
    if values[0].mean() < values[1].mean():  # lower is better
        low, high = -high, -low
    interval = ""
    if math.isfinite(low):
        interval = say("effect_interval", level=wording.percent(level), low=low, high=high)
    return say("alone_pair", **names, points=points(analysis, abs(row["difference"])), interval=interval)


# --- how sure ---------------------------------------------------------------------------------------------------------


def sure(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Return sizes of the differences that are told apart, practical equivalence, and agreement of the sets."""
    pairs = verdicts(analysis, comparison)
    by_names = {frozenset((pair.a, pair.b)): pair for pair in pairs}
    apart = _pairs_of(claims(analysis, comparison))
    sized = [pair for pair in apart if frozenset(pair) in by_names]  # with a control some have Nemenyi's verdict only
    lines = [_effect(analysis, comparison, pair, by_names[frozenset(pair)]) for pair in sized[:MOST]]
    if len(sized) > MOST:
        lines.append(say("sure_more", pairs=count(len(sized) - MOST, "further pair")))
    lines += _practical(analysis, comparison, pairs)
    if comparison.friedman is not None:
        lines.append(say("sure_agreement", w=comparison.friedman.kendall_w, noun=comparison.noun))
    return lines


def _effect(analysis: Analysis, comparison: RankTests, pair: RankedPair, sized: Verdict) -> str:
    """Return the size of a difference that a test found; tests go by ranks, so the mean may say otherwise."""
    sign = 1 if sized.a == pair.better else -1
    difference, wins = sign * sized.difference, sized.wins if sign > 0 else sized.losses
    low, high = sorted((sign * sized.low, sign * sized.high))
    chance = sized.improvement if sign > 0 else 1 - sized.improvement
    where = say("effect_where", wins=wins, sets=sized.num_sets, noun=comparison.noun)
    interval = ""
    if math.isfinite(low):
        phrase = "effect_interval" if difference > 0 else "effect_difference_interval"
        interval = say(phrase, level=wording.percent(1 - comparison.alpha), low=low, high=high)
    slots = {**_shown(analysis, pair), "where": where, "interval": interval}
    if difference <= 0:
        phrase = "effect_worse" if difference < 0 else "effect_same"
        return say("effect_by_ranks", **slots, means=say(phrase, points=points(analysis, -difference)))
    runs = ""
    if not math.isnan(chance):
        runs = say("effect_runs", share=wording.most(chance))
    return say("effect", **slots, points=points(analysis, difference), runs=runs)


def _practical(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict]) -> list[str]:
    """Return the sentence on differences within the region of practical equivalence (rope); none where none is set."""
    rope = analysis.options.rope
    if not rope or not pairs or math.isnan(pairs[0].alike):
        return []
    different = [pair for pair in pairs if pair.practical in ("better", "worse")]
    alike = [f"{analysis.label(pair.a)} and {analysis.label(pair.b)}" for pair in pairs if pair.practical == "alike"]
    named = ""
    if 0 < len(alike) <= MOST:
        named = say("practical_names", pairs="; ".join(alike))
    sentence = say(
        "practical",
        rope=f"{rope:g} {plural('point', rope)}",
        level=wording.percent(1 - comparison.alpha),
        different=len(different),
        pairs=count(len(pairs), "pair"),
        alike=len(alike),
        named=named,
        undecided=len(pairs) - len(different) - len(alike),
    )
    return [sentence]
