"""Confidence sets for ranks, from the pairs that tests of all pairs tell apart.

If the tests of all pairs are wrong about any pair with probability alpha at most, all these sets together contain the
true ranks with probability 1 - alpha at least: an algorithm stands behind everyone shown to be better, and before
everyone shown to be worse. `sign_flips` and Wilcoxon's tests with Holm's correction hold that level under any
configuration of equal and different pairs; Nemenyi's test holds it only if all algorithms are equal.

Source: Mogstad, Romano, Shaikh and Wilhelm 2024, "Inference for ranks with applications to mobility across
neighbourhoods and academic achievement across countries", Review of Economic Studies 91, section 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from biasbed.analysis.statistics import sign_flips

if TYPE_CHECKING:
    import pandas as pd


class RankSet(NamedTuple):
    """Ranks that an algorithm can have: all from the best to the worst, 1 for the first."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best} to {self.worst}"


def ranks_over_sets(scores: pd.DataFrame, alpha: float) -> dict[str, RankSet]:
    """Return the rank set of each algorithm, by `sign_flips.joint_p`.

    scores: sets x algorithms, higher is better on every set (`friedman.orient`), without missing values; rounded so
    that ties are exact.
    """
    is_shown_better = sign_flips.joint_p(scores.to_numpy(dtype="float64")) < alpha
    best = 1 + is_shown_better.sum(axis=0)
    worst = len(is_shown_better) - is_shown_better.sum(axis=1)
    return {str(name): RankSet(*ranks) for name, *ranks in zip(scores, best.tolist(), worst.tolist(), strict=True)}


def rank_sets(algorithms: Sequence[str], apart: Iterable[tuple[str, str]]) -> dict[str, RankSet]:
    """Return the rank set of each algorithm. apart: (better, worse) of every pair that is told apart, once each."""
    better_than: Counter[str] = Counter()
    worse_than: Counter[str] = Counter()
    for better, worse in apart:
        better_than[better] += 1
        worse_than[worse] += 1
    number = len(algorithms)
    return {name: RankSet(1 + worse_than[name], number - better_than[name]) for name in algorithms}
