"""Which tracking server is in use, what its failures look like, and its experiments. mlflow is imported when needed."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.system import files, places
from biasbed.tracking import mlflow_errors, notes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Experiment, Run

KIND = "mlflow.experimentKind"
_PLAIN = "/ :+,@~!$&'()*;="  # signs of a path that mean themselves in an address


def resolve_uri(tracking_uri: str = "auto") -> str:
    """The tracking URI that commands use: the one given, else MLflow's own (`MLFLOW_TRACKING_URI`, a local file).

    UsageError for a relative sqlite path: `mlflow run` starts children in the project's folder, where it would be
    another file; for a folder, which MLflow no longer keeps runs in; and for a team's database without its server:
    artifacts would be left in whatever folder we run in, and the first users together would break a new one.
    """
    _be_brief()
    if tracking_uri == "auto":
        import mlflow

        for name in ("mlflow", "alembic"):  # they report at length how they set up a database
            logging.getLogger(name).setLevel(logging.WARNING)
        tracking_uri = mlflow.get_tracking_uri()
    tracking_uri = _as_written(tracking_uri)
    relative = re.match(r"sqlite(\+\w+)?:///(?!/|[A-Za-z]:)(?P<path>.*)", tracking_uri)
    if relative:
        whole = sqlite_uri(Path(relative["path"]))
        raise UsageError(
            f"the tracking URI {places.public_uri(tracking_uri)} is relative; give the whole path: {whole}"
        )
    if tracking_uri.startswith("file:") or "://" not in tracking_uri:
        address = places.public_uri(tracking_uri)
        raise UsageError(f"MLflow no longer keeps runs in folders ({address}): give sqlite:////<path> or a server")
    if re.match(r"(postgresql|mysql|mssql)\b", tracking_uri):
        address = places.public_uri(tracking_uri)
        raise UsageError(f"{address} is a database: start `mlflow server` on it (docs/servers.md) and give its address")
    return tracking_uri


def writer(tracking_uri: str) -> MlflowClient:
    """Return a client that writes. Make a new local database whole: others see all of it or none.

    Of several commands that make one at once the first one's stays, and the others use it.
    """
    from mlflow import MlflowClient

    file = database(tracking_uri)
    if file is not None and not file.exists():
        with files.new(file) as temporary:  # MLflow can't go on with half of a database
            client = MlflowClient(sqlite_uri(temporary))
            client.search_experiments(max_results=1)  # makes the tables
            del client
    return MlflowClient(tracking_uri)


def _be_brief() -> None:
    """Few retries against a dead server, no bars, no addresses with their passwords, unless told otherwise."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    # It logs, with a traceback, what it raises as well.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def impatient(seconds: float) -> Iterator[None]:
    """Within the block a request to a server that hangs is given up after so many seconds; it is made twice in them.

    Each time gets one second at least, and no more than is configured for any request.
    """
    names = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    before = {name: os.environ.get(name) for name in names}
    usual = int(before[names[0]] or 30)
    os.environ |= {names[0]: str(max(1, min(usual, int(seconds / 2)))), names[1]: "1"}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def guarded(tracking_uri: str) -> Iterator[None]:
    """Turn any error of an MLflow call inside the block into a Failure of one line."""
    try:
        yield
    except Exception as error:
        if not mlflow_errors.is_foreign(error):
            raise
        uri = places.public_uri(tracking_uri)
        reason = mlflow_errors.reason(error, tracking_uri)
        raise Failure(f"the tracking server {uri} can't be used: {reason}") from error


SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)")


def database(tracking_uri: str) -> Path | None:
    """Return the file of a sqlite store, None for any other. `%20` and its like are decoded, as SQLAlchemy does."""
    match = SQLITE.match(tracking_uri)
    return Path(unquote(match["path"])) if match else None


def sqlite_uri(file: Path) -> str:
    """Return the address of a sqlite store in a file: the inverse of `database`."""
    return f"sqlite:///{quote(str(file.absolute()), safe=_PLAIN)}"


def _as_written(tracking_uri: str) -> str:
    """Return a sqlite address that means the folder as it is spelled, if there is one.

    People type `a%20b` for a folder of that name (a download has it), which SQLAlchemy would read as `a b`.
    """
    match = SQLITE.match(tracking_uri)
    if match is None or "%" not in match["path"]:
        return tracking_uri
    literal, decoded = Path(match["path"]), Path(unquote(match["path"]))
    if not literal.parent.is_dir() or (decoded.exists() and not literal.exists()):
        return tracking_uri
    return tracking_uri.replace(match["path"], quote(str(literal), safe=_PLAIN))


def user() -> str:
    """Who runs this, as the machine knows them; empty where it does not, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def experiment_for(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Where a command's runs go: under `mlflow run` the experiment that it was told, which it can't be moved from.

    Else the one of this name, made where there is none.
    """
    given = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if given is None:
        return experiment_id(client, tracking_uri, name)
    _describe(client, client.get_experiment(given))
    return given


