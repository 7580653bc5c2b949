"""Claims on runs that are being imported: of several commands that make the same run, one continues, the others yield.

A run that is being made has the tag `biasbed.importing` with the process that makes it. Its maker searches for other
runs of the same origin at the beginning and before the end: a run that has ended stays, else the first claim wins.
"""

from __future__ import annotations

import time
import uuid

from biasbed.errors import Failure
from biasbed.tracking.ownership import IMPORTING, Holder, new_tag, precedence, read_holder
from biasbed.tracking.run_reader import StoredRun, find_runs
from biasbed.tracking.server import guarded, writer

STALE = 3600.0  # seconds after which a claim from another machine is taken for one whose command was killed


def new_claim() -> dict[str, str]:
    """Return the tag for a run that this process begins to make."""
    return {IMPORTING: new_tag(uuid.uuid4().hex)}


def holder_of(run: StoredRun) -> Holder | None:
    return read_holder(run.data.tags.get(IMPORTING))


def is_abandoned(run: StoredRun) -> bool:
    """Return True for a run that was never completed, and that no process is completing."""
    holder = holder_of(run)
    if run.info.status != "RUNNING":  # the status is set last
        return False
    return holder is None or holder.is_own or holder.is_gone or time.time() - holder.time / 1000 > STALE


def ended(uri: str, **tags: str) -> list[StoredRun]:
    """Return the complete runs with these tags. Deletes abandoned ones."""
    runs = find_runs(uri, **tags)
    for run in runs:
        if is_abandoned(run):
            with guarded(uri):
                writer(uri).delete_run(run.info.run_id)
    return [run for run in runs if run.info.status != "RUNNING"]


def first_rival(uri: str, run_id: str, **tags: str) -> StoredRun | None:
    """Return the run with these tags to which our run yields, None if ours stays. Deletes ours if it yields.

    Raises Failure if somebody has deleted our run.
    """
    runs = {run.info.run_id: run for run in find_runs(uri, **tags)}
    our_run = runs.pop(run_id, None)
    if our_run is None:
        raise Failure(f"run {run_id} was deleted while it was made: the same command makes it again")
    complete = [run for run in runs.values() if run.info.status != "RUNNING"]
    claimed = [run for run in runs.values() if run.info.status == "RUNNING" and not is_abandoned(run)]
    earlier = [run for run in claimed if precedence(run, IMPORTING) < precedence(our_run, IMPORTING)]
    if not complete and not earlier:
        return None
    with guarded(uri):
        writer(uri).delete_run(run_id)
    return (complete or earlier)[0]


def release(uri: str, run_id: str) -> None:
    """Remove the claim from a run that has ended; without a claim a running one would look abandoned."""
    writer(uri).delete_tag(run_id, IMPORTING)
