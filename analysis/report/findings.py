"""What the report says in sentences, written from the numbers and never stronger than the tests support.

In the order in which a reader asks: what was compared, what can be concluded, how sure is that. What speaks against
it is in `doubts`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from biasbed.analysis import scores
from biasbed.analysis.report import words
from biasbed.analysis.report.verdicts import Verdict, claims, firm, mean_lead, verdicts
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.collect import PUBLISHED_MARK
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import RankTests

TEST_NAMES = {
    stability.OMNIBUS: "Friedman's test",
    stability.NEMENYI: "Nemenyi's test",
    stability.WILCOXON: "Wilcoxon tests with Holm's correction",
}
ClaimedPair = tuple[str, str, str]  # test, better, worse
MOST = 6  # pairs that are put into words; the tables have all


def listing(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = list(names)
    return f"{', '.join(first)} and {last}" if first else last


def count(number: int, noun: str) -> str:
    """`1 set`, `2 sets`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def points(value: float) -> str:
    """A difference of scores."""
    return f"{value:.1f} points" if abs(value) >= 0.1 else f"{value:.2g} points"


def procedure(name: str) -> str:
    """A test in words, from its name in power.json."""
    return {
        "nemenyi": "Nemenyi's test",
        "wilcoxon_holm": "Wilcoxon tests of all pairs",
        "wilcoxon_holm_control": "Wilcoxon tests against one control",
        "wilcoxon": "Wilcoxon's test",
        "iman_davenport": "Friedman's test",
    }.get(name, name)


# --- what was compared ------------------------------------------------------------------------------------------------


class ChangeWords(NamedTuple):
    """A change after which conclusions are drawn again (`stability.Variant.change`), in words."""

    kind: str
    tried: str  # all changes of that kind; {0} is their number
    made: str  # one of them; {0} is what was changed


CHANGES = {
    "leave_one_algorithm_out": ChangeWords("one algorithm less", "leaving out each of {0} algorithms", "without {0}"),
    "leave_one_set_out": ChangeWords("one set less", "each of {0} sets", "without the set {0}"),
    "one_run_less": ChangeWords("one run less", "each of {0} runs", "without the run {0}"),
    "selection_rule": ChangeWords("another selection rule", "{0} further selection rule(s)", "selected by {0}"),
    "alpha": ChangeWords("another level of significance", "{0} other levels of significance", "at a level of {0}"),
}


def changes_of(analysis: Analysis, comparison: RankTests, tests: Iterable[str]) -> str:
    """The changes after which the conclusions of these tests were drawn again, in words: of all, then what some add."""
    frame = analysis.evidence.checks
    own = frame[(frame["setting"] == comparison.setting) & (frame["claims"] > 0)]
    done = {test: list(own.loc[own["test"] == test, "change"].unique()) for test in tests}
    common = [change for change in own["change"].unique() if all(change in changes for changes in done.values())]
    text = listing(CHANGES[change].kind for change in common)
    for test, changes in done.items():
        more = [CHANGES[change].kind for change in changes if change not in common]
        text += f"; for {TEST_NAMES[test]} also {listing(more)}" if more else ""
    return text


def compared(analysis: Analysis) -> list[str]:
    """The design: algorithms, sets, runs, and which epoch's scores count."""
    c = analysis.collection
    runs = Counter(run.algorithm for run in c.runs)
    low, high = min(runs.values()), max(runs.values())
    each = count(low, "run") if low == high else f"{low} to {high} runs"
    published = len(c.runs) - len(c.own)
    of_them = ", all published" if c.published else f", {published} of them published" if published else ""
    lines = [
        f"{count(len(analysis.algorithms), 'algorithm')} ({listing(analysis.algorithms)}) on "
        f"{count(len(analysis.sets), 'evaluation set')} ({listing(analysis.set_names)}), "
        f"{each} of each, {count(len(c.runs), 'run')} in all{of_them}.",
        _training_data(analysis),
        f"A run's score on a set is that of {analysis.rule.label.removeprefix('as published: ')}"
        f"{', as published' if c.published else ''}. An algorithm's score is the mean over its runs.",
    ]
    if published and not c.published:
        lines.append(f"Names with {PUBLISHED_MARK} are published results beside one's own.")
    if analysis.options.control != "none":
        lines.append(f"Every algorithm is compared with the control {analysis.options.control}, in place of all pairs.")
    return lines


