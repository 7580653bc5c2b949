"""Journals that never reached the server, sent later; each row arrives once however often this is run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from biasbed import record
from biasbed.errors import Failure
from biasbed.run_folder import RunFolder, all_folders
from biasbed.server import find_runs, resolve_uri
from biasbed.settings import setting
from biasbed.tracking import Tracker


@dataclass(frozen=True)
class SyncOptions:
    """Where the journals are."""

    output_dir: str = setting("auto", "folder of runs (auto: this server's, and that of offline runs)")


def sync(options: SyncOptions) -> int:
    """Send every finished run and study that the server lacks; returns how many runs were sent."""
    from biasbed.studies.tracked import send_studies

    uri = resolve_uri()
    find_runs(uri, kind="none")  # a server that is down is said once, not for every folder
    if options.output_dir == "auto":
        roots = list(dict.fromkeys((record.home(uri), record.home("offline"))))
    else:
        roots = [Path(options.output_dir).expanduser().resolve()]
    sent, failed = 0, 0
    for folder in [folder for root in roots for folder in all_folders(root)]:
        if folder.read_state().get("tags", {}).get(record.TRIAL_STATE) == "pruned":
            continue  # it never will be, and that is no news
        if not folder.is_done:
            print(f"{folder.path}: not finished; the command that made it continues it", file=sys.stderr)
            continue
        try:
            sent += send_unless_sent(folder)
        except Failure as failure:
            failed += 1
            print(f"{folder.path}: {failure}", file=sys.stderr)
    studies = sum(send_studies(root, uri) for root in roots)
    told = f"runs: {sent}, studies: {studies}, sent to {record.public_uri(uri)}"
    print(told if sent or studies else "nothing to send: the server has it all")
    if failed:
        raise Failure(f"{failed} runs could not be sent: the same command tries again")
    return sent


def send_unless_sent(folder: RunFolder, run_id: str | None = None) -> bool:
    """Send a finished run if this server does not have all of it; whether that was so.

    run_id: the run that `mlflow run` opened for it.
    """
    from biasbed import models

    state = folder.read_state()
    if state.get("sent") and state.get("tracking_uri") == resolve_uri():
        return False
    with folder.locked():
        tracker = Tracker(folder, run_id)
        tracker.reopen()
        best = folder.path / record.BEST_CHECKPOINT
        wants_model = state["params"].get(f"{record.CONFIG_PARAMETER}log_model") == "True"
        tracker.finish((lambda run: models.log_model(best, run, tracker.uri)) if wants_model else None)
    print(f"{folder.path.name} -> run {tracker.run_id}")
    return True
