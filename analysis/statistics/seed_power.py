"""Power of a t-test of two algorithms by their seeds' means.

Answers: Which lead do so many seeds show, and how many show a given one?
"""

from __future__ import annotations

from biasbed.analysis.statistics.planner import TARGET

MOST_SEEDS = 1000


def detectable(deviation: float, num_seeds: int, level: float) -> float:
    """Return the difference that a two-sided t-test of so many seeds each finds with the probability `TARGET`."""
    from statsmodels.stats.power import TTestIndPower

    size = TTestIndPower().solve_power(nobs1=num_seeds, alpha=level, power=TARGET)
    return float(size) * deviation


def seeds_for(difference: float, deviation: float, level: float) -> int | None:
    """Return how many seeds of each algorithm show a difference with the probability `TARGET`; None: over 1,000."""
    from statsmodels.stats.power import TTestIndPower

    test, size = TTestIndPower(), difference / deviation
    for num_seeds in range(2, MOST_SEEDS + 1):
        if test.power(size, num_seeds, level) >= TARGET:
            return num_seeds
    return None
