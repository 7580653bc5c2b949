"""Tracking server: its address, client, failures, experiments, runs and artifacts. mlflow is imported on demand.

What a training does while the server is away is in `tracking/tracker.py`.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import re
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from biasbed import record, redaction
from biasbed.errors import Failure, UsageError, first_line
from biasbed.system import files
from biasbed.system.garbage import collected_after, without_collection
from biasbed.tracking import notes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Experiment, Run

KIND = "mlflow.experimentKind"
_PLAIN = "/ :+,@~!$&'()*;="  # characters of a path that are not escaped in an address
# SQLite's messages when MLflow makes tables of which an interrupted start has made some.
HALF_MADE = re.compile(r"_alembic_tmp_|duplicate column|table \w+ already exists")
STATUS = re.compile(r"too many (?P<code>\d+) error responses")  # urllib3, after its last attempt


def resolve_uri(tracking_uri: str = "auto") -> str:
    """Return the tracking URI of a command; `auto` is MLflow's default (`MLFLOW_TRACKING_URI`, else a local file).

    Raises UsageError for
    - a relative sqlite path: `mlflow run` starts children in another folder, where it would be another file;
    - a folder: MLflow no longer stores runs there;
    - a database without a server: artifacts would stay in the current folder, and two first users would break it.
    """
    _quiet_mlflow()
    if tracking_uri == "auto":
        with without_collection():
            import mlflow

        for name in ("mlflow", "alembic"):  # they log every step of setting up a database
            logging.getLogger(name).setLevel(logging.WARNING)
        tracking_uri = mlflow.get_tracking_uri()
    address = redaction.public_uri(tracking_uri)
    relative = re.match(r"sqlite(\+\w+)?:///(?!/|[A-Za-z]:)(?P<path>.*)", tracking_uri)
    if relative:
        absolute = sqlite_uri(Path(relative["path"]))
        raise UsageError(f"the tracking URI {address} is relative; give the whole path: {absolute}")
    if tracking_uri.startswith("file:") or "://" not in tracking_uri:
        raise UsageError(f"MLflow no longer keeps runs in folders ({address}): give sqlite:////<path> or a server")
    if re.match(r"(postgresql|mysql|mssql)\b", tracking_uri):
        raise UsageError(f"{address} is a database: start `mlflow server` on it (docs/servers.md) and give its address")
    return tracking_uri


def writer(tracking_uri: str) -> MlflowClient:
    """Return a client that writes. A new local database is made atomically, so that others never see half of it.

    If several commands make one at once, the first one's stays, and the others use it.
    """
    from mlflow import MlflowClient

    file = database(tracking_uri)
    if file is not None and not file.exists():
        with files.new_file(file) as temporary:  # MLflow can't complete half of a database
            with without_collection():  # imports SQLAlchemy and Alembic
                client = MlflowClient(sqlite_uri(temporary))
            client.search_experiments(max_results=1)  # makes the tables
    return MlflowClient(tracking_uri)


def _quiet_mlflow() -> None:
    """Set defaults of MLflow: few retries against a dead server, no progress bars, no addresses with passwords."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    # It logs errors with a traceback besides raising them.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def impatient(seconds: float) -> Iterator[None]:
    """Limit each request inside the block to this time, for two attempts together.

    An attempt gets at least one second, and at most the configured timeout.
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
    """Convert any error of an MLflow call inside the block to a Failure of one line."""
    try:
        yield
    except Exception as error:
        if not _is_foreign(error):
            raise
        uri = redaction.public_uri(tracking_uri)
        reason = _describe_error(error, tracking_uri)
        raise Failure(f"the tracking server {uri} can't be used: {reason}") from error


def _is_foreign(error: Exception) -> bool:
    """Return True if an error comes from MLflow, its libraries or the system, and not from biasbed's own code."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, UsageError | Failure):
        return False
    if isinstance(error, MlflowException | SQLAlchemyError | OSError | ImportError):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__", "")).partition(".")[0] == "mlflow" for frame, _ in frames)


def is_refusal(error: BaseException | None) -> bool:
    """Return True if the server has answered and refused the request, as for a deleted run."""
    from mlflow.exceptions import MlflowException

    codes = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes


def _describe_error(error: Exception, tracking_uri: str) -> str:
    """Return the cause of an error in one line, without addresses that hold passwords."""
    text = first_line(error)
    part = "its artifact store" if "mlflow-artifacts" in text else "it"
    if status := STATUS.search(text):
        text = f"{part} answers with HTTP error {status['code']}"
    elif "Max retries exceeded" in text:
        text = f"{part} does not answer"
    elif HALF_MADE.search(text):
        text = "its database was left half made when MLflow was interrupted: remove the file, if it is a new one"
    elif isinstance(error, ImportError):
        text = f"a package that it needs is not installed here ({text})"
    elif "Can't locate revision" in text:
        text = f"its database belongs to another program, or to a newer MLflow ({text})"
    elif not isinstance(error, OSError) and type(error).__module__.partition(".")[0] in ("builtins", "json"):
        text = f"{type(error).__name__}: {text}"  # a KeyError says no more than a key
    return redaction.public_text(text.replace(tracking_uri, redaction.public_uri(tracking_uri)))[:300]


# --- addresses --------------------------------------------------------------------------------------------------------

SQLITE = re.compile(r"sqlite(\+\w+)?:///(?P<path>[^?]*)")


def database(tracking_uri: str) -> Path | None:
    """Return the file of a sqlite store; None for other stores. Escapes such as `%20` are decoded, as by SQLAlchemy."""
    match = SQLITE.match(tracking_uri)
    return Path(unquote(match["path"])) if match else None


