"""Friedman's test with Iman and Davenport's correction, and Nemenyi's post-hoc test; paired tests for two algorithms.

Blocks are evaluation sets, or data sets of several columns, never seeds or epochs. Every matrix is checked here before
a library gets it: libraries silently drop incomplete sets, and rank infinity first.

Sources: Friedman 1937; Iman and Davenport 1980; Nemenyi 1963; Demsar 2006; for two algorithms see `exact`.

Answers: How is the Friedman test computed?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact, nemenyi, power
from biasbed.analysis.statistics.rank_sets import RankSet, rank_sets, ranks_over_sets
from biasbed.errors import Failure, listed

ALL_SETS = "all"  # every set that all algorithms can be tested on
COMPLETE = "complete"  # only the algorithms that have every set, if some lack one
STRICT = "strict"  # without sets that were generated the same way as some algorithm's training data


@dataclass(frozen=True)
class Friedman:
    """Result of the omnibus test of the hypothesis that all algorithms are equal."""

    chi2: float  # tie-corrected
    chi2_dof: int
    chi2_p: float
    f: float  # Iman-Davenport; infinite if all sets rank the algorithms alike
    f_dof: tuple[int, int]
    f_p: float
    permutation_p: float | None  # on few sets, where the F distribution does not hold
    kendall_w: float  # chi2 over its largest value: 0 no agreement between sets, 1 the same order on every set
    agreement_p: float  # probability that sets with these ties all agree if the algorithms are equal

    @property
    def p(self) -> float:
        """P-value that decides: by permutation if there is one, else Iman and Davenport's."""
        return self.f_p if self.permutation_p is None else self.permutation_p


@dataclass(frozen=True)
class PairTest:
    """Result of the exact two-sided tests of two algorithms over the sets."""

    a: str
    b: str
    wins: int  # sets on which a is better
    losses: int
    ties: int
    rank_sum: float  # Wilcoxon: the sum of the ranks of the sets on which a is better
    rank_sum_against: float  # the same of the sets on which b is better
    wilcoxon_p: float
    sign_p: float

    @property
    def better(self) -> str:
        """The algorithm with the larger rank sum."""
        return self.a if self.rank_sum > self.rank_sum_against else self.b

    @property
    def worse(self) -> str:
        """The other algorithm."""
        return self.b if self.better == self.a else self.a


@dataclass(frozen=True)
class RankTests:
    """Results of all tests on one choice of sets: of two algorithms `pair`, of more `friedman` and Nemenyi's."""

    setting: str  # ALL_SETS, COMPLETE or STRICT
    algorithms: tuple[str, ...]
    sets: tuple[str, ...]
    left_out: tuple[str, ...]  # sets that are not compared on
    alpha: float
    ranks: pd.DataFrame  # sets x algorithms, 1 = best
    oriented: pd.DataFrame  # scores of the same, negated where lower is better
    skipped: str = ""  # the reason if there are no tests; empty if there are
    friedman: Friedman | None = None
    pair: PairTest | None = None
    reach: power.DesignLimits | None = None  # what this design could show at all; None without tests
    noun: str = "set"  # word for a block: `set`, or `data set` if it has several columns

    @cached_property
    def nemenyi(self) -> pd.DataFrame | None:
        """p-values of Nemenyi's test, algorithms x algorithms; None without an omnibus test.

        They are computed at first use, as scikit-posthocs takes a second to load.
        """
        if self.friedman is None:
            return None
        return nemenyi.p_values(self.ranks)

    @cached_property
    def rank_sets(self) -> dict[str, RankSet]:
        """Ranks that each algorithm can have, best average rank first; empty without tests.

        Of two algorithms Wilcoxon's test decides: their ranks have only the signs of the differences.
        """
        if self.skipped:
            return {}
        if self.pair is not None:
            is_shown_better = np.array([[False, self.significant], [False, False]])
            by_name = rank_sets((self.pair.better, self.pair.worse), is_shown_better)
        else:
            by_name = ranks_over_sets(self.ranks, self.alpha)
        return {name: by_name[name] for name in self.mean_ranks}

    @property
    def size(self) -> str:
        """Number of blocks with their noun, e.g. `10 sets` or `3 data sets`."""
        return f"{len(self.sets)} {self.noun}{'s' * (len(self.sets) != 1)}"

    @property
    def mean_ranks(self) -> dict[str, float]:
        """Average rank of each algorithm, best first; ties keep the order of the algorithms."""
        means = {str(name): round(float(value), DIGITS) for name, value in self.ranks.mean().items()}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    @property
    def suffix(self) -> str:
        """Suffix of this setting's file names."""
        return "" if self.setting == ALL_SETS else f"_{self.setting}"

    def p(self, a: str, b: str) -> float:
        """Return Nemenyi's p-value of a pair. Raises KeyError if the test was not run."""
        if self.nemenyi is None:
            raise KeyError(f"no Nemenyi test of {a} and {b}")
        return float(self.nemenyi.to_numpy()[self.algorithms.index(a), self.algorithms.index(b)])

    @property
    def significant(self) -> bool:
        """True if the omnibus test (Wilcoxon's for two algorithms) rejects equality."""
        if self.pair is not None:
            return self.pair.wilcoxon_p < self.alpha
        return self.friedman is not None and self.friedman.p < self.alpha

    def groups(self) -> list[tuple[str, ...]]:
        """Return the maximal sequences of algorithms, ordered by rank, that Nemenyi's test does not tell apart."""
        if self.nemenyi is None:
            return []
        order = list(self.mean_ranks)
        groups: list[tuple[str, ...]] = []
        for start in range(len(order)):
            end = start
            while end + 1 < len(order) and self.p(order[start], order[end + 1]) >= self.alpha:
                end += 1
            if end > start and not any(order[end] in group for group in groups):
                groups.append(tuple(order[start : end + 1]))
        return groups


