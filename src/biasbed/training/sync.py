"""Sync: sends finished runs that never reached the server; each row arrives once however often it is sent."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from biasbed import record
from biasbed.errors import Failure
from biasbed.tracking.folder import STATE, RunFolder
from biasbed.tracking.server import resolve_uri
from biasbed.tracking.tracker import SentElsewhere, Tracker, ends_run, is_at


def send_finished(folder: RunFolder, user_method: str) -> bool:
    """Send a run if it is finished and complete and the server lacks it; return True if it was sent.

    user_method: see `send_unless_sent`.
    """
    state = folder.read_state()
    if state.get("tags", {}).get(record.TRIAL_STATE) == "pruned":
        return False  # it will never be finished, and that is no news
    if not {"tags", "params", "experiment"} <= set(state):
        raise Failure(f"its {STATE} is damaged")
    if not folder.is_done:
        print(f"{folder.path}: not finished; the command that made it continues it", file=sys.stderr)
        return False
    return send_unless_sent(folder, user_method=user_method)


def send_unless_sent(folder: RunFolder, run_id: str | None = None, user_method: str = "auto") -> bool:
    """Send a finished run if this server lacks any of it; return True if it was sent.

    run_id: the run that `mlflow run` opened for it. user_method: a method of the user's own, which may
    be the run's, or `auto`.
    """
    from biasbed import algorithms

    state = folder.read_state()
    if state.get("sent") and is_at(state, resolve_uri()):
        return False
    params = {name.removeprefix(record.CONFIG_PARAMETER): value for name, value in state.get("params", {}).items()}
    is_meant = algorithms.identifier(user_method) == algorithms.identifier(params.get("algorithm", ""))
    with folder.locked():
        tracker = Tracker(folder, run_id)
        log_model = model_logger(folder, tracker, user_method if is_meant else "auto")
        with ends_run(tracker):
            try:
                tracker.reopen()
                tracker.finish(log_model if params.get("log_model") == "true" else None)
            except SentElsewhere as failure:
                print(failure, file=sys.stderr)
                return False
    print(f"{folder.path.name} -> run {tracker.run_id}")
    return True


def model_logger(folder: RunFolder, tracker: Tracker, user_method: str) -> Callable[[str], None]:
    """Return a function that logs the folder's best weights as an MLflow model to the run of an id.

    user_method: a method of the user's own, or `auto`.
    """
    from biasbed.evaluation import models

    best = folder.path / record.BEST_CHECKPOINT
    return functools.partial(models.log_model, best, uri=tracker.uri, named=user_method)