def sqlite_uri(file: Path) -> str:
    """Return the address of the sqlite store in a file: the inverse of `database`."""
    return f"sqlite:///{quote(str(file.absolute()), safe=_PLAIN)}"


def user() -> str:
    """Return the name of the user; empty if the machine does not know it, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def experiment_for(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Return the id of the experiment for a command's runs.

    Under `mlflow run` it is the experiment of its run, which can't be changed; else the one of this name, made if it
    does not exist.
    """
    launched_in = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if launched_in is None:
        return experiment_id(client, tracking_uri, name)
    _add_description(client, client.get_experiment(launched_in))
    return launched_in


def experiment_id(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Return the id of the experiment of this name. It is made if it does not exist, maybe by two processes at once.

    With a local database, a new experiment's artifacts go beside it, not into the current folder.
    """
    from mlflow.exceptions import MlflowException

    file = database(tracking_uri)
    folder = None if file is None else (file.parent.absolute() / "mlruns" / record.slug(name)).as_uri()
    with guarded(tracking_uri):
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(client.create_experiment(name, artifact_location=folder, tags=_describing_tags(name)))
            except MlflowException:
                experiment = client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        _add_description(client, experiment)
        return str(experiment.experiment_id)


def _add_description(client: MlflowClient, experiment: Experiment) -> None:
    """Add the missing description to an experiment that biasbed did not make; not to `Default`, which is shared."""
    if experiment.name == "Default":
        return
    for name, text in _describing_tags(experiment.name).items():
        if name not in experiment.tags:
            client.set_experiment_tag(experiment.experiment_id, name, text)


def _describing_tags(experiment: str) -> dict[str, str]:
    """Return the tags of an experiment: its description, and its kind, for which the pages show runs, not traces."""
    return {notes.NOTE: notes.describe_experiment(experiment), KIND: "custom_model_development"}


def log_inputs(client: MlflowClient, run_id: str, inputs: list[DatasetInput]) -> None:
    """Log a run's data sets.

    If two runs log a new data set at the same time, the store refuses one of them, which succeeds on the next try.
    """
    if not inputs:
        return
    for wait in (0.1, 0.4):
        try:
            client.log_inputs(run_id, inputs)
            return
        except Exception:  # of whatever type the store raises
            time.sleep(wait)
    client.log_inputs(run_id, inputs)


def store_text(tracking_uri: str, run: Run, text: str, name: str) -> None:
    """Store a text as an artifact of a run.

    Uses the artifact address that the run has. MLflow's client would fetch the whole run again to learn it, which is a
    fifth of the time of importing a paper.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        get_artifact_repository(run.info.artifact_uri, tracking_uri).log_artifact(str(file))


def artifact_bytes(tracking_uri: str, run_id: str, path: str) -> bytes | None:
    """Return a run's artifact; None if it has none of this name. Raises Failure if the server can't be used."""
    # MLflow's repositories are in cycles and have a thread each. A process with threads can't be copied (system.forks).
    with guarded(tracking_uri), collected_after(), tempfile.TemporaryDirectory() as folder:
        client = writer(tracking_uri)
        artifacts = client.list_artifacts(run_id, os.path.dirname(path) or None)
        if path not in [artifact.path for artifact in artifacts]:
            return None
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def artifact_text(tracking_uri: str, run_id: str, path: str) -> str | None:
    """Return a run's text artifact; None if it has none of this name. Invalid bytes become replacement characters."""
    content = artifact_bytes(tracking_uri, run_id, path)
    return None if content is None else content.decode("utf-8", errors="replace")


def fetch_protocol(tracking_uri: str, run_id: str) -> record.Protocol:
    """Return the protocol in a run's artifacts. Raises Failure if it has none that can be read."""
    text = artifact_text(tracking_uri, run_id, record.PROTOCOL_FILE)
    try:
        return record.Protocol.from_json(text or "")
    except ValueError as error:
        raise Failure(f"run {run_id} has no {record.PROTOCOL_FILE} that can be read: {error}") from None


def find_run(tracking_uri: str, run_id: str) -> Run | None:
    """Return the run of this id, even if it is deleted; None if there is none. Raises Failure if the server fails."""
    from mlflow.exceptions import MlflowException

    file = database(tracking_uri)
    if file is not None and not file.exists():
        return None
    with guarded(tracking_uri):
        try:
            return writer(tracking_uri).get_run(run_id)
        except MlflowException as error:
            # INVALID_PARAMETER_VALUE: the text is no run id.
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            return None


def describe_deletion(tracking_uri: str, run_id: str) -> str:
    """Return a sentence if the run or its experiment was deleted in MLflow; empty otherwise, or if the server fails."""
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
    """Return the run of this id. Raises UsageError if there is none, or if it is deleted."""
    run = find_run(tracking_uri, run_id)
    if run is None:
        raise UsageError(
            f"run={run_id}: there is no such run on {redaction.public_uri(tracking_uri)}; a run's id has 32 digits of "
            "0-9 and a-f"
        )
    if run.info.lifecycle_stage != "active":
        raise UsageError(f"run={run_id}: it is deleted: restore it first")
    return run


def download_checkpoint(run_id: str, folder: Path) -> Path:
    """Download a run's best checkpoint. Raises UsageError if there is no such run, Failure if it has no checkpoint."""
    from mlflow.artifacts import download_artifacts

    uri = resolve_uri()
    active_run(uri, run_id)
    with guarded(uri):
        name = f"{record.CHECKPOINT_FOLDER}/{record.BEST_CHECKPOINT}"
        return Path(download_artifacts(run_id=run_id, artifact_path=name, dst_path=str(folder), tracking_uri=uri))