def check_scores(scores: pd.DataFrame) -> None:
    """Raise Failure unless the matrix (sets x algorithms) is complete and finite: libraries drop incomplete sets."""
    values = scores.to_numpy(dtype="float64")
    bad = [f"{scores.columns[j]} on {scores.index[i]} ({values[i, j]})" for i, j in np.argwhere(~np.isfinite(values))]
    if bad:
        raise Failure(f"the tests need a finite score in every cell; {len(bad)} have none: {listed(bad)}")


def why_not_testable(scores: pd.DataFrame, noun: str = "set") -> str:
    """Return the reason why a valid matrix is too small or too even to test, else "". noun: the word for a row."""
    num_sets, num_algorithms = scores.shape
    if num_algorithms < 2:
        return f"tests need at least two algorithms and there is one ({scores.columns[0]})"
    if num_sets < 2:
        return f"tests need at least two {noun}s and there is one ({scores.index[0]})"
    if not np.ptp(scores.to_numpy(dtype="float64").round(DIGITS), axis=1).any():
        return f"all algorithms have the same score on every {noun}: there is nothing to test"
    return ""


def orient(scores: pd.DataFrame, lower_is_better: Sequence[str] = ()) -> pd.DataFrame:
    """Return the scores, negated on sets on which lower is better, so that higher is better everywhere."""
    return scores.mul(np.where(scores.index.isin(list(lower_is_better)), -1.0, 1.0), axis=0)


def differences_of(scores: pd.DataFrame, family: Sequence[tuple[str, str]]) -> exact.Array:
    """Return the lead of a over b on every set (pairs x sets), rounded so that ties are exact."""
    values = scores.to_numpy(dtype="float64").T
    first, second = pair_columns(family, list(map(str, scores)))
    result: exact.Array = (values[first] - values[second]).round(DIGITS)
    return result