def _training_data(analysis: Analysis) -> str:
    c = analysis.collection
    usual = set(c.protocol.training_sets)
    other: dict[str, set[str]] = {}
    for run in c.runs:
        other.setdefault(run.algorithm, set()).update(set(run.training_data) - usual - {"train"})
    named = [f"{name} also or only on {listing(sorted(data))}" for name, data in other.items() if data]
    return f"Trained on {listing(c.protocol.training_sets)}{'; ' if named else ''}{'; '.join(named)}."


# --- what can be concluded --------------------------------------------------------------------------------------------


def verdict(analysis: Analysis) -> str:
    """The whole result in a sentence or two, of all sets."""
    comparison = analysis.comparisons[0]
    if comparison.skipped:
        return f"Nothing was tested: {comparison.skipped}."
    if not comparison.significant:
        return "These runs do not show that the algorithms differ. That is no evidence that they are equal."
    found = claims(analysis, comparison)
    if not found and analysis.options.control != "none":
        return (
            f"The algorithms differ, but no test tells any of them apart from the control {analysis.options.control}."
        )
    if not found:
        return "The algorithms differ, but no test tells which: no single pair is told apart."
    return f"Over these {len(comparison.sets)} sets the algorithms differ: {_before(analysis, comparison, found)}."


def caveats(analysis: Analysis) -> list[str]:
    """What must be read together with the verdict."""
    comparison = analysis.comparisons[0]
    found = claims(analysis, comparison)
    lines = _survivors(analysis, found) if found else _strict_omnibus(analysis)
    if comparison.significant and scores.shared_images_note(analysis.sets):
        lines.append("All of this takes the sets for independent, and some of them show the same images.")
    if min(Counter(run.algorithm for run in analysis.collection.runs).values()) < 2:
        lines.append("Some algorithm has a single run: how much luck of one training is in its numbers is not known.")
    return lines


def _survivors(analysis: Analysis, found: Sequence[ClaimedPair]) -> list[str]:
    """How many of the pairs that are told apart are so after every change, in the strict setting, and in both."""
    main = analysis.comparisons[0]
    pairs = set(_pairs_of(found))
    lines, kept = [], []
    if len(analysis.evidence.checks):
        kept.append(set(_pairs_of(firm(analysis, main))))
        changes = changes_of(analysis, main, dict.fromkeys(test for test, _, _ in found))
        lines.append(
            f"Of {count(len(pairs), 'such pair')}, {len(kept[0])} would be told apart by the same test after every "
            f"change that was tried ({changes}){_named(analysis, kept[0])}."
        )
    for strict in analysis.comparisons[1:]:
        if strict.skipped:
            continue
        kept.append(pairs & set(_pairs_of(claims(analysis, strict))))
        lines.append(
            f"Without the sets whose makers also made training data ({len(strict.sets)} sets), {len(kept[-1])} of "
            f"{count(len(pairs), 'such pair')} would be told apart in the same order{_named(analysis, kept[-1])}."
        )
    if len(kept) > 1:
        both = kept[0] & kept[1]
        lines.append(
            f"Of {count(len(pairs), 'such pair')}, {len(both)} would survive both: every change, and the sets left "
            f"out{_named(analysis, both)}."
        )
    return lines


def _strict_omnibus(analysis: Analysis) -> list[str]:
    return [
        f"Without the sets whose makers also made training data ({len(strict.sets)} sets), the algorithms "
        f"{'differ' if strict.significant else 'are not shown to differ'}."
        for strict in analysis.comparisons[1:]
        if not strict.skipped
    ]


def _pairs_of(found: Iterable[ClaimedPair]) -> list[tuple[str, str]]:
    """(better, worse), each pair once."""
    return list(dict.fromkeys((better, worse) for _, better, worse in found))


