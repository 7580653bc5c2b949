"""Conclusions of the report, and how sure they are; never stronger than the tests support.

Other sections describe the design (`study_design`) and what speaks against the conclusions (`stability`, `power`,
`weaknesses`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from biasbed.analysis import scores
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.report.verdicts import (
    Claim,
    Verdict,
    claims,
    control_of,
    main_comparison,
    mean_lead,
    surviving_claims,
    verdicts,
)
from biasbed.analysis.report.wording import TEST_NAMES, capitalized, count, listing, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections import one_data_set
from biasbed.analysis.sections.section import ForSets, Section, Sentences, ShownPart
from biasbed.analysis.sections.single_runs import SINGLE_RUNS, pairs_apart
from biasbed.analysis.sections.single_sets import describe_alone, describe_other_sets
from biasbed.analysis.sections.stability import STABILITY, list_changes
from biasbed.analysis.sections.study_design import count_replicates
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import COMPLETE, STRICT, RankTests

MOST = 6  # pairs that are named together
MOST_SIZED = 3  # pairs whose sizes are put into words; the tables have all
MOST_LISTED = 15  # pairs in a list; more are counted


class ShownDifferences(Section[None]):
    """Do the algorithms differ, and which pairs? For each choice of sets."""

    name = "concluded"
    title = "What can be concluded"
    is_open = True
    if_empty = "No test could be made of this choice."

    def compute(self, analysis: Analysis) -> None:
        """Compute nothing: the sentences follow from the tests."""

    def caveats(self, analysis: Analysis) -> Sequence[str]:
        """Return the verdict on pairs, if it is not the answer already (`rank_sets`), and what limits it."""
        pairs = [] if main_comparison(analysis).skipped else [verdict(analysis)]
        return [*pairs, *caveats(analysis)]

    def show(self, data: None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            left_out = wording.setting_sentence(analysis, comparison)
            sentences = [left_out] if left_out else []
            yield ForSets(comparison.setting, (Sentences((*sentences, *concluded(analysis, comparison))),))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()  # stands beside the ranks


class Certainty(Section[None]):
    """Size of the differences that tests tell apart, and whether the sets agree, for each choice of sets."""

    name = "sure"
    title = "How sure"
    is_open = True
    if_empty = "There is no test whose certainty could be stated."

    def compute(self, analysis: Analysis) -> None:
        """Compute nothing: the sentences follow from the tests."""

    def show(self, data: None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            sentences = tuple(describe_certainty(analysis, comparison))
            yield ForSets(comparison.setting, (Sentences(sentences),) if sentences else ())

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()


CONCLUSIONS, CERTAINTY = ShownDifferences(), Certainty()

# --- what can be concluded --------------------------------------------------------------------------------------------


class RankedPair(NamedTuple):
    """Two algorithms that a test tells apart."""

    better: str
    worse: str


def verdict(analysis: Analysis) -> str:
    """Return the result of the main comparison in a sentence or two: if the algorithms differ, and which."""
    comparison = main_comparison(analysis)
    if comparison.skipped:
        return " ".join(without_tests_over_sets(analysis)) or f"Nothing was tested: {comparison.skipped}."
    pool = wording.describe_pool(comparison)
    if not comparison.significant:
        among = f" ({pool})" if pool else ""
        shown = f"Over the sets together it is not shown that the algorithms differ{among}."
        return f"{shown} That is no evidence that they are equal."
    claimed, control = claims(analysis, comparison), control_of(analysis, comparison)
    if claimed:
        return _which_differ(analysis, comparison, claimed)
    differ = _differ(comparison)
    if control is not None:
        return f"{differ}, but no test tells any of them apart from the control {analysis.label(control)}."
    return f"{differ}, but no test tells which: no single pair is told apart."


def _which_differ(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    """Say which pairs are told apart, and by which tests; two algorithms have one test only."""
    tests = listing(TEST_NAMES[test] for test in dict.fromkeys(claim.test for claim in claimed))
    by_tests = f"by {tests} " if comparison.pair is None else ""
    return f"{_differ(comparison)}: {by_tests}{_list_pairs(analysis, comparison, claimed)}."


def _differ(comparison: RankTests) -> str:
    """Return the clause that the algorithms of a comparison differ."""
    pool = wording.describe_pool(comparison)
    if not pool:
        return "The algorithms differ"
    if comparison.setting == COMPLETE:
        return f"{capitalized(pool)} differ"
    return f"Over {pool} they differ"


def caveats(analysis: Analysis) -> list[str]:
    """Return sentences that limit the verdict: what survives changes, images that sets share, single runs."""
    comparison = main_comparison(analysis)
    claimed = claims(analysis, comparison)
    lines = _survivors(analysis, claimed) if claimed else _strict_omnibus(analysis)
    if comparison.significant and scores.shared_images_note(analysis.sets, analysis.label):
        lines.append("All of this takes the sets for independent, and some of them show the same images.")
    if min(count_replicates(analysis).values()) < 2 and not _prints_deviations(analysis):
        lines.append("Some algorithm has a single run: how much luck of one training is in its numbers is not known.")
    return lines


def _prints_deviations(analysis: Analysis) -> bool:
    """Return True for a user's table whose means have deviations of a known number of runs."""
    user_scores = analysis.inputs.user_scores
    if user_scores is None or not user_scores.spreads:
        return False
    return all(spread.num_runs > 1 for spread in user_scores.spreads.values())


