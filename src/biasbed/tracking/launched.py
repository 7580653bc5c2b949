"""The run that `mlflow run` opens for every command, also for one that has none of its own: its name, how it went.

Training, testing, a study and an analysis take it for theirs, and name it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.system import commands, places
from biasbed.system.processes import Interrupted, ignore_signals
from biasbed.tracking import notes
from biasbed.tracking.server import impatient, resolve_uri

PATIENCE = 10.0  # seconds: it is a name, and the message is on the terminal in any case
TOLD = ("what", "source", "file", "table", "from_study", "model", "run", "study", "suite", "train", "algorithm")


@contextlib.contextmanager
def launched(entry: str) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Yields what names the run by the command's flags; where the command is refused or fails, the run says why."""
    title = entry

    def name(flags: Mapping[str, str]) -> None:
        nonlocal title
        told = commands.public(flags)
        words = [told[name] for name in TOLD if told.get(name, "auto") not in ("auto", "none")]
        is_dry = flags.get("dry_run", "no") not in ("no", "false")
        title = " ".join([entry, *(["dry run"] if is_dry else []), *words[:3]])
        _set({notes.NAME: title})

    try:
        yield name
    except (UsageError, Failure) as error:
        is_refused = isinstance(error, UsageError)
        message = places.public_message(str(error))
        kept = {record.USAGE_ERROR if is_refused else record.ERROR: message[:5000]}
        named = f"{'refused' if is_refused else 'failed'}: {title}"
        _set({notes.NAME: named, notes.NOTE: notes.joined(message), **kept})
        raise
    except (Interrupted, KeyboardInterrupt) as error:
        ignore_signals()
        ended_by = error.signal.name if isinstance(error, Interrupted) else signal.SIGINT.name
        _set({notes.NAME: f"interrupted: {title}", record.ENDED_BY: ended_by}, "KILLED")
        raise


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
