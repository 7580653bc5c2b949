"""Selection rules on hand-made records: the right answer can be read off. No MLflow, no torch."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from biasbed import record
from biasbed.analysis import scores
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.rules import (
    GROUP_LABELS,
    BestEpoch,
    BestEpochPerRun,
    BestValidation,
    Last,
    LastN,
    Rule,
)
from biasbed.analysis.selection.select import Missing, Selected, make_rule, select
from biasbed.errors import Failure, UsageError
from helpers.commands import ROOT

MONITOR = "val/accuracy/val"
EDGE = record.SetRecord("edge", "accuracy", 10, 2, 0.5, ("accuracy", "loss"))
SKETCH = record.SetRecord("sketch", "loss", 10, 2, 0.7, ("accuracy", "loss"), higher_is_better=False)
RUN = Run("r", "r", "0", "FINISHED", 0, 0, "train", "s", "adhoc", protocol="p", algorithm="erm")
PROTOCOL = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR)
INFINITY_OF_STORES = 1.7976931348623157e308


def history(**curves: list[float]) -> History:
    """Curves by short name, one value for each of the steps 1, 2, ..."""
    names = {"val": MONITOR, "edge": "test/accuracy/edge", "edge_loss": "test/loss/edge", "sketch": "test/loss/sketch"}
    return History("r", [(names[k], step, v) for k, curve in curves.items() for step, v in enumerate(curve, start=1)])


def of_loss() -> Rule:
    """Return the rule by the lowest validation loss."""
    return BestValidation(replace(PROTOCOL, monitor="val/loss/val", monitor_higher_is_better=False), 1)


def best_per_run(*sets: record.SetRecord, derived: tuple[record.Derived, ...] = ()) -> Rule:
    return BestEpochPerRun(record.Protocol("s", sets, ("train",), ("val",), MONITOR, derived=derived), 1)


def selected(rule: Rule, curves: History) -> Selected:
    """Return the steps that a rule chooses of one run on one set."""
    columns, protocols = [Column("edge", EDGE)], {"p": PROTOCOL}
    return select({("p", ""): rule}, pools_of([RUN], {"r": curves}, columns, protocols), columns, protocols)


def test_best_validation_takes_the_first_of_equal_epochs() -> None:
    rule = BestValidation(PROTOCOL, 1)
    assert rule.steps(history(val=[0.1, 0.7, 0.7, 0.3], edge=[0.1, 0.2, 0.9, 0.4]), EDGE) == (2,)


@pytest.mark.parametrize(
    ("name", "measure", "needs"),
    [
        ("validation_accuracy", "accuracy", ()),
        ("worst_class", "worst_class_accuracy", ()),
        ("worst_group", "worst_group_accuracy", (GROUP_LABELS,)),
    ],
)
def test_one_measure_of_the_monitor_s_set_chooses_the_epoch(name: str, measure: str, needs: tuple[str, ...]) -> None:
    protocol = record.Protocol(
        "s", (EDGE,), ("t",), ("v",), "val/ac_score/v", selection_rules=("best_validation", name)
    )
    rule = make_rule(name, 1, protocol)
    assert not rule.oracle
    assert rule.needs == needs
    curves = {"val/ac_score/v": [0.9, 0.2, 0.1], f"val/{measure}/v": [0.1, 0.4, 0.4], f"test/{measure}/v": [1, 0, 0]}
    rows = [(metric, step, value) for metric, curve in curves.items() for step, value in enumerate(curve, start=1)]
    assert rule.steps(History("r", rows), EDGE) == (2,)
    assert f"val/{measure}/v" in rule.label
    with pytest.raises(UsageError, match=f"selection={name}"):
        make_rule(name, 1, replace(protocol, monitor="val/loss"))


def test_a_monitor_that_takes_bias_labels_says_so() -> None:
    score = record.Derived(
        "val", "ac_score", "v", "harmonic_mean", ("val/aligned_accuracy/v", "val/conflicting_accuracy/v")
    )
    protocol = record.Protocol("s", (EDGE,), ("t",), ("v",), score.metric, derived=(score,))
    assert make_rule("best_validation", 1, protocol).needs == (GROUP_LABELS,)
    assert make_rule("best_validation", 1, replace(protocol, monitor="val/accuracy/v")).needs == ()


def test_best_validation_never_takes_a_non_finite_epoch() -> None:
    for bad in (math.nan, math.inf, INFINITY_OF_STORES):
        assert BestValidation(PROTOCOL, 1).steps(history(val=[0.1, 0.2, bad]), EDGE) == (2,)
    for curve in ([], [math.nan, INFINITY_OF_STORES]):
        with pytest.raises(Failure, match="run r has no finite val/accuracy/val"):
            BestValidation(PROTOCOL, 1).steps(history(val=curve, edge=[0.1]), EDGE)


def test_last_n_counts_the_epochs_at_which_the_set_was_tested() -> None:
    rows = [("test/accuracy/edge", step, 0.1 * step) for step in (2, 4, 6, 8)]
    assert LastN(PROTOCOL, 3).steps(History("r", rows), EDGE) == (4, 6, 8)


def test_last_n_longer_than_the_run_says_what_is_possible() -> None:
    with pytest.raises(UsageError, match=r"n=5: run r was tested on edge at 3 epochs only; choose n of at most 3"):
        LastN(PROTOCOL, 5).steps(history(edge=[0.1, 0.2, 0.3]), EDGE)


def test_best_epoch_is_each_sets_own_and_respects_its_direction() -> None:
    runs = history(edge=[0.1, 0.9, 0.3], sketch=[0.5, 0.6, 0.2])
    assert BestEpoch(PROTOCOL, 1).steps(runs, EDGE) == (2,)
    assert BestEpoch(PROTOCOL, 1).steps(runs, SKETCH) == (3,)


def test_select_averages_every_measure_over_the_selected_epochs() -> None:
    curves = history(val=[0.1, 0.3, 0.2], edge=[0.2, 0.4, 0.8], edge_loss=[3.0, 2.0, 1.0])
    selection = selected(LastN(PROTOCOL, 2), curves)
    table, missing = selection.values, selection.missing
    assert not missing
    row = table.iloc[0]
    assert (row["value"], row["accuracy"], row["loss"]) == pytest.approx((0.6, 0.6, 1.5))
    assert (row["first_step"], row["last_step"], row["num_steps"], row["monitor"]) == pytest.approx((2, 3, 2, 0.25))


@pytest.mark.parametrize(
    ("rule", "steps", "value"),
    [
        (BestValidation(PROTOCOL, 1), (2, 2), 30.0),
        (of_loss(), (3, 3), 0.5),
        (BestEpoch(PROTOCOL, 1), (3, 3), 80.0),
        (best_per_run(EDGE), (3, 3), 80.0),
        (best_per_run(EDGE, replace(EDGE, name="other")), (1, 1), 60.0),
        (LastN(PROTOCOL, 2), (2, 3), None),
        (Last(PROTOCOL, 1), (3, 3), None),
    ],
)
def test_a_choice_tells_the_value_that_it_was_made_by(rule: Rule, steps: tuple[int, int], value: float | None) -> None:
    """As it is shown; `monitor` is the same whatever the rule. Rules without validation choose nothing of one run."""
    curves = {MONITOR: [0.1, 0.3, 0.2], "val/loss/val": [2.0, 1.0, 0.5], "test/accuracy/edge": [0.2, 0.4, 0.8]}
    curves["test/accuracy/other"] = [1.0, 0.0, 0.0]
    points = [(metric, step, number) for metric, curve in curves.items() for step, number in enumerate(curve, start=1)]
    row = selected(rule, History("r", points)).values.iloc[0]
    assert (row["first_step"], row["last_step"]) == steps
    assert row["monitor"] == pytest.approx(sum(curves[MONITOR][steps[0] - 1 : steps[1]]) / (steps[1] - steps[0] + 1))
    assert row["selection_value"] == pytest.approx(math.nan if value is None else value, nan_ok=True)


@pytest.mark.parametrize("rule", [LastN(PROTOCOL, 2), Last(PROTOCOL, 1)])
def test_of_a_search_the_last_epochs_are_those_of_the_trial_with_the_best_monitor(rule: Rule) -> None:
    runs, histories = [], {}
    for number, last in enumerate((0.2, 0.6)):
        name = f"t{number}"
        tags = {"kind": "trial", "repeat": "0", "trial": f"r0-{number}"}
        runs.append(replace(RUN, id=name, **tags))
        histories[name] = history(val=[0.9, last, last], edge=[0.1, 0.2, 0.3])
    columns, protocols = [Column("edge", EDGE)], {"p": PROTOCOL}
    selection = select({("p", ""): rule}, pools_of(runs, histories, columns, protocols), columns, protocols)
    assert selection.values["run_id"].tolist() == ["t1"]
    assert selection.values["selection_value"].tolist() == pytest.approx([60.0])


@pytest.mark.parametrize(
    ("curves", "why"),
    [
        ({"val": [0.1, 0.2]}, "never tested"),
        ({"val": [0.1, 0.2], "edge": [0.5]}, r"not tested at step 2 \(tested at 1\)"),
        ({"val": [0.1, 0.2], "edge": [0.5, math.nan]}, "not a finite number at step 2"),
    ],
)
def test_select_says_what_is_missing_and_why(curves: dict[str, list[float]], why: str) -> None:
    selection = selected(BestValidation(PROTOCOL, 1), history(**curves))
    table, missing = selection.values, selection.missing
    assert table.empty
    assert len(missing) == 1
    assert re.fullmatch(why, missing[0].why)


def test_a_measure_that_is_missing_at_a_selected_epoch_is_empty() -> None:
    """Not a mean over what there is, nor with a zero in its place."""
    curves = history(val=[0.1, 0.2], edge=[0.2, 0.4], edge_loss=[3.0])
    selection = selected(LastN(PROTOCOL, 2), curves)
    table, missing = selection.values, selection.missing
    assert not missing
    assert table["value"].iloc[0] == pytest.approx(0.3)
    assert math.isnan(table["loss"].iloc[0])


def test_the_oracle_on_a_set_without_finite_values() -> None:
    missing = selected(BestEpoch(PROTOCOL, 1), history(edge=[math.nan])).missing
    assert missing == (Missing("r", "edge", "no finite value"),)


def test_auto_is_the_protocols_own_rule() -> None:
    protocol = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR, default_selection="last_n")
    assert make_rule("auto", 7, protocol).label == "the mean over the last 7 epochs"


def test_a_rule_that_the_protocol_does_not_have_is_refused() -> None:
    protocol = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR, selection_rules=("best_validation",))
    with pytest.raises(UsageError, match=r"selection=last_n: this protocol has no such rule.*; did you mean 'last'"):
        make_rule("last_n", 3, protocol)


def test_last_is_the_last_epoch_at_which_the_set_was_tested() -> None:
    rows = [("test/accuracy/edge", step, 0.1) for step in (7, 2, 4)] + [(MONITOR, 9, 0.5)]
    assert Last(PROTOCOL, 1).steps(History("r", rows), EDGE) == (7,)
    assert Last(PROTOCOL, 1).steps(History("r", []), EDGE) == ()
    assert LastN(PROTOCOL, 1).steps(History("r", rows), EDGE) == Last(PROTOCOL, 1).steps(History("r", rows), EDGE)


PHOTO = record.SetRecord("photo", "accuracy", 10, 2, 0.5)
ERROR = record.SetRecord("error", "error", 10, 2, 0.5, ("error",), higher_is_better=False)


def curves_of(**curves: dict[int, float]) -> History:
    names = {"edge": "test/accuracy/edge", "photo": "test/accuracy/photo", "error": "test/error/error"}
    return History("r", [(names[name], step, v) for name, curve in curves.items() for step, v in curve.items()])


def test_best_epoch_per_run_is_one_epoch_for_all_sets_the_first_of_equals() -> None:
    curves = curves_of(edge={1: 0.9, 2: 0.5, 3: 0.1, 4: 0.4}, photo={1: 0.0, 2: 0.5, 3: 0.9, 4: 0.6})
    rule = best_per_run(EDGE, PHOTO)
    assert [rule.steps(curves, set_record) for set_record in (EDGE, PHOTO)] == [(2,), (2,)]
    assert [BestEpoch(PROTOCOL, 1).steps(curves, set_record) for set_record in (EDGE, PHOTO)] == [(1,), (3,)]


def test_best_epoch_per_run_turns_round_what_is_better_lower_and_skips_gaps() -> None:
    curves = curves_of(edge={1: 0.5, 2: 0.5, 3: 0.9, 4: math.nan}, error={1: 0.4, 2: 0.1, 4: 0.0})
    assert best_per_run(EDGE, ERROR).steps(curves, EDGE) == (2,)
    assert best_per_run(EDGE, PHOTO).steps(curves, EDGE) == ()


def test_best_epoch_per_run_averages_no_unlike_measures() -> None:
    """The derivation states the unit of a derived value."""
    with pytest.raises(UsageError, match="selection=best_epoch_per_run: accuracy and loss have no common mean"):
        best_per_run(EDGE, SKETCH)
    inputs = ("test/accuracy/edge",)
    ratio = record.Derived(*("test", "ce", "ratio", "error_ratio", inputs), references=(0.5,), unit="ratio")
    shown = record.SetRecord("ratio", "ce", 0, 0, 0.0, ())
    with pytest.raises(UsageError, match="selection=best_epoch_per_run: accuracy and ce have no common mean"):
        best_per_run(EDGE, shown, derived=(ratio,))


def test_best_epoch_per_run_counts_the_columns_of_a_data_set_once() -> None:
    """By columns the second epoch would be the best."""
    of_one = [replace(EDGE, name=name, block="data") for name in ("edge", "ink")]
    curves = {"edge": {1: 0.5, 2: 0.6}, "ink": {1: 0.5, 2: 0.6}, "photo": {1: 0.65, 2: 0.5}}
    rows = [(f"test/accuracy/{name}", step, v) for name, curve in curves.items() for step, v in curve.items()]
    assert best_per_run(*of_one, PHOTO).steps(History("r", rows), PHOTO) == (1,)


# --- rules of one's own -----------------------------------------------------------------------------------------------

DOCS = (ROOT / "docs" / "selection.md").read_text(encoding="utf-8")
EXAMPLE = DOCS.split("```python\nfrom statistics")[1].split("```")[0]
OWN = f"""from statistics{EXAMPLE}
"""
PROTOCOL = record.Protocol("s", (EDGE,), ("train",), ("val",), MONITOR)


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    (tmp_path / "my_rules.py").write_text(OWN)
    return tmp_path / "my_rules.py"


def test_a_rule_of_ones_own_from_a_file(own_file: Path) -> None:
    rule = make_rule(f"{own_file}:AlignConflict", 3, PROTOCOL)
    rows = [("val/accuracy/val:aligned", s, v) for s, v in enumerate((0.9, 0.6, 0.2))]
    rows += [("val/accuracy/val:conflicting", s, v) for s, v in enumerate((0.1, 0.5, 0.9))]
    assert rule.steps(History("r", rows), EDGE) == (1,)
    assert (rule.name, rule.oracle) == ("ac_score", False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{own_file}:Absent", "can't be imported: AttributeError"),
        ("none.py:Rule", "can't be imported: FileNotFoundError"),
    ],
)
def test_what_is_no_rule_is_refused(own_file: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_rule(name.format(own_file=own_file), 3, PROTOCOL)


def test_validating_on_a_test_set_is_said() -> None:
    protocol = record.Protocol(
        suite="demo",
        sets=tuple(record.SetRecord(name, "accuracy", 100, 10, 0.1) for name in ("one", "two")),
        training_sets=("train",),
        validation_sets=("two",),
        monitor="val/accuracy/two",
    )
    (note,) = scores.validation_note(protocol, str)
    assert "same images (two)" in note
    assert scores.validation_note(replace(protocol, validation_sets=("val",)), str) == []
