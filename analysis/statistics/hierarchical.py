"""Bayesian hierarchical test of two algorithms over sets and seeds, with a region of practical equivalence (rope).

The Bayesian signed-rank test (`bayesian`) sees one mean per set. This model sees every run, so a set whose runs agree
counts more than one whose runs scatter, and noisy means are drawn towards each other. For set i with n_i differences
x_i between runs of equal seed:

    x_i ~ N(delta_i, sigma_i^2 [(1 - rho) I + rho 11'])     rho: correlation of the runs, as in `correlated_t`
    delta_i ~ Student-t(nu, delta_0, sigma_0)
    sigma_i ~ U(0, 1000 s), sigma_0 ~ U(0, 1000 s_0), delta_0 ~ U(-d, d)
    nu - 1 ~ Gamma(alpha, beta), alpha ~ U(1, 2), beta ~ U(0.01, 0.1)

s is the mean deviation within sets, s_0 the deviation of the sets' means, d the largest difference. Each draw from the
posterior gives the probabilities that the difference on a new set lies above, within or below the rope. A region's
probability is the share of draws in which it is the likeliest.

The sampler takes Gibbs steps, and Metropolis steps for sigma_0 and nu. sigma_0 is drawn with all delta integrated out,
and nu with the weights of the t integrated out, as chains would stick otherwise.

Source: Corani, Benavoli, Demsar, Mangili and Zaffalon 2017, section 3 (the hierarchical model). The priors are those of
the authors' package, baycomp 1.0.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import bayesian
from biasbed.analysis.statistics.correlated_t import paired_differences
from biasbed.analysis.statistics.exact import Array
from biasbed.analysis.statistics.pairs import Pairs

SEED = 0
CHAINS, WARM_UP, DRAWS = 200, 300, 200  # draws of each chain after the warm-up
STEPS = 4  # Metropolis steps for one parameter in a sweep
WIDEST = 1000.0  # bound of the deviations, in units of the observed ones
FLOOR = 1e-3  # least deviation within a set, in units of their mean: equal differences would have none
ALPHA, BETA = (1.0, 2.0), (0.01, 0.1)

COLUMNS = (
    *("a", "b", "num_sets", "num_runs", "correlation", "rope", "mean_difference", "p_a", "p_rope", "p_b"),
    *("monte_carlo_error", "r_hat", "verdict"),
)


@dataclass(frozen=True)
class Data:
    """Differences of two algorithms, in units of the mean deviation within sets."""

    unit: float
    means: Array  # per set
    within: Array  # per set: sum of squared deviations from its mean
    counts: Array  # per set: number of runs
    correlation: float
    largest: float  # absolute difference
    among: float  # standard deviation of the means

    @property
    def inflation(self) -> Array:
        """Factor by which the correlation raises the variance of a set's mean."""
        factor: Array = 1 + (self.counts - 1) * self.correlation
        return factor


@dataclass(frozen=True)
class UpperLevelDraws:
    """Draws of the upper level, chains x draws, in the unit of the differences."""

    centre: Array
    deviation: Array
    dof: Array

    def regions(self, rope: float) -> Array:
        """Return the probabilities that a new set's difference is above, within, below the rope, for each draw."""
        from scipy import special

        above = special.stdtr(self.dof, (self.centre - rope) / self.deviation)
        below = special.stdtr(self.dof, (-rope - self.centre) / self.deviation)
        return np.stack([above, 1 - above - below, below])

    @property
    def r_hat(self) -> float:
        """Gelman and Rubin's statistic, the larger of those of centre and logarithm of deviation; near 1 is good."""
        return max(_r_hat(self.centre), _r_hat(np.log(self.deviation)))


def prepare(differences: Sequence[Array], correlation: float) -> Data | None:
    """Return the data of the sampler, or None if all differences within sets are equal.

    differences: per set those of runs with equal seeds. Raises ValueError for fewer than two sets or, in a set, runs.
    """
    if len(differences) < 2 or min(map(len, differences)) < 2:
        raise ValueError("needs two sets with two differences each")
    # Deviations by n, as the authors' package has them.
    unit = float(np.mean([values.std() for values in differences]))
    if round(unit, 9) == 0:
        return None
    scaled = [values / unit for values in differences]
    means = np.array([values.mean() for values in scaled])
    counts = np.array([len(values) for values in scaled], dtype="float64")
    within = np.array([((values - values.mean()) ** 2).sum() for values in scaled])
    largest = max(float(np.abs(values).max()) for values in scaled)
    among = max(float(means.std()), FLOOR)
    return Data(unit, means, np.maximum(within, counts * FLOOR**2), counts, correlation, largest, among)


