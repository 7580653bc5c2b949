"""Which conclusions would be others with an algorithm, a set or a run less, another selection rule or another alpha?

A conclusion is what the analysis says: whether the algorithms differ (Iman-Davenport), and of every pair which one is
better or that they are not told apart (Nemenyi; Wilcoxon with Holm), pairs only under a significant omnibus test.
Scores are matrices of sets x algorithms in which higher is better (`statistics.orient`).
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
    """The same comparison with one thing changed."""

    change: str  # leave_one_algorithm_out, leave_one_set_out, one_run_less, selection_rule, alpha
    what: str  # the name of what was left out, or the new value
    scores: pd.DataFrame
    alpha: float


def conclusions(scores: pd.DataFrame, alpha: float, control: str | None = None) -> dict[PairClaim, str]:
    """Every claim and what is said about it; empty where there is nothing to test.

    Of two algorithms there is Wilcoxon's test only, as in the analysis. Where the control is gone, all pairs remain
    comparable only by Nemenyi's test.
    """
    if friedman.why_not_testable(scores):
        return {}
    # In NumPy: there are as many variants as runs.
    values = scores.to_numpy(dtype="float64")
    columns = dict(zip(map(str, scores), values.T, strict=True))
    found: dict[PairClaim, str] = {}
    differ = True
    if len(columns) > 2:
        ranks = friedman.ranks_of(values)
        differ = friedman.friedman(ranks).p < alpha
        found[OMNIBUS, "", ""] = "they differ" if differ else NOT_SHOWN
        mean_ranks = dict(zip(columns, ranks.mean(axis=0).tolist(), strict=True))
        found |= _nemenyi(mean_ranks, len(scores), alpha, differ)
    if control is None or control in columns:
        found |= _wilcoxon(columns, alpha, control, differ)
    return found


def _nemenyi(mean_ranks: Mapping[str, float], num_sets: int, alpha: float, differ: bool) -> dict[PairClaim, str]:
    """By the critical difference, which decides as the p-values do and takes no time."""
    critical = power.critical_difference(len(mean_ranks), num_sets, alpha)
    return {
        (NEMENYI, a, b): _verdict(a, b, mean_ranks[b] - mean_ranks[a], differ and _apart(mean_ranks, a, b, critical))
        for a, b in itertools.combinations(mean_ranks, 2)
    }


def _apart(mean_ranks: Mapping[str, float], a: str, b: str, critical: float) -> bool:
    return abs(mean_ranks[a] - mean_ranks[b]) > critical


def _wilcoxon(
    columns: Mapping[str, exact.Array], alpha: float, control: str | None, differ: bool
) -> dict[PairClaim, str]:
    family = pairs(tuple(columns), control)
    differences: exact.Array = np.stack([columns[a] - columns[b] for a, b in family])
    found = exact.wilcoxon_of_each(differences.round(DIGITS))
    adjusted = exact.holm(np.array([test.p for test in found])).tolist()
    return {
        (WILCOXON, a, b): _verdict(a, b, test.balance, differ and p < alpha)
        for (a, b), test, p in zip(family, found, adjusted, strict=True)
    }


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
    """Everything that is changed. rules: further selection rules' score matrices.

    runs: algorithm -> replicates x columns; reduced: makes a value for each set of every row from one for each column,
    where a set has several.
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
    for rule, other in rules.items():
        yield Variant("selection_rule", rule, other, alpha)
    for other_alpha in ALPHAS:
        if other_alpha != alpha:
            yield Variant("alpha", f"{other_alpha:g}", scores, other_alpha)


