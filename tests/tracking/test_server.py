"""A tracking server: away and back, its addresses and errors, new databases; no message tells a password."""

from __future__ import annotations

import builtins
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from biasbed import cli, record, redaction
from biasbed.errors import Failure, UsageError
from biasbed.system import places
from biasbed.tracking import server, tracker
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import database, guarded, resolve_uri, sqlite_uri, writer
from biasbed.tracking.tracker import Tracker
from helpers.children import Command, one_line
from helpers.commands import command_environment
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights
from helpers.tracking_server import Server


@pytest.fixture
def running(tmp_path: Path, tracking: str) -> Iterator[Server]:
    """A real `mlflow server`."""
    running = Server(tmp_path, tracking)
    running.start()
    yield running
    running.stop()


@pytest.mark.slow
def test_server_away_in_the_middle_of_a_training(
    running: Server, train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", *train_flags, "--epochs", "40"]
    environment = {"MLFLOW_TRACKING_URI": running.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    training = subprocess.Popen(
        [sys.executable, "-m", "biasbed", *words],
        env=command_environment(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_records(tmp_path / "home", 3)
    running.stop()
    seen = _wait_for_records(tmp_path / "home", 3)
    _wait_for_records(tmp_path / "home", seen + 5)  # training goes on without it
    assert training.poll() is None
    running.start()
    _, errors = training.communicate(timeout=600)
    assert training.returncode == 0, errors
    assert "training goes on" in errors
    (folder,) = run_folders(tmp_path / "home")
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert stored(tracking, run.info.run_id) == history(folder)
    assert len(history(folder)) == 40


def _wait_for_records(home: Path, count: int) -> int:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for journal in home.glob("folders/*/metrics.jsonl"):
            lines = journal.read_text().count("\n")
            if lines >= count:
                return lines
        time.sleep(0.02)
    raise TimeoutError("no records")


def test_a_dead_server_is_one_line_before_anything_is_trained(
    biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path
) -> None:
    environment = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = biasbed("train", *train_flags, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr == "biasbed: the tracking server http://127.0.0.1:9 can't be used: it does not answer\n"
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("home/*/*/last.ckpt"))


def test_offline_runs_are_sent_once(biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path) -> None:
    biasbed("train", *train_flags, "--epochs", "1", "--tracking", "offline", "--log_model", "true")
    assert not all_runs(tracking)
    assert "runs: 1," in biasbed("sync").stdout
    assert "nothing to send" in biasbed("sync").stdout
    (run,) = all_runs(tracking, kind="train")
    (folder,) = run_folders(tmp_path / "home")
    assert stored(tracking, run.info.run_id) == history(folder)
    assert run.outputs.model_outputs


def test_a_database_without_its_server_is_refused_and_its_password_kept(biasbed: Command, tracking: str) -> None:
    environment = {"MLFLOW_TRACKING_URI": "postgresql+psycopg://ann:sesame@db.lab:5432/mlflow"}
    done = biasbed("sync", check=False, env=environment)
    assert done.returncode == 2
    assert "start `mlflow server` on it" in done.stderr
    assert "sesame" not in done.stderr


def test_a_database_that_is_made_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two first commands, with other folders for temporary files: the second is in the middle of making it."""
    from mlflow import MlflowClient

    from biasbed.tracking.server import writer

    search, uri, runs = MlflowClient.search_experiments, f"sqlite:///{tmp_path / 'new.db'}", []

    def meanwhile(client: MlflowClient, *arguments: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(MlflowClient, "search_experiments", search)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        runs.append(writer(uri).create_run("0").info.run_id)
        return search(client, *arguments, **keywords)

    monkeypatch.setattr(MlflowClient, "search_experiments", meanwhile)
    writer(uri)
    assert [run.info.run_id for run in all_runs(uri)] == runs
    assert len(runs) == 1
    assert sorted(path.suffix for path in tmp_path.glob("new*")) == [".db"]


STUDIES = (
    *("bob's", 'say "hi"', "both ' and \"", "it's\\", "a''b", "tags.x = 'y' or 'z", "100%", "_ob_s", "BOB'S", "bob_s"),
    *("x' and tags.`biasbed.kind` = 'train", "back\\slash", "ünï's", "`tick`", "line\nbreak's"),
)


def test_any_name_of_a_study_finds_its_runs_and_no_others(tracking: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    made = {
        study: client.create_run("0", tags={record.STUDY: study, record.KIND: "train"}).info.run_id for study in STUDIES
    }
    for study, run_id in made.items():
        assert [run.info.run_id for run in find_runs(tracking, study=study, kind="train")] == [run_id], study
    assert find_runs(tracking, study="bob'") == []


SECRET = "s3cr3t"
ODD = (
    f"http://alice:{SECRET}@host:5000",
    f"http://alice:pa/{SECRET}@host:5000/path",
    f"http://alice:p@{SECRET}@host:5000",
    f"http://alice:pa#{SECRET}@host",
    f"alice:{SECRET}@host:5000",
    f"alice:pa/{SECRET}@host:5000/db",
    f"postgresql://host/db?user=alice&password={SECRET}",
    f"http://host:5000/?token={SECRET}",
    f"host=db user=alice password={SECRET}",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3D;UID=a;PWD={SECRET}",
)


def refusal(uri: str) -> str:
    """Return the message about an address that can't be used; "" for another."""
    try:
        resolve_uri(uri)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("uri", ODD)
def test_no_message_has_a_password(uri: str) -> None:
    """For addresses that are refused, and those that an error of MLflow quotes."""
    assert SECRET not in redaction.public_uri(uri)
    assert SECRET not in str(places.home(uri))
    assert SECRET not in refusal(uri)
    with pytest.raises(Failure) as caught, guarded(uri):
        raise OSError(f"request to {uri}/api?x=1 failed for '{uri}': {uri}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        *("http://host:5000", "https://host/path?x=1", "sqlite:////home/a@b/mlflow.db", "databricks://profile"),
        *("sqlite:////home/pass=1/x:y@z.db", "s3://bucket/key"),
    ],
)
def test_an_address_without_secrets_is_shown_as_it_is(uri: str) -> None:
    assert redaction.public_uri(uri) == uri
    assert redaction.public_text(f"can't reach {uri} now: mail admin@host") == f"can't reach {uri} now: mail admin@host"


# --- files of local databases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a%20b", "a b", "100%", "q?r#s", "ö", "a%2520b", "a'b"])
def test_a_path_and_its_address_are_inverse(name: str, tmp_path: Path) -> None:
    from sqlalchemy import make_url

    file = tmp_path / name / "x.db"
    assert database(sqlite_uri(file)) == file
    assert make_url(sqlite_uri(file)).database == str(file)


URI = "http://127.0.0.1:5000"
STORE = "https://store/api/2.0/mlflow-artifacts/artifacts/0/x"


def words_of(error: Exception) -> str:
    with pytest.raises(Failure) as failure, guarded(URI):
        raise error
    return str(failure.value).removeprefix(f"the tracking server {URI} can't be used: ")


def test_a_server_s_status_is_told_and_of_which_part() -> None:
    tail = "Max retries exceeded with url: {} (Caused by ResponseError('too many 500 error responses'))"
    assert words_of(MlflowException(tail.format("/api/2.0/mlflow/runs/get"))) == "it answers with HTTP error 500"
    found = words_of(MlflowException(f"API request to {STORE} failed: {tail.format(STORE)}"))
    assert found == "its artifact store answers with HTTP error 500"
    assert (
        words_of(MlflowException("Max retries exceeded with url: / (Caused by NewConnection)")) == "it does not answer"
    )


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
    folder.path.mkdir(parents=True)
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


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory: `resized` says how large it is."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def resized(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", disk], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("all_on_it", [False, True], ids=["runs_on_it", "database_too"])
def test_a_real_disk_that_is_full_time_and_again(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path, disk: Path, all_on_it: bool
) -> None:
    flags = ["train", *train_flags, "--backbone", "mlp", "--nproc", "1"]
    biasbed(*flags, env={"BIASBED_HOME": str(tmp_path / "undisturbed")})
    (reference,) = run_folders(tmp_path / "undisturbed")
    uri = f"sqlite:///{disk / 'mlflow.db'}" if all_on_it else tracking
    env, size, refused = {"BIASBED_HOME": str(disk / "home"), "MLFLOW_TRACKING_URI": uri}, 100, 0
    env |= {"TMPDIR": str(disk)} if all_on_it else {}
    while (done := biasbed(*flags, check=False, env=env)).returncode:
        assert done.returncode == 1
        assert re.search(f"No space left on device: {disk}|database or disk is full", one_line(done.stderr))
        size, refused = int(1.3 * size), refused + 1
        resized(disk, size)
    assert refused > 5
    (folder,) = run_folders(disk / "home")
    assert_equal(weights(folder), weights(reference))
    run = all_runs(uri, kind="train")[0]  # the newest; where the database is not on the disk, it has the reference too
    assert run.info.status == "FINISHED"
    assert stored(uri, run.info.run_id) == history(folder) == history(reference)
    assert not [path.name for path in disk.rglob("*.tmp*")]


@pytest.mark.slow
def test_a_new_database_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    """MLflow's tables take half a second to make: killed meanwhile, the next command makes them anew."""
    code = "import sys; from biasbed.tracking.server import writer; import mlflow.store.tracking.sqlalchemy_store as s;"
    code += "print('ready', flush=True); print(writer(sys.argv[1]).search_experiments()[0].name)"
    killed = 0
    for number in range(24):
        words = [sys.executable, "-c", code, f"sqlite:///{tmp_path / f'{number}.db'}"]
        env = command_environment({"TMPDIR": str(tmp_path)})
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.04 * number)
            process.kill()
        killed += not (tmp_path / f"{number}.db").exists()
        again = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
        assert again.stdout.split()[-1] == "Default"
    assert killed > 3


@pytest.mark.parametrize("left", ["_alembic_tmp_params", "scorers"])
def test_half_of_a_database_is_said_to_be_one(left: str, tmp_path: Path, tracking: str) -> None:
    """As `mlflow run`, which makes one before us, leaves it: a table is not yet in its place, or not yet noted."""
    (tmp_path / "mlflow.db").unlink()
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute(f"create table {left} (x int)")
    with pytest.raises(Failure, match=r"its database was left half made .*: remove the file"), server.guarded(tracking):
        server.writer(tracking).search_experiments()
