"""What only simulation tells (intervals, posteriors, power), from the model's description in docs/analysis.md.

Other random numbers than the product's, few of them, so each answer comes with its error.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from scipy import stats

from helpers.sentences import tests_by_hand as by_hand
from helpers.sentences.facts import Facts

TABLES = 400


def bootstrap(facts: Facts, setting: str, a: str, b: str) -> tuple[float, float]:
    """The interval of the mean difference over drawn sets and drawn runs, stretched for few sets (Hesterberg 2015)."""
    generator = random.Random(3)
    blocks = facts.sets_in(setting)
    n, columns = len(blocks), [name for block in blocks for name in facts.blocks[block]]
    scores = {(side, name): facts.oriented(side, name) for side in (a, b) for name in columns}

    def mean_on(side: str, name: str, drawn: Sequence[int]) -> float:
        known = [value for i in drawn if (value := scores[side, name][i]) is not None]
        return statistics.fmean(known or [value for value in scores[side, name] if value is not None])

    def drawn_means(side: str) -> dict[str, float]:
        """Column -> mean over drawn runs: the same for all columns, or where each is a cell, its own."""
        number = len(facts.of(side))
        shared = generator.choices(range(number), k=number)
        found = {}
        for name in columns:
            own = [i for i, value in enumerate(scores[side, name]) if value is not None]
            found[name] = mean_on(side, name, generator.choices(own, k=len(own)) if facts.cells else shared)
        return found

    def of_block(lead: Mapping[str, float], names: Sequence[str]) -> float:
        """The mean over drawn columns; the one there is."""
        return statistics.fmean(lead[name] for name in (generator.choices(names, k=len(names)) if names[1:] else names))

    found = []
    for _ in range(1000):
        sets = [facts.blocks[block] for block in generator.choices(blocks, k=n)]
        lead = {name: x - y for (name, x), y in zip(drawn_means(a).items(), drawn_means(b).values(), strict=True)}
        found.append(statistics.fmean(of_block(lead, names) for names in sets))
    level = float(stats.norm.sf(math.sqrt(n / (n - 1)) * stats.t.ppf(1 - facts.alpha / 2, n - 1)))
    found.sort()
    return found[round(level * 999)], found[round((1 - level) * 999)]


def practical(facts: Facts, setting: str) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Pairs (different in practice, alike, too near to the level) by the Bayesian signed-rank test."""
    different, alike, unsure = set(), set(), set()
    if len(facts.sets_in(setting)) < 6:
        return different, alike, unsure
    for pair in facts.pairs(setting):
        name = tuple(sorted(pair))
        shares = posterior(tuple(facts.differences(setting, *pair)), facts.rope)
        for share, place in zip(shares, (different, alike, different), strict=True):
            if abs(share - (1 - facts.alpha)) < 0.02:
                unsure.add(name)
            elif share > 1 - facts.alpha:
                place.add(name)
    return different, alike, unsure


@cache
def posterior(differences: tuple[float, ...], rope: float) -> tuple[float, float, float]:
    """(a better, alike, b better): Benavoli et al. 2014; one pseudo-set of difference 0 with strength 1/2."""
    generator = random.Random(4)
    d = (0.0, *differences)
    counts = [0.0, 0.0, 0.0]
    for _ in range(3000):
        weights = [generator.gammavariate(0.5 if i == 0 else 1.0, 1) for i in range(len(d))]
        regions = [0.0, 0.0, 0.0]
        for (x, v), (y, w) in itertools.product(zip(d, weights, strict=True), repeat=2):
            middle = round((x + y) / 2, 9)
            if middle == rope == 0:
                regions[0] += v * w / 2
                regions[2] += v * w / 2
            elif abs(middle) == rope:
                regions[1] += v * w / 2
                regions[0 if middle > 0 else 2] += v * w / 2
            else:
                regions[0 if middle > rope else 2 if middle < -rope else 1] += v * w
        best = [i for i in range(3) if math.isclose(regions[i], max(regions), rel_tol=1e-12)]
        for i in best:
            counts[i] += 1 / len(best)
    return counts[0] / 3000, counts[1] / 3000, counts[2] / 3000


