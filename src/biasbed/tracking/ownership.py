"""Ownership of runs on a server: which start of which folder writes to a run, and who yields to whom.

A folder that was copied before its training had ended may be continued in two places. Each start draws a token, notes
it in the folder, and tags the run with its hash. A folder goes on with a run if it knows the run's last start; if not,
somebody else has continued the run meanwhile. The tag is a hash, so that nobody who reads the server can forge a folder
that overwrites or deletes somebody's run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import uuid
from typing import Any, NamedTuple

from biasbed import record
from biasbed.errors import Failure
from biasbed.system.signature import is_alive, is_gone, signature
from biasbed.tracking.finding import FoundRun, find_runs
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.server import writer

# Tags of runs: of the start that writes one, the hash of its token, time, host, process; the same of an import.
START, IMPORTING = "biasbed.start", "biasbed.importing"
AnyRun = Any  # MLflow's `Run`, with the steps and times of its rows, or a `FoundRun`


class SentElsewhere(Failure):
    """Another command sends the same results at this moment."""


class Holder(NamedTuple):
    """Who writes to a run, as the run's tag says."""

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
    """Return the tag by which this process holds a run."""
    return f"{_hash(token)} {int(time.time() * 1000)} {os.uname().nodename} {signature()}"


def read_holder(tag: str | None) -> Holder | None:
    """Return who holds a run by its tag; None if it has no such tag, or one that is none."""
    words = (tag or "").split(" ", 3)
    if len(words) != 4 or not words[1].isascii() or not words[1].isdigit() or len(words[1]) > 18:
        return None
    return Holder(words[0], int(words[1]), words[2], words[3])


def precedence(run: AnyRun, tag: str) -> tuple[int, str]:
    """Return the place of a run among those of one thing, of which the first stays. tag: names its holder."""
    holder = read_holder(run.data.tags.get(tag))
    return (0 if holder is None else holder.time), run.info.run_id


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:32]


