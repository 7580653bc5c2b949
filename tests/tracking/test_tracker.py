"""A copy of a run folder is a new run; copies of finished results are sent once; a stranger's folder touches no run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.system import signature as signatures
from biasbed.system.signature import new_claim, signature
from biasbed.tracking import claims
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import RESULTS, SentElsewhere, Tracker
from helpers.runs import all_runs

ELSEWHERE = "another-boot another-namespace 1 1"  # a process of another machine


@pytest.fixture
def folder(tracking: str, tmp_path: Path) -> RunFolder:
    path = tmp_path / "home" / "folders" / "erm"
    path.mkdir(parents=True)
    return RunFolder(path)


def start(folder: RunFolder) -> Tracker:
    tracker = Tracker(folder)
    tracker.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    return tracker


def copied(folder: RunFolder, name: str = "copy") -> RunFolder:
    return RunFolder(Path(shutil.copytree(folder.path, folder.path.parents[1] / name / "erm")))


def row(step: int, time: int) -> dict[str, Any]:
    return {"step": step, "timestamp": time, "metrics": {"train/loss": 1.0 / step}}


def rows(uri: str, run_id: str) -> list[tuple[int, int]]:
    from mlflow import MlflowClient

    return [(metric.step, metric.timestamp) for metric in MlflowClient(uri).get_metric_history(run_id, "train/loss")]


def journal(folder: RunFolder) -> list[tuple[int, int]]:
    return [(boundary["step"], boundary["timestamp"]) for boundary in folder.read_journal()]


def end(tracker: Tracker) -> None:
    """As a signal would."""
    tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended")


# --- a folder that was copied before its training had ended -----------------------------------------------------------


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_copy_that_goes_on_gets_a_run_of_its_own_with_every_row_once(
    has_ended: bool, folder: RunFolder, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(folder)
    first.log(row(1, 100))
    if has_ended:
        end(first)
    copy = copied(folder)
    second = start(copy)
    assert second.run_id != first.run_id
    assert f"{copy.path} is a copy: it gets a run of its own, {first.run_id} stays" in capsys.readouterr().err
    first = start(folder) if has_ended else first
    first.log(row(2, 200))
    second.log(row(2, 201))
    for tracker in (first, second):
        tracker.finish()
        assert rows(tracking, tracker.run_id) == journal(tracker.folder)
    runs = all_runs(tracking)
    assert Counter(run.info.status for run in runs) == {"FINISHED": 2}
    assert len({run.data.tags[record.FOLDER_ID] for run in runs}) == 2


@pytest.mark.parametrize("lost", ["", "run.json", "id"])
def test_a_moved_folder_goes_on_with_its_run_whatever_it_has_lost(lost: str, folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    if lost:
        (folder.path / lost).unlink()
    moved = folder.path.with_name("moved")
    folder.path.rename(moved)
    assert start(RunFolder(moved)).run_id == first.run_id
    assert len(all_runs(tracking)) == 1


def test_a_folder_that_lost_both_files_gets_a_run_of_its_own(folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    for name in ("run.json", "id"):
        (folder.path / name).unlink()
    second = start(folder)
    second.finish()
    assert second.run_id != first.run_id
    assert rows(tracking, second.run_id) == [(1, 100)]


def test_a_run_with_rows_that_the_folder_lost_is_replaced(folder: RunFolder, tracking: str) -> None:
    """The last checkpoint is from before them: they come again, with another time."""
    first = start(folder)
    first.log(row(1, 100))
    end(first)
    second = Tracker(folder)
    second.restore([])
    second.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    second.log(row(1, 300))
    second.finish()
    (run,) = all_runs(tracking)
    assert (run.info.run_id, rows(tracking, run.info.run_id)) == (second.run_id, [(1, 300)])


def test_a_copy_that_lacks_records_deletes_no_run(folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    copy = copied(folder)
    first.log(row(2, 200))
    end(first)
    second = Tracker(copy)
    second.restore([])
    second.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    assert second.run_id != first.run_id
    assert {run.info.run_id for run in all_runs(tracking)} == {first.run_id, second.run_id}


# --- folders of strangers ---------------------------------------------------------------------------------------------


def test_no_run_is_touched_by_a_folder_that_claims_its_id(folder: RunFolder, tracking: str, tmp_path: Path) -> None:
    """Everybody can read the tags of a run on the server: the place on a disk is not among them."""
    victim = start(folder)
    victim.log(row(1, 100))
    (before,) = all_runs(tracking)
    folder_id = before.data.tags[record.FOLDER_ID]
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "id").write_text(f"{folder_id}\n{'0' * 16}\n")
    forged = {"tags": {record.FOLDER_ID: folder_id}, "tracking_uri": tracking, "run_id": victim.run_id}
    (other / "run.json").write_text(json.dumps(forged))
    assert start(RunFolder(other)).run_id != victim.run_id
    (run,) = [run for run in all_runs(tracking) if run.info.run_id == victim.run_id]
    assert (run.data.tags, run.info.status) == (before.data.tags, "RUNNING")


def test_no_run_is_deleted_for_results_that_were_read_from_it(folder: RunFolder, tracking: str, tmp_path: Path) -> None:
    """A sent run's journal can be rebuilt from its rows: its results are there already."""
    sent = finished_offline(folder)
    send(sent)
    (before,) = all_runs(tracking)
    other = RunFolder(tmp_path / "theirs")
    other.path.mkdir()
    for name in ("metrics.jsonl", "done"):
        shutil.copy(folder.path / name, other.path)
    tags = {**folder.read_state()["tags"], "evil": "yes"}
    other.write_state({"tags": tags, "params": {}, "experiment": "e", "run_id": before.info.run_id})
    with pytest.raises(SentElsewhere, match="its results were sent as run"):
        send(other)
    (after,) = all_runs(tracking)
    assert (after.data.tags, after.info.status) == (before.data.tags, "FINISHED")


