"""What people read on MLflow's pages: a training's note, an experiment's, a study's row, a launched command's name."""

from __future__ import annotations

import contextlib
import statistics
import sys
from pathlib import Path

import pytest

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.tracking import folder as run_folder
from biasbed.tracking import notes, study_row
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.launched_run import launched
from biasbed.tracking.notes import NOTE, RUN_ID
from biasbed.tracking.server import experiment_for, experiment_id, impatient, resolve_uri, writer
from biasbed.tracking.system_metrics import SystemMetrics
from biasbed.tracking.tracker import Tracker
from helpers.compared import PROTOCOL, Store
from helpers.runs import all_runs

# --- a run's note -----------------------------------------------------------------------------------------------------


@pytest.fixture
def tracker(tracking: str, tmp_path: Path) -> Tracker:
    """Of a training that has begun."""
    folder = RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
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


def test_a_command_is_written_without_its_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    for storage in ("postgresql://alice:s3cr3t@db:5432/trials", "postgresql://db/trials?user=a&password=s3cr3t"):
        words = ["sweep", "--suite", "toy", "--storage", storage]
        monkeypatch.setattr(sys, "argv", ["/somewhere/biasbed", *words])
        told = notes.own_command()
        assert "s3cr3t" not in told
        assert "--storage" in told
        assert "://db" in told


def test_a_note_is_as_long_as_every_store_takes() -> None:
    assert len(notes.joined("a" * 5000, "", "b" * 5000)) < 8000
    assert notes.joined("a", "", "b") == "a\n\nb"


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


def test_a_study_s_row_is_of_exact_values_and_speaks_display_names(store: Store, tracking: str) -> None:
    place, own = study_with(store)
    values = (0.123449, 0.123449)
    for value in values:
        run = store.run(place, "deepaug_cae")
        store.client.log_metric(run, "best/shape_bias", round(value, 4), step=3)
        store.client.set_tag(run, record.BEST_VALUES, record.canonical_json({"best/shape_bias": value}))
        store.client.set_tag(run, record.DISPLAY_NAME, "DeepAugment (CAE)")
    study_row.refresh(tracking, "main")
    run = store.client.get_run(own)
    assert run.data.metrics["mean/shape_bias/deepaug_cae"] == round(values[0], 4)
    assert "| DeepAugment (CAE)" in run.data.tags[NOTE]
    assert notes.GUIDE in run.data.tags[NOTE]
    assert "DeepAugment (CAE) 12.34 ± 0.00" in store.client.get_experiment(place).tags[NOTE]


@pytest.mark.parametrize("tag", ["no JSON", "[1]", '{"best/shape_bias": "0.5"}'])
def test_exact_values_that_somebody_wrote_wrongly_are_ignored(tag: str, store: Store, tracking: str) -> None:
    place, own = study_with(store)
    run = store.run(place, "third")
    store.client.log_metric(run, "best/shape_bias", 0.25, step=3)
    store.client.set_tag(run, record.BEST_VALUES, tag)
    study_row.refresh(tracking, "main")
    assert store.client.get_run(own).data.metrics["mean/shape_bias/third"] == 0.25


def test_a_study_s_row_gets_rows_only_when_a_run_has_changed_something(store: Store, tracking: str) -> None:
    place, own = study_with(store)
    for _ in range(3):
        study_row.refresh(tracking, "main")
    assert len(store.client.get_metric_history(own, "progress/finished")) == 1
    store.run(place, "mine")
    study_row.refresh(tracking, "main")
    assert [row.value for row in store.client.get_metric_history(own, "progress/finished")] == [4, 5]


def test_a_study_s_note_of_somebody_s_own_is_left_alone(store: Store, tracking: str) -> None:
    _, own = study_with(store)
    study_row.refresh(tracking, "main")
    store.client.set_tag(own, NOTE, "mine")
    study_row.refresh(tracking, "main", "A headline.")
    assert store.client.get_run(own).data.tags[NOTE] == "mine"
    assert store.client.get_run(own).data.tags[study_row.HEADLINE] == "A headline."


def test_a_search_has_its_best_trials(store: Store, tracking: str) -> None:
    place = store.experiment("toy")
    own = store.client.create_run(place, tags={record.KIND: "study", record.STUDY: "main"}).info.run_id
    for value in (0.25, 0.75, 0.5):
        store.client.log_metric(store.run(place, kind="trial"), "best/val", value)
    study_row.refresh(tracking, "main")
    metrics = store.client.get_run(own).data.metrics
    assert metrics["best/val/erm"] == 0.75
    assert not any(name.startswith(("mean/", "deviation/")) for name in metrics)


def test_without_a_study_or_a_server_nothing_happens(tracking: str, store: Store, tmp_path: Path) -> None:
    store.run(store.experiment("toy"))
    study_row.refresh(tracking, "main")
    with impatient(2):
        study_row.refresh("http://127.0.0.1:9", "main")
    assert len(all_runs(tracking)) == 1


# --- the run of `mlflow run` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "error", "name"),
    [
        ({"source": "biasbed"}, None, "import biasbed"),
        ({"what": "check", "suite": "toy", "train": "auto"}, None, "import check toy"),
        ({"table": "paper", "dry_run": "yes"}, None, "import dry run paper"),
        ({}, UsageError("no such thing"), "refused: import"),
        ({"source": "x.zip"}, Failure("it is damaged"), "failed: import x.zip"),
    ],
)
def test_a_launched_command_names_its_run(
    flags: dict[str, str], error: Exception | None, name: str, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = writer(resolve_uri())
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with contextlib.nullcontext() if error is None else pytest.raises(type(error)), launched("import") as named:
        if flags:
            named(flags)
        if error is not None:
            raise error
    tags = client.get_run(run_id).data.tags
    assert tags["mlflow.runName"] == name
    assert tags.get(NOTE) == (None if error is None else str(error))


def test_a_launched_command_that_is_interrupted_ends_its_run_as_killed(
    tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = writer(resolve_uri())
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with contextlib.suppress(KeyboardInterrupt), launched("analyze") as named:
        named({"study": "main"})
        raise KeyboardInterrupt
    run = client.get_run(run_id)
    found = (run.info.status, run.data.tags["mlflow.runName"], run.data.tags[record.ENDED_BY])
    assert found == ("KILLED", "interrupted: analyze main", "SIGINT")


# --- the machine ------------------------------------------------------------------------------------------------------


def test_the_machine_is_measured_between_records() -> None:
    machine = SystemMetrics(every=0.01)
    first, second = machine.take_means(), machine.take_means()
    machine.close()
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_percentage"} <= set(first)
    assert set(first) == set(second)
    assert all(0 <= value <= 100 for name, value in first.items() if name.endswith("_percentage"))
