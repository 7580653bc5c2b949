"""Every pair of algorithms with all that is known of it side by side: what the report, its figures and words print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import DIGITS, STRICT, RankTests

SIDES = {"a better": "better", "b better": "worse", "equivalent": "alike"}


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
    depends_on_pool: bool

    @property
    def told_apart(self) -> bool:
        """Whether any of the two tests over sets separates the pair."""
        return self.nemenyi or self.wilcoxon


def main(analysis: Analysis) -> RankTests:
    """The comparison that the headline is about: of all algorithms, if they have sets in common."""
    pools = [comparison for comparison in analysis.comparisons if comparison.setting != STRICT]
    return next((comparison for comparison in pools if not comparison.skipped), pools[0])


def control_of(analysis: Analysis, comparison: RankTests) -> str:
    """The control that a comparison has; `none`: all pairs are compared."""
    control = analysis.options.control
    return control if control in comparison.algorithms else "none"


def verdicts(analysis: Analysis, comparison: RankTests) -> list[Verdict]:
    """All pairs of one setting, the largest difference first; empty where there are no effects (one unit is needed)."""
    found = analysis.pairwise
    keys = ["setting", "a", "b"]
    rows = found.effects.merge(found.wilcoxon[[*keys, "p_holm", "significant"]], on=keys)
    rows = rows.merge(found.bayesian[[*keys, "p_a", "p_rope", "p_b", "verdict"]], on=keys, how="left")
    rows = rows.merge(found.pool[[*keys, "depends_on_pool"]], on=keys, how="left")
    rows = rows[rows["setting"] == comparison.setting]
    turn = control_of(analysis, comparison) == "none"
    pairs = [_verdict(row, comparison, turn) for row in rows.to_dict("records")]
    return sorted(pairs, key=lambda pair: -pair.difference)


def _verdict(row: dict[Any, Any], comparison: RankTests, turn: bool) -> Verdict:
    if turn and row["mean_difference"] < 0:
        row = _turned(row)
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
        better=row["p_a"],
        alike=row["p_rope"],
        worse=row["p_b"],
        practical=SIDES.get(row["verdict"], ""),
        detectable=row["detectable_alone"],
        depends_on_pool=row["depends_on_pool"] is True,
    )


def _turned(row: dict[Any, Any]) -> dict[Any, Any]:
    """The same pair seen from the other side."""
    other = {"a": "b", "wins": "losses", "p_a": "p_b"}
    turned = row | {x: row[y] for x, y in other.items()} | {y: row[x] for x, y in other.items()}
    turned["mean_difference"] = -row["mean_difference"]
    turned["bootstrap_low"], turned["bootstrap_high"] = -row["bootstrap_high"], -row["bootstrap_low"]
    turned["probability_of_improvement"] = 1 - row["probability_of_improvement"]
    turned["improvement_low"] = 1 - row["improvement_high"]
    turned["improvement_high"] = 1 - row["improvement_low"]
    swapped = {"a better": "b better", "b better": "a better"}
    turned["verdict"] = swapped.get(row["verdict"], row["verdict"])
    return turned


# --- conclusions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overturned:
    """One conclusion and every change that makes it another."""

    test: str  # stability.OMNIBUS, NEMENYI or WILCOXON
    a: str
    b: str
    before: str
    changes: tuple[tuple[str, str, str], ...]  # (change, what, after), as in sensitivity.csv

    @property
    def positive(self) -> bool:
        """Whether the conclusion says that something differs; else a change would make it say so."""
        return self.before not in (stability.SAME, stability.NOT_SHOWN)


def overturned(flips: pd.DataFrame, setting: str) -> list[Overturned]:
    """The conclusions of a setting that some change overturns: those that claim something first."""
    own = flips[flips["setting"] == setting]
    found = []
    for (test, a, b, before), rows in own.groupby(["test", "a", "b", "before"], sort=False):
        changes = tuple(zip(rows["change"], rows["what"], rows["after"], strict=True))
        found.append(Overturned(str(test), str(a), str(b), str(before), changes))
    return sorted(found, key=lambda one: (not one.positive, one.test != stability.OMNIBUS))


def claims(analysis: Analysis, comparison: RankTests) -> list[tuple[str, str, str]]:
    """(test, better, worse) of every pair that a test over sets separates, best ranks first."""
    order = list(comparison.mean_ranks)
    found = []
    for test, pairs in (
        (stability.NEMENYI, [pair for pair in _nemenyi(comparison) if asked(analysis, comparison, pair)]),
        (stability.WILCOXON, _wilcoxon(analysis, comparison)),
    ):
        found += [(test, a, b) for a, b in sorted(pairs, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))]
    return found


def asked(analysis: Analysis, comparison: RankTests, pair: Iterable[str]) -> bool:
    """Whether the pair is among those compared: with a control only its own, though the files have Nemenyi's of all."""
    return control_of(analysis, comparison) in ("none", *pair)


def mean_lead(analysis: Analysis, comparison: RankTests, better: str, worse: str) -> float:
    """Points by which the one's mean over the sets is ahead of the other's; NaN where sets have no common unit."""
    frame = analysis.pairwise.effects
    own = frame[frame["setting"] == comparison.setting]
    found = {(a, b): float(d) for a, b, d in zip(own["a"], own["b"], own["mean_difference"], strict=True)}
    lead = found.get((better, worse), -found.get((worse, better), math.nan))
    return round(lead, DIGITS) + 0.0


def firm(analysis: Analysis, comparison: RankTests) -> list[tuple[str, str, str]]:
    """The claims that no change overturned: after each, the same test still puts the same one before the other."""
    shaky = {(one.test, frozenset((one.a, one.b))) for one in overturned(analysis.pairwise.flips, comparison.setting)}
    return [claim for claim in claims(analysis, comparison) if (claim[0], frozenset(claim[1:])) not in shaky]


def _nemenyi(comparison: RankTests) -> Sequence[tuple[str, str]]:
    if comparison.nemenyi is None or not comparison.significant:
        return []
    order = list(comparison.mean_ranks)
    return [(a, b) for i, a in enumerate(order) for b in order[i + 1 :] if comparison.p(a, b) < comparison.alpha]


def _wilcoxon(analysis: Analysis, comparison: RankTests) -> Sequence[tuple[str, str]]:
    """Those of Wilcoxon's tests; the test of two algorithms stands even where sets have no common unit."""
    pair = comparison.pair
    if pair is not None:
        other = pair.b if pair.better == pair.a else pair.a
        return [(pair.better, other)] if comparison.significant else []
    frame = analysis.pairwise.wilcoxon
    own = frame[(frame["setting"] == comparison.setting) & frame["significant"].astype(bool)]
    ahead = own["rank_sum_a"] > own["rank_sum_b"]
    return [(a, b) if first else (b, a) for a, b, first in zip(own["a"], own["b"], ahead, strict=True)]