def sample(data: Data, *, chains: int = CHAINS, warm_up: int = WARM_UP, draws: int = DRAWS) -> UpperLevelDraws:
    """Draw from the posterior; deterministic."""
    generator = np.random.default_rng(SEED)
    shape = (chains, len(data.means))
    deltas = np.broadcast_to(data.means, shape)
    weights, centre = np.ones(shape), np.full(chains, float(data.means.mean()))
    deviation = data.among * np.exp(generator.normal(0, 0.5, chains))
    excess = np.full(chains, 20.0)  # nu - 1
    kept = np.empty((3, draws, chains))
    for i in range(warm_up + draws):
        variances = _draw_variances(generator, data, deltas) * data.inflation / data.counts
        deviation = _draw_deviation(generator, data, variances, weights, deviation)
        centre = _draw_centre(generator, data, variances + deviation[:, None] ** 2 / weights)
        precision = weights / deviation[:, None] ** 2
        total = 1 / variances + precision
        mean = (data.means / variances + centre[:, None] * precision) / total
        deltas = mean + generator.normal(size=shape) / np.sqrt(total)
        squares = ((deltas - centre[:, None]) / deviation[:, None]) ** 2
        excess = _draw_excess(generator, squares, excess)
        dof = excess[:, None] + 1
        weights = generator.gamma((dof + 1) / 2) / ((dof + squares) / 2)
        if i >= warm_up:
            kept[:, i - warm_up] = centre * data.unit, deviation * data.unit, excess + 1
    return UpperLevelDraws(*kept.transpose(0, 2, 1))


def _draw_variances(generator: np.random.Generator, data: Data, deltas: Array) -> Array:
    """Draw sigma_i^2: its inverse is Gamma((n - 1)/2, Q/2), cut at the bound of sigma_i."""
    rates = data.within / (1 - data.correlation)
    rates = (rates + data.counts * (data.means - deltas) ** 2 / data.inflation) / 2
    shapes = np.broadcast_to((data.counts - 1) / 2, deltas.shape)
    inverse = generator.gamma(shapes) / rates
    while (outside := inverse < WIDEST**-2).any():
        inverse[outside] = generator.gamma(shapes[outside]) / rates[outside]
    variances: Array = 1 / inverse
    return variances


def _draw_deviation(
    generator: np.random.Generator, data: Data, variances: Array, weights: Array, deviation: Array
) -> Array:
    """Draw sigma_0 by Metropolis steps of its logarithm, with delta_0 and all delta_i integrated out.

    variances: of the sets' means, given delta_i. Delta_0's bounds count, too.
    """
    from scipy import special

    def log_density(value: Array) -> Array:
        total = variances + value[:, None] ** 2 / weights
        precision = (1 / total).sum(axis=1)
        mean = (data.means / total).sum(axis=1) / precision
        rest = ((data.means - mean[:, None]) ** 2 / total).sum(axis=1)
        scale = np.sqrt(precision)
        bounded = special.ndtr((data.largest - mean) * scale) - special.ndtr((-data.largest - mean) * scale)
        density = -0.5 * (np.log(total).sum(axis=1) + rest + np.log(precision))
        density += np.log(np.maximum(bounded, 1e-300)) + np.log(value)
        result: Array = np.where(value < WIDEST * data.among, density, -math.inf)
        return result

    return _metropolis(generator, log_density, deviation, 1.0)


def _draw_centre(generator: np.random.Generator, data: Data, total: Array) -> Array:
    """Draw delta_0, normal within its bounds, with all delta_i integrated out; total: variances of the sets' means."""
    from scipy import special

    precision = (1 / total).sum(axis=1)
    mean, scale = (data.means / total).sum(axis=1) / precision, np.sqrt(precision)
    low, high = (special.ndtr((bound - mean) * scale) for bound in (-data.largest, data.largest))
    uniform = low + (high - low) * generator.random(len(mean))
    centre: Array = np.clip(mean + special.ndtri(uniform) / scale, -data.largest, data.largest)
    return centre


