"""Errors of MLflow and what lies below it, each in one line that says which part failed."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from biasbed import cli
from biasbed.errors import Failure, UsageError
from biasbed.tracking import server, tracker
from biasbed.tracking.folder import RunFolder, make_folder
from biasbed.tracking.server import guarded, resolve_uri, writer
from biasbed.tracking.tracker import Tracker
from helpers.children import Command, one_line

URI = "http://127.0.0.1:5000"
STORE = "https://store/api/2.0/mlflow-artifacts/artifacts/0/x"


def words(error: Exception) -> str:
    with pytest.raises(Failure) as failure, guarded(URI):
        raise error
    return str(failure.value).removeprefix(f"the tracking server {URI} can't be used: ")


def test_a_server_s_status_is_told_and_of_which_part() -> None:
    tail = "Max retries exceeded with url: {} (Caused by ResponseError('too many 500 error responses'))"
    assert words(MlflowException(tail.format("/api/2.0/mlflow/runs/get"))) == "it answers with HTTP error 500"
    found = words(MlflowException(f"API request to {STORE} failed: {tail.format(STORE)}"))
    assert found == "its artifact store answers with HTTP error 500"
    assert words(MlflowException("Max retries exceeded with url: / (Caused by NewConnection)")) == "it does not answer"


class Expired(Exception):
    """An error of a store's client, which biasbed has never heard of."""


def test_any_error_of_an_mlflow_call_is_a_failure(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.store.artifact import artifact_repository_registry as registry

    def refuse(*_: object, **__: object) -> None:
        raise Expired("the security token included in the request is expired")

    run_id = writer(resolve_uri()).create_run("0").info.run_id
    monkeypatch.setattr(registry, "get_artifact_repository", refuse)
    monkeypatch.setattr("mlflow.tracking._tracking_service.client.get_artifact_repository", refuse)
    with pytest.raises(Failure, match="token included in the request is expired"), guarded(tracking):
        writer(tracking).log_artifact(run_id, __file__)


def test_a_missing_client_of_a_store_is_a_failure(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = writer(resolve_uri())
    run_id = client.create_run(client.create_experiment("s3", artifact_location="s3://bucket/x")).info.run_id
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Failure, match=r"a package that it needs is not installed here .*boto3"), guarded(tracking):
        client.log_artifact(run_id, __file__)


def test_errors_of_our_own_are_not_the_server_s() -> None:
    for kind in (KeyError, builtins.ZeroDivisionError):
        with pytest.raises(kind), guarded(URI):
            raise kind("ours")
    with pytest.raises(UsageError), guarded(URI):
        raise UsageError("ours")


@pytest.mark.parametrize("command", ["analyze", "import --source biasbed", "export --study x --file x.zip", "sync"])
def test_the_database_of_another_program_is_one_line(command: str, biasbed: Command, tmp_path: Path) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/o.db")
    done = biasbed(*command.split(), check=False, env={"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/o.db"})
    assert done.returncode == 1
    assert "can't be used: its database belongs to another program" in one_line(done.stderr)


# --- deleted meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_what_was_deleted_is_said_at_once(
    what: str, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracker.time, "sleep", lambda seconds: pytest.fail("it waits"))
    folder = RunFolder(tmp_path / "run")
    make_folder(folder.path)
    own = Tracker(folder)
    own.start("erm-seed0", "mine", {}, {})
    run = server.find_run(tracking, own.run_id)
    assert run is not None
    client = writer(tracking)
    client.delete_run(own.run_id) if what == "run" else client.delete_experiment(run.info.experiment_id)
    for step in (1, 2):
        own.log({"step": step, "timestamp": 1, "metrics": {"train/loss": 1.0}})
        own._away_since = 0.0  # as if some time had passed
    named = f"run {own.run_id}" if what == "run" else "experiment 'mine'"
    said = f"the {named} was deleted in MLflow"
    assert capsys.readouterr().err == f"warning: {said}; training goes on, the journal keeps everything\n"
    with pytest.raises(Failure, match=f"the training is done but {said}; all is kept in .*biasbed sync"):
        own.finish()
    own.abort("FAILED", {}, "as a command does then")
    assert capsys.readouterr().err == ""
    if what == "run":
        client.restore_run(own.run_id)
        own.folder.write_journal(own.folder.read_journal())
        assert cli.main(["sync", "--output_dir", str(tmp_path)]) == 0
