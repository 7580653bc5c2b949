"""Stability of conclusions: those that flip without an algorithm, a set or a run, or with another rule or alpha.

The conclusions are those of the analysis: whether the algorithms differ (Iman-Davenport), and for every pair which one
is better or that they are not told apart (Nemenyi; Wilcoxon with Holm), pairs only under a significant omnibus test.
Scores are matrices of sets x algorithms in which higher is better (`friedman.orient`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact, friedman, power
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.statistics.pairs import pairs

OMNIBUS, NEMENYI, WILCOXON = "iman_davenport", "nemenyi", "wilcoxon_holm"
ALPHAS = (0.01, 0.05, 0.10)
SAME, NOT_SHOWN = "not told apart", "not shown to differ"

PairClaim = tuple[str, str, str]  # test, a, b; both empty for the omnibus test
FLIP_COLUMNS = ("change", "what", "test", "a", "b", "before", "after")
CHECK_COLUMNS = ("change", "variants", "not_testable", "test", "claims", "flips", "claims_that_flip")


@dataclass(frozen=True)
class Variant:
    """Comparison with one thing changed."""

    change: str  # leave_one_algorithm_out, leave_one_set_out, one_run_less, selection_rule, alpha
    subject: str  # the name of what is left out, or the new value
    scores: pd.DataFrame
    alpha: float


def conclusions(scores: pd.DataFrame, alpha: float, control: str | None = None) -> dict[PairClaim, str]:
    """Return every claim with its verdict; empty if there is nothing to test.

    Two algorithms are compared by Wilcoxon's test only, as in the analysis. If the control is left out, only Nemenyi's
    test remains.
    """
    if friedman.why_not_testable(scores):
        return {}
    # In NumPy for speed: there are at least as many variants as runs.
    values = scores.to_numpy(dtype="float64")
    columns = dict(zip(map(str, scores), values.T, strict=True))
    verdicts: dict[PairClaim, str] = {}
    differ = True
    if len(columns) > 2:
        ranks = friedman.ranks_of(values)
        differ = friedman.friedman(ranks).p < alpha
        verdicts[OMNIBUS, "", ""] = "they differ" if differ else NOT_SHOWN
        mean_ranks = dict(zip(columns, ranks.mean(axis=0).tolist(), strict=True))
        verdicts |= _nemenyi(mean_ranks, len(scores), alpha, differ)
    if control is None or control in columns:
        verdicts |= _wilcoxon(columns, alpha, control, differ)
    return verdicts


def _nemenyi(mean_ranks: Mapping[str, float], num_sets: int, alpha: float, differ: bool) -> dict[PairClaim, str]:
    """Return Nemenyi's verdicts by the critical difference, which decides as the p-values do and is fast."""
    critical = power.critical_difference(len(mean_ranks), num_sets, alpha)
    verdicts: dict[PairClaim, str] = {}
    for a, b in itertools.combinations(mean_ranks, 2):
        lead = mean_ranks[b] - mean_ranks[a]
        verdicts[NEMENYI, a, b] = _verdict(a, b, lead, differ and abs(lead) > critical)
    return verdicts


def _wilcoxon(
    columns: Mapping[str, exact.Array], alpha: float, control: str | None, differ: bool
) -> dict[PairClaim, str]:
    family = pairs(tuple(columns), control)
    differences: exact.Array = np.stack([columns[a] - columns[b] for a, b in family])
    tests = exact.wilcoxon_of_each(differences.round(DIGITS))
    adjusted = exact.holm(np.array([test.p for test in tests])).tolist()
    verdicts: dict[PairClaim, str] = {}
    for (a, b), test, p in zip(family, tests, adjusted, strict=True):
        verdicts[WILCOXON, a, b] = _verdict(a, b, test.balance, differ and p < alpha)
    return verdicts


def _verdict(a: str, b: str, lead: float, significant: bool) -> str:
    if not significant:
        return SAME
    return f"{a} before {b}" if lead > 0 else f"{b} before {a}"


# --- variants ---------------------------------------------------------------------------------------------------------


def variants(
    scores: pd.DataFrame,
    runs: Mapping[str, pd.DataFrame],
    rules: Mapping[str, pd.DataFrame],
    alpha: float,
    reduced: Callable[[pd.DataFrame], pd.DataFrame] = lambda means: means,
) -> Iterator[Variant]:
    """Yield every variant of the comparison.

    runs: algorithm -> replicates x columns. rules: score matrices under further selection rules. reduced: averages the
    columns of each set if a set has several.
    """
    for name in scores:
        yield Variant("leave_one_algorithm_out", str(name), scores.drop(columns=[name]), alpha)
    for name in scores.index:
        yield Variant("leave_one_set_out", str(name), scores.drop(index=[name]), alpha)
    for name, frame in runs.items():
        without = reduced(_means_without_each(frame))[list(scores.index)].dropna()  # an algorithm's only run stays
        for run_id, means in zip(without.index, without.to_numpy(dtype="float64"), strict=True):
            values = scores.to_numpy(dtype="float64", copy=True)
            values[:, scores.columns.get_loc(name)] = means
            yield Variant("one_run_less", str(run_id), pd.DataFrame(values, scores.index, scores.columns), alpha)
    for rule, matrix in rules.items():
        yield Variant("selection_rule", rule, matrix, alpha)
    for other_alpha in ALPHAS:
        if other_alpha != alpha:
            yield Variant("alpha", f"{other_alpha:g}", scores, other_alpha)


