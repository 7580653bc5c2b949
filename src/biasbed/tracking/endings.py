"""End of a tracked run, by success, error or signal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from biasbed import record
from biasbed.errors import REFUSALS, CorruptImage, Failure, os_reason
from biasbed.system.processes import Interrupted, ignore_signals
from biasbed.tracking.tracker import Tracker


@contextlib.contextmanager
def ends_run(tracker: Tracker | None) -> Iterator[None]:
    """Note in the run why the work inside the block ends early; errors that a user can fix become a Failure."""
    try:
        yield
    except CorruptImage as error:
        _abort(tracker, f"{error}; corrupt=skip goes on without such files")
    except Failure as error:
        _abort(tracker, str(error))
    except (Interrupted, KeyboardInterrupt) as error:
        ignore_signals()
        if tracker is not None and tracker.is_finished:
            return  # too late to end anything early
        name = error.signal.name if isinstance(error, Interrupted) else "SIGINT"
        if tracker is not None:
            tracker.abort("KILLED", {record.ENDED_BY: name}, f"ended by {name}; the same command continues it")
        raise
    except Exception as error:
        ignore_signals()
        if isinstance(error, OSError) and error.errno in REFUSALS:
            _abort(tracker, f"{os_reason(error)}; the same command continues it")
        if tracker is not None:
            tracker.abort("FAILED", {record.ERROR: f"{type(error).__name__}: {error}"[:5000]}, "an unforeseen error")
        raise


def _abort(tracker: Tracker | None, message: str) -> None:
    ignore_signals()
    if tracker is not None:
        tracker.abort("FAILED", {record.ERROR: message}, message)
    raise Failure(message) from None
