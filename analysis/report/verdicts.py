"""Pairs of algorithms: sizes of their differences, verdicts of each test, claims, and changes that overturn them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import DIGITS, STRICT, RankTests

# Column of effects.csv, wilcoxon_holm.csv or bayesian.csv -> field of `Verdict`.
FIELDS = {
    **{name: name for name in ("a", "b", "num_sets", "wins", "losses", "ties")},
    "mean_difference": "difference",
    "bootstrap_low": "low",
    "bootstrap_high": "high",
    "p_holm": "p_holm",
    "significant": "wilcoxon",
    "probability_of_improvement": "improvement",
    "improvement_low": "improvement_low",
    "improvement_high": "improvement_high",
    "p_a": "better",
    "p_rope": "alike",
    "p_b": "worse",
    "verdict": "practical",
    "detectable_alone": "detectable",
}
SIDES = {"a better": "better", "b better": "worse", "equivalent": "alike"}  # verdicts of bayesian.csv, seen from a
TURNED = {"better": "worse", "worse": "better"}


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
    better: float  # Bayesian: a better by more than the rope, alike, worse; NaN where scores are no percentages
    alike: float
    worse: float
    practical: str  # better, alike or worse where that is more probable than 1 - alpha; else empty
    detectable: float  # points that Wilcoxon's test would show of this pair alone; may be infinite

    @property
    def told_apart(self) -> bool:
        """True if any of the two tests over sets separates the pair."""
        return self.nemenyi or self.wilcoxon

    def turned(self) -> Verdict:
        """Return the same pair seen from the other side."""
        return dataclasses.replace(
            self,
            a=self.b,
            b=self.a,
            wins=self.losses,
            losses=self.wins,
            difference=-self.difference,
            low=-self.high,
            high=-self.low,
            improvement=1 - self.improvement,
            improvement_low=1 - self.improvement_high,
            improvement_high=1 - self.improvement_low,
            better=self.worse,
            worse=self.better,
            practical=TURNED.get(self.practical, self.practical),
        )


def main_comparison(analysis: Analysis) -> RankTests:
    """Return the comparison that the headline is about: of all algorithms, if they have sets in common."""
    pools = [comparison for comparison in analysis.comparisons if comparison.setting != STRICT]
    return next((comparison for comparison in pools if not comparison.skipped), pools[0])


def control_of(analysis: Analysis, comparison: RankTests) -> str | None:
    """Return the control of a comparison; None if all pairs are compared."""
    control = analysis.options.control_name
    return control if control in comparison.algorithms else None


def verdicts(analysis: Analysis, comparison: RankTests) -> list[Verdict]:
    """Return all pairs of a comparison, the largest difference first; none if sets have no common unit."""
    results = analysis.pairwise
    keys = ["setting", "a", "b"]
    rows = results.effects.merge(results.wilcoxon[[*keys, "p_holm", "significant"]], on=keys)
    rows = rows.merge(results.bayesian[[*keys, "p_a", "p_rope", "p_b", "verdict"]], on=keys, how="left")
    rows = rows[rows["setting"] == comparison.setting][list(FIELDS)].rename(columns=FIELDS)
    puts_better_first = control_of(analysis, comparison) is None
    pairs = []
    for row in rows.to_dict("records"):
        p = comparison.p(row["a"], row["b"]) if comparison.nemenyi is not None else math.nan
        is_apart = comparison.significant and p < comparison.alpha
        values = {str(name): value for name, value in row.items()}
        values["practical"] = SIDES.get(row["practical"], "")
        pair = Verdict(**values, nemenyi_p=p, nemenyi=is_apart)
        pairs.append(pair.turned() if puts_better_first and pair.difference < 0 else pair)
    return sorted(pairs, key=lambda pair: -pair.difference)


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

    test: str  # stability.RANK_SETS, OMNIBUS, NEMENYI or WILCOXON
    a: str
    b: str
    before: str
    changes: tuple[OverturningChange, ...]

    @property
    def positive(self) -> bool:
        """True if the conclusion says that something differs; else a change would make it say so."""
        return self.before not in (stability.SAME, stability.NOT_SHOWN, stability.MAY_BE_FIRST)


def overturned_conclusions(flips: pd.DataFrame, setting: str) -> list[Overturned]:
    """Return the conclusions of a setting that some change overturns, those that claim a difference first.

    flips: sensitivity.csv.
    """
    of_setting = flips[flips["setting"] == setting]
    conclusions = []
    for (test, a, b, before), rows in of_setting.groupby(["test", "a", "b", "before"], sort=False):
        values = zip(rows["change"], rows["what"], rows["after"], strict=True)
        changes = tuple(OverturningChange(*value) for value in values)
        conclusions.append(Overturned(str(test), str(a), str(b), str(before), changes))
    return sorted(conclusions, key=lambda c: (not c.positive, c.test != stability.OMNIBUS))


def claims(analysis: Analysis, comparison: RankTests) -> list[Claim]:
    """Return every pair that a test over sets tells apart: first Nemenyi's, then Wilcoxon's, each by rank."""
    order = {name: position for position, name in enumerate(comparison.mean_ranks)}
    nemenyi = [pair for pair in _nemenyi(comparison) if is_compared(analysis, comparison, pair)]
    claimed = []
    for test, pairs in (stability.NEMENYI, nemenyi), (stability.WILCOXON, _wilcoxon(analysis, comparison)):
        for better, worse in sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]])):
            claimed.append(Claim(test, better, worse))
    return claimed


def is_compared(analysis: Analysis, comparison: RankTests, pair: Iterable[str]) -> bool:
    """Return True if all pairs are compared, or the pair has the control. Files have Nemenyi's test of all pairs."""
    return control_of(analysis, comparison) in (None, *pair)


