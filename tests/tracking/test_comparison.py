"""Links to the comparison in MLflow's pages: which runs they show, in which order, and what is said beside them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from biasbed import record
from biasbed.config import Config
from biasbed.studies import study as tracked
from biasbed.tracking import comparison
from biasbed.tracking.comparison import scope_of
from helpers.compared import PROTOCOL, Store, compared, protocol

# --- short names ------------------------------------------------------------------------------------------------------


def test_short_names_are_of_what_counts_shape_bias_first() -> None:
    assert PROTOCOL.best == {
        "best/shape_bias": "test/shape_bias/cue_conflict",
        "best/silhouette": "test/accuracy/silhouette",
        "best/cue_conflict": "test/accuracy/cue_conflict",
        "best/val": "val/accuracy/val",
    }
    assert not any(record.parse_metric(name) for name in PROTOCOL.best)  # nobody takes them for measurements
    assert "best/shape_bias" not in protocol("a", "b").best
    assert not record.Protocol("toy", (), (), (), monitor="").best


def test_short_names_stay_apart() -> None:
    two = protocol("a", "b", cues=("a", "b")).best
    assert two["best/shape_bias:a"] == "test/shape_bias/a"
    assert two["best/shape_bias:b"] == "test/shape_bias/b"
    named = protocol("shape_bias", "b", cues=("b",)).best
    assert named["best/shape_bias"] == "test/accuracy/shape_bias"
    assert named["best/shape_bias:b"] == "test/shape_bias/b"
    on_a_set = protocol("a", "b", monitor="val/accuracy/a").best
    assert on_a_set == {"best/b": "test/accuracy/b", "best/a": "val/accuracy/a"}


# --- the links --------------------------------------------------------------------------------------------------------


def test_a_link_has_the_runs_that_may_be_compared_best_first() -> None:
    assert compared().query == {
        "searchFilter": (
            "tags.`biasbed.kind` = 'train' and tags.`biasbed.suite` = 'toy' and tags.`biasbed.study` = 'main' and "
            f"tags.`biasbed.protocol` = '{PROTOCOL.hash}' and attributes.status = 'FINISHED'"
        ),
        "orderByKey": "metrics.`best/shape_bias`",
        "orderByAsc": "false",
    }
    assert compared("trial").query["orderByKey"] == "metrics.`best/val`"  # what decides a search
    assert compared("published").query["orderByKey"] == "metrics.`test/accuracy/silhouette`"


def test_a_study_says_how_to_see_its_runs(store: Store, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = store.experiment("toy")
    for algorithm, more in (("erm", {}), ("mine", {}), ("broken", {"status": "FAILED"}), ("else", {"study": "other"})):
        store.run(experiment, algorithm, **more)
    before = store.client.get_experiment(experiment).tags
    comparison.offer_study(tracking, "main")
    first, table, curves = capsys.readouterr().out.splitlines()
    command = first.partition("start them: ")[2].removesuffix("):")
    assert shlex.split(command) == ["mlflow", "ui", "--backend-store-uri", tracking]
    address, _, link = table.removeprefix("  table:  ").partition("?")
    assert address == f"http://127.0.0.1:5000/#/experiments/{experiment}/runs"
    query = {name: values[0] for name, values in parse_qs(link).items()}
    assert query == {"workflowType": "machine_learning", **compared().query}
    assert curves == f"  curves: {address}?{link}&compareRunsMode=CHART"
    found = store.client.search_runs([experiment], query["searchFilter"])
    assert sorted(run.data.tags[record.ALGORITHM] for run in found) == ["erm", "mine"]
    assert store.client.get_experiment(experiment).tags == before


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(PROTOCOL.to_json()), **values}).encode()


# What somebody may have put in place of a run's protocol.
ODD = {
    "no text": b"\xff\xfe{",
    "endless": b"[" * 100_000,
    "too little": b'{"suite": 1}',
    "an unknown entry": changed(rule="x"),
    "sets that are words": changed(sets=["edge"]),
    "images without end": changed(sets=[{**json.loads(PROTOCOL.to_json())["sets"][0], "images": 10**400}]),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_an_odd_protocol_is_a_value_error_of_one_line(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        record.Protocol.from_json(text.decode(errors="replace"))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["no text", "too little", "endless", "sets that are words"])
def test_an_odd_protocol_costs_a_study_a_line_and_not_its_note(
    name: str, store: Store, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.run(store.experiment("toy"), protocol=ODD[name])
    with tracked.open_study(tmp_path / "main", "main", "toy", Config(), {}) as study:
        study.status = "FINISHED"
    note = json.loads((tmp_path / "main" / tracked.NOTE).read_text())
    assert (note["status"], note["sent"]) == ("FINISHED", True)
    printed = capsys.readouterr()
    assert printed.out.startswith("This study: run ")
    assert len(printed.out.splitlines()) == len(printed.err.splitlines()) == 1
    assert printed.err.startswith("warning: no link to compare the runs in MLflow's pages: ")


def test_runs_that_are_tested_alike_share_a_table_whatever_they_started_from() -> None:
    known = {record.KIND: "train", record.SUITE: "toy", record.STUDY: "s", record.PROTOCOL_HASH: "a"}
    assert scope_of(known) == known  # a run from before
    alike = scope_of({**known, record.TESTED: "t"})
    assert alike == scope_of({**known, record.TESTED: "t", record.PROTOCOL_HASH: "b"}) != scope_of(known)
