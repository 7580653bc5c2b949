"""The null distribution of Friedman's statistic from the ranks themselves, for designs too small for an approximation.

If all algorithms are equal, each set's ranks may stand in any order (Friedman 1937; Conover 1999, section 5.8). All
orders are gone through where they are few, else a seeded sample of them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

# On fewer sets than this, F's distribution is off by more than a point (docs/analysis.md, "Calibration").
FEWEST_SETS = 6
LARGEST_EXACT = 60_000  # orders
SAMPLE = 20_000  # orders where there are more


def friedman_p(ranks: Array) -> float:
    """The share of orders within sets whose sums of ranks lie at least as far apart; ranks [sets, algorithms].

    Independent of the order of sets and algorithms. A sample counts the observed order too, so that p is never zero.
    """
    observed = _spread(ranks.sum(axis=0)[None])[0] - 1e-9
    rows = np.array(sorted(map(tuple, np.sort(ranks, axis=1))))
    num_sets, k = rows.shape
    if math.factorial(k) ** (num_sets - 1) <= LARGEST_EXACT:
        sums = rows[:1]
        for row in rows[1:]:
            orders = np.array(list(itertools.permutations(row)))
            sums = (sums[:, None] + orders[None]).reshape(-1, k)
        return float((_spread(sums) >= observed).mean())
    generator = np.random.default_rng(0)
    sums = generator.permuted(np.broadcast_to(rows, (SAMPLE, num_sets, k)), axis=2).sum(axis=1)
    return float((1 + (_spread(sums) >= observed).sum()) / (1 + SAMPLE))


def _spread(sums: Array) -> Array:
    """Sum of squared deviations of the rank sums [n, k]: rises with chi-square and with F."""
    spread: Array = ((sums - sums.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return spread
