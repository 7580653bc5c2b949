"""The record of a protocol: what of it says that runs are tested alike, and that it is read as it was written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from biasbed.record import Derived, Protocol, SetRecord

MEAN = Derived("test", "accuracy", "mean", "mean", ("test/accuracy/a", "test/accuracy/b"), block="ab")
MONITOR = Derived("val", "accuracy", "all", "mean", ("val/accuracy/v", "val/accuracy/w"), training=("art", "photo"))
RATIO = replace(MEAN, measure="relative_error", name="ratio", function="error_ratio", references=(0.25, 0.5), unit="%")
ROLES = {"0-aligned": {"class": "0", "alignment": "aligned"}, "0-other": {"class": "0", "alignment": "conflicting"}}
SETS = (
    SetRecord(
        "a", "accuracy", 10, 2, 0.5, groups={"0-aligned": 4, "0-other": 6}, roles=ROLES, block="ab", domain="art"
    ),
    SetRecord("b", "accuracy", 12, 2, 0.5, conditions={"fog_1": 6, "fog_2": 6}, preprocessing="as it is"),
)
WHOLE = Protocol(
    *("toy", SETS, ("train",), ("v", "w"), "val/accuracy/all"), start="named:x", derived=(MONITOR, MEAN, RATIO)
)


def test_it_is_read_as_it_was_written() -> None:
    again = Protocol.from_json(WHOLE.to_json())
    assert again == WHOLE
    assert (again.hash, again.tested, again.to_json()) == (WHOLE.hash, WHOLE.tested, WHOLE.to_json())
    assert again.columns == WHOLE.columns


@pytest.mark.parametrize("field", ["roles", "conditions", "derived"])
def test_fields_of_another_kind_are_refused(field: str) -> None:
    content = json.loads(WHOLE.to_json())
    (content if field == "derived" else content["sets"][0])[field] = ["a"]
    with pytest.raises(ValueError, match=field):
        Protocol.from_json(json.dumps(content))


# --- tested alike -----------------------------------------------------------------------------------------------------


def with_set(**values: object) -> Protocol:
    return replace(WHOLE, sets=(replace(SETS[0], **values), SETS[1]))  # type: ignore[arg-type]


ALIKE = {
    "preprocessing": with_set(preprocessing="cropped"),
    "start": replace(WHOLE, start="scratch"),
    "monitor": replace(WHOLE, monitor="val/accuracy/v", monitor_higher_is_better=False),
    "what trains": replace(WHOLE, training_sets=("other",)),
    "what validates": replace(WHOLE, validation_sets=("v",)),
    "what is derived of validation": replace(WHOLE, derived=(MEAN, RATIO)),
    "how epochs are counted and chosen": replace(WHOLE, step_unit="step", default_selection="last_n"),
}
OTHERWISE = {
    "sets": replace(WHOLE, sets=SETS[:1]),
    "images": with_set(images=11),
    "classes": with_set(classes=3),
    "label map": with_set(label_map="subset"),
    "groups": with_set(groups={"0-aligned": 5, "0-other": 5}),
    "roles": with_set(roles={}),
    "conditions": with_set(conditions={"fog_1": 10}),
    "headline": with_set(headline="loss", higher_is_better=False),
    "block": with_set(block=""),
    "domain": with_set(domain=""),
    "what is derived": replace(WHOLE, derived=(MONITOR, MEAN)),
    "of what it is derived": replace(WHOLE, derived=(MONITOR, replace(MEAN, inputs=("test/accuracy/a",)), RATIO)),
    "references": replace(WHOLE, derived=(MONITOR, MEAN, replace(RATIO, references=(0.25, 0.75)))),
}


@pytest.mark.parametrize("case", ALIKE)
def test_however_a_model_came_about_it_is_tested_alike(case: str) -> None:
    assert ALIKE[case].tested == WHOLE.tested
    assert ALIKE[case].hash != WHOLE.hash


@pytest.mark.parametrize("case", OTHERWISE)
def test_other_tests_are_other_tests(case: str) -> None:
    assert OTHERWISE[case].tested != WHOLE.tested


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_are_sets_and_what_is_derived_of_several() -> None:
    own = replace(MEAN, measure="gap", name="a")  # a measure of a set is no column
    found = {entry.name: entry for entry in replace(WHOLE, derived=(*WHOLE.derived, own)).columns}
    assert [*found] == ["a", "b", "mean", "ratio"]
    assert (found["mean"].headline, found["mean"].block, found["mean"].images) == ("accuracy", "ab", 0)
    assert found["ratio"].headline == "relative_error"
    assert WHOLE.derivation("test/accuracy/mean") == MEAN
    assert WHOLE.derivation("test/accuracy/a") is None


def test_what_is_held_out_is_judged() -> None:
    other = replace(SETS[0], name="c", domain="photo")
    protocol = replace(WHOLE, sets=(*SETS, other), derived=(MONITOR,))
    assert [entry.name for entry in protocol.judged(())] == ["a", "b", "c"]
    assert [entry.name for entry in protocol.judged(("photo",))] == ["b", "c"]  # b shows no domain


def test_what_is_derived_of_tests_that_are_not_made_is_not_judged() -> None:
    later = replace(MEAN, name="later", inputs=("test/accuracy/mean",))
    apart = replace(MEAN, name="apart", inputs=("test/accuracy/b",))
    protocol = replace(WHOLE, derived=(MONITOR, MEAN, later, apart))
    assert [entry.name for entry in protocol.judged(("art",))] == ["a", "b", "mean", "later", "apart"]
    assert [entry.name for entry in protocol.judged(("photo",))] == ["b", "apart"]
    headline = Derived("test", "gap", "b", "difference", ("test/accuracy/b", "test/accuracy/a"))
    shown = replace(WHOLE, sets=(SETS[0], replace(SETS[1], headline="gap")), derived=(headline,))
    assert [entry.name for entry in shown.judged(("photo",))] == []