def test_the_tags_of_a_folder_s_state_do_not_decide_whose_its_run_is(folder: RunFolder, tracking: str) -> None:
    finished_offline(folder)
    state = folder.read_state()
    forged = {claims.START: "1 host another", claims.IMPORT: "x", record.ORIGIN_RUN: "a" * 32, RESULTS: "x"}
    folder.write_state({**state, "tags": {**state["tags"], **forged}})
    send(folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, rows(tracking, run.info.run_id)) == ("FINISHED", [(1, 100)])
    assert run.data.tags[RESULTS] == folder.results
    assert not {claims.IMPORT, record.ORIGIN_RUN} & run.data.tags.keys()


# --- copies of finished results ---------------------------------------------------------------------------------------


def finished_offline(folder: RunFolder, time: int = 100) -> RunFolder:
    tracker = Tracker(folder, offline=True)
    tracker.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    tracker.log(row(1, time))
    tracker.finish()
    return folder


def send(folder: RunFolder) -> str:
    tracker = Tracker(folder)
    tracker.reopen()
    tracker.finish()
    return tracker.run_id


def test_copies_of_a_finished_folder_are_sent_once(folder: RunFolder, tracking: str) -> None:
    first, second = copied(finished_offline(folder)), copied(folder, "another")
    run_id = send(first)
    for copy in (second, folder):
        with pytest.raises(SentElsewhere, match=f"its results were sent as run {run_id}, by process"):
            send(copy)
        assert (copy.read_state()["sent"], copy.read_state()["run_id"]) == (True, run_id)
    assert [run.info.run_id for run in all_runs(tracking)] == [run_id]


def test_copies_that_were_continued_apart_are_sent_once_each(folder: RunFolder, tracking: str) -> None:
    for name, time in (("a", 100), ("b", 200)):
        copy = finished_offline(copied(folder, name), time)
        again = copied(copy, f"{name}-again")
        assert rows(tracking, send(copy)) == [(1, time)]
        with pytest.raises(SentElsewhere):
            send(again)
    assert Counter(run.info.status for run in all_runs(tracking)) == {"FINISHED": 2}


@pytest.mark.parametrize("who", ["first", "second"])
def test_of_two_copies_that_are_sent_at_once_one_is_left_alone(
    who: str, folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both open their runs before either has results."""
    folders = {"first": finished_offline(folder), "second": copied(folder)}
    trackers = {name: Tracker(folder) for name, folder in folders.items()}
    for tracker in trackers.values():
        tracker.reopen()
    assert len(all_runs(tracking)) == 2
    with monkeypatch.context() as patch:
        patch.setattr(signatures, "signature", lambda: ELSEWHERE)
        patch.setattr(trackers[who], "_send_files", lambda *names: None)
        other = trackers["second" if who == "first" else "first"]
        # The other one has claimed its run, and has not ended it, when this one begins to send its results.
        for name, value in {RESULTS: other.folder.results, claims.START: new_claim()}.items():
            other._client.set_tag(other.run_id, name, value)
    with pytest.raises(SentElsewhere, match="are being sent as run"):
        trackers[who].finish()
    assert [run.info.run_id for run in all_runs(tracking)] == [other.run_id]
    other.finish()
    with pytest.raises(SentElsewhere, match="were sent as run"):
        send(folders[who])
    (run,) = all_runs(tracking)
    assert (run.info.status, rows(tracking, run.info.run_id)) == ("FINISHED", [(1, 100)])


def test_a_run_that_a_killed_sync_left_holds_nothing_back(
    folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(finished_offline(folder))
    killed = Tracker(copy)
    killed.reopen()
    gone = " ".join([*signature().split()[:3], "1"])  # of a process that has ended
    with monkeypatch.context() as patch:
        patch.setattr(signatures, "signature", lambda: gone)
        for name, value in {RESULTS: copy.results, claims.START: new_claim()}.items():
            killed._client.set_tag(killed.run_id, name, value)
    run_id = send(folder)
    with pytest.raises(SentElsewhere, match=f"were sent as run {run_id}"):
        send(copy)
    (run,) = all_runs(tracking)
    assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
