"""Ownership of runs on a server: which folder may write to a run, and which of several imports of a run stays.

A folder that was copied before its training had ended may be continued in two places. Each start draws a token, notes
it in the folder, and tags the run with its hash. A folder continues a run if it knows the run's last start; if not,
another copy has continued the run meanwhile. The tag is a hash, so that nobody who reads the server can forge a folder
that overwrites or deletes another user's run.

An imported run has the tag `biasbed.import` with the process that makes it, or has made it. The maker searches for
other runs of the same origin at the beginning and before the end: one that has ended stays, else the first claim wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed import record
from biasbed.errors import Failure
from biasbed.system.signature import is_alive, is_gone, signature
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.mlflow_private import StoredRun
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import guarded, writer

if TYPE_CHECKING:
    from mlflow.entities import Run

# Tags of runs: hash of the token, time, host and process of the start that writes the run; the same for an import.
START, IMPORT = "biasbed.start", "biasbed.import"
OWNING = (START, IMPORT, record.ORIGIN_RUN, record.FOLDER_ID)  # tags that no folder's state decides
STALE = 3600.0  # seconds after which a claim from another machine is taken for one whose command was killed
AnyRun = Any  # MLflow's `Run`, with the steps and times of its rows, or a `StoredRun`


class SentElsewhere(Failure):
    """Another command is sending the same results."""


class Holder(NamedTuple):
    """Process that writes to a run, from the run's tag."""

    hash: str  # of the token
    time: int  # ms since 1970, by the clock there
    host: str
    signature: str  # of the process

    def __str__(self) -> str:
        pid = (self.signature.split()[2:3] or ["?"])[0]
        return f"process {pid[:12]} on {self.host[:60]}"

    @property
    def is_gone(self) -> bool:
        return is_gone(self.signature)

    @property
    def is_own(self) -> bool:
        return self.signature == signature()


def new_tag(token: str) -> str:
    """Return the tag with which this process holds a run."""
    return f"{_hash(token)} {int(time.time() * 1000)} {os.uname().nodename} {signature()}"


def read_holder(tag: str | None) -> Holder | None:
    """Parse the tag of a run's holder; None if there is no tag, or an invalid one."""
    parts = (tag or "").split(" ", 3)
    if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 18:
        return None
    return Holder(parts[0], int(parts[1]), parts[2], parts[3])


def precedence(run: AnyRun, tag: str) -> tuple[int, str]:
    """Return the sort key of competing runs, of which the first stays. tag: name of the tag of the holder."""
    holder = read_holder(run.data.tags.get(tag))
    return (0 if holder is None else holder.time), run.info.run_id


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:32]