def _means_without_each(runs: pd.DataFrame) -> pd.DataFrame:
    """Return for each run the mean of all other runs (runs x columns); NaN if no other run has a value."""
    values = runs.to_numpy(dtype="float64")
    is_present = np.isfinite(values)
    rows = [np.delete(np.where(is_present, values, 0.0), i, axis=0).sum(axis=0) for i in range(len(values))]
    number = is_present.sum(axis=0) - is_present
    means = np.divide(np.array(rows).reshape(values.shape), number, out=np.full_like(values, np.nan), where=number > 0)
    return pd.DataFrame(means, index=runs.index, columns=runs.columns)


def flips(
    scores: pd.DataFrame, alpha: float, changed: Iterable[Variant], control: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `FLIP_COLUMNS`, a row per claim that a variant overturns, and `CHECK_COLUMNS`, counts of checked claims.

    Only claims that the variant can still make are compared: without an algorithm there are none about it.
    """
    before = conclusions(scores, alpha, control)
    rows: list[tuple[str, ...]] = []
    variant_counts: Counter[str] = Counter()
    untestable: Counter[str] = Counter()
    checked: Counter[tuple[str, str]] = Counter()
    for variant in changed:
        after = conclusions(variant.scores, variant.alpha, control)
        variant_counts[variant.change] += 1
        untestable[variant.change] += not after
        shared = [claim for claim in before if claim in after]
        checked.update((variant.change, claim[0]) for claim in shared)
        for claim in shared:
            if before[claim] != after[claim]:
                rows.append((variant.change, variant.subject, *claim, before[claim], after[claim]))
    table = pd.DataFrame(rows, columns=list(FLIP_COLUMNS))
    tests = dict.fromkeys(claim[0] for claim in before)
    checks: list[tuple[object, ...]] = []
    for change, test in itertools.product(variant_counts, tests):
        flipped = table[(table["change"] == change) & (table["test"] == test)]
        claims = len(flipped[["a", "b"]].drop_duplicates())
        number = checked[change, test]
        checks.append((change, variant_counts[change], untestable[change], test, number, len(flipped), claims))
    return table, pd.DataFrame(checks, columns=list(CHECK_COLUMNS))


# --- the pool of algorithms -------------------------------------------------------------------------------------------

POOL_COLUMNS = ("a", "b", "difference", "told_apart", "leave_out", "leave_out_names", "add_weak", "depends_on_pool")


def pool_dependence(scores: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Return `POOL_COLUMNS`: for every pair, how other algorithms in the comparison would overturn Nemenyi's verdict.

    The difference of two average ranks is a sum over all algorithms of the pool: each adds the share of sets on which
    it lies between the two. So sorting finds the sub-pool of a given size that separates the pair most, or least.
    leave_out: the fewest algorithms whose removal changes the verdict (empty: no removal does; without all others the
    pair is compared alone). add_weak: for a pair that is told apart, the number of algorithms, worst on every set, that
    undo it: they keep the difference and raise the critical one (empty: more than there are algorithms). The omnibus
    test is ignored. This measures the point of Benavoli, Corani, Mangili (2016).
    """
    names, num_sets = [str(name) for name in scores], len(scores)
    critical = {size: power.critical_difference(size, num_sets, alpha) for size in range(2, 2 * len(names) + 1)}
    beats = _beats(scores)
    rows = []
    for i, j in itertools.combinations(range(len(names)), 2):
        others = [m for m in range(len(names)) if m not in (i, j)]
        direct = beats[i, j] - beats[j, i]
        parts = {names[m]: beats[m, j] - beats[m, i] for m in others}
        total = direct + sum(parts.values())
        apart = abs(total) > critical[len(names)]
        left_out = _fewest_left_out(direct, parts, apart, critical)
        sizes = range(len(names) + 1, 2 * len(names) + 1)
        weak = next((size - len(names) for size in sizes if apart and abs(total) <= critical[size]), None)
        count = None if left_out is None else len(left_out)
        depends = left_out is not None or weak is not None
        rows.append((names[i], names[j], total, apart, count, " ".join(left_out or ()), weak, depends))
    frame = pd.DataFrame(rows, columns=list(POOL_COLUMNS))
    return frame.astype({"leave_out": "Int64", "add_weak": "Int64"})


def _beats(scores: pd.DataFrame) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the share of sets on which i is better than j at [i, j]; a tie counts half."""
    values = scores.round(DIGITS).to_numpy(dtype="float64")
    result: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.heaviside(
        values[:, :, None] - values[:, None, :], 0.5
    ).mean(axis=0)
    return result


def _fewest_left_out(
    direct: float, parts: Mapping[str, float], apart: bool, critical: Mapping[int, float]
) -> Sequence[str] | None:
    """Return the fewest algorithms whose removal changes the verdict on the pair; None if no removal does."""
    total = direct + sum(parts.values())
    for number in range(1, len(parts) + 1):
        size = len(parts) + 2 - number
        for names in (sorted(parts, key=parts.__getitem__), sorted(parts, key=parts.__getitem__, reverse=True)):
            rest = total - sum(parts[name] for name in names[:number])
            if (abs(rest) > critical[size]) != apart or (apart and rest * total < 0):
                return sorted(names[:number])
    return None