def _survivors(analysis: Analysis, claimed: Sequence[Claim]) -> list[str]:
    """Say how many of the claimed pairs are still told apart after every change, in the strict setting, and in both."""
    comparison, strict = main_comparison(analysis), _find_strict(analysis)
    claimed_pairs = set(_pairs_of(claimed))
    such_pairs = count(len(claimed_pairs), "such pair")
    after_changes: set[RankedPair] | None = None
    in_strict: set[RankedPair] | None = None
    lines = []
    if len(analysis.data(STABILITY).checks):
        surviving = surviving_claims(analysis, comparison)
        after_changes = set(_pairs_of(surviving))
        names = [TEST_NAMES[test] for test in dict.fromkeys(claim.test for claim in surviving or claimed)]
        changes = list_changes(analysis, comparison, dict.fromkeys(claim.test for claim in claimed))
        lines.append(
            f"Of {such_pairs}, {len(after_changes)} would be told apart by {' or '.join(names)} after every change "
            f"that was tried ({changes}){_name_survivors(analysis, after_changes)}."
        )
    if strict is not None:
        in_strict = claimed_pairs & set(_pairs_of(claims(analysis, strict)))
        survive = f"{len(in_strict)} of {such_pairs} would be told apart in the same order"
        lines.append(f"{wording.strict_phrase(analysis, strict)}, {survive}{_name_survivors(analysis, in_strict)}.")
    if after_changes is not None and in_strict is not None:
        in_both = after_changes & in_strict
        survive = f"{len(in_both)} would survive both: every change, and the sets left out"
        lines.append(f"Of {such_pairs}, {survive}{_name_survivors(analysis, in_both)}.")
    return lines


def _find_strict(analysis: Analysis) -> RankTests | None:
    """Return the tests of the strict setting; None without any."""
    return next((c for c in analysis.comparisons if c.setting == STRICT and not c.skipped), None)


def _strict_omnibus(analysis: Analysis) -> list[str]:
    """Say if the algorithms differ in the strict setting; nothing without it."""
    strict = _find_strict(analysis)
    if strict is None:
        return []
    verb = "differ" if strict.significant else "are not shown to differ"
    return [f"{wording.strict_phrase(analysis, strict)}, the algorithms {verb}."]


def other_pools(analysis: Analysis) -> list[str]:
    """Return the result of the algorithms that have all sets, if the main comparison is of sets that all have."""
    lines = []
    for comparison in analysis.comparisons:
        if comparison.setting != COMPLETE or comparison is main_comparison(analysis):
            continue
        pool, claimed = wording.describe_pool(comparison), claims(analysis, comparison)
        if comparison.skipped:
            lines.append(f"Of {pool} nothing was tested: {comparison.skipped}.")
        elif claimed:
            lines.append(_which_differ(analysis, comparison, claimed))
        else:
            verb = "is shown" if comparison.significant else "is not shown"
            lines.append(f"Of {pool} it {verb} that they differ.")
    return lines


