"""Stability of conclusions: those that flip without an algorithm, a set or a run, or with another rule or alpha.

The conclusions are those of the analysis: which algorithms may be first (rank sets), whether the algorithms differ
(Iman-Davenport), and for every pair which one is better or that they are not told apart (Nemenyi; Wilcoxon with Holm),
pairs only under a significant omnibus test.
Scores are matrices of sets x algorithms in which higher is better (`friedman.orient`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import exact, friedman, nemenyi, sign_flips, simulation
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.analysis.statistics.pairs import Pairs, pairs

RANK_SETS, OMNIBUS, NEMENYI, WILCOXON = "rank_sets", "iman_davenport", "nemenyi", "wilcoxon_holm"
ALPHAS = (0.01, 0.05, 0.10)
SAME, NOT_SHOWN, DIFFER = "not told apart", "not shown to differ", "they differ"
MAY_BE_FIRST, NOT_FIRST = "may be first", "not first"

PairClaim = tuple[str, str, str]  # test, a, b; b is empty for rank sets, both names are for the omnibus test
FLIP_COLUMNS = ("change", "what", "test", "a", "b", "before", "after")
CHECK_COLUMNS = ("change", "variants", "not_testable", "test", "claims", "flips", "claims_that_flip")


@dataclass(frozen=True)
class Variants:
    """Comparisons of the same algorithms on as many sets, each with one thing changed."""

    change: str  # leave_one_algorithm_out, leave_one_set_out, one_run_less, selection_rule, alpha
    subjects: tuple[str, ...]  # per variant: name of what is left out, or the new value
    algorithms: tuple[str, ...]
    tables: exact.Array  # variants x sets x algorithms
    alpha: float
    changed: int | None = None  # position of the only algorithm whose scores differ from the unchanged comparison's


@dataclass(frozen=True)
class PairTests:
    """Wilcoxon's tests of pairs of algorithms, variants x pairs."""

    balance: exact.Array  # positive if the first is better
    p: exact.Array


@dataclass(frozen=True)
class Conclusions:
    """Verdicts of variants on all claims that they can make."""

    claims: tuple[PairClaim, ...]
    # Testable variants x claims; 1 also where the omnibus test shows a difference, or an algorithm is not first.
    signs: simulation.Verdicts
    is_testable: simulation.BoolArray  # per variant
    wilcoxon: PairTests | None = None  # of the testable variants; None without claims by it


def judge(variants: Variants, control: str | None, unchanged: PairTests | None = None) -> Conclusions:
    """Return the verdicts of variants, by the tests of the analysis: of two algorithms Wilcoxon's only.

    If the control is left out, only Nemenyi's test remains. unchanged: Wilcoxon's tests of the unchanged comparison,
    which hold for pairs without the changed algorithm.
    """
    names = variants.algorithms
    _, num_sets, num_algorithms = variants.tables.shape
    has_claims = num_algorithms > 2 or control is None or control in names
    differing = np.ptp(variants.tables.round(DIGITS), axis=2).any(axis=1)  # `friedman.why_not_testable`
    is_testable = differing & (min(num_sets, num_algorithms) > 1 and has_claims)
    tables = variants.tables[is_testable]
    if not len(tables):
        return Conclusions((), np.empty((0, 0), dtype=np.int64), is_testable)
    claims: list[PairClaim] = []
    signs: list[simulation.Verdicts] = []
    tests = None
    passes_omnibus = np.ones((len(tables), 1), dtype=np.bool_)  # also without that test, of two algorithms
    if num_algorithms > 2:
        ranks = friedman.ranks_of(tables)
        passes_omnibus = (friedman.friedman_p_of_each(ranks) < variants.alpha)[:, None]
        family = pairs(names)
        claims += [*((RANK_SETS, name, "") for name in names), (OMNIBUS, "", ""), *((NEMENYI, a, b) for a, b in family)]
        signs += [_are_not_first(ranks, variants.alpha)]
        signs += [passes_omnibus.astype(np.int64), passes_omnibus * _nemenyi(ranks, family, names, variants.alpha)]
    if control is None or control in names:
        family = pairs(names, control)
        claims += [(WILCOXON, a, b) for a, b in family]
        tests = _wilcoxon(dataclasses.replace(variants, tables=tables), family, unchanged)
        is_significant = passes_omnibus & (exact.holm(tests.p) < variants.alpha)
        signs.append(np.sign(tests.balance).astype(np.int64) * is_significant)
    return Conclusions(tuple(claims), np.concatenate(signs, axis=1), is_testable, tests)


