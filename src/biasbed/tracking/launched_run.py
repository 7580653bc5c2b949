"""The run that `mlflow run` opens for every command, also for one that has none of its own: its name, how it went.

Training, testing, a study and an analysis take it for theirs, and name it again. A run that has records already was not
opened for this command: a `MLFLOW_RUN_ID` that was left over in a shell names one. It is never written to.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.system import commands, places
from biasbed.system.processes import Interrupted, ignore_signals
from biasbed.tracking import notes
from biasbed.tracking.server import find_run, impatient, resolve_uri

if TYPE_CHECKING:
    from mlflow.entities import Run

PATIENCE = 10.0  # seconds: it is a name, and the message is on the terminal in any case
OUTCOMES = {record.ERROR, record.USAGE_ERROR, record.ENDED_BY}  # tags that say how an attempt ended
TOLD = ("what", "source", "file", "table", "from_study", "model", "run", "study", "suite", "train", "algorithm")


@contextlib.contextmanager
def launched(entry: str) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Yields what names the run by the command's flags; where the command is refused or fails, the run says why."""
    title, is_free = entry, _is_free()

    def name(flags: Mapping[str, str]) -> None:
        nonlocal title
        told = commands.public(flags)
        words = [told[name] for name in TOLD if told.get(name, "auto") not in ("auto", "none")]
        is_dry = flags.get("dry_run", "no") not in ("no", "false")
        title = " ".join([entry, *(["dry run"] if is_dry else []), *words[:3]])
        if is_free:
            _set({notes.NAME: title})

    try:
        yield name
    except (UsageError, Failure) as error:
        is_refused = isinstance(error, UsageError)
        message = places.public_message(str(error))
        kept = {record.USAGE_ERROR if is_refused else record.ERROR: message[:5000]}
        named = f"{'refused' if is_refused else 'failed'}: {title}"
        if is_free:
            _set({notes.NAME: named, notes.NOTE: notes.joined(message), **kept})
        raise
    except (Interrupted, KeyboardInterrupt) as error:
        ignore_signals()
        ended_by = error.signal.name if isinstance(error, Interrupted) else signal.SIGINT.name
        if is_free:
            _set({notes.NAME: f"interrupted: {title}", record.ENDED_BY: ended_by}, "KILLED")
        raise


def take_run_id(own: Mapping[str, str] | None = None, offline: bool = False) -> str | None:
    """Return the run that `mlflow run` opened for this command, if any; once, so that no child takes it as well.

    own: tags by which an earlier attempt of this very command has marked the run as its own. Raises UsageError for
    another run that has records. `offline` asks no server: nothing is sent then.
    """
    if not offline:
        check_run_id(own)
    return os.environ.pop(commands.RUN, None)


def check_run_id(own: Mapping[str, str] | None = None, tracking_uri: str = "auto") -> None:
    """Raise UsageError unless the run that `MLFLOW_RUN_ID` names is free or carries all the tags of `own`."""
    run_id = os.environ.get(commands.RUN)
    if run_id is None:
        return
    run = find_run(resolve_uri(tracking_uri), run_id)
    if run is None or run.info.lifecycle_stage != "active":
        reason = "no run of this tracking server" if run is None else "a run that is deleted"
    elif not _has_records(run) or (own and own.items() <= run.data.tags.items()):
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
    """Return True for a run that holds metrics or tags of ours, or that somebody else has ended.

    Why an earlier attempt ended before it took the run is no record: a cluster starts the command again with that run.
    """
    tags = {name for name in run.data.tags if name.startswith("biasbed.")}
    is_attempt = run.info.status in ("RUNNING", "SCHEDULED") or (run.info.status != "FINISHED" and bool(tags))
    return bool(run.data.metrics) or bool(tags - OUTCOMES) or not is_attempt


def _set(tags: Mapping[str, str], status: str = "") -> None:
    from mlflow import MlflowClient

    if not commands.is_launched():  # something has taken it for its own, and names it
        return
    with contextlib.suppress(Exception), impatient(PATIENCE):  # whatever MLflow raises: it is a name
        client = MlflowClient(resolve_uri())
        run_id = os.environ[commands.RUN]
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
        if status:
            client.set_terminated(run_id, status)
