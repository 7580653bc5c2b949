"""Claims on runs: of several runs with the same content that commands make at once, one stays.

A run's tag names the process that makes it, or has made it. Every maker searches for other runs of the same content
twice, at the beginning and before the end: a complete one stays, else the one that was claimed first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from biasbed.errors import Failure
from biasbed.system.signature import ProcessClaim, new_claim, parse_claim, signature
from biasbed.tracking.run_reader import StoredRun, find_runs
from biasbed.tracking.server import guarded, writer

if TYPE_CHECKING:
    from mlflow.entities import Run

START = "biasbed.start"  # tag: the claim of a run folder's last start
IMPORT = "biasbed.import"  # tag: the claim of an import
STALE = 3600.0  # seconds after which a claim from another machine is taken for one whose command was killed


def read_claim(run: StoredRun) -> ProcessClaim | None:
    """Return the claim on a run; None if there is no tag, or an invalid one."""
    return parse_claim(run.data.tags.get(IMPORT) or run.data.tags.get(START) or "")


def find_rival(our_run: StoredRun, runs: Iterable[StoredRun]) -> StoredRun | None:
    """Return the run to which ours yields: one that has ended, else one that was claimed before ours; None if none."""
    others = [run for run in runs if run.info.run_id != our_run.info.run_id]
    complete = [run for run in others if run.info.status != "RUNNING"]
    claimed = [run for run in others if run.info.status == "RUNNING" and not _is_abandoned(run)]
    earlier = [run for run in claimed if _precedence(run) < _precedence(our_run)]
    return next(iter(complete or earlier), None)


def _precedence(run: StoredRun) -> tuple[int, str]:
    claim = read_claim(run)
    return (0 if claim is None else claim.time), run.info.run_id


def _is_abandoned(run: StoredRun) -> bool:
    """Return True for a run that was never completed, and that no process is completing."""
    if run.info.status != "RUNNING":  # the status is set last
        return False
    claim = read_claim(run)
    return claim is None or claim.signature == signature() or claim.is_over(STALE)


# --- runs that are imported -------------------------------------------------------------------------------------------


def ended(uri: str, **tags: str) -> list[StoredRun]:
    """Return the complete runs with these tags. Deletes abandoned ones."""
    runs = find_runs(uri, **tags)
    for run in filter(_is_abandoned, runs):
        with guarded(uri):
            writer(uri).delete_run(run.info.run_id)
    return [run for run in runs if run.info.status != "RUNNING"]


class NewRun(NamedTuple):
    """Run to make on a server."""

    name: str
    tags: Mapping[str, str]
    fill: Callable[[Run], None]  # logs the content of the run that was made for it
    status: str = "FINISHED"
    period: tuple[int | None, int | None] = (None, None)  # its start and end, in ms since 1970


class MadeRun(NamedTuple):
    """Run that was made; or another command's run, to which ours has yielded."""

    run_id: str
    rival: StoredRun | None


def make_runs(
    uri: str, experiment: str, runs: Sequence[NewRun], identity: str, origin: Mapping[str, str]
) -> list[MadeRun]:
    """Make runs, which together take two searches for other commands' runs.

    identity: name of the tag that runs of the same origin share and that no two of `runs` share. origin: tags of all
    such runs. If a run can't be filled, all that have not ended are deleted, so that nobody takes them for running.
    """
    client = writer(uri)
    run_ids: dict[str, NewRun] = {}
    created_runs: dict[str, Run] = {}
    rivals: dict[str, StoredRun] = {}
    try:
        for run in runs:
            tags = {**run.tags, IMPORT: new_claim()}
            created = client.create_run(experiment, start_time=run.period[0], tags=tags, run_name=run.name)
            run_ids[str(created.info.run_id)] = run
            created_runs[str(created.info.run_id)] = created
        unfinished = dict(run_ids)
        for is_filled in (False, True):
            rivals |= yield_to_rivals(uri, unfinished, identity, **origin)
            unfinished = {run_id: run for run_id, run in unfinished.items() if run_id not in rivals}
            for run_id, run in unfinished.items() if not is_filled else ():
                run.fill(created_runs[run_id])
        for run_id, run in unfinished.items():
            client.set_terminated(run_id, run.status, run.period[1])
    except BaseException:
        with contextlib.suppress(Exception):  # the next import deletes them otherwise
            for run_id in run_ids:
                if client.get_run(run_id).info.status == "RUNNING":
                    client.delete_run(run_id)
        raise
    made = []
    for run_id in run_ids:
        rival = rivals.get(run_id)
        made.append(MadeRun(run_id if rival is None else rival.info.run_id, rival))
    return made


def yield_to_rivals(uri: str, run_ids: Iterable[str], identity: str, **tags: str) -> dict[str, StoredRun]:
    """Delete those of our runs that yield, and return the runs to which they yield, keyed by the ids of ours.

    Rivals have the same value of the tag `identity`; all have `tags`. Raises Failure if somebody has deleted one of
    ours.
    """
    present = {run.info.run_id: run for run in find_runs(uri, **tags)}
    alike: dict[str | None, list[StoredRun]] = {}
    for run in present.values():
        alike.setdefault(run.data.tags.get(identity), []).append(run)
    rivals = {}
    for run_id in run_ids:
        if run_id not in present:
            raise Failure(f"run {run_id} was deleted while it was made: the same command makes it again")
        rival = find_rival(present[run_id], alike[present[run_id].data.tags.get(identity)])
        if rival is not None:
            with guarded(uri):
                writer(uri).delete_run(run_id)
            rivals[run_id] = rival
    return rivals
