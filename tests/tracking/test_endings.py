"""End of a run on a server that fails for a moment: the same, whichever request failed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from biasbed import record
from biasbed.errors import Failure
from biasbed.evaluation import models
from biasbed.system.processes import end_by
from biasbed.tracking import folder as run_folder
from biasbed.tracking import server
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker
from biasbed.training import recovery
from biasbed.training.sync import model_logger, send_unless_sent
from helpers.runs import all_runs


@pytest.fixture
def tracker(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Tracker of a run that has begun."""
    monkeypatch.setattr("biasbed.tracking.tracker.RETRY_AFTER", 0.03)
    folder = RunFolder(tmp_path / "run")
    run_folder.make_folder(folder.path)
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


@pytest.mark.parametrize("request_name", ["log_batch", "get_run"])
def test_a_run_that_can_t_be_described_is_ended_all_the_same(
    request_name: str, tracker: Tracker, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, request_name)
    tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended")
    (run,) = all_runs(tracking)
    assert run.info.status == "KILLED"


def test_a_short_request_is_made_once_more_within_its_time() -> None:
    with server.impatient(20):
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "1"
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"


@pytest.mark.parametrize("owes", [True, False])
def test_a_model_that_is_owed_is_logged_alone_and_once(
    owes: bool, tracker: Tracker, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `sync algorithm=`, after `sync` alone could send the rest only; the run ends when it did."""
    from mlflow import MlflowClient

    logged = []

    def log(best: Path, run_id: str, uri: str, named: str = "auto", register: str = "none") -> None:
        if named == "auto":
            raise Failure("the method is not one of biasbed's")
        logged.append((run_id, named))

    monkeypatch.setattr(models, "log_model", log)
    folder = tracker.folder
    state = folder.read_state()
    folder.write_state({**state, "params": {**state["params"], "config/algorithm": "own.py:Mine"}})
    tracker.finish(model_logger(folder, tracker, "auto") if owes else None)
    (before,) = all_runs(tracking)
    assert not send_unless_sent(folder)
    monkeypatch.setattr(MlflowClient, "log_artifact", lambda *_: pytest.fail("sent again"))
    assert send_unless_sent(folder, named="own.py:Mine") == owes
    assert not send_unless_sent(folder, named="own.py:Mine")
    assert logged == ([(tracker.run_id, "own.py:Mine")] if owes else [])
    (after,) = all_runs(tracking)
    assert (after.info.status, after.info.end_time) == ("FINISHED", before.info.end_time)


@pytest.mark.parametrize("register", ["none", "another", "prod"])
def test_a_model_is_registered_only_under_a_name_that_the_user_gives(
    register: str, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder's settings may be a stranger's: they must not give a registered model a new version."""
    registered = []
    monkeypatch.setattr(models, "log_model", lambda *_, register, **__: registered.append(register))
    monkeypatch.setattr(recovery, "reopen_if_lost", lambda folder: None)  # the folder has no protocol
    folder = tracker.folder
    state = folder.read_state()
    params = {**state["params"], "config/register": "prod", "config/log_model": "true"}
    tracker.log({"step": 1, "timestamp": 1, "metrics": {"train/loss": 1.0}})
    tracker.finish()
    folder.write_state({**folder.read_state(), "params": params, "sent": False})
    assert send_unless_sent(folder, register=register)
    assert registered == ["prod" if register == "prod" else "none"]
    assert ("`sync register=prod` does" in capsys.readouterr().err) == (register != "prod")


def test_a_sync_that_fails_ends_the_run_that_it_opened(
    tracker: Tracker, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric that the server refuses is one way; the next sync would open another run, without end."""
    monkeypatch.setattr(recovery, "mend_description", lambda folder: None)
    monkeypatch.setattr(recovery, "reopen_if_lost", lambda folder: None)  # the folder has no protocol
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
    monkeypatch.setattr(recovery, "mend_description", lambda folder: None)
    monkeypatch.setattr(recovery, "reopen_if_lost", lambda folder: None)  # the folder has no protocol
    tracker.folder.mark_done()
    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "_send_results", lambda self: end_by(signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt):
            send_unless_sent(tracker.folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, run.data.tags[record.ENDED_BY]) == ("KILLED", "SIGTERM")
    assert send_unless_sent(tracker.folder)
    (run,) = all_runs(tracking)
    assert (run.info.status, record.ENDED_BY in run.data.tags) == ("FINISHED", False)
