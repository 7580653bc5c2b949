"""Bayesian signed-rank test with a region of practical equivalence (rope).

It gives the probability that one algorithm is better in practice, or that two are equivalent. Unlike a p-value it can
support equivalence. Sources: Benavoli, Corani, Mangili, Demsar and Ruggeri 2014 (the test); Benavoli, Corani, Demsar
and Zaffalon 2017, section 4.2 (the rope).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import pairs
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.friedman import check_scores, differences_of

PRIOR_STRENGTH = 0.5  # weight of the prior's one pseudo-set, on which both algorithms are equal
SAMPLES = 50_000
SEED = 0
AT_ONCE = 100_000  # weights of a region, draws times pairs, to fit the processor's cache
PRODUCTS = 2**26  # products of weights in memory at a time

FEWEST_SETS = 6
COLUMNS = ("a", "b", "num_sets", "rope", "p_a", "p_rope", "p_b", "monte_carlo_error", "verdict")


@dataclass(frozen=True)
class Posterior:
    """Probabilities that a is better by more than the rope, that both are equivalent, that b is better."""

    a: float
    rope: float
    b: float

    @property
    def monte_carlo_error(self) -> float:
        """The largest standard error of the three."""
        return max(float(np.sqrt(p * (1 - p) / SAMPLES)) for p in (self.a, self.rope, self.b))


def signed_rank(differences: Array, rope: float) -> Posterior:
    """Return the posterior of the differences a - b over the sets, under a Dirichlet process prior.

    Each draw weights the sets and one pseudo-set of difference 0 by w ~ Dirichlet(1, ..., 1, 1/2). The weight of a
    region (above, within or below the rope) is the sum of w_i w_j over all pairs whose mean (d_i + d_j) / 2 lies in it.
    The probability of a region is the share of draws in which it weighs most. Means exactly on the rope's edge count
    half (with rope = 0, half to each side). The result is deterministic and does not depend on the order of sets.
    """
    return signed_rank_of_each(differences[None], rope)[0]


def signed_rank_of_each(differences: Array, rope: float) -> list[Posterior]:
    """Return `signed_rank` of every row of differences (pairs x sets). All pairs have the same draws."""
    order = np.lexsort((differences, np.abs(differences)))
    ordered = np.take_along_axis(differences, order, axis=1)
    d = np.concatenate([np.zeros((len(differences), 1)), ordered], axis=1)
    # w_i w_j is the same for (i, j) and (j, i), so each two sets count once.
    first, second = np.triu_indices(d.shape[1])
    means = (d[:, first] + d[:, second]).T / 2
    is_above, is_below = _heaviside(means - rope), _heaviside(-means - rope)
    weights = _weights(d.shape[1], SAMPLES)
    wins = np.zeros((3, len(d)))
    num_parts = 1 + max(len(weights) * len(d) // AT_ONCE, len(weights) * len(first) // PRODUCTS)
    for part in np.array_split(weights, num_parts):
        products = part[:, first] * part[:, second] * np.where(first == second, 1.0, 2.0)
        wins += _count_largest(products @ is_above, products @ is_below, rope)
    return [Posterior(*shares) for shares in (wins / len(weights)).T.tolist()]


def _count_largest(above: Array, below: Array, rope: float) -> Array:
    """Count the draws in which each region weighs most (regions x pairs). above, below: weights, draws x pairs.

    Regions that weigh the same share a draw.
    """
    # Without a rope nothing lies within it: rounding errors must not win a draw.
    within = 1 - above - below if rope > 0 else np.full_like(above, -1.0)
    largest = np.maximum(np.maximum(above, within), below)
    is_largest = np.stack([above == largest, within == largest, below == largest])
    result: Array = (is_largest / is_largest.sum(axis=0, dtype=np.int8)).sum(axis=1)
    return result


def compare_pairs(scores: pd.DataFrame, rope: float, alpha: float, control: str | None = None) -> pd.DataFrame:
    """Return a row with `COLUMNS` for every pair; rope is in the unit of the scores.

    The verdict names the region with a posterior above 1 - alpha. On fewer than `FEWEST_SETS` sets every verdict is
    `undecided`: the error rate there has not been measured, and the posterior of two single runs may exceed 0.95.
    """
    check_scores(scores)
    has_few_sets = len(scores) < FEWEST_SETS
    scores = scores.rename(columns=str)
    family = pairs.pairs(tuple(scores.columns), control)
    posteriors = signed_rank_of_each(differences_of(scores, family), rope)
    rows = []
    for (a, b), p in zip(family, posteriors, strict=True):
        decision = "undecided" if has_few_sets else verdict(p, alpha)
        rows.append((a, b, len(scores), rope, p.a, p.rope, p.b, p.monte_carlo_error, decision))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def verdict(posterior: Posterior, alpha: float) -> str:
    """Return `a better`, `equivalent` or `b better` if its probability exceeds 1 - alpha, else `undecided`."""
    probabilities = {"a better": posterior.a, "equivalent": posterior.rope, "b better": posterior.b}
    return next((name for name, p in probabilities.items() if p > 1 - alpha), "undecided")


@cache
def _weights(size: int, number: int) -> Array:
    """Draw Dirichlet weights, number x size: of the pseudo-set in the first column, then of the sets."""
    strength = np.ones(size)
    strength[0] = PRIOR_STRENGTH
    return np.random.default_rng(SEED).dirichlet(strength, number)


def _heaviside(values: Array) -> Array:
    """Return 1 above zero, 1/2 at zero, else 0. Scores have nine digits, so values below 1e-9 are zero."""
    result: Array = np.heaviside(np.where(np.abs(values) < 1e-9, 0.0, values), 0.5)
    return result