def experiment_id(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """The experiment of this name, made where there is none; two processes may ask at the same time.

    With a local database, a new experiment's artifacts go beside it, not into whatever folder we run in.
    """
    from mlflow.exceptions import MlflowException

    file = database(tracking_uri)
    folder = None if file is None else (file.parent.absolute() / "mlruns" / record.slug(name)).as_uri()
    with guarded(tracking_uri):
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(client.create_experiment(name, artifact_location=folder, tags=_about(name)))
            except MlflowException:
                found = client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise Failure(f"the experiment '{name}' is deleted: restore it or name another")
        _describe(client, found)
        return str(found.experiment_id)


def _describe(client: MlflowClient, experiment: Experiment) -> None:
    """Say what an experiment is that we have not made, unless somebody has; `Default` is everybody's."""
    lacking = {name: text for name, text in _about(experiment.name).items() if name not in experiment.tags}
    for name, text in lacking.items() if experiment.name != "Default" else ():
        client.set_experiment_tag(experiment.experiment_id, name, text)


def _about(experiment: str) -> dict[str, str]:
    """Tags of an experiment: its description, and that pages show runs first, not traces of language models."""
    return {notes.NOTE: notes.of_experiment(experiment), KIND: "custom_model_development"}


def log_inputs(client: MlflowClient, run_id: str, entries: list[DatasetInput]) -> None:
    """Name a run's data sets.

    Of two runs that name a new data set at the same time, the store refuses one; then it is there, and asked again.
    """
    for wait in (0.1, 0.4, None) if entries else ():
        try:
            return client.log_inputs(run_id, entries)
        except Exception:
            if wait is None:
                raise
            time.sleep(wait)


def experiment_created(tracking_uri: str, experiment_id: str) -> int | None:
    """When an experiment was made, in milliseconds: by it one is known among those of other servers."""
    return writer(tracking_uri).get_experiment(experiment_id).creation_time


def artifact_bytes(tracking_uri: str, run_id: str, path: str) -> bytes | None:
    """A run's artifact, None where it has none of this name. Failure where the server can't be used."""
    with guarded(tracking_uri), tempfile.TemporaryDirectory() as folder:
        client = writer(tracking_uri)
        if path not in [entry.path for entry in client.list_artifacts(run_id, os.path.dirname(path) or None)]:
            return None
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def artifact_text(tracking_uri: str, run_id: str, path: str) -> str | None:
    """The same of a text.

    A byte that is no text becomes a mark that says so: what the text is good for is the reader's to say.
    """
    content = artifact_bytes(tracking_uri, run_id, path)
    return None if content is None else content.decode("utf-8", errors="replace")


def mlflow_version(tracking_uri: str) -> str:
    """The version of MLflow that a server runs; of a local database, the one that is installed."""
    import mlflow
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if database(tracking_uri) is not None:
        return str(mlflow.__version__)
    answer = http_request(get_default_host_creds(tracking_uri), "/version", "GET")
    return str(answer.text).strip() if answer.status_code == 200 else "unknown"


def find_run(tracking_uri: str, run_id: str) -> Run | None:
    """The run of this id, also a deleted one; None where there is none. Failure where the server can't be used."""
    from mlflow.exceptions import MlflowException

    file = database(tracking_uri)
    if file is not None and not file.exists():
        return None
    with guarded(tracking_uri):
        try:
            return writer(tracking_uri).get_run(run_id)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):  # no id, that one
                raise
            return None


@contextlib.contextmanager
def whole_or_deleted(client: MlflowClient, run_id: str) -> Iterator[None]:
    """Delete a run whose import is cut short, whatever cuts it, so that nobody takes it for one that is running."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # then the next import deletes it
            client.delete_run(run_id)
        raise


def deleted(tracking_uri: str, run_id: str) -> str:
    """Say what was deleted in MLflow, the run or its experiment. Empty if neither was, or if the server can't say."""
    try:
        run = find_run(tracking_uri, run_id)
        if run is not None and run.info.lifecycle_stage == "active":
            return ""
        if run is not None:
            with guarded(tracking_uri):
                experiment = writer(tracking_uri).get_experiment(run.info.experiment_id)
            if experiment.lifecycle_stage != "active":
                return f"the experiment '{experiment.name}' was deleted in MLflow"
    except Failure:
        return ""
    return f"the run {run_id} was deleted in MLflow"


def active_run(tracking_uri: str, run_id: str) -> Run:
    """The run of this id; UsageError where there is none, or a deleted one."""
    if not re.fullmatch("[0-9a-f]{32}", run_id):
        raise UsageError(f"run={run_id} is no run's id: one has 32 digits of 0-9 and a-f, all of which are needed")
    run = find_run(tracking_uri, run_id)
    if run is None:
        raise UsageError(f"run={run_id}: there is no such run on {places.public_uri(tracking_uri)}")
    if run.info.lifecycle_stage != "active":
        raise UsageError(f"run={run_id} is deleted: restore it first")
    return run


def download_checkpoint(run_id: str, folder: Path) -> Path:
    """A tracked run's best checkpoint, as a local file; UsageError where there is no such run, Failure without one."""
    from mlflow.artifacts import download_artifacts

    uri = resolve_uri()
    if find_run(uri, run_id) is None:
        raise UsageError(f"there is no run {run_id} on {places.public_uri(uri)}")
    with guarded(uri):
        name = f"{record.CHECKPOINT_FOLDER}/{record.BEST_CHECKPOINT}"
        return Path(download_artifacts(run_id=run_id, artifact_path=name, dst_path=str(folder), tracking_uri=uri))
