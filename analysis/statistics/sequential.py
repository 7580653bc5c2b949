"""Group-sequential permutation tests: runs are added in groups until every planned comparison is decided.

After each group there is a look at the scores so far. A look tests each open comparison by the absolute difference of
sums, and its null distribution permutes the runs of the two rows within each group. Looks share the level: after look k
of K at most k alpha / K is spent. This is the test of AdaStop (Mathieu et al. 2024, TMLR, arXiv 2306.10882, algorithm
1) for one comparison, and exact.

Several comparisons are tested by Holm's procedure, as closed tests of their intersections by Bonferroni's (Holm 1979;
Marcus, Peritz and Gabriel 1976; group-sequential: Ye et al. 2013). The family-wise error is at most alpha, whatever the
dependence, and for any number of runs. AdaStop takes the largest difference of all comparisons, with one arrangement
for all. As these share rows, its level holds for large groups only: with groups of five and three equal rows the error
is above alpha (docs/calibration.md).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from biasbed.analysis.statistics.exact import Array, IntArray
from biasbed.analysis.statistics.pairs import Pairs
from biasbed.analysis.statistics.simulation import BoolArray
from biasbed.errors import UsageError

LARGEST_ENUMERATED = 70_000  # arrangements of all groups together: two groups of 2 x 5 runs have 252^2
SAMPLE = 20_000  # arrangements that are drawn if there are more
SEED = 0  # of that sample, which is the same for all studies of one design
DIGITS = 9  # decimals of a score: sums of rounded scores are exact, so ties are, on every machine


@dataclass(frozen=True)
class SequentialDesign:
    """Plan of a study that stops when decided. It must not change once scores have been seen."""

    comparisons: Pairs
    group: int  # runs of each row that are added before a look
    looks: int
    alpha: float  # family-wise level of all looks together

    def __post_init__(self) -> None:
        """Raise UsageError if not even the most extreme scores could be told apart."""
        if self.first_possible_look is None:
            number = len(self.comparisons)
            needed = f"{self.alpha / number:.2g}" + f" ({self.alpha:g} / {number} comparisons)" * (number > 1)
            advice = " or fewer comparisons (stop_control=)" if number > 2 else ""
            raise UsageError(
                f"{self.looks * self.group} runs of each row can't decide anything: the most extreme outcome has "
                f"p = {self.smallest_tail(self.looks):.2g}, and needs {needed}; plan {self._suggest_runs()}{advice}"
            )

    @property
    def rows(self) -> tuple[str, ...]:
        """Compared rows, in the order of the comparisons."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.comparisons)))

    def _suggest_runs(self) -> str:
        """Return the fewest runs of each row, in whole groups, by which anything can be decided at the last look."""
        level = self.alpha / len(self.comparisons)
        if level < 1 / SAMPLE:
            return "a larger level"
        looks = self.looks
        while self.smallest_tail(looks) > level:
            looks += 1
        return f"{looks * self.group} runs or more of each row"

    def level(self, look: int) -> float:
        """Return the level that may be spent up to this look (1 is the first)."""
        return self.alpha * look / self.looks

    def smallest_tail(self, look: int) -> float:
        """Return the probability of the most extreme outcome at a look: both signs of one arrangement."""
        if _is_enumerated(self.group, look):
            return 2.0 / math.comb(2 * self.group, self.group) ** look
        return 1 / SAMPLE

    @property
    def first_possible_look(self) -> int | None:
        """First look that can reject anything; None if there is none."""
        for look in range(1, self.looks + 1):
            if self.smallest_tail(look) <= self.level(look) / len(self.comparisons):
                return look
        return None


@dataclass(frozen=True)
class Decision:
    """Verdict on a comparison."""

    a: str
    b: str
    look: int  # at which it was rejected
    difference: float  # mean of a less mean of b, at that look

    @property
    def higher(self) -> str:
        """Row with the higher mean."""
        return self.a if self.difference > 0 else self.b


