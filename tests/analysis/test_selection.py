"""Selection rules on hand-made records: the right answer can be read off. No MLflow, no torch."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from biasbed import record
from biasbed.analysis import aggregate, selection
from biasbed.analysis.selection import AsPublished, BestEpoch, BestValidation, History, LastN, make_rule, select
from biasbed.errors import Failure, UsageError

MONITOR = "val/accuracy/val"
EDGE = record.SetRecord("edge", "accuracy", 10, 2, 0.5, ("accuracy", "loss"))
SKETCH = record.SetRecord("sketch", "loss", 10, 2, 0.7, ("accuracy", "loss"), higher_is_better=False)
INFINITY_OF_STORES = 1.7976931348623157e308


def history(**curves: list[float]) -> History:
    """Curves by short name, one value for each of the steps 1, 2, ..."""
    names = {"val": MONITOR, "edge": "test/accuracy/edge", "edge_loss": "test/loss/edge", "sketch": "test/loss/sketch"}
    return History("r", [(names[k], step, v) for k, curve in curves.items() for step, v in enumerate(curve, start=1)])


def test_best_validation_takes_the_first_of_equal_epochs() -> None:
    rule = BestValidation(MONITOR)
    assert rule.steps(history(val=[0.1, 0.7, 0.7, 0.3], edge=[0.1, 0.2, 0.9, 0.4]), EDGE) == (2,)


def test_best_validation_of_a_loss_is_the_lowest() -> None:
    assert BestValidation(MONITOR, higher_is_better=False).steps(history(val=[0.3, 0.1, 0.2]), EDGE) == (2,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, INFINITY_OF_STORES])
def test_best_validation_never_takes_a_non_finite_epoch(bad: float) -> None:
    assert BestValidation(MONITOR).steps(history(val=[0.1, 0.2, bad]), EDGE) == (2,)


@pytest.mark.parametrize("curve", [[], [math.nan, INFINITY_OF_STORES]])
def test_best_validation_without_a_finite_monitor_names_the_run(curve: list[float]) -> None:
    with pytest.raises(Failure, match="run r has no finite val/accuracy/val"):
        BestValidation(MONITOR).steps(history(val=curve, edge=[0.1]), EDGE)


def test_rules_do_not_depend_on_the_order_of_records() -> None:
    rows = [("test/accuracy/edge", step, value) for step, value in [(3, 0.3), (1, 0.9), (2, 0.9), (4, 0.1)]]
    shuffled = History("r", rows)
    assert LastN(2).steps(shuffled, EDGE) == (3, 4)
    assert BestEpoch().steps(shuffled, EDGE) == (1,)


def test_last_n_counts_the_epochs_at_which_the_set_was_tested() -> None:
    rows = [("test/accuracy/edge", step, 0.1 * step) for step in (2, 4, 6, 8)]
    assert LastN(3).steps(History("r", rows), EDGE) == (4, 6, 8)


def test_last_n_longer_than_the_run_says_what_is_possible() -> None:
    with pytest.raises(UsageError, match=r"n=5: run r was tested on edge at 3 epochs only; choose n of at most 3"):
        LastN(5).steps(history(edge=[0.1, 0.2, 0.3]), EDGE)


def test_best_epoch_is_each_sets_own_and_respects_its_direction() -> None:
    runs = history(edge=[0.1, 0.9, 0.3], sketch=[0.5, 0.6, 0.2])
    assert BestEpoch().steps(runs, EDGE) == (2,)
    assert BestEpoch().steps(runs, SKETCH) == (3,)


def test_only_the_oracle_is_an_oracle() -> None:
    rules = [BestValidation(MONITOR), LastN(3), BestEpoch(), AsPublished("best_epoch"), AsPublished("last_n", 30)]
    assert [rule.oracle for rule in rules] == [False, False, True, True, False]
    assert all(("ORACLE" in rule.label) == rule.oracle for rule in rules)


def test_select_averages_every_measure_over_the_selected_epochs() -> None:
    curves = history(val=[0.1, 0.3, 0.2], edge=[0.2, 0.4, 0.8], edge_loss=[3.0, 2.0, 1.0])
    table, missing = select(LastN(2), {"r": curves}, [EDGE], MONITOR)
    assert not missing
    row = table.iloc[0]
    assert (row["value"], row["accuracy"], row["loss"]) == pytest.approx((0.6, 0.6, 1.5))
    assert (row["first_step"], row["last_step"], row["num_steps"], row["monitor"]) == pytest.approx((2, 3, 2, 0.25))


@pytest.mark.parametrize(
    ("curves", "why"),
    [
        ({"val": [0.1, 0.2]}, "never tested"),
        ({"val": [0.1, 0.2], "edge": [0.5]}, r"not tested at step 2 \(tested at 1\)"),
        ({"val": [0.1, 0.2], "edge": [0.5, math.nan]}, "not a finite number at step 2"),
    ],
)
def test_select_says_what_is_missing_and_why(curves: dict[str, list[float]], why: str) -> None:
    table, missing = select(BestValidation(MONITOR), {"r": history(**curves)}, [EDGE], MONITOR)
    assert table.empty
    assert len(missing) == 1
    assert re.fullmatch(why, missing[0].why)


def test_the_oracle_on_a_set_without_finite_values() -> None:
    _, missing = select(BestEpoch(), {"r": history(edge=[math.nan])}, [EDGE], MONITOR)
    assert missing == [selection.Missing("r", "edge", "no finite value")]


def test_auto_is_the_protocols_own_rule() -> None:
    protocol = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR, default_selection="last_n")
    assert make_rule("auto", 7, protocol) == LastN(7)


def test_a_rule_that_the_protocol_does_not_have_is_refused() -> None:
    protocol = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR, selection_rules=("best_validation",))
    with pytest.raises(UsageError, match=r"selection=last_n: this protocol has no such rule; valid: best_validation"):
        make_rule("last_n", 3, protocol)


def test_validating_on_a_test_set_is_said() -> None:
    protocol = record.Protocol(
        suite="demo",
        sets=tuple(record.SetRecord(name, "accuracy", 100, 10, 0.1) for name in ("one", "two")),
        training_sets=("train",),
        validation_sets=("two",),
        monitor="val/accuracy/two",
    )
    (note,) = aggregate.validation_note(protocol)
    assert "same images (two)" in note
    assert aggregate.validation_note(replace(protocol, validation_sets=("val",))) == []