def pair_columns(family: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[exact.IntArray, exact.IntArray]:
    """Return the columns of the first and of the second algorithm of each pair."""
    columns = {name: column for column, name in enumerate(names)}
    numbers = np.array([(columns[a], columns[b]) for a, b in family], dtype=np.int64).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def count_wins(differences: exact.Array) -> tuple[int, int, int]:
    """Return the numbers of wins, losses and ties."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return wins, losses, len(differences) - wins - losses


def rank(scores: pd.DataFrame, lower_is_better: Sequence[str] = ()) -> pd.DataFrame:
    """Rank the algorithms within each set: 1 = best, equal scores share their mean rank."""
    oriented = orient(scores, lower_is_better).to_numpy(dtype="float64")
    return pd.DataFrame(ranks_of(oriented), index=scores.index, columns=scores.columns)


def ranks_of(scores: exact.Array) -> exact.Array:
    """Rank the columns of an array (... x sets x algorithms) in which higher is better."""
    from scipy import stats

    ranks: exact.Array = stats.rankdata(-scores.round(DIGITS), axis=-1)
    return ranks


def friedman(ranks: exact.Array) -> Friedman:
    """Run Friedman's test with Iman and Davenport's correction on ranks (sets x algorithms, at least three).

    On fewer than `exact.FEWEST_SETS` sets the p-value is computed by permutation as well.
    """
    from scipy import stats

    n, k = ranks.shape
    statistics = statistics_of_each(ranks[None])
    chi2, f = float(statistics.chi2[0]), float(statistics.f[0])
    return Friedman(
        chi2=chi2,
        chi2_dof=k - 1,
        chi2_p=float(stats.chi2.sf(chi2, k - 1)),
        f=f,
        f_dof=statistics.f_dof,
        f_p=float(statistics.p_by_f[0]),
        permutation_p=exact.friedman_p(ranks) if n < exact.FEWEST_SETS else None,
        kendall_w=chi2 / (n * (k - 1)),
        agreement_p=exact.agreement_p(ranks),
    )


def friedman_p_of_each(ranks: np.ndarray) -> exact.Array:
    """Return the p-value of every table of ranks (tables x sets x algorithms) that are not all equal.

    By permutation on fewer than `exact.FEWEST_SETS` sets, on which F does not follow its distribution.
    """
    if ranks.shape[1] < exact.FEWEST_SETS:
        return np.array([exact.friedman_p(table) for table in ranks])
    return statistics_of_each(ranks).p_by_f


class Statistics(NamedTuple):
    """Statistics of Friedman's test, one per table."""

    chi2: exact.Array  # tie-corrected
    f: exact.Array
    f_dof: tuple[int, int]

    @property
    def p_by_f(self) -> exact.Array:
        """P-values by the F distribution."""
        from scipy import stats

        p: exact.Array = stats.f.sf(self.f, *self.f_dof)
        return p


def statistics_of_each(ranks: np.ndarray) -> Statistics:
    """Return the statistics of every table of ranks (tables x sets x algorithms) that are not all equal."""
    n, k = ranks.shape[1:]
    # Sum of squares between algorithms over the mean square within sets: equals the textbook's 12/(k(k+1)) form
    # without ties, and is its tie correction with them (Conover 1999, section 5.8).
    between = n * ((ranks.mean(axis=1) - (k + 1) / 2) ** 2).sum(axis=1)
    within = ((ranks - (k + 1) / 2) ** 2).sum(axis=(1, 2)) / (n * (k - 1))
    chi2 = between / within
    rest = n * (k - 1) - chi2
    is_finite = rest > 1e-9 * chi2
    f = np.where(is_finite, (n - 1) * chi2 / np.where(is_finite, rest, 1.0), math.inf)
    return Statistics(chi2, f, (k - 1, (k - 1) * (n - 1)))


def compare_two(scores: pd.DataFrame, lower_is_better: Sequence[str] = ()) -> PairTest:
    """Run the exact Wilcoxon signed-rank and sign tests of two algorithms over the sets."""
    a, b = scores.columns
    differences = differences_of(orient(scores, lower_is_better), [(a, b)])[0]
    counts, test = count_wins(differences), exact.wilcoxon(differences)
    return PairTest(str(a), str(b), *counts, test.plus, test.minus, test.p, exact.sign_test(*counts[:2]))


def compare(
    scores: pd.DataFrame,
    alpha: float,
    *,
    lower_is_better: Sequence[str] = (),
    setting: str = ALL_SETS,
    left_out: Sequence[str] = (),
    noun: str = "set",
) -> RankTests:
    """Run all tests that the matrix (sets x algorithms) allows; `skipped` is the reason if it allows none.

    left_out: sets that are not compared on. noun: the word for a set in sentences.
    """
    scores = scores.rename(index=str, columns=str)
    sets = [name for name in scores.index if name not in left_out]
    algorithms = tuple(scores.columns)
    scores = scores.loc[sets]
    check_scores(scores)
    tests = RankTests(
        setting=setting,
        algorithms=algorithms,
        sets=tuple(sets),
        left_out=tuple(left_out),
        alpha=alpha,
        ranks=rank(scores, lower_is_better),
        oriented=orient(scores, lower_is_better).round(DIGITS),
        skipped=why_not_testable(scores, noun) if sets else f"no {noun} is left to compare on",
        noun=noun,
    )
    if tests.skipped:
        return tests
    limits = power.reach(len(algorithms), len(sets), alpha, noun)
    if len(algorithms) == 2:
        return replace(tests, reach=limits, pair=compare_two(scores, lower_is_better))
    return replace(tests, reach=limits, friedman=friedman(tests.ranks.to_numpy()))


# Scores are rounded to this many digits before they are compared: means of the same numbers in another order differ in
# the last bits, and a tie must stay a tie.
DIGITS = 9