def _are_not_first(ranks: exact.Array, alpha: float) -> simulation.Verdicts:
    """Return 1 where an algorithm is shown to be worse than another, by `rank_sets` [V, K]. ranks [V, N, K]."""
    different, indices = np.unique(ranks, axis=0, return_inverse=True)  # without one run most ranks stay as they were
    signs = np.array([(sign_flips.joint_p(of_variant) < alpha).any(axis=0) for of_variant in different])
    return signs[indices.reshape(-1)].astype(np.int64)


def _nemenyi(ranks: exact.Array, family: Pairs, names: Sequence[str], alpha: float) -> simulation.Verdicts:
    """Return Nemenyi's verdicts by the critical difference, which decides as the p-values do and is fast."""
    first, second = friedman.pair_columns(family, names)
    mean_ranks = ranks.mean(axis=1)
    lead = mean_ranks[:, second] - mean_ranks[:, first]
    critical = nemenyi.critical_difference(len(names), ranks.shape[1], alpha)
    signs: simulation.Verdicts = np.sign(lead).astype(np.int64) * (np.abs(lead) > critical)
    return signs


def _wilcoxon(variants: Variants, family: Pairs, unchanged: PairTests | None = None) -> PairTests:
    """Test each pair of the family. Pairs without the algorithm that changed keep their tests."""
    first, second = friedman.pair_columns(family, variants.algorithms)
    shape = (len(variants.tables), len(family))
    balance, p = np.empty(shape), np.empty(shape)
    tested = np.ones(len(family), dtype=np.bool_)
    if unchanged is not None and variants.changed is not None:
        balance[:], p[:] = unchanged.balance, unchanged.p
        tested = (first == variants.changed) | (second == variants.changed)
    differences = variants.tables[:, :, first[tested]] - variants.tables[:, :, second[tested]]
    rows = np.ascontiguousarray(differences.round(DIGITS).transpose(0, 2, 1)).reshape(-1, variants.tables.shape[1])
    tests = exact.wilcoxon_of_each(rows)
    balance[:, tested] = np.array([test.balance for test in tests]).reshape(len(balance), -1)
    p[:, tested] = np.array([test.p for test in tests]).reshape(len(p), -1)
    return PairTests(balance, p)


def in_words(claim: PairClaim, sign: int) -> str:
    """Return the verdict on a claim as text. sign: of `Conclusions.signs`."""
    test, a, b = claim
    if test == RANK_SETS:
        return NOT_FIRST if sign else MAY_BE_FIRST
    if test == OMNIBUS:
        return DIFFER if sign else NOT_SHOWN
    if not sign:
        return SAME
    return f"{a} before {b}" if sign > 0 else f"{b} before {a}"


# --- variants ---------------------------------------------------------------------------------------------------------


def variants(
    scores: pd.DataFrame,
    runs: Mapping[str, pd.DataFrame],
    rules: Mapping[str, pd.DataFrame],
    alpha: float,
    reduced: Callable[[pd.DataFrame], pd.DataFrame] = lambda means: means,
) -> Iterator[Variants]:
    """Yield every variant of the comparison; those without one run of the same algorithm together.

    runs: algorithm -> replicates x columns. rules: score matrices under further selection rules. reduced: averages the
    columns of each set if a set has several.
    """
    for name in scores:
        yield make_variant("leave_one_algorithm_out", str(name), scores.drop(columns=[name]), alpha)
    for name in scores.index:
        yield make_variant("leave_one_set_out", str(name), scores.drop(index=[name]), alpha)
    names = tuple(map(str, scores))
    for name, frame in runs.items():
        without = reduced(_means_without_each(frame))[list(scores.index)].dropna()  # an algorithm's only run stays
        if without.empty:
            continue
        column = names.index(name)
        tables = np.tile(scores.to_numpy(dtype="float64"), (len(without), 1, 1))
        tables[:, :, column] = without.to_numpy(dtype="float64")
        yield Variants("one_run_less", tuple(map(str, without.index)), names, tables, alpha, column)
    for rule, matrix in rules.items():
        yield make_variant("selection_rule", rule, matrix, alpha)
    for other_alpha in ALPHAS:
        if other_alpha != alpha:
            yield make_variant("alpha", f"{other_alpha:g}", scores, other_alpha)