def _means_without_each(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs x columns: the mean of all other runs, NaN where no other has a value."""
    values = runs.to_numpy(dtype="float64")
    known = np.isfinite(values)
    rows = [np.delete(np.where(known, values, 0.0), i, axis=0).sum(axis=0) for i in range(len(values))]
    number = known.sum(axis=0) - known
    means = np.divide(np.array(rows).reshape(values.shape), number, out=np.full_like(values, np.nan), where=number > 0)
    return pd.DataFrame(means, index=runs.index, columns=runs.columns)


def flips(
    scores: pd.DataFrame, alpha: float, changed: Iterable[Variant], control: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`FLIP_COLUMNS`, one row per claim that a change overturns, and `CHECK_COLUMNS`, how many were checked.

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
        moved = [(claim, before[claim], after[claim]) for claim in shared if before[claim] != after[claim]]
        rows += [(variant.change, variant.what, *claim, old, new) for claim, old, new in moved]
    found = pd.DataFrame(rows, columns=list(FLIP_COLUMNS))
    tests = dict.fromkeys(claim[0] for claim in before)
    counts = {(change, test): checked[change, test] for change in variant_counts for test in tests}
    return found, _checks(found, variant_counts, untestable, counts)


def _checks(
    found: pd.DataFrame,
    variant_counts: Mapping[str, int],
    untestable: Mapping[str, int],
    checked: Mapping[tuple[str, str], int],
) -> pd.DataFrame:
    rows = []
    for (change, test), number in checked.items():
        own = found[(found["change"] == change) & (found["test"] == test)]
        claims = len(own[["a", "b"]].drop_duplicates())
        rows.append((change, variant_counts[change], untestable[change], test, number, len(own), claims))
    return pd.DataFrame(rows, columns=list(CHECK_COLUMNS))


# --- the pool of algorithms -------------------------------------------------------------------------------------------

POOL_COLUMNS = ("a", "b", "difference", "told_apart", "leave_out", "leave_out_names", "add_weak", "depends_on_pool")


def pool_dependence(scores: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """`POOL_COLUMNS`: of every pair, how other algorithms in the comparison would overturn what Nemenyi's test says.

    The difference of two average ranks is a sum over all algorithms of the pool: each adds the share of sets on which
    it lies between the two. So the sub-pool of a given size that separates the pair most, or least, is found by
    sorting. leave_out: the fewest compared algorithms without which the verdict is another (empty: none; without all
    others the pair is compared alone). add_weak: for a pair told apart, how many algorithms that are worst on every
    set undo that: they leave the difference as it is and raise the critical one (empty: more than are compared).
    The omnibus test is left aside. (Benavoli, Corani, Mangili 2016, whose point this measures.)
    """
    names, num_sets = [str(name) for name in scores], len(scores)
    critical = {size: power.critical_difference(size, num_sets, alpha) for size in range(2, 2 * len(names) + 1)}
    beats = _beats(scores)
    rows = []
    for i, j in itertools.combinations(range(len(names)), 2):
        others = [m for m in range(len(names)) if m not in (i, j)]
        own = beats[i, j] - beats[j, i]
        parts = {names[m]: beats[m, j] - beats[m, i] for m in others}
        total = own + sum(parts.values())
        apart = abs(total) > critical[len(names)]
        left_out = _fewest_left_out(own, parts, apart, critical)
        sizes = range(len(names) + 1, 2 * len(names) + 1)
        weak = next((size - len(names) for size in sizes if apart and abs(total) <= critical[size]), None)
        count = None if left_out is None else len(left_out)
        depends = left_out is not None or weak is not None
        rows.append((names[i], names[j], total, apart, count, " ".join(left_out or ()), weak, depends))
    frame = pd.DataFrame(rows, columns=list(POOL_COLUMNS))
    return frame.astype({"leave_out": "Int64", "add_weak": "Int64"})


def _beats(scores: pd.DataFrame) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """[i, j]: the share of sets on which i is better than j; a tie counts half."""
    values = scores.round(DIGITS).to_numpy(dtype="float64")
    result: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.heaviside(
        values[:, :, None] - values[:, None, :], 0.5
    ).mean(axis=0)
    return result


def _fewest_left_out(
    own: float, parts: Mapping[str, float], apart: bool, critical: Mapping[int, float]
) -> Sequence[str] | None:
    """The fewest algorithms to leave out so that the verdict on the pair is another; None if there are none."""
    total = own + sum(parts.values())
    for number in range(1, len(parts) + 1):
        size = len(parts) + 2 - number
        for names in (sorted(parts, key=parts.__getitem__), sorted(parts, key=parts.__getitem__, reverse=True)):
            rest = total - sum(parts[name] for name in names[:number])
            if (abs(rest) > critical[size]) != apart or (apart and rest * total < 0):
                return sorted(names[:number])
    return None