class Ownership:
    """Ownership of the runs of one folder on one server."""

    def __init__(self, folder: RunFolder, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self._tag = ""

    @property
    def is_drawn(self) -> bool:
        return bool(self._tag)

    @property
    def _token_hash(self) -> str:
        return self._tag.split(" ")[0]

    def draw(self, state: dict[str, Any]) -> None:
        """Draw a token and note the start in the folder and its state. Copies with equal final results draw alike.

        The token of final results is made of them and of the folder's first token, which is random and on no server.
        """
        starts, token = self.folder.read_starts(), uuid.uuid4().hex
        if self.folder.is_done and starts:
            token = _hash(record.canonical_json([starts[0].token, self.folder.read_journal()]))
        state["starts"] = self.folder.add_start(token)
        self._tag = new_tag(token)

    # --- the folder's runs -------------------------------------------------------------------------------------------

    def runs(self, state: dict[str, Any]) -> list[StoredRun]:
        """Return the folder's runs, without superseded ones and imported copies."""
        superseded = set(state.get("superseded", ()))
        return [run for run in self._all_runs(state) if run.info.run_id not in superseded]

    def started_here(self, state: dict[str, Any]) -> list[str]:
        """Return the ids of the folder's runs whose last start was in this very folder, and in no copy of it.

        Copies with equal final results draw the same token: with ours, only a run of this process is the folder's own.
        """
        run_ids = []
        for run in self.runs(state):
            holder = self._holder(run)
            is_equal_copy = holder.hash == self._token_hash and run.data.tags[START] != self._tag
            if holder.hash and not is_equal_copy and not self._is_copied(run):
                run_ids.append(run.info.run_id)
        return run_ids

    def _all_runs(self, state: dict[str, Any]) -> list[StoredRun]:
        folder_id = state["tags"].get(record.FOLDER_ID)
        runs = find_runs(self.uri, folder=folder_id) if folder_id else []
        return [run for run in runs if record.ORIGIN_RUN not in run.data.tags]

    def previous(self, state: dict[str, Any]) -> AnyRun | None:
        """Return the run to continue, or to supersede by a new one; None if there is none.

        A run that the folder does not know was opened just before a kill, or sent by a copy; of several, one with
        metrics is preferred. If all runs belong to other copies, the folder gets a new id and its runs are searched
        again. Raises SentElsewhere if a copy is sending the same results.
        """
        every, superseded = self._all_runs(state), set(state.get("superseded", ()))
        runs = [run for run in every if run.info.run_id not in superseded]
        given_up = [run for run in every if run.info.run_id in superseded and self._is_copied(run)]
        usable = [run for run in runs if self.taken_by(run) is None]
        if given_up or (runs and not usable):  # a run that a copy gives up still belongs to the original
            self.part(state, (given_up or runs)[0])
            return self.previous(state)
        if not usable:
            return None
        usable.sort(key=lambda run: (run.info.run_id != state.get("run_id"), not run.data.metrics))
        run = writer(self.uri).get_run(usable[0].info.run_id)
        if self._is_copied(run) and self.has_unknown(run):
            self.part(state, run)
            return self.previous(state)
        if self.folder.is_done and self._is_busy(run) and is_alive(self._holder(run).signature):
            raise SentElsewhere(self._left(run))
        return run

    def has_unknown(self, run: AnyRun) -> bool:
        """Return True if the server has rows that the journal lacks: sent again, they would be duplicates.

        Metrics without `/` in their name were logged by users themselves and are ignored.
        """
        journal = self.folder.read_journal()
        journaled = {(journal_record["step"], journal_record["timestamp"]) for journal_record in journal}
        rows = (row for row in run.data.to_proto().metrics if "/" in row.key)
        return any((row.step, row.timestamp) not in journaled for row in rows)

    def taken_by(self, run: AnyRun) -> Holder | None:
        """Return the holder that has continued a run elsewhere; None if the folder may continue it.

        A copy of the folder may continue it, too, once the process that wrote the run has ended (by the run's status or
        on this machine) and no other copy has.
        """
        holder = read_holder(run.data.tags.get(START))
        if holder is None:
            return None
        if holder.hash not in self._inodes():
            return holder
        is_open = run.info.status == "RUNNING" and not holder.is_gone and not self.folder.is_done
        return holder if is_open and self._is_copied(run) else None

    def _is_copied(self, run: AnyRun) -> bool:
        """Return True if the run's last start was in another folder, of which this one is a copy."""
        holder = read_holder(run.data.tags.get(START))
        return holder is not None and self._inodes().get(holder.hash) != self.folder.inode

    def _inodes(self) -> dict[str, str]:
        """Return the folders of the starts that this folder knows, keyed by the hash of their token."""
        return {_hash(start.token): start.inode for start in self.folder.read_starts()}

    # --- holding one of them -----------------------------------------------------------------------------------------

    @property
    def tags(self) -> dict[str, str]:
        """Tags with which this start holds its run."""
        return {record.FOLDER_ID: self.folder.identify(), START: self._tag}

    def claim(self, run_id: str) -> None:
        for name, value in self.tags.items():
            writer(self.uri).set_tag(run_id, name, value)

    def is_lost(self, run: AnyRun) -> bool:
        """Return True if another start has taken over the run of this one."""
        holder = read_holder(run.data.tags.get(START))
        return self.is_drawn and holder is not None and holder.hash != self._token_hash

    def yield_to_copy(self, state: dict[str, Any], run_id: str) -> None:
        """Yield to a copy of the folder that has opened a run at the same time, if its run comes first.

        A copy with other results, or with none yet, continues with a new folder id. Equal final results need only one
        run, a complete one if there is any: deletes ours and raises SentElsewhere. Call it again before our run ends:
        one of two commands may look before it can see the other's run, but not twice.
        """
        runs = {run.info.run_id: run for run in self.runs(state)}
        our_run = runs.pop(run_id, None)
        if our_run is None:
            return
        rivals = [run for run in runs.values() if self.taken_by(run)]
        first = min([our_run, *rivals], key=lambda run: precedence(run, START))
        if first is not our_run:
            self.part(state, first)
            self.claim(run_id)
            return
        equal = [run for run in runs.values() if self._has_equal_results(run)]
        first = min([our_run, *equal], key=lambda run: (run.info.status == "RUNNING", precedence(run, START)))
        if first is not our_run:
            self.delete(run_id)
            raise SentElsewhere(self._left(first))

    def _has_equal_results(self, run: AnyRun) -> bool:
        """Return True if a copy of this finished folder has sent its run, or is sending it."""
        is_equal = self.folder.is_done and self._holder(run).hash == self._token_hash
        return is_equal and (run.info.status == "FINISHED" or self._is_busy(run))

    def delete(self, run_id: str) -> None:
        """Delete a superseded run if it has the folder's id and its last start was in this folder."""
        with contextlib.suppress(Exception):  # it may be deleted already
            run = writer(self.uri).get_run(run_id)
            is_own = run.data.tags.get(record.FOLDER_ID) == self.folder.identify()
            is_own = is_own and record.ORIGIN_RUN not in run.data.tags and not self._is_copied(run)
            if is_own and self.taken_by(run) is None:
                writer(self.uri).delete_run(run_id)

    def part(self, state: dict[str, Any], run: AnyRun) -> None:
        """Give the folder a new id, as it is a copy of one that was continued elsewhere.

        Copies with the same results get the same id.
        """
        holder = self._holder(run)
        print(
            f"warning: run {run.info.run_id} was continued in another copy of this folder, by {holder}: "
            f"{self.folder.path} goes on in a run of its own",
            file=sys.stderr,
        )
        token = self.folder.read_starts()[-1].token if self.folder.is_done else uuid.uuid4().hex
        folder_id = record.digest([state["tags"][record.FOLDER_ID], token])
        self.folder.become_another(folder_id)
        state["tags"] = {**state["tags"], record.FOLDER_ID: folder_id}
        state["superseded"] = []
        state.pop("run_id", None)
        self.draw(state)
        self.folder.write_state(state)

    def _is_busy(self, run: AnyRun) -> bool:
        """Return True if another process has opened a run, has not ended it and is not known to be gone."""
        holder = self._holder(run)
        return run.info.status == "RUNNING" and bool(holder.hash) and not holder.is_own and not holder.is_gone

    def _holder(self, run: AnyRun) -> Holder:
        return read_holder(run.data.tags.get(START)) or Holder("", 0, "?", "")

    def _left(self, run: AnyRun) -> str:
        sent = "are being sent" if run.info.status == "RUNNING" else "were sent"
        return (
            f"{self.folder.path} is left alone: its results {sent} as run {run.info.run_id}, by {self._holder(run)}; "
            "the same command sends what is missing then"
        )


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
            tags = {**run.tags, IMPORT: new_tag(uuid.uuid4().hex)}
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
        rival = _first_rival(present[run_id], alike[present[run_id].data.tags.get(identity)])
        if rival is not None:
            with guarded(uri):
                writer(uri).delete_run(run_id)
            rivals[run_id] = rival
    return rivals


def _first_rival(our_run: StoredRun, runs: Iterable[StoredRun]) -> StoredRun | None:
    """Return which of the runs comes before ours: one that has ended, else the first claim; None if ours does."""
    others = [run for run in runs if run is not our_run]
    complete = [run for run in others if run.info.status != "RUNNING"]
    claimed = [run for run in others if run.info.status == "RUNNING" and not _is_abandoned(run)]
    earlier = [run for run in claimed if precedence(run, IMPORT) < precedence(our_run, IMPORT)]
    return next(iter(complete or earlier), None)


def _is_abandoned(run: StoredRun) -> bool:
    """Return True for a run that was never completed, and that no process is completing."""
    if run.info.status != "RUNNING":  # the status is set last
        return False
    holder = read_holder(run.data.tags.get(IMPORT))
    return holder is None or holder.is_own or holder.is_gone or time.time() - holder.time / 1000 > STALE