def _pairs_of(claimed: Iterable[Claim]) -> list[RankedPair]:
    """Return the pairs of these claims, each once."""
    return list(dict.fromkeys(RankedPair(claim.better, claim.worse) for claim in claimed))


def _name_survivors(analysis: Analysis, kept: Set[RankedPair]) -> str:
    """Return `: a over b; a over c`, best ranks first; empty if there are none, or too many to read."""
    if not 0 < len(kept) <= MOST:
        return ""
    order = list(main_comparison(analysis).mean_ranks)
    pairs = sorted(kept, key=lambda pair: (order.index(pair.better), order.index(pair.worse)))
    names = "; ".join(f"{analysis.label(pair.better)} over {analysis.label(pair.worse)}" for pair in pairs)
    return f": {names}"


def concluded(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say if the algorithms differ over the sets, and which pairs."""
    if comparison.skipped:
        lines = without_tests_over_sets(analysis) if comparison is main_comparison(analysis) else []
        return lines or [f"No tests: {comparison.skipped}."]
    if comparison.pair is not None:
        return [*wording.pair_sentences(comparison, analysis.label), *contradictions(analysis, comparison)]
    lines = [wording.omnibus_sentence(comparison)]
    if comparison.significant:
        lines += [_nemenyi_sentence(analysis, comparison), *wilcoxon_sentences(analysis, comparison)]
    return lines


def contradictions(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Return a sentence for each pair whose means over the sets contradict its ranks, by which the tests go."""
    lines = []
    for pair in _pairs_of(claims(analysis, comparison)):
        if mean_lead(analysis, comparison, pair.better, pair.worse) <= 0:
            lines.append(f"{_contradicted_clause(analysis, comparison, pair)}.")
    return lines


def _contradicted_clause(analysis: Analysis, comparison: RankTests, pair: RankedPair) -> str:
    """Return the clause on a pair of which the one with the better ranks does not have the better mean."""
    lead = mean_lead(analysis, comparison, pair.better, pair.worse)
    before = f"{analysis.label(pair.better)} ranks before {analysis.label(pair.worse)}"
    if lead < 0:
        return f"{before}, whose mean over the sets is {points(analysis, -lead)} better"
    return f"{before}, with the same mean over the sets"


def _nemenyi_sentence(analysis: Analysis, comparison: RankTests) -> str:
    """Say which pairs Nemenyi's test tells apart."""
    control = control_of(analysis, comparison)
    claimed = [claim for claim in claims(analysis, comparison) if claim.test == stability.NEMENYI]
    num_algorithms = len(comparison.algorithms)
    num_pairs = math.comb(num_algorithms, 2) if control is None else num_algorithms - 1
    told_apart = f"{len(claimed)} of {count(num_pairs, 'pair')}{_with_control(analysis, control)} apart"
    return f"Nemenyi's test tells {told_apart}{_named_pairs(analysis, comparison, claimed)}."


def _with_control(analysis: Analysis, control: str | None) -> str:
    """Return ` with SagNet`; empty without a control."""
    if control is None:
        return ""
    return f" with {analysis.label(control)}"


def wilcoxon_sentences(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say which pairs Wilcoxon's tests tell apart, and if they could; nothing without a significant omnibus test."""
    frame = analysis.pairwise.wilcoxon
    rows = frame[frame["setting"] == comparison.setting]
    if rows.empty or comparison.friedman is None or not comparison.significant:
        return []
    claimed = [claim for claim in claims(analysis, comparison) if claim.test == stability.WILCOXON]
    num_tests, smallest_p = int(rows["num_tests"].iloc[0]), float(rows["smallest_p"].iloc[0])
    powerless = ""
    if smallest_p >= comparison.alpha:
        powerless = (
            f". They could not have told any: with {num_tests} tests on {comparison.size} the clearest possible "
            f"outcome has p = {smallest_p:.2g}"
        )
    control = _with_control(analysis, control_of(analysis, comparison))
    told_apart = f"{len(claimed)} of {count(num_tests, 'pair')}{control} apart"
    named = _named_pairs(analysis, comparison, claimed)
    return [f"Exact Wilcoxon tests with Holm's correction tell {told_apart}{powerless}{named}."]


def _named_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    """Return `: a is better than b; ...`; empty if there are no pairs, or too many to read."""
    if 0 < len(claimed) <= MOST_LISTED:
        return f": {_list_pairs(analysis, comparison, claimed)}"
    return ""


def _list_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    """Return `a is better than b and c; d is better than c`; many pairs are only counted.

    A pair whose means contradict its ranks is a clause of its own.
    """
    all_pairs = _pairs_of(claimed)
    if len(all_pairs) > MOST_LISTED:
        return f"{len(all_pairs)} pairs are told apart, which the table of pairs has"
    pairs_by_better: dict[str, list[RankedPair]] = {}
    for pair in all_pairs:
        pairs_by_better.setdefault(pair.better, []).append(pair)
    parts = []
    for better, pairs in pairs_by_better.items():
        contradicted = [pair for pair in pairs if mean_lead(analysis, comparison, pair.better, pair.worse) <= 0]
        clear = [pair.worse for pair in pairs if pair not in contradicted]
        if clear:
            parts.append(f"{analysis.label(better)} is better than {listing(map(analysis.label, clear))}")
        parts += [_contradicted_clause(analysis, comparison, pair) for pair in contradicted]
    return "; ".join(parts)


def without_tests_over_sets(analysis: Analysis) -> list[str]:
    """Return what is shown without any test over sets: by the runs on one data set, by the images of single runs."""
    lines = one_data_set.describe(analysis)
    if lines:
        lines.append(describe_other_sets(main_comparison(analysis)))
    else:
        lines = describe_alone(analysis)
    over_images = pairs_apart(analysis.data(SINGLE_RUNS), analysis.alpha, analysis.label)
    if over_images:
        lines.append(over_images)
    return lines


# --- how sure ---------------------------------------------------------------------------------------------------------


def describe_certainty(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Return the sizes of the differences that are told apart, and the agreement of the sets."""
    pair_by_names = {}
    for pair in verdicts(analysis, comparison):
        pair_by_names[pair.a, pair.b] = pair
        pair_by_names[pair.b, pair.a] = pair.turned()
    apart = _pairs_of(claims(analysis, comparison))
    # With a control some pairs have Nemenyi's verdict only, and no size.
    sized = [pair_by_names[pair] for pair in apart if pair in pair_by_names]
    lines = [_describe_effect(analysis, comparison, pair) for pair in sized[:MOST_SIZED]]
    if len(sized) > MOST_SIZED:
        more = count(len(sized) - MOST_SIZED, "further pair")
        lines.append(f"{more} told apart; the table of pairs has the sizes.")
    if comparison.friedman is not None:
        w = f"Kendall's W is {comparison.friedman.kendall_w:.2f}"
        lines.append(f"{w}: 1 if all {comparison.noun}s ranked the algorithms alike, 0 without agreement.")
    return lines


def _describe_effect(analysis: Analysis, comparison: RankTests, pair: Verdict) -> str:
    """Return the size of a difference that a test found in favour of `pair.a`, whose mean may yet be the worse one."""
    difference = pair.difference
    where = f"on {pair.wins} of {pair.num_sets} {comparison.noun}s"
    better, worse = analysis.label(pair.a), analysis.label(pair.b)
    bounds = ""
    if math.isfinite(pair.low):
        interval = "interval" if difference > 0 else "interval of the difference"
        level = wording.percent(1 - comparison.alpha)
        bounds = f" ({level} {interval} {pair.low:.1f} to {pair.high:.1f})"
    if difference <= 0:
        mean = f"{points(analysis, -difference)} worse" if difference < 0 else "the same"
        return f"{better} ranks before {worse} and is better {where}, yet its mean over the sets is {mean}{bounds}."
    lead = f"{points(analysis, difference)} on average over the sets{bounds}"
    runs = ""
    if not math.isnan(pair.improvement):
        share = wording.share_text(pair.improvement)
        runs = f"; a run of the one beats a run of the other in {share} of the comparisons"
    return f"{better} is better than {worse} by {lead}, and {where}{runs}."
