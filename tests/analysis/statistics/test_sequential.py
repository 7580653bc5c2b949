"""Sequential tests beside a brute force over all arrangements and all intersections, and beside the AdaStop package."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed.analysis.statistics import sequential
from biasbed.analysis.statistics.pairs import Pairs, pairs
from biasbed.analysis.statistics.sequential import SequentialDesign, analyse
from biasbed.errors import UsageError

VECTORS = Path(__file__).parents[2] / "vectors" / "adastop.json"
ALPHA = 0.2  # that a few runs can reach
Scores = dict[str, list[int]]


def draw(seed: int, rows: int, runs: int, effect: int = 0) -> Scores:
    """Whole numbers, so that sums tie and a brute force is exact."""
    generator = np.random.default_rng(seed)
    return {f"r{row}": (generator.integers(0, 12, runs) + row * effect).tolist() for row in range(rows)}


# --- by brute force ---------------------------------------------------------------------------------------------------


def paths(a: Sequence[int], b: Sequence[int], group: int, looks: int) -> list[list[int]]:
    """Absolute differences of sums up to each look, for every arrangement of every group."""
    steps = []
    for look in range(looks):
        pooled = [*a[look * group : (look + 1) * group], *b[look * group : (look + 1) * group]]
        chosen = itertools.combinations(range(2 * group), group)
        steps.append([2 * sum(pooled[i] for i in some) - sum(pooled) for some in chosen])
    return [[abs(total) for total in itertools.accumulate(path)] for path in itertools.product(*steps)]


@functools.cache
def rejects_alone(
    a: tuple[int, ...], b: tuple[int, ...], group: int, looks: int, planned: int, level: Fraction
) -> bool:
    """The observed path is the first: is it beyond the boundary of one of the looks that were made?"""
    spent, alive = Fraction(0), paths(a, b, group, looks)
    number, observed = len(alive), alive[0]
    for look in range(looks):
        candidates = [0, *sorted({path[look] for path in alive})]
        for boundary in candidates:
            beyond = Fraction(sum(path[look] > boundary for path in alive), number)
            if spent + beyond <= level * (look + 1) / planned:
                break
        if observed[look] > boundary:
            return True
        spent += beyond
        alive = [path for path in alive if path[look] <= boundary]
    return False


def closed_tests(scores: Scores, family: Pairs, group: int, planned: int, looks: int) -> set[tuple[str, str]]:
    """Comparisons of which every intersection has one member that is rejected at alpha / size."""

    def is_rejected(intersection: Pairs) -> bool:
        level = Fraction(ALPHA).limit_denominator() / len(intersection)
        return any(
            rejects_alone(tuple(scores[a]), tuple(scores[b]), group, looks, planned, level) for a, b in intersection
        )

    subsets = [s for size in range(1, len(family) + 1) for s in itertools.combinations(family, size)]
    standing = [set(subset) for subset in subsets if not is_rejected(subset)]
    return {pair for pair in family if not any(pair in subset for subset in standing)}


@pytest.mark.parametrize(("rows", "control", "group", "looks"), [(2, None, 2, 3), (3, None, 2, 3), (4, "r0", 2, 2)])
def test_decisions_are_those_of_all_arrangements_and_all_intersections(
    rows: int, control: str | None, group: int, looks: int
) -> None:
    verdicts = []
    for seed in range(6):
        scores = draw(seed, rows, group * looks, effect=seed)
        family = pairs(tuple(scores), control)
        design = SequentialDesign(family, group, looks, ALPHA)
        done: set[tuple[str, str]] = set()
        for look in analyse(design, scores):
            expected = closed_tests(scores, family, group, looks, look.number)
            now = {(decision.a, decision.b) for decision in look.decided}
            assert now == expected - done, (seed, look)
            for decision in look.decided:
                means = [np.mean(scores[row][: look.number * group]) for row in (decision.a, decision.b)]
                assert decision.difference == pytest.approx(means[0] - means[1], abs=1e-12)
                assert decision.higher == (decision.a if means[0] > means[1] else decision.b)
            done |= now
            assert set(look.undecided) == set(family) - done
        verdicts.append(len(done))
    assert 0 in verdicts
    assert max(verdicts) == len(family)


# --- what must not change a decision ----------------------------------------------------------------------------------


def outcome(design: SequentialDesign, scores: Mapping[str, Sequence[float]]) -> list[Any]:
    return [
        (look.number, sorted((sorted((d.a, d.b)), d.higher) for d in look.decided)) for look in analyse(design, scores)
    ]


def test_units_order_and_effects_of_a_group_change_no_decision() -> None:
    generator = np.random.default_rng(5)
    scores = {f"r{row}": (0.1 * generator.normal(size=10) + 0.2 * row) for row in range(3)}
    design = SequentialDesign(pairs(("r0", "r1", "r2")), 2, 5, 0.05)
    reference = outcome(design, scores)
    assert [len(decided) for _, decided in reference] == [0, 0, 1, 2]  # step by step
    assert outcome(design, {row: 100 * values for row, values in scores.items()}) == reference
    shift = np.repeat([3.0, -1.0, 0.5, 2.0, 7.0], 2)  # all rows of a group do better or worse
    assert outcome(design, {row: values + shift for row, values in scores.items()}) == reference
    swapped = np.array([1, 0, 3, 2, 5, 4, 7, 6, 9, 8])
    assert outcome(design, {row: values[swapped] for row, values in scores.items()}) == reference
    turned = SequentialDesign(pairs(("r2", "r1", "r0")), 2, 5, 0.05)
    assert outcome(turned, dict(reversed(scores.items()))) == reference


def test_later_runs_change_no_earlier_look() -> None:
    scores = draw(3, 3, 10, effect=2)
    design = SequentialDesign(pairs(tuple(scores)), 2, 5, ALPHA)
    whole = analyse(design, scores)
    for runs in range(11):
        part = analyse(design, {row: values[:runs] for row, values in scores.items()})
        assert part == whole[: runs // 2]
    first = next(look for look in whole if look.decided)
    closed = {row for row in scores if row not in first.open_rows}
    kept = {row: values[: first.number * 2] if row in closed else values for row, values in scores.items()}
    assert analyse(design, kept) == whole


def test_equal_scores_are_never_told_apart() -> None:
    design = SequentialDesign((("a", "b"),), 3, 3, 0.4)
    (*_, last) = analyse(design, {"a": [0.1 + 0.2] * 9, "b": [0.3] * 9})
    assert (last.number, last.undecided) == (3, (("a", "b"),))


def test_a_sample_of_arrangements_agrees_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The boundary is a quantile of 63,504 values, and of 20,000 that are drawn: three standard errors are 8 %."""
    generator = np.random.default_rng(8)
    scores = {"a": generator.normal(size=10), "b": generator.normal(size=10)}
    design = SequentialDesign((("a", "b"),), 5, 2, 0.05)
    exact = analyse(design, scores)
    monkeypatch.setattr(sequential, "LARGEST_ENUMERATED", 100)
    drawn = analyse(design, scores)
    for look, of_sample in zip(exact, drawn, strict=True):
        assert of_sample.boundaries["a", "b"] == pytest.approx(look.boundaries["a", "b"], rel=0.08)
    assert analyse(design, scores) == drawn