# --- tables of equal or nearly equal algorithms -----------------------------------------------------------------------


class Model:
    """score = set + algorithm + interaction + run + noise, by mean squares."""

    def __init__(self, facts: Facts, setting: str) -> None:
        values = list(facts.values(setting).values())
        k, n = len(values), len(values[0])
        grand = statistics.fmean(v for own in values for v in own)
        residuals = [
            [
                values[j][i] - statistics.fmean(values[j]) - statistics.fmean(own[i] for own in values) + grand
                for j in range(k)
            ]
            for i in range(n)
        ]
        stretch = math.sqrt(n * k / ((n - 1) * (k - 1)))
        runs = [facts.oriented_runs(name, setting) for name in facts.algorithms_in(setting)]
        complete = [[row for row in rows if None not in row] for rows in runs]
        self.knows_runs = any(len(rows) > 1 for rows in complete)
        self.run, self.noise = (
            self._run_parts([rows for rows in complete if len(rows) > 1], n) if self.knows_runs else (0, 0)
        )  # type: ignore[arg-type]
        total = statistics.fmean((stretch * r) ** 2 for row in residuals for r in row)
        part = self.noise**2 * statistics.fmean(1 / len(rows) for rows in complete)
        keep = math.sqrt(max(0.0, 1 - part / total)) if total else 1.0
        self.interactions = [[stretch * keep * r for r in row] for row in residuals]
        self.num_runs = len(runs) / sum(1 / len(rows) for rows in runs)

    @staticmethod
    def _run_parts(groups: list[list[list[float]]], n: int) -> tuple[float, float]:
        between = within = 0.0
        degrees = sum(len(rows) - 1 for rows in groups)
        for rows in groups:
            means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
            for row in rows:
                deviations = [x - m for x, m in zip(row, means, strict=True)]
                shift = statistics.fmean(deviations)
                between += n * shift**2
                within += sum((d - shift) ** 2 for d in deviations)
        noise = within / (degrees * (n - 1))
        return math.sqrt(max(0.0, between / degrees - noise) / n), math.sqrt(noise)

    def tables(
        self, num_sets: int, num_runs: float, *, exchangeable: bool, run: bool = True, number: int = TABLES
    ) -> list[list[list[float]]]:
        """Tables (sets x algorithms) of equal algorithms."""
        generator = random.Random(5)
        k = len(self.interactions[0])
        found = []
        for _ in range(number):
            order = generator.sample(range(k), k)
            luck = [generator.gauss(0, self.run / math.sqrt(num_runs)) * run for _ in range(k)]
            table = []
            for _ in range(num_sets):
                row, sign = generator.choice(self.interactions), generator.choice((-1, 1))
                order = generator.sample(range(k), k) if exchangeable else order
                cell = [sign * row[j] + generator.gauss(0, self.noise / math.sqrt(num_runs)) for j in order]
                table.append([value + luck[j] + generator.gauss(0, 1e-6) for j, value in enumerate(cell)])
            found.append(table)
        return found


def _as_scores(table: list[list[float]]) -> dict[str, list[float]]:
    return {str(j): list(column) for j, column in enumerate(zip(*table, strict=True))}


def false_positives(facts: Facts, with_runs: bool) -> tuple[float, float]:
    """(rate, its standard error) of the omnibus test among equal algorithms; with_runs: whether a run may be better on
    all sets at once. What it is on one set alone stays.
    """
    model = Model(facts, "all")
    tables = model.tables(len(facts.sets_in("all")), model.num_runs, exchangeable=True, run=with_runs, number=1500)
    rate = statistics.fmean(_differ(_as_scores(table), facts.alpha) for table in tables)
    return rate, math.sqrt(max(rate * (1 - rate), 0.01) / len(tables))


