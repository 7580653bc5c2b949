"""Conclusions of the report, and how sure they are; never stronger than the tests support.

The section `study_design` describes the design; `stability`, `power` and `weaknesses` say what speaks against the
conclusions.
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
    firm,
    main_comparison,
    mean_lead,
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
    """Show what the tests show, for each choice of sets."""

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
    """Sizes of the differences that are told apart, and agreement of the sets."""

    name = "sure"
    title = "How sure"
    is_open = True
    if_empty = "There is no test whose certainty could be stated."

    def compute(self, analysis: Analysis) -> None:
        """Compute nothing: the sentences follow from the tests."""

    def show(self, data: None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for comparison in analysis.comparisons:
            sentences = tuple(sure(analysis, comparison))
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
    """Return the result in a sentence or two."""
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
        return f"{_differ(comparison)}: {_list_pairs(analysis, comparison, claimed)}."
    differ = _differ(comparison) if pool else "The algorithms differ"
    if control is not None:
        return f"{differ}, but no test tells any of them apart from the control {analysis.label(control)}."
    return f"{differ}, but no test tells which: no single pair is told apart."


def _differ(comparison: RankTests) -> str:
    """Say that the algorithms differ, and over what."""
    pool = wording.describe_pool(comparison)
    if not pool:
        return f"Over these {comparison.size} the algorithms differ"
    if comparison.setting == COMPLETE:
        return f"{capitalized(pool)} differ"
    return f"Over {pool} they differ"


def caveats(analysis: Analysis) -> list[str]:
    """Return what must be read together with the verdict."""
    comparison = main_comparison(analysis)
    claimed = claims(analysis, comparison)
    lines = _survivors(analysis, claimed) if claimed else _strict_omnibus(analysis)
    if comparison.significant and scores.shared_images_note(analysis.sets, analysis.label):
        lines.append("All of this takes the sets for independent, and some of them show the same images.")
    if min(count_replicates(analysis).values()) < 2 and not _prints_deviations(analysis):
        lines.append("Some algorithm has a single run: how much luck of one training is in its numbers is not known.")
    return lines


def _prints_deviations(analysis: Analysis) -> bool:
    """Return True for a table whose means are printed with deviations of a known number of runs."""
    user_scores = analysis.inputs.user_scores
    spreads = [] if user_scores is None else list(user_scores.spreads.values())
    return bool(spreads) and all(spread.num_runs > 1 for spread in spreads)


def _survivors(analysis: Analysis, claimed: Sequence[Claim]) -> list[str]:
    """Count the pairs that are told apart after every change, in the strict setting, and in both."""
    comparison = main_comparison(analysis)
    pairs = set(_pairs_of(claimed))
    such_pairs = count(len(pairs), "such pair")
    lines, surviving = [], []
    if len(analysis.data(STABILITY).checks):
        tests = dict.fromkeys(claim.test for claim in claimed)
        firm_claims = firm(analysis, comparison)
        kept = set(_pairs_of(firm_claims))
        surviving.append(kept)
        names = [TEST_NAMES[test] for test in dict.fromkeys(claim.test for claim in firm_claims or claimed)]
        lines.append(
            f"Of {such_pairs}, {len(kept)} would be told apart by {' or '.join(names)} after every change that was "
            f"tried ({list_changes(analysis, comparison, tests)}){_name_survivors(analysis, kept)}."
        )
    for strict in _strict(analysis):
        kept = pairs & set(_pairs_of(claims(analysis, strict)))
        surviving.append(kept)
        sentence = (
            f"{len(kept)} of {such_pairs} would be told apart in the same order{_name_survivors(analysis, kept)}."
        )
        lines.append(f"{wording.strict_phrase(analysis, strict)}, {sentence}")
    if len(surviving) > 1:
        kept = surviving[0] & surviving[1]
        both = f"would survive both: every change, and the sets left out{_name_survivors(analysis, kept)}."
        lines.append(f"Of {such_pairs}, {len(kept)} {both}")
    return lines


def _strict(analysis: Analysis) -> list[RankTests]:
    """Return the strict setting, if it has tests."""
    return [c for c in analysis.comparisons if c.setting == STRICT and not c.skipped]


def _strict_omnibus(analysis: Analysis) -> list[str]:
    lines = []
    for strict in _strict(analysis):
        verb = "differ" if strict.significant else "are not shown to differ"
        lines.append(f"{wording.strict_phrase(analysis, strict)}, the algorithms {verb}.")
    return lines


def other_pools(analysis: Analysis) -> list[str]:
    """Return the result of the algorithms that have all sets, if the headline is of sets that all algorithms have."""
    lines = []
    for comparison in analysis.comparisons:
        if comparison.setting != COMPLETE or comparison is main_comparison(analysis):
            continue
        pool, claimed = wording.describe_pool(comparison), claims(analysis, comparison)
        if comparison.skipped:
            lines.append(f"Of {pool} nothing was tested: {comparison.skipped}.")
        elif claimed:
            lines.append(f"{_differ(comparison)}: {_list_pairs(analysis, comparison, claimed)}.")
        else:
            verb = "is shown" if comparison.significant else "is not shown"
            lines.append(f"Of {pool} it {verb} that they differ.")
    return lines


def _pairs_of(claimed: Iterable[Claim]) -> list[RankedPair]:
    """Return each pair once."""
    return list(dict.fromkeys(RankedPair(claim.better, claim.worse) for claim in claimed))


def _name_survivors(analysis: Analysis, kept: Set[RankedPair]) -> str:
    """Return `: a over b; a over c`, best ranks first; nothing if there are none, or too many to read."""
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
    """Say where the means over the sets point the other way than the ranks, by which the tests go."""
    lines = []
    for pair in _pairs_of(claims(analysis, comparison)):
        if mean_lead(analysis, comparison, *pair) <= 0:
            lines.append(f"{_ranks_before(analysis, comparison, pair)}.")
    return lines


def _ranks_before(analysis: Analysis, comparison: RankTests, pair: RankedPair) -> str:
    lead = mean_lead(analysis, comparison, *pair)
    before = f"{analysis.label(pair.better)} ranks before {analysis.label(pair.worse)}"
    if lead < 0:
        return f"{before}, whose mean over the sets is {points(analysis, -lead)} better"
    return f"{before}, with the same mean over the sets"


def _nemenyi_sentence(analysis: Analysis, comparison: RankTests) -> str:
    control = control_of(analysis, comparison)
    claimed = [claim for claim in claims(analysis, comparison) if claim.test == stability.NEMENYI]
    algorithms = len(comparison.algorithms)
    number = math.comb(algorithms, 2) if control is None else algorithms - 1
    told_apart = f"{len(claimed)} of {count(number, 'pair')}{_with_control(analysis, control)} apart"
    return f"Nemenyi's test tells {told_apart}{_named_pairs(analysis, comparison, claimed)}."


def _with_control(analysis: Analysis, control: str | None) -> str:
    if control is None:
        return ""
    return f" with {analysis.label(control)}"


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
        blind = (
            f". They could not have told any: with {tests} tests on {comparison.size} the clearest possible outcome "
            f"has p = {smallest:.2g}"
        )
    control = _with_control(analysis, control_of(analysis, comparison))
    told_apart = f"{len(claimed)} of {count(tests, 'pair')}{control} apart"
    named = _named_pairs(analysis, comparison, claimed)
    return [f"Exact Wilcoxon tests with Holm's correction tell {told_apart}{blind}{named}."]


def _named_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    if 0 < len(claimed) <= MOST_LISTED:
        return f": {_list_pairs(analysis, comparison, claimed)}"
    return ""


def _list_pairs(analysis: Analysis, comparison: RankTests, claimed: Sequence[Claim]) -> str:
    """Return `a is better than b and c; d is better than c`; pairs that the means contradict apart, with the means.

    Many pairs are counted.
    """
    pairs_by_better: dict[str, list[RankedPair]] = {}
    all_pairs = _pairs_of(claimed)
    if len(all_pairs) > MOST_LISTED:
        return f"{len(all_pairs)} pairs are told apart, which the table of pairs has"
    for pair in all_pairs:
        pairs_by_better.setdefault(pair.better, []).append(pair)
    parts = []
    for better, pairs in pairs_by_better.items():
        contradicted = [pair for pair in pairs if mean_lead(analysis, comparison, *pair) <= 0]
        clear = [pair.worse for pair in pairs if pair not in contradicted]
        if clear:
            parts.append(f"{analysis.label(better)} is better than {listing(map(analysis.label, clear))}")
        parts += [_ranks_before(analysis, comparison, pair) for pair in contradicted]
    return "; ".join(parts)


def without_tests_over_sets(analysis: Analysis) -> list[str]:
    """Return what is shown without any test over sets: by the runs on one data set, by the images of single runs."""
    as_a_whole = one_data_set.describe(analysis)
    lines = [*as_a_whole, describe_other_sets(main_comparison(analysis))] if as_a_whole else describe_alone(analysis)
    items = pairs_apart(analysis.data(SINGLE_RUNS), analysis.alpha, analysis.label)
    if items:
        lines.append(items)
    return lines


# --- how sure ---------------------------------------------------------------------------------------------------------


def sure(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Return sizes of the differences that are told apart, and agreement of the sets."""
    pairs = verdicts(analysis, comparison)
    by_names = {(pair.a, pair.b): pair for pair in pairs} | {(pair.b, pair.a): pair.turned() for pair in pairs}
    apart = _pairs_of(claims(analysis, comparison))
    sized = [by_names[pair] for pair in apart if pair in by_names]  # with a control some have Nemenyi's verdict only
    lines = [_effect(analysis, comparison, pair) for pair in sized[:MOST_SIZED]]
    if len(sized) > MOST_SIZED:
        more = count(len(sized) - MOST_SIZED, "further pair")
        lines.append(f"{more} told apart; the table of pairs has the sizes.")
    if comparison.friedman is not None:
        w = f"Kendall's W is {comparison.friedman.kendall_w:.2f}"
        lines.append(f"{w}: 1 if all {comparison.noun}s ranked the algorithms alike, 0 without agreement.")
    return lines


def _effect(analysis: Analysis, comparison: RankTests, pair: Verdict) -> str:
    """Return the size of a difference that a test found in favour of a; the mean may say otherwise than its ranks."""
    difference, low, high, chance = pair.difference, pair.low, pair.high, pair.improvement
    where = f"on {pair.wins} of {pair.num_sets} {comparison.noun}s"
    better, worse = analysis.label(pair.a), analysis.label(pair.b)
    bounds = ""
    if math.isfinite(low):
        of_difference = "interval" if difference > 0 else "interval of the difference"
        bounds = f" ({wording.percent(1 - comparison.alpha)} {of_difference} {low:.1f} to {high:.1f})"
    if difference <= 0:
        means = f"{points(analysis, -difference)} worse" if difference < 0 else "the same"
        return f"{better} ranks before {worse} and is better {where}, yet its mean over the sets is {means}{bounds}."
    lead = f"{points(analysis, difference)} on average over the sets{bounds}"
    runs = ""
    if not math.isnan(chance):
        share = wording.share_text(chance)
        runs = f"; a run of the one beats a run of the other in {share} of the comparisons"
    return f"{better} is better than {worse} by {lead}, and {where}{runs}."
