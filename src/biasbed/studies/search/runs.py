"""Trials' runs on the server and in their folders: what they say of a trial, how it ended, and what they still owe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from biasbed import record
from biasbed.errors import Failure
from biasbed.studies.plan import PlannedRun
from biasbed.studies.search.results import SearchState, trained
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE
from biasbed.tracking.server import find_run, guarded, resolve_uri, writer
from biasbed.training.sync import send_unless_sent

# Of a trial's run on the server, by how the trial ended; a complete one finishes itself.
STATUS = {"pruned": "KILLED", "superseded": "KILLED", "failed": "FAILED"}


def end_open(run_id: str, run: PlannedRun, say: Callable[[str], None]) -> None:
    """End the run that a machine left open which is gone: without its folder the training begins another one."""
    if not run.tracked or run_id == run.folder().read_state().get("run_id"):
        return
    uri = resolve_uri()
    try:
        found = find_run(uri, run_id)
        if found is not None and found.info.status == "RUNNING":
            with guarded(uri):
                writer(uri).set_terminated(run_id, "KILLED")
    except Failure as failure:
        say(f"warning: {failure}; the run {run_id} of the attempt before stays open")


def settle(run: PlannedRun, folder: RunFolder, state: str, note: str, say: Callable[[str], None]) -> None:
    """Say in folder and run how the trial ended. A server that is away costs only that."""
    told = folder.read_state()
    if not told:
        return
    tags = {record.TRIAL_STATE: state, **({NOTE: note} if note else {})}
    before = told.get("tags", {})
    outdated = _outdated(before) if state == "complete" else set()
    kept = {name: value for name, value in before.items() if name not in outdated}
    folder.write_state({**told, "tags": {**kept, **tags}})
    if not run.tracked or "run_id" not in told:
        return
    uri, run_id = resolve_uri(), told["run_id"]
    try:
        with guarded(uri):
            outdated = _outdated(writer(uri).get_run(run_id).data.tags) if state == "complete" else set()
            for name in outdated:
                writer(uri).delete_tag(run_id, name)
            for name, value in tags.items():
                writer(uri).set_tag(run_id, name, value)
            if state in STATUS:
                writer(uri).set_terminated(run_id, STATUS[state])
    except Failure as failure:
        say(f"warning: {failure}; its run does not say that it is {state}")


def _outdated(tags: Mapping[str, str]) -> set[str]:
    """Of the tags of a run that is complete, those that an attempt which ended early has left."""
    why = {record.ENDED_BY, record.ERROR} & set(tags)
    return why | ({NOTE} & set(tags) if why or tags.get(record.TRIAL_STATE) in STATUS else set())


# --- what the server lacks of done trials: it was away, or the training was ended while it sent -----------------------


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