def mean_lead(analysis: Analysis, comparison: RankTests, better: str, worse: str) -> float:
    """Return by how much the mean of `better` over the sets is ahead, maybe negative; NaN without a common unit."""
    return round(analysis.pairwise.lead(comparison.setting, better, worse), DIGITS) + 0.0


def surviving_claims(analysis: Analysis, comparison: RankTests) -> list[Claim]:
    """Return the claims that hold after every change that was tried, such as without a set, an algorithm or a run."""
    flips = overturned_conclusions(analysis.pairwise.stability.flips, comparison.setting)
    lost = {(flip.test, frozenset((flip.a, flip.b))) for flip in flips}
    all_claims = claims(analysis, comparison)
    return [claim for claim in all_claims if (claim.test, frozenset((claim.better, claim.worse))) not in lost]


def _nemenyi(comparison: RankTests) -> Sequence[tuple[str, str]]:
    """Return the pairs (better, worse) that Nemenyi's test tells apart under a significant omnibus test."""
    if comparison.nemenyi is None or not comparison.significant:
        return []
    order = list(comparison.mean_ranks)
    p = comparison.nemenyi.loc[order, order].to_numpy()
    pairs = np.argwhere(np.triu(p < comparison.alpha, k=1))
    return [(order[better], order[worse]) for better, worse in pairs.tolist()]


def _wilcoxon(analysis: Analysis, comparison: RankTests) -> Sequence[tuple[str, str]]:
    """Return the pairs (better, worse) that Wilcoxon's tests tell apart.

    The test of two algorithms needs no common unit of the sets, so it is not in the frame of pairs.
    """
    pair = comparison.pair
    if pair is not None:
        return [(pair.better, pair.worse)] if comparison.significant else []
    frame = analysis.pairwise.wilcoxon
    rows = frame[(frame["setting"] == comparison.setting) & frame["significant"].astype(bool)]
    pairs = []
    for row in rows.to_dict("records"):
        is_a_ahead = row["rank_sum_a"] > row["rank_sum_b"]
        pairs.append((row["a"], row["b"]) if is_a_ahead else (row["b"], row["a"]))
    return pairs