def _draw_excess(generator: np.random.Generator, squares: Array, excess: Array) -> Array:
    """Draw nu - 1 by Metropolis steps of its logarithm, with the weights integrated out."""
    from scipy import special

    grid, log_prior = _prior_of_excess()

    def log_density(value: Array) -> Array:
        dof = value + 1
        constant = special.gammaln((dof + 1) / 2) - special.gammaln(dof / 2) - 0.5 * np.log(dof)
        terms = np.log1p(squares / dof[:, None]).sum(axis=1) * (dof + 1) / 2
        logarithm = np.log(value)
        prior = np.interp(logarithm, grid, log_prior, left=-math.inf, right=-math.inf)
        result: Array = squares.shape[1] * constant - terms + prior + logarithm
        return result

    return _metropolis(generator, log_density, excess, 1.0)


@cache
def _prior_of_excess() -> tuple[Array, Array]:
    """Return a grid of log(nu - 1) and the logarithm of its prior density, over alpha and beta by midpoints."""
    from scipy import stats

    grid = np.linspace(math.log(1e-6), math.log(1e5), 2000)
    density = np.zeros_like(grid)
    middles = (np.arange(20) + 0.5) / 20
    for alpha in ALPHA[0] + (ALPHA[1] - ALPHA[0]) * middles:
        for beta in BETA[0] + (BETA[1] - BETA[0]) * middles:
            density += stats.gamma.pdf(np.exp(grid), alpha, scale=1 / beta)
    return grid, np.log(np.maximum(density, 1e-300))


def _metropolis(
    generator: np.random.Generator, log_density: Callable[[Array], Array], value: Array, width: float
) -> Array:
    """Take `STEPS` steps of a random walk of the logarithm, each chain by itself."""
    current = log_density(value)
    for _ in range(STEPS):
        proposed = value * np.exp(width * generator.normal(size=len(value)))
        density = log_density(proposed)
        accepted = np.log(generator.random(len(value))) < density - current
        value, current = np.where(accepted, proposed, value), np.where(accepted, density, current)
    return value


def _r_hat(draws: Array) -> float:
    """Return the potential scale reduction of chains x draws (Gelman and Rubin 1992)."""
    number = draws.shape[1]
    within = float(draws.var(axis=1, ddof=1).mean())
    between = float(draws.mean(axis=1).var(ddof=1))
    return math.sqrt((number - 1) / number + between / within)


def probabilities(posterior: UpperLevelDraws, rope: float) -> tuple[bayesian.Posterior, float]:
    """Return how often each region is the likeliest, and the largest standard error by the spread between chains."""
    likeliest = posterior.regions(rope).argmax(axis=0)
    shares = np.stack([(likeliest == region).mean(axis=1) for region in range(3)])
    errors = shares.std(axis=1, ddof=1) / math.sqrt(shares.shape[1])
    return bayesian.Posterior(*map(float, shares.mean(axis=1))), float(errors.max())


def compare_pairs(
    runs: Mapping[str, pd.DataFrame],
    family: Pairs,
    sets: Sequence[str],
    *,
    rope: float,
    correlation: float,
    alpha: float,
) -> pd.DataFrame:
    """Return `COLUMNS`, one row per pair; runs: algorithm -> scores, seeds x sets, higher is better.

    Sets on which the pair has fewer than two seeds in common don't count. A pair is left out if fewer than two sets are
    left or all differences within sets are equal. As for the signed-rank test, nothing is decided on few sets.
    """
    rows = []
    for a, b in family:
        differences = [paired_differences(runs, a, b, name) for name in sets]
        differences = [values for values in differences if len(values) > 1]
        data = prepare(differences, correlation) if len(differences) > 1 else None
        if data is None:
            continue
        posterior = sample(data)
        p, error = probabilities(posterior, rope)
        few = len(differences) < bayesian.FEWEST_SETS
        verdict = "undecided" if few else bayesian.verdict(p, alpha)
        number = min(map(len, differences))
        values = (correlation, rope, float(posterior.centre.mean()), p.a, p.rope, p.b, error, posterior.r_hat, verdict)
        rows.append((a, b, len(differences), number, *values))
    return pd.DataFrame(rows, columns=list(COLUMNS))