@dataclass(frozen=True)
class Look:
    """An interim analysis."""

    number: int  # 1 is the first
    differences: Mapping[tuple[str, str], float]  # mean differences of the comparisons that were open
    # Mean differences that the first of them to be decided has to exceed in size, each at alpha / number of them.
    boundaries: Mapping[tuple[str, str], float]
    decided: tuple[Decision, ...]
    undecided: Pairs

    @property
    def open_rows(self) -> tuple[str, ...]:
        """Rows of which more runs may change a verdict."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.undecided)))


def analyse(design: SequentialDesign, scores: Mapping[str, Sequence[float]]) -> list[Look]:
    """Return the looks that the scores allow, up to the one that decides the last comparison.

    scores: of each row, in the order of the plan. Rows may have unequal numbers: a look is made as soon as every row of
    a comparison that is still open has its runs. Later scores change no earlier look.
    """
    sums = _Sums(design, scores)
    family = design.comparisons
    looks: list[Look] = []
    while family and len(looks) < design.looks:
        number = len(looks) + 1
        rows = itertools.chain.from_iterable(family)
        if min(len(scores.get(row, ())) for row in rows) < number * design.group:
            break
        looks.append(_look(design, sums, family, number))
        family = looks[-1].undecided
    return looks


def _look(design: SequentialDesign, sums: _Sums, family: Pairs, number: int) -> Look:
    """Test the comparisons that are still open."""
    scale = number * design.group * 10**DIGITS
    differences = {pair: float(sums.observed(pair)[number - 1]) / scale for pair in family}
    boundaries = {pair: sums.boundaries(pair, len(family), number)[-1] / scale for pair in family}
    rejected = _reject(sums, family, number)
    decided = tuple(Decision(*pair, number, differences[pair]) for pair in rejected)
    undecided = tuple(pair for pair in family if pair not in rejected)
    return Look(number, differences, boundaries, decided, undecided)


def _reject(sums: _Sums, family: Pairs, number: int) -> Pairs:
    """Return the comparisons that closed testing rejects at a look, with the sequential tests of each up to this look.

    The intersection of s hypotheses is rejected if one of them is at level alpha / s. A comparison is rejected if every
    intersection with it is. Among those of size s, the hardest consists of comparisons that level alpha / s does not
    reject, and exists if there are s of these.
    """
    candidates = family
    for size in range(len(family), 0, -1):
        rejected = tuple(pair for pair in family if sums.is_rejected(pair, size, number))
        if len(family) - len(rejected) >= size:
            candidates = tuple(pair for pair in candidates if pair in rejected)
        if not candidates:
            break
    return candidates


# --- arrangements -----------------------------------------------------------------------------------------------------


class _Sums:
    """Differences of sums of each comparison, as observed and under every arrangement, in units of 10^-DIGITS."""

    def __init__(self, design: SequentialDesign, scores: Mapping[str, Sequence[float]]) -> None:
        self.design = design
        self.scores = {row: np.rint(np.array(scores.get(row, ()), dtype="float64") * 10**DIGITS) for row in design.rows}
        self._arranged: dict[tuple[tuple[str, str], int], Array] = {}
        # (pair, size of the intersection) -> boundaries, and the level spent, look by look
        self._tests: dict[tuple[tuple[str, str], int], tuple[list[float], list[float]]] = {}

    def _groups(self, pair: tuple[str, str]) -> Array:
        """Return groups x (2 x size): the runs of both rows, as far as both have whole groups."""
        size = self.design.group
        number = min(len(self.scores[row]) for row in pair) // size
        sides = [self.scores[row][: number * size].reshape(number, size) for row in pair]
        return np.concatenate(sides, axis=1)

    def observed(self, pair: tuple[str, str]) -> Array:
        """Return the difference of sums up to each look."""
        groups, size = self._groups(pair), self.design.group
        differences: Array = (groups[:, :size] - groups[:, size:]).sum(axis=1).cumsum()
        return differences

    def arranged(self, pair: tuple[str, str], look: int) -> Array:
        """Return looks x arrangements: absolute differences of sums up to each look, by the arrangements of `look`."""
        if (pair, look) not in self._arranged:
            groups, size = self._groups(pair)[:look], self.design.group
            if _is_enumerated(size, look):
                of_group = groups @ _all_arrangements(size).T
                differences = np.take_along_axis(of_group, _combinations(of_group.shape[1], look), axis=1)
            else:
                differences = np.stack([_sample(size, number) @ runs for number, runs in enumerate(groups)])
            self._arranged[pair, look] = np.abs(differences.cumsum(axis=0))
        return self._arranged[pair, look]

    def boundaries(self, pair: tuple[str, str], size: int, number: int) -> list[float]:
        """Return a comparison's boundaries at the looks up to `number`, at the level of an intersection of `size`.

        A boundary is the smallest b with spent + P(T > b, no earlier look rejects) <= the level up to that look. T is
        the absolute difference of sums under a random arrangement of each group's runs, and `spent` is that probability
        at the earlier looks.
        """
        boundaries, spent = self._tests.setdefault((pair, size), ([], []))
        for look in range(len(boundaries) + 1, number + 1):
            statistics = self.arranged(pair, look)
            survives: BoolArray = np.all(statistics[:-1] <= np.array(boundaries)[:, None], axis=0)
            level = self.design.level(look) / size - sum(spent)
            boundary, share = _boundary(statistics[-1], survives, level)
            boundaries.append(boundary)
            spent.append(share)
        return boundaries[:number]

    def is_rejected(self, pair: tuple[str, str], size: int, number: int) -> bool:
        """Return True if a comparison is beyond its boundary at one of the looks up to `number`."""
        sizes = np.abs(self.observed(pair)[:number])
        return bool((sizes > np.array(self.boundaries(pair, size, number))).any())


def _boundary(statistics: Array, survives: BoolArray, level: float) -> tuple[float, float]:
    """Return a look's boundary, and the share of all arrangements that survive earlier looks and lie beyond it."""
    number, surviving = len(statistics), statistics[survives]
    most = math.floor(level * number + 1e-9)  # arrangements that may lie beyond; below half of them
    position = len(surviving) - 1 - most
    boundary = float(np.partition(surviving, position)[position])
    return boundary, int((surviving > boundary).sum()) / number


def _is_enumerated(group: int, looks: int) -> bool:
    return math.comb(2 * group, group) ** looks <= LARGEST_ENUMERATED


@functools.lru_cache(maxsize=16)
def _all_arrangements(group: int) -> Array:
    """Return arrangements x runs: 1 for a run of the first row, -1 for one of the second. The first is as observed."""
    chosen = list(itertools.combinations(range(2 * group), group))
    signs = np.full((len(chosen), 2 * group), -1.0)
    np.put_along_axis(signs, np.array(chosen), 1.0, axis=1)
    return signs


@functools.lru_cache(maxsize=16)
def _combinations(arrangements: int, looks: int) -> IntArray:
    """Return looks x combinations: the arrangement of each look's group, for every combination of them."""
    return np.indices((arrangements,) * looks).reshape(looks, -1)


@functools.lru_cache(maxsize=64)
def _sample(group: int, number: int) -> Array:
    """Draw arrangements of one group, by its number; the observed one is the first, so that no p-value is zero."""
    generator = np.random.default_rng((SEED, group, number))
    observed = np.repeat([1.0, -1.0], group)
    signs = generator.permuted(np.tile(observed, (SAMPLE, 1)), axis=1)
    signs[0] = observed
    return signs
