"""Run that `mlflow run` opens for every command, also for those that track nothing: its name and its outcome.

Training, testing, a study and an analysis use it as their own run and rename it. A run that has records already was not
opened for this command: a `MLFLOW_RUN_ID` left over in a shell names it, and it is never written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from biasbed import record, redaction
from biasbed.errors import Failure, UsageError
from biasbed.system import commands
from biasbed.system.processes import postponed, signal_of
from biasbed.tracking import notes
from biasbed.tracking.server import find_run, impatient, resolve_uri

if TYPE_CHECKING:
    from mlflow.entities import Run

PATIENCE = 10.0  # seconds for the server: only a name depends on it, and messages are on the terminal in any case
OUTCOMES = {record.ERROR, record.USAGE_ERROR, record.ENDED_BY}  # tags with the outcome of an attempt
NAMING_FLAGS = (
    *("what", "source", "file", "table", "from_study", "model", "run", "study", "suite", "train", "algorithm"),
)


@contextlib.contextmanager
def launched(entry_point: str) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Yield a function that names the run after the command's flags. If the command fails, the run gets the reason."""
    title, is_free = entry_point, _is_free()

    def name(flags: Mapping[str, str]) -> None:
        """Name the run after the command and the first values of `NAMING_FLAGS`."""
        nonlocal title
        public_flags = commands.without_secrets(flags)
        values = [public_flags.get(name, "auto") for name in NAMING_FLAGS]
        values = [value for value in values if value not in ("auto", "none")]
        if flags.get("dry_run", "no") not in ("no", "false"):
            title = " ".join([entry_point, "dry run", *values[:3]])
        else:
            title = " ".join([entry_point, *values[:3]])
        if is_free:
            _set({notes.NAME: title})

    try:
        yield name
    except (UsageError, Failure) as error:
        is_refused = isinstance(error, UsageError)
        message = redaction.public_message(str(error))
        outcome = {record.USAGE_ERROR if is_refused else record.ERROR: message[:5000]}
        name_tag = f"{'refused' if is_refused else 'failed'}: {title}"
        if is_free:
            with postponed():
                _set({notes.NAME: name_tag, notes.NOTE: notes.joined(message), **outcome})
        raise
    except KeyboardInterrupt as error:
        if is_free:
            _set({notes.NAME: f"interrupted: {title}", record.ENDED_BY: signal_of(error).name}, "KILLED")
        raise


def take_run_id(tags: Mapping[str, str] | None = None, offline: bool = False) -> str | None:
    """Return the id of the run that `mlflow run` opened for this command, if any, and hide it from child processes.

    tags: those that earlier attempts of this command have set on the run. offline: use no server. Raises UsageError if
    the run has records of another command.
    """
    if not offline:
        check_run_id(tags)
    return os.environ.pop(commands.RUN, None)


def check_run_id(tags: Mapping[str, str] | None = None, tracking_uri: str = "auto") -> None:
    """Raise UsageError unless the run that `MLFLOW_RUN_ID` names is free or has all of these tags."""
    run_id = os.environ.get(commands.RUN)
    if run_id is None:
        return
    run = find_run(resolve_uri(tracking_uri), run_id)
    if run is None or run.info.lifecycle_stage != "active":
        reason = "no run of this tracking server" if run is None else "a run that is deleted"
    elif not _has_records(run) or (tags and tags.items() <= run.data.tags.items()):
        return
    else:
        reason = f"the run '{run.info.run_name}', which has results already"
    raise UsageError(f"MLFLOW_RUN_ID={run_id} names {reason}: `unset MLFLOW_RUN_ID`, then repeat the command")


def _is_free() -> bool:
    """Return True if this command may write to the run that `MLFLOW_RUN_ID` names."""
    if not commands.is_launched():
        return False
    with contextlib.suppress(Exception), impatient(PATIENCE):
        run = find_run(resolve_uri(), os.environ[commands.RUN])
        return run is not None and not _has_records(run)
    return False


def _has_records(run: Run) -> bool:
    """Return True for a run that has metrics or biasbed's tags, or that somebody else has ended.

    The outcome of an attempt that ended before it took the run is no record: clusters repeat the command with that run.
    """
    tags = {name for name in run.data.tags if name.startswith("biasbed.")}
    is_attempt = run.info.status in ("RUNNING", "SCHEDULED") or (run.info.status != "FINISHED" and bool(tags))
    return bool(run.data.metrics) or bool(tags - OUTCOMES) or not is_attempt


def _set(tags: Mapping[str, str], status: str = "") -> None:
    """Set tags of the run, and end it with this status if one is given. Errors of the server are ignored."""
    from mlflow import MlflowClient

    if not commands.is_launched():  # a training or study has taken the run, and names it
        return
    with contextlib.suppress(Exception), impatient(PATIENCE):  # whatever MLflow raises: only a name is at stake
        client = MlflowClient(resolve_uri())
        run_id = os.environ[commands.RUN]
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
        if status:
            client.set_terminated(run_id, status)