class Ownership:
    """The runs of one folder on one server."""

    def __init__(self, folder: RunFolder, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self._tag = ""

    @property
    def is_drawn(self) -> bool:
        return bool(self._tag)

    def draw(self, state: dict[str, Any]) -> None:
        """Note a start in the folder, and in its state. Copies of what has ended with the same results draw alike."""
        token = uuid.uuid4().hex
        if self.folder.is_done:
            token = _hash(record.canonical_json(self.folder.read_journal()))
        state["starts"] = self.folder.add_start(token)
        self._tag = new_tag(token)

    # --- the folder's runs -------------------------------------------------------------------------------------------

    def runs(self, state: dict[str, Any]) -> list[FoundRun]:
        """Return the folder's runs, but those that are given up already and copies that were imported."""
        left = set(state.get("superseded", ()))
        return [run for run in self._all_runs(state) if run.info.run_id not in left]

    def _all_runs(self, state: dict[str, Any]) -> list[FoundRun]:
        folder_id = state["tags"].get(record.FOLDER_ID)
        runs = find_runs(self.uri, folder=folder_id) if folder_id else []
        return [run for run in runs if record.ORIGIN_RUN not in run.data.tags]

    def previous(self, state: dict[str, Any]) -> AnyRun | None:
        """Return the run to go on with, or to give up for a new one; None if there is none.

        If the folder does not know of its run, that was opened just before a kill, or sent by a copy; of several the
        one with records. If all belong to others, the folder gets another id, and what its runs are is asked again.
        Raises SentElsewhere if a copy's results, which are the same, are being sent at this moment.
        """
        everything, left = self._all_runs(state), set(state.get("superseded", ()))
        runs = [run for run in everything if run.info.run_id not in left]
        given_up = [run for run in everything if run.info.run_id in left and self._is_copied(run)]
        own = [run for run in runs if self.taken_by(run) is None]
        if given_up or (runs and not own):  # what a copy gives up is the original's all the same
            return self._after_parting(state, (given_up or runs)[0])
        if not own:
            return None
        own.sort(key=lambda run: (run.info.run_id != state.get("run_id"), not run.data.metrics))
        run = writer(self.uri).get_run(own[0].info.run_id)
        if self._is_copied(run) and self.has_unknown(run):
            return self._after_parting(state, run)
        if self.folder.is_done and self._is_busy(run) and is_alive(self._holder(run).signature):
            raise SentElsewhere(self._left(run))
        return run

    def has_unknown(self, run: AnyRun) -> bool:
        """Whether the server has rows of ours whose record is lost: it comes again with another time, as another row.

        What people have logged there themselves has no `/` in its name.
        """
        known = {(entry["step"], entry["timestamp"]) for entry in self.folder.read_journal()}
        rows = (row for row in run.data.to_proto().metrics if "/" in row.key)
        return any((row.step, row.timestamp) not in known for row in rows)

    def taken_by(self, run: AnyRun) -> Holder | None:
        """Return who else has continued a run, None if the folder may go on with it.

        A copy of the folder may, too, once the process that wrote the run has ended, by the run's status or on this
        machine, and if nobody else has. Runs without such a tag are from before there was one.
        """
        holder = read_holder(run.data.tags.get(START))
        if holder is None:
            return None
        if holder.hash not in self._places():
            return holder
        is_open = run.info.status == "RUNNING" and not holder.is_gone and not self.folder.is_done
        return holder if is_open and self._is_copied(run) else None

    def _is_copied(self, run: AnyRun) -> bool:
        """Whether the run's last start was in another folder, of which this one is a copy."""
        holder = read_holder(run.data.tags.get(START))
        return holder is not None and self._places().get(holder.hash) != self.folder.place

    def _places(self) -> dict[str, str]:
        """Return the places of the starts that the folder knows, keyed by the hash of their token."""
        return {_hash(start.token): start.place for start in self.folder.read_starts()}

    # --- holding one of them -----------------------------------------------------------------------------------------

    @property
    def tags(self) -> dict[str, str]:
        """Tags by which this start holds its run."""
        return {record.FOLDER_ID: self.folder.identify(), START: self._tag}

    def claim(self, run_id: str) -> None:
        for name, value in self.tags.items():
            writer(self.uri).set_tag(run_id, name, value)

    def lost_to(self, run: AnyRun) -> Holder | None:
        """Return who has taken the run that this start holds, None if nobody has."""
        holder = read_holder(run.data.tags.get(START))
        is_held = not self.is_drawn or holder is None or holder.hash == self._tag.split(" ")[0]
        return None if is_held else holder

    def settle(self, state: dict[str, Any], run_id: str) -> None:
        """Yield to a copy of the folder that has opened a run at the same time, if its run comes first.

        What is still trained goes on with an id of its own. Of equal results one run is enough: raises SentElsewhere.
        """
        runs = {run.info.run_id: run for run in self.runs(state)}
        own = runs.pop(run_id, None)
        rivals = [run for run in runs.values() if self.taken_by(run) or (self.folder.is_done and self._is_busy(run))]
        if own is None or not rivals:
            return
        first = min([own, *rivals], key=lambda run: precedence(run, START))
        if first is own:
            return
        if self.folder.is_done:
            self.delete(run_id)
            raise SentElsewhere(self._left(first))
        self.part(state, first)
        self.claim(run_id)

    def delete(self, run_id: str) -> None:
        """Delete a run that is given up, if it carries the folder's own id and its last start was in this folder."""
        with contextlib.suppress(Exception):  # someone has deleted it already
            run = writer(self.uri).get_run(run_id)
            is_own = run.data.tags.get(record.FOLDER_ID) == self.folder.identify()
            is_own = is_own and record.ORIGIN_RUN not in run.data.tags and not self._is_copied(run)
            if is_own and self.taken_by(run) is None:
                writer(self.uri).delete_run(run_id)

    def part(self, state: dict[str, Any], run: AnyRun) -> None:
        """Give the folder an id of its own, as it is a copy of one that somebody else has continued.

        Copies with the same results get the same one.
        """
        holder = self._holder(run)
        print(
            f"warning: run {run.info.run_id} was continued in another copy of this folder, by {holder}: "
            f"{self.folder.path} goes on in a run of its own",
            file=sys.stderr,
        )
        token = self._last_token() if self.folder.is_done else uuid.uuid4().hex
        folder_id = record.digest([state["tags"][record.FOLDER_ID], token])
        self.folder.become_another(folder_id)
        state["tags"] = {**state["tags"], record.FOLDER_ID: folder_id}
        state |= {"superseded": [], "starts": []}
        for name in ("run_id", "opening"):
            state.pop(name, None)
        state["starts"] = self.folder.add_start(token)
        self._tag = new_tag(token)
        self.folder.write_state(state)

    def _after_parting(self, state: dict[str, Any], run: AnyRun) -> AnyRun | None:
        self.part(state, run)
        return self.previous(state)

    def _last_token(self) -> str:
        return self.folder.read_starts()[-1].token

    def _is_busy(self, run: AnyRun) -> bool:
        """Whether another process has opened a run and not ended it, and is not known to be gone."""
        holder = self._holder(run)
        return run.info.status == "RUNNING" and bool(holder.hash) and not holder.is_own and not holder.is_gone

    def _holder(self, run: AnyRun) -> Holder:
        return read_holder(run.data.tags.get(START)) or Holder("", 0, "?", "")

    def _left(self, run: AnyRun) -> str:
        return (
            f"{self.folder.path} is left alone: its results are being sent as run {run.info.run_id}, by "
            f"{self._holder(run)}; the same command sends what is missing then"
        )
