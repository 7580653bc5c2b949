"""Pairs of algorithms: sizes of their differences and what each test says, claims and what overturns them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import DIGITS, STRICT, RankTests


@dataclass(frozen=True)
class Verdict:
    """One pair on one choice of sets. `a` is the one with the higher mean, or any against the control `b`.

    Differences are a - b in the scores' unit, positive where a is better, also on sets where lower is better.
    """

    a: str
    b: str
    num_sets: int
    wins: int
    losses: int
    ties: int
    difference: float  # mean over the sets
    low: float  # its bootstrap interval
    high: float
    p_holm: float  # exact Wilcoxon
    wilcoxon: bool  # significant, under a significant omnibus test
    nemenyi_p: float  # NaN for two algorithms
    nemenyi: bool  # the same by Nemenyi's test
    improvement: float  # probability that a run of a beats a run of b
    improvement_low: float
    improvement_high: float
    detectable: float  # points that Wilcoxon's test would show of this pair alone; may be infinite

    @property
    def told_apart(self) -> bool:
        """True if any of the two tests over sets separates the pair."""
        return self.nemenyi or self.wilcoxon


def main(analysis: Analysis) -> RankTests:
    """Return the comparison that the headline is about: of all algorithms, if they have sets in common."""
    pools = [comparison for comparison in analysis.comparisons if comparison.setting != STRICT]
    return next((comparison for comparison in pools if not comparison.skipped), pools[0])


def control_of(analysis: Analysis, comparison: RankTests) -> str:
    """Return the control of a comparison; `none` if all pairs are compared."""
    control = analysis.options.control
    if control in comparison.algorithms:
        return control
    return "none"


def verdicts(analysis: Analysis, comparison: RankTests) -> list[Verdict]:
    """Return all pairs of one setting, the largest difference first; none without effects, which need one unit."""
    results = analysis.pairwise
    keys = ["setting", "a", "b"]
    rows = results.effects.merge(results.wilcoxon[[*keys, "p_holm", "significant"]], on=keys)
    rows = rows[rows["setting"] == comparison.setting]
    puts_better_first = control_of(analysis, comparison) == "none"
    pairs = []
    for row in rows.to_dict("records"):
        is_turned = puts_better_first and row["mean_difference"] < 0
        pairs.append(_verdict(_turn(row) if is_turned else row, comparison))
    return sorted(pairs, key=lambda pair: -pair.difference)


def _verdict(row: dict[Any, Any], comparison: RankTests) -> Verdict:
    """Return the verdict on a pair of methods from its row of the table of effects."""
    p = comparison.p(row["a"], row["b"]) if comparison.nemenyi is not None else math.nan
    return Verdict(
        a=row["a"],
        b=row["b"],
        num_sets=row["num_sets"],
        wins=row["wins"],
        losses=row["losses"],
        ties=row["ties"],
        difference=row["mean_difference"],
        low=row["bootstrap_low"],
        high=row["bootstrap_high"],
        p_holm=row["p_holm"],
        wilcoxon=bool(row["significant"]),
        nemenyi_p=p,
        nemenyi=comparison.significant and p < comparison.alpha,
        improvement=row["probability_of_improvement"],
        improvement_low=row["improvement_low"],
        improvement_high=row["improvement_high"],
        detectable=row["detectable_alone"],
    )


def _turn(row: dict[Any, Any]) -> dict[Any, Any]:
    """Return the same pair seen from the other side."""
    turned = dict(row)
    for x, y in (("a", "b"), ("wins", "losses")):
        turned[x], turned[y] = row[y], row[x]
    turned["mean_difference"] = -row["mean_difference"]
    turned["bootstrap_low"], turned["bootstrap_high"] = -row["bootstrap_high"], -row["bootstrap_low"]
    turned["probability_of_improvement"] = 1 - row["probability_of_improvement"]
    turned["improvement_low"] = 1 - row["improvement_high"]
    turned["improvement_high"] = 1 - row["improvement_low"]
    return turned


# --- conclusions ------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A pair that a test tells apart."""

    test: str  # stability.NEMENYI or WILCOXON
    better: str
    worse: str


