"""Rows on cells, joined into one table: synthetic runs on a tracking server, whose table can be read off."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from biasbed import record
from biasbed.analysis.columns import Column, blocks
from biasbed.analysis.inputs import _choose_columns
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.comparable import columns_of
from biasbed.analysis.runs.run import TrainedOn
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError
from helpers.toy_runs import Recorder, make_protocol

pytestmark = pytest.mark.usefixtures("without_evidence")

STEPS = 3


def shades(severity: str, **changes: Any) -> record.Protocol:
    """A data set of two severities: one test set, whose headline is derived of two groups."""
    score = record.Derived(
        *("test", "ac_score", "shades", "harmonic_mean"),
        inputs=("test/accuracy/shades:aligned", "test/accuracy/shades:conflicting"),
        block="shades",
    )
    set_record = record.SetRecord(
        *("shades", "ac_score", 100, 2, 0.0),
        groups={"aligned": 50, "conflicting": 50},
        roles={"aligned": {"alignment": "aligned"}, "conflicting": {"alignment": "conflicting"}},
        block="shades",
    )
    values: dict[str, Any] = dict(
        suite="toy",
        sets=(set_record,),
        training_sets=(f"shades_{severity}",),
        validation_sets=("val",),
        monitor="val/accuracy/val",
        derived=(score,),
    )
    return record.Protocol(**(values | changes))


def plain(name: str, **changes: Any) -> record.Protocol:
    """A data set without anything special."""
    values: dict[str, Any] = dict(
        suite="toy",
        sets=(record.SetRecord(name, "accuracy", 100, 2, 0.5),),
        training_sets=(name,),
        validation_sets=("val",),
        monitor="val/accuracy/val",
    )
    return record.Protocol(**(values | changes))


def add(
    recorder: Recorder,
    row: str,
    cell: str,
    protocol: record.Protocol,
    values: Mapping[str, float],
    seeds: Sequence[int] = (0, 1),
    **tags: str,
) -> None:
    """Runs whose metrics of test sets have these values at every step, and a hundredth more with each seed."""
    for seed in seeds:
        key = record.digest([row, cell, seed])
        recorder.train(
            "erm" if row.startswith("r") else row,
            seed,
            {},
            monitor=[0.1, 0.3, 0.2],
            protocol=protocol,
            study="cells",
            settings={"backbone": row},
            metrics={name: [value + seed / 100] * STEPS for name, value in values.items()},
            **{record.ROW: row, record.CELL: cell, record.RUN_KEY: key, record.TESTED: protocol.tested, **tags},
        )


def ac(aligned: float, conflicting: float) -> dict[str, float]:
    return {"test/accuracy/shades:aligned": aligned, "test/accuracy/shades:conflicting": conflicting}


def analysis_of(recorder: Recorder, **options: object) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study="cells", bootstrap=200, **options))


def means(analysis: Analysis) -> dict[tuple[str, str], float]:
    scores = analysis.scores
    return {(a, d): m for a, d, m in zip(scores["algorithm"], scores["dataset"], scores["mean"], strict=True)}


def fill(recorder: Recorder, rows: Sequence[str] = ("r18", "r50", "lff")) -> None:
    """Rows on shades of two severities, of which the second has no bias labels, and on another data set."""
    for number, row in enumerate(rows):
        better = number / 10
        provides = {record.PROVIDES: "bias", record.NEEDS: "bias" if row == "lff" else ""}
        add(recorder, row, "shades_1", shades("1"), ac(0.9, 0.3 + better), **provides)
        if row != "lff":
            add(recorder, row, "shades_5", shades("5"), ac(0.8, 0.4 + better))
        add(recorder, row, "other", plain("other"), {"test/accuracy/other": 0.5 + better}, **provides)


def harmonic(aligned: float, conflicting: float) -> float:
    return 100 * 2 * aligned * conflicting / (aligned + conflicting)


def test_cells_are_columns_of_one_table_and_their_data_sets_are_its_blocks(recorder: Recorder) -> None:
    """One method stands there twice, in rows of their own; the score is derived of groups, as it was not logged."""
    fill(recorder, ["r18", "r50"])
    analysis = analysis_of(recorder)
    assert analysis.set_names == ("other", "shades_1", "shades_5")
    table = means(analysis)
    mild = (harmonic(0.9, 0.3) + harmonic(0.91, 0.31)) / 2
    assert table["r18", "shades_1"] == pytest.approx(mild)
    assert table["r50", "other"] == pytest.approx(60.5)
    (comparison,) = analysis.comparisons
    assert comparison.sets == ("other", "shades")
    (block,) = analysis.blocks[analysis.blocks["algorithm"] == "r18"].to_dict("records")
    hard = (harmonic(0.8, 0.4) + harmonic(0.81, 0.41)) / 2
    assert (block["dataset"], block["mean"]) == ("shades", pytest.approx((mild + hard) / 2))


def test_a_cell_without_what_a_method_needs_is_not_applicable(recorder: Recorder) -> None:
    fill(recorder)
    analysis = analysis_of(recorder)
    assert analysis.not_applicable == {("lff", "shades_5"): frozenset({"bias"})}
    assert any(
        note == "LfF is not applicable on shades_5: it needs bias labels of the training images"
        for note in analysis.notes
    )
    settings = {comparison.setting: comparison for comparison in analysis.comparisons}
    assert (settings["all"].sets, settings["all"].left_out) == (("other",), ("shades",))
    assert (settings["complete"].algorithms, settings["complete"].sets) == (("r18", "r50"), ("other", "shades"))
    lost = analysis.scores[analysis.scores["num_runs"] == 0]
    assert lost[["algorithm", "dataset"]].to_numpy().tolist() == [["lff", "shades_5"]]


def test_what_a_study_left_out_is_not_applicable(recorder: Recorder) -> None:
    """A method's own training data may lack what the cell's other runs have."""
    fill(recorder, ["r18", "r50"])
    has = {record.PROVIDES: "bias", record.NEEDS: "bias"}
    add(recorder, "lff", "other", plain("other"), {"test/accuracy/other": 0.6}, **has)
    add(recorder, "lff", "shades_1", shades("1"), ac(0.9, 0.5), **has)
    for cell, protocol in (("other", plain("other")), ("shades_1", shades("1")), ("shades_5", shades("5"))):
        values = {"test/accuracy/other": 0.6} if cell == "other" else ac(0.9, 0.5)
        add(recorder, "r101", cell, protocol, values, **{record.PROVIDES: "bias"})
    with pytest.raises(Failure, match="lff on shades_5: no run"):
        analysis_of(recorder)
    study = recorder.client.create_run(
        recorder.experiment, tags={record.KIND: "study", record.STUDY: "cells", record.SUITE: "toy"}
    )
    noted = record.canonical_json({"lff": {"shades_5": ["bias"], "other": ["bias"]}})
    recorder.client.log_text(study.info.run_id, noted, record.NOT_APPLICABLE_FILE)
    stranger = recorder.client.create_run(
        recorder.experiment, tags={record.KIND: "study", record.STUDY: "cells", record.SUITE: "toy"}
    )
    recorder.client.log_text(stranger.info.run_id, "[" * 5000, record.NOT_APPLICABLE_FILE)
    analysis = analysis_of(recorder)
    assert analysis.not_applicable == {("lff", "shades_5"): frozenset({"bias"})}
    assert [note for note in analysis.notes if stranger.info.run_id in note and "can't be read" in note]


def test_what_can_t_be_derived_is_missing_and_says_of_what(recorder: Recorder) -> None:
    add(recorder, "r18", "shades_1", shades("1"), {"test/accuracy/shades:aligned": 0.5})
    with pytest.raises(Failure, match="it is derived of test/accuracy/shades:conflicting, which is missing"):
        analysis_of(recorder)


def test_a_model_that_is_tested_alike_is_a_row(recorder: Recorder) -> None:
    """Whatever its preprocessing; nothing is to be chosen, so every rule takes it as it is."""
    protocol = plain("other")
    sets = (dataclasses.replace(protocol.sets[0], preprocessing="short side 232"),)
    tested = dataclasses.replace(protocol, sets=sets, validation_sets=(), monitor="", training_sets=("none",))
    otherwise = plain("other", sets=(dataclasses.replace(protocol.sets[0], label_map="16"),), monitor="")
    add(recorder, "r18", "", protocol, {"test/accuracy/other": 0.5})
    kind = {record.KIND: "evaluate", record.TESTED: protocol.tested, record.WEIGHTS: "abc"}
    add(recorder, "vit", "", tested, {"test/accuracy/other": 0.7}, [0], **kind)
    add(recorder, "swin", "", otherwise, {"test/accuracy/other": 0.9}, [0], **{record.KIND: "evaluate"})
    add(recorder, "r18", "", tested, {"test/accuracy/other": 0.8}, [3], **kind)
    analysis = analysis_of(recorder)
    assert means(analysis) == {("r18", "other"): pytest.approx(50.5), ("vit", "other"): pytest.approx(70.0)}
    assert "left out, for they are tested otherwise: tests of swin" in analysis.notes
    assert "left out, for a trained row is called so (row= gives a name): tests of r18" in analysis.notes


def test_of_models_that_are_only_tested_nothing_was_chosen(recorder: Recorder) -> None:
    tested = dataclasses.replace(plain("other"), validation_sets=(), monitor="", training_sets=("none",))
    for row in ("vit", "swin"):
        add(recorder, row, "", tested, {"test/accuracy/other": 0.7}, [0], **{record.KIND: "evaluate"})
    analysis = analysis_of(recorder)
    assert (analysis.rule.name, analysis.rule.label) == ("as_tested", "as tested")
    assert set(analysis.selection["rule"]) == set(analysis.choices["rule"]) == {"as_tested"}


def test_rows_may_start_from_other_weights_one_row_may_not(recorder: Recorder) -> None:
    """Runs that are tested alike may stand in one table; a row is one model."""
    pretrained = plain("other", start="named:x")
    add(recorder, "r18", "", plain("other"), {"test/accuracy/other": 0.5})
    add(recorder, "r50", "", pretrained, {"test/accuracy/other": 0.7})
    assert len(means(analysis_of(recorder))) == 2
    add(recorder, "r50", "", plain("other"), {"test/accuracy/other": 0.6}, [2])
    with pytest.raises(UsageError, match="several things could be analysed"):
        analysis_of(recorder)


def test_a_block_s_or_cell_s_name_stands_for_its_columns(recorder: Recorder) -> None:
    fill(recorder, ["r18", "r50"])
    assert analysis_of(recorder, sets="shades").set_names == ("shades_1", "shades_5")
    columns = columns_of([TrainedOn("x", make_protocol(("a", "b"))), TrainedOn("y", make_protocol(("a", "b")))])
    assert [column.name for column in _choose_columns(columns, ("y",))] == ["y-a", "y-b"]
    with pytest.raises(UsageError, match="sets=shade: there is no evaluation set 'shade'; did you mean 'shades'"):
        analysis_of(recorder, sets="shade")


def test_a_set_that_is_tested_at_other_steps_is_not_applicable_under_the_rule(recorder: Recorder) -> None:
    """One that is tested at the end alone, while the monitor chose the second step."""
    late = (*plain("other").sets, record.SetRecord("late", "accuracy", 10, 2, 0.5))
    for row in ("r18", "r50"):
        for seed in (0, 1):
            recorder.train(
                "erm",
                seed,
                {"other": [0.4, 0.5, 0.6]},
                monitor=[0.1, 0.3, 0.2],
                protocol=plain("other", sets=late),
                study="cells",
                metrics={"test/accuracy/late": [0.7]},
                **{record.ROW: row, record.RUN_KEY: f"{row}{seed}"},
            )
    analysis = analysis_of(recorder)
    assert analysis.set_names == ("other",)
    assert "late is not applicable under this rule: not tested at step 1 (tested at 0)" in analysis.notes
    assert analysis_of(recorder, selection="best_epoch").set_names == ("other", "late")


def test_a_block_s_value_is_the_column_of_its_name_else_the_mean_of_all() -> None:
    entries = [record.SetRecord(name, "accuracy", 10, 2, 0.5, block="b") for name in ("one", "two")]
    ratio = record.SetRecord("b", "mce", 10, 2, 0.0, higher_is_better=False, block="b")
    columns = [*(Column(set_record.name, set_record) for set_record in entries), Column("b", ratio, unit="ratio")]
    assert blocks(columns) == {"b": (columns[2],)}
    assert blocks(columns[:2]) == {"b": tuple(columns[:2])}
    unlike = Column("other", dataclasses.replace(ratio, name="other"), unit="ratio")
    with pytest.raises(Failure, match=r"the columns of 'b' have no common mean: accuracy \(%\) and mce \(ratio\)"):
        blocks([*columns[:2], unlike])
