"""A folder's run on a server: copies, strangers, lost answers, and how a run ends."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from biasbed import record
from biasbed.errors import Failure
from biasbed.system.processes import end_by_signal
from biasbed.tracking import server
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import RESULTS, SentElsewhere, Tracker, ends_run
from biasbed.training.sync import send_unless_sent
from helpers.runs import all_runs


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


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_run_whose_loss_was_no_number_ends_as_any_other(value: float, folder: RunFolder, tracking: str) -> None:
    tracker = start(folder)
    tracker.log({"step": 1, "timestamp": 100, "metrics": {"train/loss": value}})
    tracker.log(row(2, 200))
    tracker.finish()
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert rows(tracking, run.info.run_id) == [(1, 100), (2, 200)]
    assert run.data.tags[RESULTS] == RunFolder(folder.path).results != ""


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


def test_a_moved_folder_goes_on_with_its_run(folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    moved = folder.path.with_name("moved")
    folder.path.rename(moved)
    assert start(RunFolder(moved)).run_id == first.run_id
    assert len(all_runs(tracking)) == 1


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
    forged = {record.IMPORT: "x", record.ORIGIN_RUN: "a" * 32, RESULTS: "x"}
    folder.write_state({**state, "tags": {**state["tags"], **forged}})
    send(folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, rows(tracking, run.info.run_id)) == ("FINISHED", [(1, 100)])
    assert run.data.tags[RESULTS] == folder.results
    assert not {record.IMPORT, record.ORIGIN_RUN} & run.data.tags.keys()


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
        with pytest.raises(SentElsewhere, match=f"its results were sent as run {run_id}"):
            send(copy)
        assert (copy.read_state()["sent"], copy.read_state()["run_id"]) == (True, run_id)
    assert [run.info.run_id for run in all_runs(tracking)] == [run_id]


def test_the_second_of_two_copies_that_were_open_at_once_is_left_alone(folder: RunFolder, tracking: str) -> None:
    """Both open their runs before either has results."""
    first, second = Tracker(finished_offline(folder)), Tracker(copied(folder))
    for tracker in (first, second):
        tracker.reopen()
    assert len(all_runs(tracking)) == 2
    first.finish()
    with pytest.raises(SentElsewhere, match=f"were sent as run {first.run_id}"):
        second.finish()
    (run,) = all_runs(tracking)
    assert (run.info.run_id, run.info.status) == (first.run_id, "FINISHED")


@pytest.fixture
def tracker(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Tracker of a run that has begun."""
    monkeypatch.setattr("biasbed.tracking.tracker.RETRY_AFTER", 0.03)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    tracker = Tracker(folder)
    tracker.start("name", "experiment", {"biasbed.kind": "train"}, {"epochs": 1})
    return tracker


def failing_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The client's next request of this name is answered by 503."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    request, failed = getattr(MlflowClient, name), []

    def answered(self: MlflowClient, *arguments: object, **keywords: object) -> object:
        if not failed:
            failed.append(name)
            raise MlflowException("503 Service Unavailable")
        return request(self, *arguments, **keywords)

    monkeypatch.setattr(MlflowClient, name, answered)


@pytest.mark.parametrize("request_name", ["set_terminated", "get_run", "log_artifact"])
def test_one_request_that_fails_at_the_end_does_not_change_how_it_ended(
    request_name: str, tracker: Tracker, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tracker.folder.path / record.BEST_CHECKPOINT).write_bytes(b"weights")
    failing_once(monkeypatch, request_name)
    tracker.finish(lambda run_id: None)
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert tracker.folder.read_state()["sent"]


