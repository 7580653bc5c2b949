"""What the report says in sentences, written from the numbers and never stronger than the tests support.

In the order in which a reader asks: what can be concluded, how sure is that. What was compared is in `compared`, what
speaks against it in `doubts`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from biasbed.analysis import scores
from biasbed.analysis.report import words
from biasbed.analysis.report.compared import replicates
from biasbed.analysis.report.verdicts import Verdict, claims, control_of, firm, main, mean_lead, verdicts
from biasbed.analysis.report.words import count, listing, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import COMPLETE, STRICT, RankTests

TEST_NAMES = {
    stability.OMNIBUS: "Friedman's test",
    stability.NEMENYI: "Nemenyi's test",
    stability.WILCOXON: "Wilcoxon tests with Holm's correction",
}
ClaimedPair = tuple[str, str, str]  # test, better, worse
MOST = 6  # pairs that are put into words; the tables have all


def procedure(name: str) -> str:
    """A test in words, from its name in power.json."""
    return {
        "nemenyi": "Nemenyi's test",
        "wilcoxon_holm": "Wilcoxon tests of all pairs",
        "wilcoxon_holm_control": "Wilcoxon tests against one control",
        "wilcoxon": "Wilcoxon's test",
        "iman_davenport": "Friedman's test",
    }.get(name, name)


# --- changes ----------------------------------------------------------------------------------------------------------


class ChangeWords(NamedTuple):
    """A change after which conclusions are drawn again (`stability.Variant.change`), in words."""

    kind: str
    tried: str  # all changes of that kind; {0} is their number
    made: str  # one of them; {0} is what was changed


def changes(analysis: Analysis) -> dict[str, ChangeWords]:
    """Every kind of change in words."""
    one, run = analysis.comparisons[0].noun, words.repeated(analysis)
    return {
        "leave_one_algorithm_out": ChangeWords(
            "one algorithm less", "leaving out each of {0} algorithms", "without {0}"
        ),
        "leave_one_set_out": ChangeWords(f"one {one} less", f"each of {{0}} {one}s", f"without the {one} {{0}}"),
        "one_run_less": ChangeWords(f"one {run} less", f"each of {{0}} {run}s", f"without the {run} {{0}}"),
        "selection_rule": ChangeWords("another selection rule", "{0} further selection rule(s)", "selected by {0}"),
        "alpha": ChangeWords("another level of significance", "{0} other levels of significance", "at a level of {0}"),
    }


def changes_of(analysis: Analysis, comparison: RankTests, tests: Iterable[str]) -> str:
    """The changes after which the conclusions of these tests were drawn again, in words: of all, then what some add."""
    frame = analysis.pairwise.checks
    own = frame[(frame["setting"] == comparison.setting) & (frame["claims"] > 0)]
    named = changes(analysis)
    done = {test: list(own.loc[own["test"] == test, "change"].unique()) for test in tests}
    common = [change for change in own["change"].unique() if all(change in made for made in done.values())]
    text = listing(named[change].kind for change in common)
    for test, made in done.items():
        more = [named[change].kind for change in made if change not in common]
        text += f"; for {TEST_NAMES[test]} also {listing(more)}" if more else ""
    return text


# --- what can be concluded --------------------------------------------------------------------------------------------


def verdict(analysis: Analysis) -> str:
    """The whole result in a sentence or two."""
    comparison = main(analysis)
    if comparison.skipped:
        return f"Nothing was tested: {comparison.skipped}."
    pool = words.pool(comparison)
    if not comparison.significant:
        where = f" ({pool})" if pool else ""
        return f"These runs do not show that the algorithms differ{where}. That is no evidence that they are equal."
    found, control = claims(analysis, comparison), control_of(analysis, comparison)
    if found:
        return f"{_differ(comparison)}: {_before(analysis, comparison, found)}."
    differ = _differ(comparison) if pool else "The algorithms differ"
    if control != "none":
        return f"{differ}, but no test tells any of them apart from the control {control}."
    return f"{differ}, but no test tells which: no single pair is told apart."


def _differ(comparison: RankTests) -> str:
    """That the algorithms differ, and over what."""
    pool = words.pool(comparison)
    if not pool:
        return f"Over these {comparison.size} the algorithms differ"
    return f"{pool[0].upper()}{pool[1:]} differ" if comparison.setting == COMPLETE else f"Over {pool} they differ"


def caveats(analysis: Analysis) -> list[str]:
    """What must be read together with the verdict."""
    comparison = main(analysis)
    found = claims(analysis, comparison)
    lines = _survivors(analysis, found) if found else _strict_omnibus(analysis)
    lines += _complete(analysis)
    if comparison.significant and scores.shared_images_note(analysis.sets):
        lines.append("All of this takes the sets for independent, and some of them show the same images.")
    if min(replicates(analysis).values()) < 2:
        lines.append("Some algorithm has a single run: how much luck of one training is in its numbers is not known.")
    return lines


def _survivors(analysis: Analysis, found: Sequence[ClaimedPair]) -> list[str]:
    """How many of the pairs that are told apart are so after every change, in the strict setting, and in both."""
    whole = main(analysis)
    pairs = set(_pairs_of(found))
    lines, kept = [], []
    if len(analysis.pairwise.checks):
        kept.append(set(_pairs_of(firm(analysis, whole))))
        tried = changes_of(analysis, whole, dict.fromkeys(test for test, _, _ in found))
        lines.append(
            f"Of {count(len(pairs), 'such pair')}, {len(kept[0])} would be told apart by the same test after every "
            f"change that was tried ({tried}){_named(analysis, kept[0])}."
        )
    for strict in _strict(analysis):
        kept.append(pairs & set(_pairs_of(claims(analysis, strict))))
        lines.append(
            f"{words.strict_phrase(analysis, strict)}, {len(kept[-1])} of "
            f"{count(len(pairs), 'such pair')} would be told apart in the same order{_named(analysis, kept[-1])}."
        )
    if len(kept) > 1:
        both = kept[0] & kept[1]
        lines.append(
            f"Of {count(len(pairs), 'such pair')}, {len(both)} would survive both: every change, and the sets left "
            f"out{_named(analysis, both)}."
        )
    return lines


def _strict(analysis: Analysis) -> list[RankTests]:
    """The strict setting, if it has tests."""
    return [one for one in analysis.comparisons if one.setting == STRICT and not one.skipped]


def _strict_omnibus(analysis: Analysis) -> list[str]:
    return [
        f"{words.strict_phrase(analysis, strict)}, the algorithms "
        f"{'differ' if strict.significant else 'are not shown to differ'}."
        for strict in _strict(analysis)
    ]


def _complete(analysis: Analysis) -> list[str]:
    """The same of the algorithms that have all sets, where the headline is about the sets that all algorithms have."""
    lines = []
    for one in analysis.comparisons:
        if one.setting != COMPLETE or one is main(analysis):
            continue
        pool, found = words.pool(one), claims(analysis, one)
        if one.skipped:
            lines.append(f"Of {pool} nothing was tested: {one.skipped}.")
        elif found:
            lines.append(f"{_differ(one)}: {_before(analysis, one, found)}.")
        else:
            lines.append(f"Of {pool} it is {'' if one.significant else 'not '}shown that they differ.")
    return lines


def _pairs_of(found: Iterable[ClaimedPair]) -> list[tuple[str, str]]:
    """(better, worse), each pair once."""
    return list(dict.fromkeys((better, worse) for _, better, worse in found))


def _named(analysis: Analysis, kept: Set[tuple[str, str]]) -> str:
    """`: a over b; a over c`, best ranks first; nothing where there are none, or too many to read."""
    order = list(main(analysis).mean_ranks)
    pairs = sorted(kept, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    return f": {'; '.join(f'{a} over {b}' for a, b in pairs)}" if 0 < len(pairs) <= MOST else ""


def concluded(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Whether the algorithms differ over the sets, and which pairs."""
    if comparison.skipped:
        return [f"No tests: {comparison.skipped}."]
    found = claims(analysis, comparison)
    if comparison.pair is not None:
        return [*words.of_two(comparison), *contradictions(analysis, comparison)]
    return [words.omnibus(comparison), *_pairs(analysis, comparison, found)]