def _differ(scores: dict[str, list[float]], alpha: float) -> bool:
    if len(scores) == 2:
        return _wilcoxon_p([x - y for x, y in zip(*scores.values(), strict=True)])[1] < alpha
    return by_hand.omnibus_p(scores) < alpha


@cache
def _signed_rank_tail(n: int) -> tuple[float, ...]:
    """Two-sided p by the sum of ranks, without ties: subsets of 1..n counted by their sum."""
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    lower = list(itertools.accumulate(ways))
    return tuple(min(1.0, 2 * min(lower[s], lower[-1] - lower[s] + ways[s]) / 2**n) for s in range(len(ways)))


def _wilcoxon_p(differences: Sequence[float]) -> tuple[float, float]:
    """(balance, p) without ties."""
    order = sorted(range(len(differences)), key=lambda i: abs(differences[i]))
    plus = sum(rank for rank, i in enumerate(order, 1) if differences[i] > 0)
    n = len(differences)
    return 2 * plus - n * (n + 1) / 2, _signed_rank_tail(n)[plus]


def power(
    facts: Facts, setting: str, lead: float, procedure: str, num_sets: int | None = None, num_runs: float | None = None
) -> tuple[float, float]:
    """How probably the first algorithm, `lead` points above equal others, is told from one of them; standard error."""
    model = Model(facts, setting)
    n = num_sets or len(facts.sets_in(setting))
    tables = model.tables(n, num_runs or model.num_runs, exchangeable=False)
    found = []
    for table in tables:
        scores = _as_scores([[row[0] + lead, *row[1:]] for row in table])
        told = _told_by(procedure)(scores, facts.alpha) if _differ(scores, facts.alpha) else 0.0
        found.append(told)
    return statistics.fmean(found), max(statistics.stdev(found), 0.1) / math.sqrt(len(found))


def _told_by(procedure: str) -> Callable[[dict[str, list[float]], float], float]:
    return _by_nemenyi if procedure == "nemenyi" else _by_control if procedure == "control" else _by_all_pairs


def _by_nemenyi(scores: dict[str, list[float]], alpha: float) -> float:
    ranks = by_hand.mean_ranks(scores)
    critical = by_hand.critical_difference(len(scores), len(scores["0"]), alpha)
    return statistics.fmean(ranks[name] - ranks["0"] > critical for name in scores if name != "0")


def _by_all_pairs(scores: dict[str, list[float]], alpha: float) -> float:
    return _by_wilcoxon(scores, alpha, list(itertools.combinations(scores, 2)))


def _by_control(scores: dict[str, list[float]], alpha: float) -> float:
    return _by_wilcoxon(scores, alpha, [("0", name) for name in scores if name != "0"])


def _by_wilcoxon(scores: dict[str, list[float]], alpha: float, pairs: list[tuple[str, str]]) -> float:
    tests = {(a, b): _wilcoxon_p([x - y for x, y in zip(scores[a], scores[b], strict=True)]) for a, b in pairs}
    adjusted = by_hand.holm({pair: test[1] for pair, test in tests.items()})
    return statistics.fmean(adjusted[pair] < alpha and tests[pair][0] > 0 for pair in pairs if pair[0] == "0")


def pair_power(facts: Facts, setting: str, pair: tuple[str, str], lead: float) -> float:
    """How probably Wilcoxon's test alone tells a pair apart that is `lead` points apart and varies as this one."""
    generator = random.Random(6)
    d = facts.differences(setting, *pair)
    n = len(d)
    centre = statistics.median((d[i] + d[j]) / 2 for i in range(n) for j in range(i, n))
    spread = [(value - centre) * math.sqrt(n / (n - 1)) for value in d]
    found = 0
    for _ in range(TABLES):
        drawn = [
            generator.choice(spread) * generator.choice((-1, 1)) + generator.gauss(0, 1e-6) + lead for _ in range(n)
        ]
        balance, p = _wilcoxon_p(drawn)
        found += p < facts.alpha and balance > 0
    return found / TABLES
