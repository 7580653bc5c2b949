"""Trials that are done but that the server lacks something of: it was away, or the training was ended while it sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from biasbed.errors import Failure
from biasbed.studies.search.results import SearchState, trained
from biasbed.training.sync import send_unless_sent


def send(found: Sequence[SearchState], say: Callable[[str], None]) -> list[str]:
    """Send what the complete trials of this machine still owe; the names of those that could not be sent."""
    left = []
    for run, trial in trained(found):
        folder = run.folder()
        told = folder.read_state()
        is_owed = trial.state.name == "COMPLETE" and bool(told) and not told.get("sent")
        if run.tracked and is_owed and folder.holder() is None:  # else another command is just sending it
            try:
                send_unless_sent(folder, named=run.words["algorithm"])
            except Failure as failure:
                left.append(run.name)
                say(f"{run.name} is done, but not sent: {failure}")
    return left


def refuse_unsent(left: Sequence[str]) -> None:
    """Failure that names what the server lacks."""
    if left:
        raise Failure(
            f"trained, but not sent to the server: {', '.join(left)}. The same command sends them and trains nothing "
            "again, and `biasbed sync` does it, too"
        )