def test_a_disk_that_is_full_when_all_is_sent_does_not_change_how_it_ended(
    tracker: Tracker, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state = RunFolder.write_state

    def write_and_fail(folder: RunFolder, state: dict[str, Any]) -> None:
        write_state(folder, state)
        if state.get("sent"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "write_state", write_and_fail)
    with pytest.raises(Failure, match="No space left"), ends_run(tracker):
        tracker.finish()
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert record.ERROR not in run.data.tags


def test_a_sync_that_fails_ends_the_run_that_it_opened(
    tracker: Tracker, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric that the server refuses is one way; the next sync would open another run, without end."""
    folder = tracker.folder
    folder.mark_done()
    folder.append_journal({"step": 1, "timestamp": 1, "metrics": {"a\nb": 1.0}})
    for _ in range(2):
        with pytest.raises(Failure):
            send_unless_sent(folder)
        (run,) = all_runs(tracking)
        assert run.info.status == "FAILED"
        assert "Invalid" in run.data.tags[record.ERROR]


def test_a_sync_that_a_signal_ends_ends_the_run_that_it_opened(
    tracker: Tracker, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.folder.mark_done()
    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "_send_results", lambda self: end_by_signal(signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt):
            send_unless_sent(tracker.folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, run.data.tags[record.ENDED_BY]) == ("KILLED", "SIGTERM")
    assert send_unless_sent(tracker.folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, record.ENDED_BY in run.data.tags) == ("FINISHED", False)


def start_named(folder: RunFolder, **options: Any) -> Tracker:
    tracker = Tracker(folder, **options)
    tracker.start("name", "experiment", {"biasbed.kind": "train"}, {"epochs": 1})
    return tracker


def test_a_twin_of_an_earlier_start_is_removed_and_nothing_else(tracking: str, tmp_path: Path) -> None:
    """An import of the folder's run has its tags, too."""
    from mlflow import MlflowClient

    client, folder = MlflowClient(tracking), RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    tracker = start_named(folder)
    same = {record.FOLDER_ID: folder.read_state()["tags"][record.FOLDER_ID]}
    others = ({record.FOLDER_ID: "0123456789abcdef"}, {**same, record.ORIGIN_RUN: "x"})
    twin, *kept = (client.create_run("0", tags=tags).info.run_id for tags in (same, *others))
    again = start_named(folder)
    assert again.run_id == tracker.run_id
    assert {run.info.run_id for run in all_runs(tracking)} == {tracker.run_id, *kept}
    assert client.get_run(twin).info.lifecycle_stage == "deleted"


def test_a_kill_before_the_answer_leaves_one_run(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was sent twice, and no answer came before the training was killed."""
    from mlflow import MlflowClient

    folder, create = RunFolder(tmp_path / "run"), MlflowClient.create_run

    def unanswered(self: MlflowClient, *arguments: Any, **keywords: Any) -> Any:
        for _ in range(2):
            create(self, *arguments, **keywords)
        raise KeyboardInterrupt

    folder.path.mkdir(parents=True)
    with monkeypatch.context() as killed:
        killed.setattr(MlflowClient, "create_run", unanswered)
        with pytest.raises(KeyboardInterrupt):
            start_named(folder)
    assert len(all_runs(tracking)) == 2
    tracker = start_named(folder)
    (run,) = all_runs(tracking)
    assert run.info.run_id == tracker.run_id


@pytest.fixture
def hanging() -> Iterator[str]:
    """A server that takes every request and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_the_end_waits_no_longer_than_it_says(
    tracking: str,
    hanging: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve_at: Callable[[str], None],
) -> None:
    monkeypatch.setattr("biasbed.tracking.tracker.PATIENCE", 3.0)
    monkeypatch.setattr("biasbed.tracking.tracker.RETRY_AFTER", 1.5)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    tracker = start_named(folder)
    serve_at(hanging)
    tracker.uri = hanging
    folder.write_state({**folder.read_state(), "tags": {**folder.read_state()["tags"], record.ERROR: "once"}})
    allowed: list[float] = []  # seconds that requests were given, one after the other
    within = server.impatient
    monkeypatch.setattr(
        "biasbed.tracking.tracker.impatient", lambda seconds: allowed.append(seconds) or within(seconds)
    )
    with pytest.raises(Failure, match="does not answer; all is kept in"):
        tracker.finish()
    assert 0 < sum(max(1.0, seconds) for seconds in allowed) < 3 * 3.0
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "3"
    with server.impatient(1000):
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "30"  # as configured


def test_a_password_stays_out_of_the_folder(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is told apart by its address; a new password is the same server."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(parents=True)
    for uri in ("http://alice:s3cret@127.0.0.1:1/x", "http://alice:other@127.0.0.1:1/x"):
        tracker = start_named(folder, offline=True)
        tracker.uri, tracker.offline = uri, False
        monkeypatch.setattr(tracker, "_send_everything", lambda state: None)
        monkeypatch.setattr(tracker, "_own_runs", lambda state: [])
        monkeypatch.setattr(type(tracker), "_client", MagicMock())
        monkeypatch.setattr(tracker, "_create_run", lambda state: "a" * 32)
        monkeypatch.setattr(tracker, "_reopen_run", lambda known: known)
        tracker._open(folder.read_state())
        assert tracker.run_id == "a" * 32
    assert "s3cret" not in "".join(path.read_text() for path in folder.path.iterdir())
    assert folder.read_state()["tracking_uri"] == "http://127.0.0.1:1/x"
