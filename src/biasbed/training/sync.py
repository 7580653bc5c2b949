"""Journals that never reached the server, sent later; each row arrives once however often this is run."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.system import strict_yaml
from biasbed.system.files import write_whole
from biasbed.tracking.folder import JOURNAL, STATE, RunFolder
from biasbed.tracking.ownership import SentElsewhere
from biasbed.tracking.server import resolve_uri
from biasbed.tracking.tracker import Record, Tracker, is_at


def send_finished(folder: RunFolder, named: str) -> bool:
    """Send a run, if there is all of it and the server lacks it; whether that was so."""
    state = folder.read_state()
    if state.get("tags", {}).get(record.TRIAL_STATE) in ("pruned", "superseded"):
        return False  # it never will be finished, or another one counts, and that is no news
    if not {"tags", "params", "experiment"} <= set(state):
        raise Failure(f"its {STATE} is damaged; the command that made it mends that")
    if not folder.is_done:
        print(f"{folder.path}: not finished; the command that made it continues it", file=sys.stderr)
        return False
    return send_unless_sent(folder, named=named)


def send_unless_sent(folder: RunFolder, run_id: str | None = None, named: str = "auto") -> bool:
    """Send a finished run if this server does not have all of it; whether that was so.

    run_id: the run that `mlflow run` opened for it. named: a method of the user's own, which may be its.
    """
    from biasbed import algorithms
    from biasbed.training import recovery

    state = folder.read_state()
    params = {name.removeprefix(record.CONFIG_PARAMETER): word for name, word in state.get("params", {}).items()}
    is_meant = algorithms.identifier(named) == algorithms.identifier(params.get("algorithm", ""))
    is_sent = state.get("sent") and is_at(state, resolve_uri())
    if is_sent and not (is_meant and state.get("owes_model")):
        return False
    with folder.locked():
        tracker = Tracker(folder, None if is_sent else run_id)
        log_model = model_logger(folder, tracker, named if is_meant else "auto")
        if is_sent:
            return tracker.add_model(log_model)
        _mend(folder)
        lost = recovery.reopen_if_lost(folder)
        if lost is not None:
            raise Failure(f"{lost} is lost or damaged: the command that made it mends that")
        try:
            tracker.reopen()
            tracker.finish(log_model if params.get("log_model") == "true" else None)
        except SentElsewhere as failure:
            print(failure, file=sys.stderr)
            return False
    print(f"{folder.path.name} -> run {tracker.run_id}")
    return True


def model_logger(folder: RunFolder, tracker: Tracker, named: str) -> Callable[[str], None]:
    """What logs the folder's best weights as an MLflow model to the run of an id. named: a user's own method."""
    from biasbed.evaluation import models

    best, name = folder.path / record.BEST_CHECKPOINT, f"{record.CONFIG_PARAMETER}register"
    register = folder.read_state().get("params", {}).get(name, "none")
    return functools.partial(models.log_model, best, uri=tracker.uri, named=named, register=register)


def _mend(folder: RunFolder) -> None:
    """Records and settings that are damaged or lost are written anew from a checkpoint; Failure where none has them."""
    from biasbed.compute import checkpoint

    newest = None
    with contextlib.suppress(Failure):  # what is kept of weights alone has no records
        newest, _ = checkpoint.load_newest(folder.path)
    _mend_journal(folder, [] if newest is None else newest["history"])
    _mend_config(folder.path / record.CONFIG_FILE, _settings(folder) if newest is None else newest["config"])


def _settings(folder: RunFolder) -> Mapping[str, Any]:
    """As weights that are kept alone have them; none where there are no such weights."""
    from biasbed.compute import checkpoint

    for name in (checkpoint.LAST, checkpoint.BEST):
        with contextlib.suppress(Failure):
            settings: Mapping[str, Any] = checkpoint.load(folder.path / name, parts={"config": dict})["config"]
            return settings
    return {}


def _mend_journal(folder: RunFolder, known: Sequence[Record]) -> None:
    records = folder.read_journal()
    if len(known) > len(records):
        folder.write_journal(known)
    elif not records or not folder.has_whole_journal:
        raise Failure(f"its {JOURNAL} is damaged, and no checkpoint has the records")


def _mend_config(path: Path, settings: Mapping[str, Any]) -> None:
    if settings and not _has_settings(path, settings):
        write_whole(path, yaml.safe_dump(settings, sort_keys=False))


def _has_settings(path: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a file has all of these settings, whatever their values, and is as it was written."""
    try:
        text = path.read_text()
        found = strict_yaml.parse(text, str(path))
        return list(found) == list(settings) and yaml.safe_dump(found, sort_keys=False) == text
    except (OSError, ValueError, TypeError, UsageError):
        return False
