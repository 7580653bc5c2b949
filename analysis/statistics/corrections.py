"""Corrections of pairwise tests besides Holm's: Shaffer's S1 and Benjamini and Hochberg's.

Shaffer's procedure knows that the hypotheses are about pairs: if a equals b and b equals c, a equals c. So fewer of
them can be true at once than Holm assumes. It keeps the family-wise error. Benjamini and Hochberg's keeps the false
discovery rate only: the expected share of wrong findings among all findings.

Sources: Shaffer 1986 (procedure S1, also called static); Garcia and Herrera 2008, page 2680 (the numbers
of true hypotheses by recursion); Benjamini and Hochberg 1995, equation 1.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact
from biasbed.analysis.statistics.exact import Array

Correction = Literal["holm", "shaffer", "benjamini_hochberg"]
TESTS = {"wilcoxon": "p", "sign": "sign_p"}  # test -> its column of `pairs.TEST_COLUMNS`
COLUMNS = ("test", "a", "b", "num_sets", "num_tests", "p", "p_holm", "p_shaffer", "p_benjamini_hochberg")


@cache
def counts_of_true(num_algorithms: int) -> frozenset[int]:
    """Return how many of the hypotheses "a equals b" can be true at once (Garcia and Herrera 2008, page 2680).

    Algorithms that are equal form groups, and a group of j makes j (j - 1) / 2 hypotheses true.
    """
    if num_algorithms < 2:
        return frozenset({0})
    counts = set()
    for size in range(1, num_algorithms + 1):
        for count in counts_of_true(num_algorithms - size):
            counts.add(size * (size - 1) // 2 + count)
    return frozenset(counts)


def shaffer_factors(num_algorithms: int) -> Array:
    """Return the factor of each p, smallest first: the most hypotheses that are true if those before are false."""
    number = num_algorithms * (num_algorithms - 1) // 2
    possible = np.array(sorted(counts_of_true(num_algorithms)))
    remaining = number - np.arange(number)
    factors: Array = possible[np.searchsorted(possible, remaining, side="right") - 1].astype("float64")
    return factors


def shaffer(p: Array, num_algorithms: int) -> Array:
    """Return Shaffer's adjusted p-values (S1) of the tests of all pairs, along the last axis.

    Raises ValueError unless there is a p-value for every pair.
    """
    factors = shaffer_factors(num_algorithms)
    if p.shape[-1] != len(factors):
        raise ValueError(f"{num_algorithms} algorithms have {len(factors)} pairs, but there are {p.shape[-1]} p-values")
    return exact.step_down(p, factors)


def benjamini_hochberg(p: Array) -> Array:
    """Return p-values adjusted for the false discovery rate along the last axis, from scipy."""
    from scipy import stats

    adjusted: Array = stats.false_discovery_control(p, axis=-1, method="bh")
    return adjusted


def correct(p: Array, correction: Correction, num_algorithms: int, *, all_pairs: bool) -> Array:
    """Return adjusted p-values along the last axis.

    all_pairs: False if every algorithm is compared with a control only. Any number of these hypotheses can be true, so
    Shaffer's procedure is then Holm's.
    """
    if correction == "benjamini_hochberg":
        return benjamini_hochberg(p)
    if correction == "shaffer" and all_pairs:
        return shaffer(p, num_algorithms)
    return exact.holm(p)


def correct_pairs(tests: pd.DataFrame, num_algorithms: int) -> pd.DataFrame:
    """Return `COLUMNS`: the p-values of `pairs.compare_pairs` under every correction, one row per test and pair."""
    all_pairs = len(tests) == num_algorithms * (num_algorithms - 1) // 2
    frames = []
    for test, column in TESTS.items():
        p = tests[column].to_numpy(dtype="float64")
        frame = tests[["a", "b", "num_sets", "num_tests"]].assign(test=test, p=p)
        for name in ("holm", "shaffer", "benjamini_hochberg"):
            frame[f"p_{name}"] = correct(p, name, num_algorithms, all_pairs=all_pairs)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]
