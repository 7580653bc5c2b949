"""The BiasBed paper's results as package data: every number of the file is imported, once, as the contract has runs."""

from __future__ import annotations

import csv
import json

import pytest
from mlflow import MlflowClient

from biasbed import record
from biasbed.analysis.runs.store import RunStore
from biasbed.published import BIASBED, import_runs
from helpers.commands import ROOT

pytestmark = pytest.mark.usefixtures("tracking")  # what is read is cached there, and not in the user's home


def _text() -> str:
    return (ROOT / "src/biasbed/published/biasbed_runs.csv").read_text()


def test_every_number_of_the_file_is_imported() -> None:
    rows = list(csv.DictReader(_text().splitlines()))
    runs = {(run.rule, run.algorithm, run.number): run for run in BIASBED.runs()}
    assert len(rows) == 1580
    for row in rows:
        rule = {"last_30": "last_n"}.get(row["selection"], row["selection"])
        score = runs[rule, row["algorithm"], row["run"]].scores[row["dataset"]]
        assert f"{100 * score:.1f}" == row["accuracy"]


def test_importing_again_imports_nothing(published_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs("biasbed", published_uri) == 0
    assert "nothing new: all 158 runs" in capsys.readouterr().out


def test_an_import_that_was_cut_short_is_completed(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [run for run in BIASBED.runs() if run.algorithm == "erm" and run.number in ("1", "2")]
    monkeypatch.setattr(type(BIASBED), "runs", lambda source: few)
    assert import_runs("biasbed", tracking) == 4
    first = RunStore(tracking).runs("published")[0]
    MlflowClient(tracking).update_run(first.info.run_id, status="RUNNING")
    assert import_runs("biasbed", tracking) == 1
    runs = RunStore(tracking).runs("published")
    assert len({run.data.tags[record.RUN_KEY] for run in runs}) == len(runs) == 4


def test_runs_are_as_the_contract_has_them(published_uri: str) -> None:
    store = RunStore(published_uri)
    runs = {run.info.run_name: run for run in store.runs("published")}
    run = runs["deepaug_cae-3-last_n"]
    assert json.loads(run.data.tags[record.TRAINING_DATA]) == {"imagenet": 0.5, "deepaug_cae": 0.5}
    assert run.data.tags[record.SELECTION_N] == "30"
    assert "2211.13190" in run.data.tags[record.SOURCE]
    there = {(r.rule, r.algorithm, r.number): r for r in BIASBED.runs()}
    assert run.data.metrics["test/accuracy/edge"] == there["last_n", "deepaug_cae", "3"].scores["edge"]
    text = store.text(run.info.run_id, record.PROTOCOL_FILE)
    assert text is not None
    assert record.Protocol.from_json(text).hash == run.data.tags[record.PROTOCOL_HASH]