def make_variant(change: str, subject: str, scores: pd.DataFrame, alpha: float) -> Variants:
    """Return one changed comparison as `Variants`. subject: name of what is left out, or the new value."""
    return Variants(change, (subject,), tuple(map(str, scores)), scores.to_numpy(dtype="float64")[None], alpha)


def _means_without_each(runs: pd.DataFrame) -> pd.DataFrame:
    """Return for each run the mean of all other runs (runs x columns); NaN if no other run has a value."""
    values = runs.to_numpy(dtype="float64")
    is_present = np.isfinite(values)
    filled = np.where(is_present, values, 0.0)
    rows = [np.delete(filled, i, axis=0).sum(axis=0) for i in range(len(filled))]
    number = is_present.sum(axis=0) - is_present
    means = np.divide(np.array(rows).reshape(values.shape), number, out=np.full_like(values, np.nan), where=number > 0)
    return pd.DataFrame(means, index=runs.index, columns=runs.columns)


def flips(
    scores: pd.DataFrame, alpha: float, changed: Iterable[Variants], control: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `FLIP_COLUMNS`, a row per claim that a variant overturns, and `CHECK_COLUMNS`, counts of checked claims.

    Only claims that the variant can still make are compared: without an algorithm there are none about it.
    """
    before = judge(make_variant("", "", scores, alpha), control)
    claims_before = set(before.claims)
    rows: list[tuple[str, ...]] = []
    variant_counts: Counter[str] = Counter()
    untestable: Counter[str] = Counter()
    checked: Counter[tuple[str, str]] = Counter()
    for block in changed:
        after = judge(block, control, before.wilcoxon)
        num_testable = int(after.is_testable.sum())
        variant_counts[block.change] += len(block.subjects)
        untestable[block.change] += len(block.subjects) - num_testable
        for claim in after.claims:
            if claim in claims_before:
                checked[block.change, claim[0]] += num_testable
        rows += _overturned(block, before, after)
    table = pd.DataFrame(rows, columns=list(FLIP_COLUMNS))
    tests = dict.fromkeys(claim[0] for claim in before.claims)
    checks: list[tuple[object, ...]] = []
    for change, test in itertools.product(variant_counts, tests):
        flipped = table[(table["change"] == change) & (table["test"] == test)]
        claims = len(flipped[["a", "b"]].drop_duplicates())
        number = checked[change, test]
        checks.append((change, variant_counts[change], untestable[change], test, number, len(flipped), claims))
    return table, pd.DataFrame(checks, columns=list(CHECK_COLUMNS))


def _overturned(block: Variants, before: Conclusions, after: Conclusions) -> Iterator[tuple[str, ...]]:
    """Yield a line of `FLIP_COLUMNS` for each variant and claim whose verdict is another one than before.

    before: of the unchanged comparison. after: of the variants.
    """
    column_before = {claim: column for column, claim in enumerate(before.claims)}
    shared = [claim for claim in after.claims if claim in column_before]
    if not shared:
        return
    subjects = [block.subjects[i] for i in np.flatnonzero(after.is_testable)]
    signs_before = before.signs[0, [column_before[claim] for claim in shared]]
    signs = after.signs[:, [claim in column_before for claim in after.claims]]
    for i, j in np.argwhere(signs != signs_before).tolist():
        texts = [in_words(shared[j], int(sign)) for sign in (signs_before[j], signs[i, j])]
        yield block.change, subjects[i], *shared[j], *texts