def contradictions(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Where the means over the sets point the other way than the ranks, by which the tests go."""
    pairs = _pairs_of(claims(analysis, comparison))
    return [
        f"{_ranks_before(analysis, comparison, *pair)}." for pair in pairs if _contradicts(analysis, comparison, pair)
    ]


def _contradicts(analysis: Analysis, comparison: RankTests, pair: tuple[str, str]) -> bool:
    return mean_lead(analysis, comparison, *pair) <= 0


def _ranks_before(analysis: Analysis, comparison: RankTests, better: str, worse: str) -> str:
    lead = mean_lead(analysis, comparison, better, worse)
    means = f"whose mean over the sets is {points(analysis, -lead)} better" if lead < 0 else ""
    means = means or "with the same mean over the sets"
    return f"{better} ranks before {worse}, {means}"


def _pairs(analysis: Analysis, comparison: RankTests, found: Sequence[ClaimedPair]) -> list[str]:
    if not comparison.significant:
        return []
    control = control_of(analysis, comparison)
    alone = control != "none"
    number = len(comparison.algorithms) - 1 if alone else math.comb(len(comparison.algorithms), 2)
    nemenyi = [claim for claim in found if claim[0] == stability.NEMENYI]
    of_control = f" with {control}" if alone else ""
    named = _colon(analysis, comparison, nemenyi)
    line = f"Nemenyi's test tells {len(nemenyi)} of {count(number, 'pair')}{of_control} apart{named}."
    return [line, *wilcoxon_sentences(analysis, comparison)]


def wilcoxon_sentences(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Which pairs Wilcoxon's tests separate, and whether they could have; none without a significant omnibus test."""
    frame = analysis.pairwise.wilcoxon
    own = frame[frame["setting"] == comparison.setting]
    if own.empty or comparison.friedman is None or not comparison.significant:
        return []
    found = [claim for claim in claims(analysis, comparison) if claim[0] == stability.WILCOXON]
    tests, smallest = int(own["num_tests"].iloc[0]), float(own["smallest_p"].iloc[0])
    control = control_of(analysis, comparison)
    against = "" if control == "none" else f" with {control}"
    text = f"Exact Wilcoxon tests with Holm's correction tell {len(found)} of {count(tests, 'pair')}{against} apart"
    if smallest >= comparison.alpha:
        text += f". They could not have told any: with {tests} tests on {comparison.size} the clearest "
        text += f"possible outcome has p = {smallest:.2g}"
    return [f"{text}{_colon(analysis, comparison, found)}."]


def _colon(analysis: Analysis, comparison: RankTests, found: Sequence[ClaimedPair]) -> str:
    return f": {_before(analysis, comparison, found)}" if found else ""


def _before(analysis: Analysis, comparison: RankTests, found: Sequence[ClaimedPair]) -> str:
    """`a is better than b and c; d is better than c`, each pair once; those that the means contradict with what they
    say.
    """
    pairs = _pairs_of(found)
    groups = itertools.groupby(sorted(pairs, key=lambda pair: _first(pairs, pair[0])), key=lambda pair: pair[0])
    parts = []
    for better, group in groups:
        of_one = list(group)
        clear = [worse for _, worse in of_one if not _contradicts(analysis, comparison, (better, worse))]
        parts += [f"{better} is better than {listing(clear)}"] if clear else []
        parts += [_ranks_before(analysis, comparison, *pair) for pair in of_one if pair[1] not in clear]
    return "; ".join(parts)


def _first(pairs: Sequence[tuple[str, str]], name: str) -> int:
    return next(i for i, pair in enumerate(pairs) if pair[0] == name)


def on_single_sets(analysis: Analysis) -> list[str]:
    """What holds on one set at a time, by tests over runs."""
    frame = analysis.pairwise.sets
    tested = frame[frame["skipped"] == ""]
    if tested.empty:
        reasons = sorted(set(frame["skipped"]) - {""})
        return [f"No test on a single set: {listing(reasons)}."] if reasons else []
    found = [str(name) for name in tested.loc[tested["significant"].astype(bool), "dataset"]]
    if not found:
        return [f"On no single set do the runs show that the algorithms differ ({count(len(tested), 'set')} tested)."]
    where = "each of them" if len(found) == len(tested) else listing(found)
    pairs = analysis.pairwise.set_pairs
    apart = int(pairs["significant"].astype(bool).sum())
    return [
        f"Set by set, the runs show that the algorithms differ on {len(found)} of {count(len(tested), 'tested set')} "
        f"(Kruskal-Wallis with Holm's correction): {where}. This holds for the set alone, not for others.",
        f"Pair by pair on one set, {apart} of {count(len(pairs), 'comparison')} are told apart (Mann-Whitney with "
        "Holm's correction within the set).",
    ]


# --- how sure ---------------------------------------------------------------------------------------------------------


def sure(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Sizes with intervals of the pairs that are told apart, practical equivalence, and agreement of the sets."""
    pairs = verdicts(analysis, comparison)
    by_names = {frozenset((pair.a, pair.b)): pair for pair in pairs}
    apart = _pairs_of(claims(analysis, comparison))
    # With a control some pairs have Nemenyi's verdict only.
    sized = [(*names, by_names[frozenset(names)]) for names in apart if frozenset(names) in by_names]
    lines = [_effect(analysis, comparison, *found) for found in sized[:MOST]]
    if len(sized) > MOST:
        lines.append(f"{count(len(sized) - MOST, 'further pair')} told apart; the table of pairs has the sizes.")
    lines += _practical(analysis, comparison, pairs)
    if comparison.friedman is not None:
        agreement = comparison.friedman.kendall_w
        lines.append(
            f"Kendall's W is {agreement:.2f}: 1 if all {comparison.noun}s ranked the algorithms alike, 0 without "
            "agreement."
        )
    return lines


def _effect(analysis: Analysis, comparison: RankTests, better: str, worse: str, pair: Verdict) -> str:
    """The size of a difference that a test found; tests go by ranks, so the mean may say otherwise."""
    sign = 1 if pair.a == better else -1
    difference, wins = sign * pair.difference, pair.wins if sign > 0 else pair.losses
    low, high = sorted((sign * pair.low, sign * pair.high))
    chance = pair.improvement if sign > 0 else 1 - pair.improvement
    level = f"{words.percent(1 - comparison.alpha)} interval"
    where = f"on {wins} of {pair.num_sets} {comparison.noun}s"
    if difference <= 0:
        means = f"{points(analysis, -difference)} worse" if difference < 0 else "the same"
        interval = f" ({level} of the difference {low:.1f} to {high:.1f})" if math.isfinite(low) else ""
        return f"{better} ranks before {worse} and is better {where}, yet its mean over the sets is {means}{interval}."
    interval = f" ({level} {low:.1f} to {high:.1f})" if math.isfinite(low) else ""
    size = points(analysis, difference)
    runs = f"; a run of the one beats a run of the other in {words.most(chance)} of the comparisons (ties count half)"
    return (
        f"{better} is better than {worse} by {size} on average over the sets{interval}, and {where}"
        f"{'' if math.isnan(chance) else runs}."
    )


def _practical(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict]) -> list[str]:
    rope = analysis.options.rope
    if not pairs or math.isnan(pairs[0].alike):
        return []
    different = [pair for pair in pairs if pair.practical in ("better", "worse")]
    if not rope:
        return []
    alike = [f"{pair.a} and {pair.b}" for pair in pairs if pair.practical == "alike"]
    undecided = len(pairs) - len(different) - len(alike)
    same = f" ({'; '.join(alike)})" if 0 < len(alike) <= MOST else ""
    return [
        f"If differences up to {rope:g} point{'s' * (rope != 1)} count as alike, then with a probability over "
        f"{words.percent(1 - comparison.alpha)}: different in practice {len(different)} of "
        f"{count(len(pairs), 'pair')}, alike "
        f"{len(alike)}{same}, undecided {undecided} (Bayesian signed-rank test, not corrected for the number of pairs)."
    ]
