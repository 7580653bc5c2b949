"""The verdict on two histories: what is equal, what another seed might do, and how often it is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from biasbed import record
from biasbed.reproduce import verdict
from biasbed.reproduce.original import Curves
from biasbed.reproduce.verdict import BIT_EQUAL, DIFFERENT, MISSING, NO_SPREAD, NOT_EQUAL, WITHIN

MONITOR = "val/accuracy/val"
PROTOCOL = record.Protocol("toy", (record.SetRecord("edge", "accuracy", 100, 10, 0.1),), ("train",), ("val",), MONITOR)
DECIDING = {MONITOR, "test/accuracy/edge", "train/loss"}


def history(accuracy: float, steps: int = 3, **more: float) -> dict[str, dict[int, float]]:
    """Rises to `accuracy` on the set and twice that on validation."""
    values = {MONITOR: 2 * accuracy, "test/accuracy/edge": accuracy, "train/loss": 1 - accuracy, "train/lr": 0.1}
    return {name: {s: (values | more)[name] * s / steps for s in range(1, steps + 1)} for name in values | more}


def verdicts(first: Curves, second: Curves, *others: Curves, alpha: float = 0.05) -> dict[str, str]:
    return {row.metric: row.verdict for row in verdict.compare(PROTOCOL, first, second, others, alpha)}


def test_the_same_history_is_bit_equal_nan_included() -> None:
    odd = history(0.3) | {"test/ece/edge": {1: math.nan, 2: 0.1, 3: 0.2}}
    rows = verdict.compare(PROTOCOL, odd, {name: dict(curve) for name, curve in odd.items()}, (), 0.05)
    assert {row.verdict for row in rows} == {BIT_EQUAL}
    assert verdict.overall(rows) == BIT_EQUAL
    assert {row.metric for row in rows if row.decides} == DECIDING


def test_one_bit_at_one_epoch_is_seen() -> None:
    second = history(0.3)
    second["test/accuracy/edge"][1] = math.nextafter(second["test/accuracy/edge"][1], 1)
    (row,) = (r for r in verdict.compare(PROTOCOL, history(0.3), second, (), 0.05) if r.metric == "test/accuracy/edge")
    assert (row.verdict, row.epochs, row.equal_epochs, row.difference) == (NO_SPREAD, 3, 2, 0)
    assert 0 < row.largest_difference < 1e-15


def test_a_further_or_an_absent_epoch_is_not_equal() -> None:
    shorter = {name: {s: v for s, v in curve.items() if s < 3} for name, curve in history(0.3).items()}
    assert BIT_EQUAL not in verdicts(history(0.3), shorter).values()
    assert BIT_EQUAL not in verdicts(shorter, history(0.3)).values()


def test_what_does_not_decide_gets_no_test() -> None:
    second = history(0.3)
    second["train/lr"] = dict.fromkeys(second["train/lr"], 0.2)
    rows = verdict.compare(PROTOCOL, history(0.3), second, [history(0.3 + 0.01 * k) for k in range(4)], 0.05)
    assert {r.metric: r.verdict for r in rows}["train/lr"] == NOT_EQUAL
    assert verdict.overall(rows) == BIT_EQUAL


def test_a_metric_that_is_gone_decides_a_new_one_does_not() -> None:
    second = history(0.3)
    del second["test/accuracy/edge"]
    second["test/ece/edge"] = {3: 0.1}
    rows = verdict.compare(PROTOCOL, history(0.3), second, (), 0.05)
    assert "test/ece/edge" not in {row.metric for row in rows}
    assert verdict.overall(rows) == MISSING


def test_within_and_different_by_the_other_seeds() -> None:
    others = [history(0.30 + 0.01 * k) for k in range(-3, 4)]
    assert set(verdicts(history(0.3), history(0.315), *others).values()) == {WITHIN, BIT_EQUAL}
    assert set(verdicts(history(0.3), history(0.6), *others).values()) == {DIFFERENT, BIT_EQUAL}


@pytest.mark.parametrize("others", [[], [0.31, 0.29], [0.3, 0.3, 0.3, 0.3]])
def test_without_a_spread_nothing_is_claimed(others: list[float]) -> None:
    rows = verdict.compare(PROTOCOL, history(0.3), history(0.31), [history(a) for a in others], 0.05)
    assert verdict.overall(rows) == NO_SPREAD
    assert NO_SPREAD not in verdict.REPRODUCED


def test_a_value_that_is_no_number_any_more_is_different() -> None:
    second = history(0.3)
    second["train/loss"][3] = math.nan
    assert verdicts(history(0.3), second, *(history(0.3 + 0.01 * k) for k in range(4)))["train/loss"] == DIFFERENT


def test_the_best_epoch_is_the_first_of_equal_ones_and_respects_the_direction() -> None:
    curve = {MONITOR: {1: 0.2, 2: 0.5, 3: 0.5, 4: math.nan, 5: 1.7976931348623157e308}}
    assert verdict.best_step(PROTOCOL, curve) == 2
    lower = record.Protocol("toy", (), ("train",), ("val",), MONITOR, monitor_higher_is_better=False)
    assert verdict.best_step(lower, curve) == 1
    assert verdict.best_step(PROTOCOL, {}) is None


def test_the_limit_is_where_different_begins() -> None:
    others = [history(0.30 + 0.01 * k) for k in range(5)]
    rows = verdict.compare(PROTOCOL, history(0.3), history(0.3001), others, 0.05)
    limit = next(row.limit for row in rows if row.metric == "test/accuracy/edge")
    for factor, expected in ((0.999, {WITHIN}), (1.001, {DIFFERENT})):
        verdict_of = verdicts(history(0.3), history(0.3 + factor * limit), *others)
        assert {verdict_of[name] for name in DECIDING} == expected  # all three are one number here, up to its scale


@pytest.mark.parametrize("seeds", [3, pytest.param(9, marks=pytest.mark.slow)])
def test_another_seed_is_called_different_as_rarely_as_promised(seeds: int) -> None:
    """Independent normal scores, as many as twelve metrics: the family's level is kept."""
    generator = np.random.default_rng(0)
    sets = tuple(record.SetRecord(f"s{k}", "accuracy", 100, 10, 0.1) for k in range(11))
    protocol = record.Protocol("toy", sets, ("train",), ("val",), MONITOR)
    names = [MONITOR, *(f"test/accuracy/{set_record.name}" for set_record in sets)]
    wrong, trials = 0, 300
    for _ in range(trials):
        drawn = generator.normal(0.5, 0.01, (seeds + 2, len(names)))
        first, second, *others = [{n: {1: float(v)} for n, v in zip(names, row, strict=True)} for row in drawn]
        wrong += verdict.overall(verdict.compare(protocol, first, second, others, 0.05)) == DIFFERENT
    assert wrong / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
