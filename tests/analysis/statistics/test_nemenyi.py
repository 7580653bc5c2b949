"""Nemenyi's test: quantiles that papers print, and the studentized range of average ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed.analysis.statistics import friedman, nemenyi


@pytest.mark.parametrize(
    ("k", "alpha", "q"),
    [
        *((2, 0.05, 1.960), (3, 0.05, 2.343), (4, 0.05, 2.569), (5, 0.05, 2.728), (7, 0.05, 2.949), (10, 0.05, 3.164)),
        (4, 0.10, 2.291),
    ],
)
def test_quantiles_are_those_of_demsars_table_5(k: int, alpha: float, q: float) -> None:
    assert nemenyi.quantile(k, alpha) == pytest.approx(q, abs=1.1e-3)


@pytest.mark.parametrize("k", [3, 7])
def test_p_is_that_of_the_studentized_range_of_average_ranks(k: int) -> None:
    scores = pd.DataFrame(np.random.default_rng(k).normal(size=(9, k)).round(1) + np.arange(k) / 3)  # with ties
    ranks = friedman.rank(scores)
    p, average = nemenyi.p_values(ranks).to_numpy(), ranks.mean().to_numpy()
    for i in range(k):
        for j in range(i):
            distance = abs(average[i] - average[j]) / np.sqrt(k * (k + 1) / (6 * 9)) * np.sqrt(2)
            expected = stats.studentized_range.sf(distance, k, np.inf)
            assert p[i, j] == p[j, i] == pytest.approx(expected, abs=1e-12)
