"""The statistical tests by their definitions: loops over all outcomes, and scipy for tail probabilities only."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from functools import cache

from scipy import stats

Values = Mapping[str, Sequence[float]]  # algorithm -> score on each set, higher is better


def ranks_of(values: Sequence[float]) -> list[float]:
    """Mid-ranks, 1 for the largest."""
    rounded = [round(value, 9) for value in values]
    return [sum(v > own for v in rounded) + (sum(v == own for v in rounded) + 1) / 2 for own in rounded]


def rank_rows(scores: Values) -> list[list[float]]:
    """Set by set the ranks of the algorithms."""
    return [ranks_of(row) for row in zip(*scores.values(), strict=True)]


def mean_ranks(scores: Values) -> dict[str, float]:
    columns = zip(*rank_rows(scores), strict=True)
    return {name: math.fsum(column) / len(column) for name, column in zip(scores, columns, strict=True)}


def why_untestable(scores: Values, sets: Sequence[str]) -> str:
    if len(scores) < 2:
        return f"tests need at least two algorithms and there is one ({next(iter(scores))})"
    if len(sets) < 2:
        return f"tests need at least two sets and there is one ({sets[0]})"
    if all(len({round(v, 9) for v in row}) == 1 for row in zip(*scores.values(), strict=True)):
        return "all algorithms have the same score on every set: there is nothing to test"
    return ""


def friedman_chi2(rows: Sequence[Sequence[float]]) -> float:
    """Conover 1999, 5.8, by plain sums: (k-1) sum (R_j - N(k+1)/2)^2 / (sum r_ij^2 - N k (k+1)^2 / 4)."""
    n, k = len(rows), len(rows[0])
    sums = [math.fsum(column) for column in zip(*rows, strict=True)]
    above = (k - 1) * math.fsum((s - n * (k + 1) / 2) ** 2 for s in sums)
    return above / (math.fsum(r * r for row in rows for r in row) - n * k * (k + 1) ** 2 / 4)


def iman_davenport(rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(F, p)."""
    n, k = len(rows), len(rows[0])
    chi2 = friedman_chi2(rows)
    rest = n * (k - 1) - chi2
    f = (n - 1) * chi2 / rest if rest > 1e-9 * chi2 else math.inf
    return f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))


def permutation_p(rows: Sequence[Sequence[float]]) -> float:
    """The share of orders within sets that are at least as far apart; of many orders 20,000 of another generator."""
    return _permutation_p(tuple(tuple(row) for row in rows))


@cache
def _permutation_p(rows: tuple[tuple[float, ...], ...]) -> float:
    k = len(rows[0])

    def spread(table: Sequence[Sequence[float]]) -> float:
        return math.fsum(sum(column) ** 2 for column in zip(*table, strict=True))

    seen = spread(rows) - 1e-9
    if math.factorial(k) ** (len(rows) - 1) <= 60_000:
        orders = itertools.product(*(list(itertools.permutations(row)) for row in rows[1:]))
        found = [spread([rows[0], *rest]) >= seen for rest in orders]
    else:
        generator = random.Random(1)
        found = [spread([generator.sample(row, k) for row in rows]) >= seen for _ in range(5000)]
    return sum(found) / len(found)


def omnibus_p(scores: Values) -> float:
    """On six sets or more by F, on fewer by permutation."""
    rows = rank_rows(scores)
    return iman_davenport(rows)[1] if len(rows) >= 6 else permutation_p(rows)


@cache
def critical_difference(k: int, n: int, alpha: float) -> float:
    quantile = float(stats.studentized_range.ppf(1 - alpha, k, math.inf))
    return quantile / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))


def wilcoxon(differences: Sequence[float]) -> tuple[float, float, float]:
    """(sum of ranks for plus, for minus, two-sided p) by going through all signs; zeros are ranked, then dropped."""
    d = [round(value, 9) for value in differences]
    ranks = ranks_of([-abs(value) for value in d])  # 1 for the smallest
    used = [rank for rank, value in zip(ranks, d, strict=True) if value]
    plus = sum(rank for rank, value in zip(ranks, d, strict=True) if value > 0)
    return plus, sum(used) - plus, _signs_p(tuple(sorted(used)), plus)


@cache
def _signs_p(used: tuple[float, ...], plus: float) -> float:
    sums = [
        sum(r for r, sign in zip(used, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(used))
    ]
    lower, upper = sum(s <= plus for s in sums) / len(sums), sum(s >= plus for s in sums) / len(sums)
    return min(1.0, 2 * min(lower, upper))


def sign_test(wins: int, losses: int) -> float:
    n = wins + losses
    tail = sum(math.comb(n, i) for i in range(max(wins, losses), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def holm(p: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    adjusted, largest = {}, 0.0
    for step, name in enumerate(sorted(p, key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - step) * p[name]))
        adjusted[name] = largest
    return adjusted


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p by going through all ways to choose which values are a's."""
    values = [round(v, 9) for v in (*a, *b)]
    ranks = ranks_of(values)
    seen = sum(ranks[: len(a)])
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(a))]
    lower, upper = sum(s <= seen for s in sums) / len(sums), sum(s >= seen for s in sums) / len(sums)
    return min(1.0, 2 * min(lower, upper))


def kruskal_wallis_p(groups: Sequence[Sequence[float]]) -> float:
    """By 4,000 orders of the runs, from another generator than the product's."""
    ranks = ranks_of([v for group in groups for v in group])
    sizes = [len(group) for group in groups]

    def spread(order: Sequence[float]) -> float:
        rest, total = list(order), 0.0
        for size in sizes:
            total, rest = total + sum(rest[:size]) ** 2 / size, rest[size:]
        return total

    generator, seen = random.Random(2), spread(ranks)
    found = sum(spread(generator.sample(ranks, len(ranks))) >= seen * (1 - 1e-9) for _ in range(4000))
    return (1 + found) / 4001


Conclusion = tuple[str, str, str]  # test, a, b


def conclusions(scores: Values, alpha: float, control: str | None) -> dict[Conclusion, str]:
    """What is said of the algorithms and of each pair: `a before b`, or that nothing is shown; {} if untestable."""
    names = list(scores)
    n = len(scores[names[0]])
    if why_untestable(scores, [str(i) for i in range(n)]):
        return {}
    found: dict[Conclusion, str] = {}
    differ = True
    if len(names) > 2:
        differ = omnibus_p(scores) < alpha
        found["omnibus", "", ""] = "differ" if differ else ""
        ranks = mean_ranks(scores)
        for a, b in itertools.combinations(names, 2):
            apart = differ and abs(ranks[a] - ranks[b]) > critical_difference(len(names), n, alpha)
            found["nemenyi", a, b] = (
                "" if not apart else f"{a} before {b}" if ranks[a] < ranks[b] else f"{b} before {a}"
            )
    if control is not None and control not in names:
        return found
    pairs = list(itertools.combinations(names, 2)) if control is None else [(a, control) for a in names if a != control]
    tests = {(a, b): wilcoxon([x - y for x, y in zip(scores[a], scores[b], strict=True)]) for a, b in pairs}
    adjusted = holm({pair: test[2] for pair, test in tests.items()})
    for (a, b), (plus, minus, _) in tests.items():
        told = differ and adjusted[a, b] < alpha
        found["wilcoxon", a, b] = "" if not told else f"{a} before {b}" if plus > minus else f"{b} before {a}"
    return found