class OverturningChange(NamedTuple):
    """A change, what was changed, and the conclusion after it, as in sensitivity.csv."""

    kind: str
    changed: str
    after: str


@dataclass(frozen=True)
class Overturned:
    """One conclusion and every change that makes it another."""

    test: str  # stability.OMNIBUS, NEMENYI or WILCOXON
    a: str
    b: str
    before: str
    changes: tuple[OverturningChange, ...]

    @property
    def positive(self) -> bool:
        """True if the conclusion says that something differs; else a change would make it say so."""
        return self.before not in (stability.SAME, stability.NOT_SHOWN)


def overturned(flips: pd.DataFrame, setting: str) -> list[Overturned]:
    """Return the conclusions of a setting that some change overturns: those that claim something first."""
    of_setting = flips[flips["setting"] == setting]
    conclusions = []
    for (test, a, b, before), rows in of_setting.groupby(["test", "a", "b", "before"], sort=False):
        values = zip(rows["change"], rows["what"], rows["after"], strict=True)
        changes = tuple(OverturningChange(*value) for value in values)
        conclusions.append(Overturned(str(test), str(a), str(b), str(before), changes))
    return sorted(conclusions, key=lambda c: (not c.positive, c.test != stability.OMNIBUS))


def claims(analysis: Analysis, comparison: RankTests) -> list[Claim]:
    """Return every pair that a test over sets separates, by test, best ranks first."""
    order = {name: position for position, name in enumerate(comparison.mean_ranks)}
    nemenyi = [pair for pair in _nemenyi(comparison) if is_compared(analysis, comparison, pair)]
    claimed = []
    for test, pairs in (stability.NEMENYI, nemenyi), (stability.WILCOXON, _wilcoxon(analysis, comparison)):
        for better, worse in sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]])):
            claimed.append(Claim(test, better, worse))
    return claimed


def is_compared(analysis: Analysis, comparison: RankTests, pair: Iterable[str]) -> bool:
    """Return True if the pair is compared: with a control only its own are, though files have Nemenyi's of all."""
    return control_of(analysis, comparison) in ("none", *pair)


def mean_lead(analysis: Analysis, comparison: RankTests, better: str, worse: str) -> float:
    """Return by how many points one's mean over the sets is ahead of the other's; NaN if sets have no common unit."""
    return round(analysis.pairwise.lead(comparison.setting, better, worse), DIGITS) + 0.0


def firm(analysis: Analysis, comparison: RankTests) -> list[Claim]:
    """Return the claims that no change overturned: after each, the same test still puts the same one first."""
    flips = overturned(analysis.pairwise.stability.flips, comparison.setting)
    shaky = {(flip.test, frozenset((flip.a, flip.b))) for flip in flips}
    firm_claims = []
    for claim in claims(analysis, comparison):
        if (claim.test, frozenset((claim.better, claim.worse))) not in shaky:
            firm_claims.append(claim)
    return firm_claims


def _nemenyi(comparison: RankTests) -> Sequence[tuple[str, str]]:
    if comparison.nemenyi is None or not comparison.significant:
        return []
    order = list(comparison.mean_ranks)
    p = comparison.nemenyi.loc[order, order].to_numpy()
    pairs = np.argwhere(np.triu(p < comparison.alpha, k=1))
    return [(order[better], order[worse]) for better, worse in pairs.tolist()]


def _wilcoxon(analysis: Analysis, comparison: RankTests) -> Sequence[tuple[str, str]]:
    """Return the pairs that Wilcoxon's tests separate; the test of two algorithms needs no common unit of the sets."""
    pair = comparison.pair
    if pair is not None:
        worse = pair.b if pair.better == pair.a else pair.a
        if comparison.significant:
            return [(pair.better, worse)]
        return []
    frame = analysis.pairwise.wilcoxon
    rows = frame[(frame["setting"] == comparison.setting) & frame["significant"].astype(bool)]
    pairs = []
    for row in rows.to_dict("records"):
        is_a_ahead = row["rank_sum_a"] > row["rank_sum_b"]
        pairs.append((row["a"], row["b"]) if is_a_ahead else (row["b"], row["a"]))
    return pairs
