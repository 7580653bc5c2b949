"""Nemenyi's test of all pairs of average ranks: its p-values and its critical difference.

Sources: Nemenyi 1963; Demsar 2006, section 3.2.2.

Answers: How large is the critical difference?
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def p_values(ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the p-value of each pair (algorithms x algorithms), by the studentized range.

    ranks: sets x algorithms.
    """
    import pandas as pd
    import scikit_posthocs

    # The library ranks what it gets. Ranks keep their order, and each set's direction is already taken into account.
    table = scikit_posthocs.posthoc_nemenyi_friedman(ranks)
    return pd.DataFrame(table.to_numpy(), index=ranks.columns, columns=ranks.columns)


def critical_difference(num_algorithms: int, num_sets: int, alpha: float) -> float:
    """Return the difference of average ranks above which the test rejects: q sqrt(k(k+1) / 6N) (Demsar 2006)."""
    k = num_algorithms
    return quantile(k, alpha) * math.sqrt(k * (k + 1) / (6 * num_sets))


@cache
def quantile(num_algorithms: int, alpha: float) -> float:
    """Return q of the test: the studentized range's upper quantile with infinite degrees of freedom / sqrt 2.

    Demsar 2006, table 5a, e.g. 2.569 for four algorithms at 0.05.
    """
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - alpha, num_algorithms, math.inf)) / math.sqrt(2)
