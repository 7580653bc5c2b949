"""Notes on MLflow's pages: of a training, an experiment and a study's row."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from biasbed import record
from biasbed.tracking import notes, study_row
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE, RUN_ID
from biasbed.tracking.server import experiment_for, experiment_id, writer
from biasbed.tracking.tracker import Tracker
from helpers.compared import PROTOCOL, Store
from helpers.runs import all_runs

# --- a run's note -----------------------------------------------------------------------------------------------------


@pytest.fixture
def tracker(tracking: str, tmp_path: Path) -> Tracker:
    """The tracker of a training that has begun."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    (folder.path / record.PROTOCOL_FILE).write_text(PROTOCOL.to_json())
    tracker = Tracker(folder)
    begin(tracker)
    return tracker


def begin(tracker: Tracker) -> None:
    tracker.start("erm-seed0", "toy", {record.KIND: "train"}, {}, about=f"What it is; run={RUN_ID}")


def note_of(uri: str) -> str | None:
    (run,) = all_runs(uri)
    return run.data.tags.get(NOTE)


def test_a_note_says_what_a_training_is_then_how_it_went(tracker: Tracker, tracking: str) -> None:
    about = f"What it is; run={tracker.run_id}"
    assert note_of(tracking) == about
    for step, value in enumerate((0.25, 0.75, 0.5), 1):
        better = {"best/shape_bias": value, "best/val": value} if value != 0.5 else {}
        tracker.log({"step": step, "timestamp": step, "metrics": {"val/accuracy/val": value, **better}})
    tracker.finish()
    note = note_of(tracking)
    assert note is not None
    result, table, again = note.split("\n\n")
    assert (result, again) == ("Epoch 2, the best by `val/accuracy/val`:", about)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert cells == [["shape bias", "val"], ["---", "---:"], ["75.00", "75.00"]]


def test_why_it_ended_stands_there_until_it_goes_on(tracker: Tracker, tracking: str) -> None:
    about = note_of(tracking)
    tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended by SIGTERM")
    assert note_of(tracking) == f"ended by SIGTERM\n\n{about}"
    begin(tracker)
    assert note_of(tracking) == about


def test_words_of_somebody_s_own_are_left_alone(tracker: Tracker, tracking: str) -> None:
    writer(tracking).set_tag(tracker.run_id, NOTE, "mine")
    tracker.abort("KILLED", {}, "ended")
    begin(tracker)
    tracker.finish()
    assert note_of(tracking) == "mine"


def test_a_command_is_written_as_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "--algorithm", "my method.py:Mine", "--seed", "1", "--resume", "never", "--sets", "auto"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/biasbed/__main__.py", *words])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told = "biasbed train --algorithm 'my method.py:Mine' --seed 1"
    assert notes.own_command() == told
    for another in (["/usr/bin/pytest", *words], ["/site-packages/pytest/__main__.py", "tests", "-n", "2"]):
        monkeypatch.setattr(sys, "argv", another)
        assert notes.own_command() == ""


# --- an experiment ----------------------------------------------------------------------------------------------------


def test_our_experiments_say_how_to_go_on(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = writer(tracking)
    own = client.get_experiment(experiment_id(client, tracking, "toy"))
    assert "mlflow run . -e analyze" in own.tags[NOTE]
    assert own.tags["mlflow.experimentKind"] == "custom_model_development"
    theirs = client.create_experiment("theirs", tags={NOTE: "my words"})
    for place, note in ((theirs, "my words"), ("0", None)):
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", place)
        assert experiment_for(client, tracking, "toy") == place
        assert client.get_experiment(place).tags.get(NOTE) == note


# --- a study's row ----------------------------------------------------------------------------------------------------

BIASES = {"erm": (0.2, 0.3), "mine": (0.4, 0.6)}


def study_with(store: Store, **more: str) -> tuple[str, str]:
    """(experiment, the study's run) of two methods with two runs each."""
    place = store.experiment("toy")
    tags = {record.KIND: "study", record.STUDY: "main", record.SUITE: "toy", **more}
    own = store.client.create_run(place, tags=tags).info.run_id
    for name, values in BIASES.items():
        for value in values:
            run = store.run(place, name)
            store.client.log_metric(run, "best/shape_bias", value, step=3)
            store.client.log_metric(run, "best/val", value / 2, step=3)
    store.run(place, "erm", status="FAILED")
    return place, own


def test_a_study_s_row_has_what_its_runs_reached(store: Store, tracking: str, tmp_path: Path) -> None:
    place, own = study_with(store)
    (tmp_path / "scores.png").write_bytes(b"a picture")
    study_row.refresh(tracking, "main", "Mine is better.", tmp_path)
    run = store.client.get_run(own)
    for name, values in BIASES.items():
        assert run.data.metrics[f"mean/shape_bias/{name}"] == round(statistics.fmean(values), 4)
        assert run.data.metrics[f"deviation/shape_bias/{name}"] == round(statistics.stdev(values), 4)
    assert (run.data.metrics["progress/finished"], run.data.metrics["progress/failed"]) == (4, 1)
    note = run.data.tags[NOTE]
    assert note.startswith("**Mine is better.**")
    rows = [line.split("|")[1].strip() for line in note.splitlines() if line.startswith("| ")]
    assert rows == ["", "---", "mine", "erm"]  # the highest shape bias stands first
    assert f"![scores](get-artifact?path=figures/scores.png&run_uuid={own})" in note
    assert f"(#/experiments/{place}/runs?workflowType=machine_learning&searchFilter=tags.%60biasbed.kind%60" in note
    assert [entry.path for entry in store.client.list_artifacts(own, "figures")] == ["figures/scores.png"]
    line = store.client.get_experiment(place).tags[NOTE].splitlines()[0]
    assert line.startswith("Study **main**, shape bias: mine 50.00 ± 14.14, erm 25.00 ± 7.07. [Compare as a table](#/")


def test_a_search_has_its_best_trials(store: Store, tracking: str) -> None:
    place = store.experiment("toy")
    own = store.client.create_run(place, tags={record.KIND: "study", record.STUDY: "main"}).info.run_id
    for value in (0.25, 0.75, 0.5):
        store.client.log_metric(store.run(place, kind="trial"), "best/val", value)
    study_row.refresh(tracking, "main")
    metrics = store.client.get_run(own).data.metrics
    assert metrics["best/val/erm"] == 0.75
    assert not any(name.startswith(("mean/", "deviation/")) for name in metrics)