def _named(analysis: Analysis, kept: Set[tuple[str, str]]) -> str:
    """`: a over b; a over c`, best ranks first; nothing where there are none, or too many to read."""
    order = list(analysis.comparisons[0].mean_ranks)
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
    means = f"whose mean over the sets is {points(-lead)} better" if lead < 0 else "with the same mean over the sets"
    return f"{better} ranks before {worse}, {means}"


def _pairs(analysis: Analysis, comparison: RankTests, found: Sequence[ClaimedPair]) -> list[str]:
    if not comparison.significant:
        return []
    alone = analysis.options.control != "none"
    number = len(comparison.algorithms) - 1 if alone else math.comb(len(comparison.algorithms), 2)
    nemenyi = [claim for claim in found if claim[0] == stability.NEMENYI]
    of_control = f" with {analysis.options.control}" if alone else ""
    named = _colon(analysis, comparison, nemenyi)
    line = f"Nemenyi's test tells {len(nemenyi)} of {count(number, 'pair')}{of_control} apart{named}."
    return [line, *wilcoxon_sentences(analysis, comparison)]


def wilcoxon_sentences(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Which pairs Wilcoxon's tests separate, and whether they could have; none without a significant omnibus test."""
    frame = analysis.evidence.wilcoxon
    own = frame[frame["setting"] == comparison.setting]
    if own.empty or comparison.friedman is None or not comparison.significant:
        return []
    found = [claim for claim in claims(analysis, comparison) if claim[0] == stability.WILCOXON]
    tests, smallest = int(own["num_tests"].iloc[0]), float(own["smallest_p"].iloc[0])
    against = "" if analysis.options.control == "none" else f" with {analysis.options.control}"
    text = f"Exact Wilcoxon tests with Holm's correction tell {len(found)} of {count(tests, 'pair')}{against} apart"
    if smallest >= comparison.alpha:
        text += f". They could not have told any: with {tests} tests on {len(comparison.sets)} sets the clearest "
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
    frame = analysis.evidence.sets
    tested = frame[frame["skipped"] == ""]
    if tested.empty:
        reasons = sorted(set(frame["skipped"]) - {""})
        return [f"No test on a single set: {listing(reasons)}."] if reasons else []
    found = [str(name) for name in tested.loc[tested["significant"].astype(bool), "dataset"]]
    if not found:
        return [f"On no single set do the runs show that the algorithms differ ({count(len(tested), 'set')} tested)."]
    where = "each of them" if len(found) == len(tested) else listing(found)
    pairs = analysis.evidence.set_pairs
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
    lines = [_effect(*found, comparison) for found in sized[:MOST]]
    if len(sized) > MOST:
        lines.append(f"{count(len(sized) - MOST, 'further pair')} told apart; the table of pairs has the sizes.")
    lines += _practical(analysis, comparison, pairs)
    if comparison.friedman is not None:
        agreement = comparison.friedman.kendall_w
        lines.append(f"Kendall's W is {agreement:.2f}: 1 if all sets ranked the algorithms alike, 0 without agreement.")
    return lines


def _effect(better: str, worse: str, pair: Verdict, comparison: RankTests) -> str:
    """The size of a difference that a test found; tests go by ranks, so the mean may say otherwise."""
    sign = 1 if pair.a == better else -1
    difference, wins = sign * pair.difference, pair.wins if sign > 0 else pair.losses
    low, high = sorted((sign * pair.low, sign * pair.high))
    chance = words.most(pair.improvement if sign > 0 else 1 - pair.improvement)
    level = f"{words.percent(1 - comparison.alpha)} interval"
    where = f"on {wins} of {pair.num_sets} sets"
    if difference <= 0:
        means = f"{points(-difference)} worse" if difference < 0 else "the same"
        interval = f" ({level} of the difference {low:.1f} to {high:.1f})" if math.isfinite(low) else ""
        return f"{better} ranks before {worse} and is better {where}, yet its mean over the sets is {means}{interval}."
    interval = f" ({level} {low:.1f} to {high:.1f})" if math.isfinite(low) else ""
    return (
        f"{better} is better than {worse} by {points(difference)} on average over the sets{interval}, and {where}; "
        f"a run of the one beats a run of the other in {chance} of the comparisons (ties count half)."
    )


def _practical(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict]) -> list[str]:
    rope = analysis.options.rope
    if not pairs:
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