def test_a_plan_that_can_decide_nothing_is_refused() -> None:
    for looks in range(1, 8):  # the most extreme of 2^looks arrangements, both signs
        is_possible = 2 / 2**looks <= 0.05
        if is_possible:
            assert SequentialDesign((("a", "b"),), 1, looks, 0.05).first_possible_look == 6
        else:
            with pytest.raises(
                UsageError, match=f"{looks} runs of each row can't decide anything: .*; plan 6 runs or more"
            ):
                SequentialDesign((("a", "b"),), 1, looks, 0.05)
    with pytest.raises(UsageError, match=r"needs 0.0083 \(0.05 / 6 comparisons\); plan 8 runs .* or fewer comparisons"):
        SequentialDesign(pairs(tuple("abcd")), 2, 2, 0.05)  # 2/6^3 is too large as well, 2/6^4 is not
    with pytest.raises(UsageError, match="plan a larger level"):
        SequentialDesign((("a", "b"),), 2, 2, 1e-6)
    assert SequentialDesign((("a", "b"),), 5, 2, 0.05).first_possible_look == 1
    assert SequentialDesign(pairs(tuple("abcd")), 5, 2, 0.05).first_possible_look == 2
    assert math.isclose(SequentialDesign((("a", "b"),), 5, 2, 0.05).smallest_tail(1), 2 / 252)


# --- beside the package -----------------------------------------------------------------------------------------------


def test_single_comparisons_are_those_of_the_adastop_package() -> None:
    """It takes the boundary of signed differences for absolute ones, so it was given half of alpha."""
    vectors = json.loads(VECTORS.read_text())
    decisions = set()
    for case in vectors["single"]:
        design = SequentialDesign((("a", "b"),), case["group"], case["looks"], vectors["alpha"])
        looks = analyse(design, {"a": case["a"], "b": case["b"]})
        assert len(looks) == case["made"]
        for look, boundary in zip(looks, case["boundaries"], strict=True):
            if math.isfinite(boundary):
                ours = look.boundaries["a", "b"] * look.number  # the package adds the mean differences of the groups
                assert ours == pytest.approx(boundary, abs=1e-9)
        verdict = "equal"
        for decision in looks[-1].decided:
            verdict = "larger" if decision.higher == "a" else "smaller"
        assert verdict == case["decision"]
        decisions.add(verdict)
    assert decisions == {"equal", "smaller"}


def test_several_comparisons_are_decided_as_by_the_adastop_package() -> None:
    vectors = json.loads(VECTORS.read_text())
    case = vectors["several"]
    family = pairs(tuple(case["scores"]))
    looks = analyse(SequentialDesign(family, case["group"], case["looks"], vectors["alpha"]), case["scores"])
    verdicts = dict.fromkeys(map(" ".join, family), "equal")
    for look in looks:
        for decision in look.decided:
            verdicts[f"{decision.a} {decision.b}"] = "larger" if decision.difference > 0 else "smaller"
    assert verdicts == case["decisions"]
