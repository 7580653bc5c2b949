"""Claims on a server: of several commands that make the same run at once, one goes on and the others yield.

A run that is being made carries the tag `biasbed.importing` with the process that makes it. Whoever has made one looks
for others of the same thing, at the beginning and before the end: one that has ended stays, else the first claim does.
"""

from __future__ import annotations

import time
import uuid

from biasbed.errors import Failure
from biasbed.tracking.finding import FoundRun, find_runs
from biasbed.tracking.ownership import IMPORTING, Holder, new_tag, precedence, read_holder
from biasbed.tracking.server import guarded, writer

STALE = 3600.0  # seconds after which a claim from another machine is taken for one whose command was killed


def new_claim() -> dict[str, str]:
    """Return the tag of a run that this process begins to make."""
    return {IMPORTING: new_tag(uuid.uuid4().hex)}


def holder_of(run: FoundRun) -> Holder | None:
    return read_holder(run.data.tags.get(IMPORTING))


def is_abandoned(run: FoundRun) -> bool:
    """Return True for a run that was never made whole, and that nobody makes any more."""
    holder = holder_of(run)
    if run.info.status != "RUNNING":  # it is given its status last
        return False
    return holder is None or holder.is_own or holder.is_gone or time.time() - holder.time / 1000 > STALE


def ended(uri: str, **tags: str) -> list[FoundRun]:
    """Return the runs with these tags that are whole. Deletes those that were abandoned."""
    runs = find_runs(uri, **tags)
    for run in runs:
        if is_abandoned(run):
            with guarded(uri):
                writer(uri).delete_run(run.info.run_id)
    return [run for run in runs if run.info.status != "RUNNING"]


def first_rival(uri: str, run_id: str, **tags: str) -> FoundRun | None:
    """Return the run with these tags to which our own yields, None if ours stays. Deletes ours if it yields.

    Raises Failure if somebody has deleted ours.
    """
    runs = {run.info.run_id: run for run in find_runs(uri, **tags)}
    own = runs.pop(run_id, None)
    if own is None:
        raise Failure(f"run {run_id} was deleted while it was made: the same command makes it again")
    whole = [run for run in runs.values() if run.info.status != "RUNNING"]
    others = [run for run in runs.values() if run.info.status == "RUNNING" and not is_abandoned(run)]
    before = [run for run in others if precedence(run, IMPORTING) < precedence(own, IMPORTING)]
    if not whole and not before:
        return None
    with guarded(uri):
        writer(uri).delete_run(run_id)
    return (whole or before)[0]


def release(uri: str, run_id: str) -> None:
    """Take the claim off a run that has ended; before, it would be taken for one that was abandoned."""
    writer(uri).delete_tag(run_id, IMPORTING)
