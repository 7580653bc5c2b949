"""Confidence sets for ranks, from the pairs that tests of all pairs tell apart.

If the tests of all pairs are wrong about any pair with probability alpha at most, all these sets together contain the
true ranks with probability 1 - alpha at least: an algorithm stands behind everyone shown to be better, and before
everyone shown to be worse. `sign_flips` holds that level whichever pairs are equal.

Source: Mogstad, Romano, Shaikh and Wilhelm 2024, "Inference for ranks with applications to mobility across
neighbourhoods and academic achievement across countries", Review of Economic Studies 91, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from biasbed.analysis.statistics import sign_flips

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


BoolArray: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class RankSet(NamedTuple):
    """Ranks that an algorithm can have: all from the best to the worst, 1 for the first."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best} to {self.worst}"


def ranks_over_sets(ranks: pd.DataFrame, alpha: float) -> dict[str, RankSet]:
    """Return the rank set of each algorithm, by `sign_flips.joint_p`. ranks: sets x algorithms, 1 is best."""
    return rank_sets(list(map(str, ranks)), sign_flips.joint_p(ranks.to_numpy(dtype="float64")) < alpha)


def rank_sets(algorithms: Sequence[str], is_shown_better: BoolArray) -> dict[str, RankSet]:
    """Return the rank set of each algorithm. is_shown_better: the row is shown to be better than the column [K, K]."""
    best = 1 + is_shown_better.sum(axis=0)
    worst = len(algorithms) - is_shown_better.sum(axis=1)
    return {name: RankSet(*ranks) for name, *ranks in zip(algorithms, best.tolist(), worst.tolist(), strict=True)}
