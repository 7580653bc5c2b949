"""Folder of a run: its lock, journal, state and identity.

A training that resumes reads it in `training/train.py`.

Answers: What lies in a run's folder, and who may write there?
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from biasbed import record
from biasbed.errors import Failure, UnreadableFile
from biasbed.system import places
from biasbed.system.files import append_line, is_locked, open_in_place, refuse_links, take_lock, write_whole
from biasbed.system.strict import parse_json, read_json, read_text
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from biasbed.config import Config

DONE, LOCK, JOURNAL, STATE = "done", "lock", "metrics.jsonl", "run.json"
CLAIM = "claim"  # file that a study locks while its training runs here, or is about to


def home(config: Config) -> Path:
    """Return the folder of all runs: `output_dir`, else that of the tracking server on this machine."""
    if config.output_dir != "auto":
        return Path(config.output_dir).expanduser().resolve()
    return places.home(resolve_uri() if config.tracking == "on" else "offline")


class RunState(TypedDict, total=False):
    """State of a folder's run, as the tracker writes it."""

    tags: dict[str, str]
    params: dict[str, str]
    inputs: list[Annotated[list[str], Field(min_length=3, max_length=3)]]  # context, name, fingerprint
    about: str  # description of the run in Markdown, without its outcome
    noted: list[str]  # earlier notes by biasbed; any other note on the server is a user's
    location: str  # `RunFolder.location` when it was written
    experiment: str
    run_id: str
    tracking_uri: str
    attempts: int
    sent: bool


MOST_BYTES = 2**30  # largest journal
_STATE = TypeAdapter(RunState)


class _JournalRecord(TypedDict):
    """Entries that every record of a journal has; others are not checked."""

    step: int
    timestamp: Annotated[int, Field(ge=0)]
    metrics: dict[str, float]


_RECORD = TypeAdapter(_JournalRecord)


@dataclass(frozen=True)
class RunFolder:
    """Folder `<output_dir>/<suite>/<algorithm>-s<seed>-<run_key[:8]>`; later runs of the same key get `-2`, `-3` ..."""

    path: Path

    @property
    def is_done(self) -> bool:
        """True if the run has ended. Without a readable state it counts as not done, and resuming writes the state."""
        return (self.path / DONE).exists() and bool(self.read_state())

    def mark_done(self) -> None:
        (self.path / DONE).touch()

    def unmark_done(self) -> None:
        (self.path / DONE).unlink(missing_ok=True)

    # --- journal -----------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def write_journal(self, records: Sequence[dict[str, Any]]) -> None:
        """Replace the journal by exactly these records."""
        write_whole(self.journal, "".join(json.dumps(journal_record) + "\n" for journal_record in records))

    def append_journal(self, journal_record: dict[str, Any]) -> None:
        append_line(self.journal, json.dumps(journal_record))

    def read_journal(self) -> list[dict[str, Any]]:
        """Return all complete records. A damaged or cut-off line is left out; the checkpoint has its record."""
        return [journal_record for journal_record in map(_parse_record, self._lines()) if journal_record is not None]

    def _lines(self) -> list[str]:
        return _read_text(self.journal).splitlines()

    # --- the run on the tracking server ------------------------------------------------------------------------------

    def read_state(self) -> dict[str, Any]:
        """Return the tracker's state: run id, tags, parameters. Empty before the first start, and if it is damaged."""
        state = read_mapping(self.path / STATE) or {}
        try:
            _STATE.validate_python(state, strict=True)
        except ValidationError:
            return {}
        return state

    def write_state(self, state: dict[str, Any]) -> None:
        write_whole(self.path / STATE, json.dumps(state, indent=1))

    @property
    def marks(self) -> dict[str, str]:
        """Tags by which the runs of this folder are found on a server; empty before the first start."""
        folder_id = self.read_state().get("tags", {}).get(record.FOLDER_ID)
        return {} if folder_id is None else {record.FOLDER_ID: folder_id}

    def own_state(self) -> dict[str, Any]:
        """Return the state with the folder's id and location. A new folder, or a copy, gets a new id and has no run."""
        state = self.read_state()
        tags = dict(state.get("tags", {}))
        if record.FOLDER_ID not in tags or state.get("location") != self.location:
            tags[record.FOLDER_ID] = uuid.uuid4().hex[:16]
            run_id = state.pop("run_id", None)
            if run_id is not None:
                message = f"{self.path} is a copy: it gets a run of its own, {run_id} stays as it is"
                print(f"warning: {message}", file=sys.stderr)
        return {**state, "location": self.location, "tags": tags}

    @property
    def location(self) -> str:
        """Hash of the folder's inodes: it stays when the folder is moved on its disk, and a copy has another one."""
        open_in_place(self.path / LOCK).close()
        return record.digest([path.stat().st_ino for path in (self.path, self.path / LOCK)])[:16]

    @property
    def results(self) -> str:
        """Digest of the journal, the same for copies of a finished folder; empty without records."""
        journal = self.read_journal()
        return record.digest(journal, allow_nan=True) if journal else ""  # a loss may have been no number

    # --- one trainer at a time ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder within the block, and remove half-written files of killed processes first.

        Raises Failure, which names the holder, if it is locked.
        """
        with exclusive(self.path, "trained"):
            refuse_links(self.path)
            for path in (*self.path.glob("*.tmp"), *self.path.glob("predictions/*/*.tmp")):
                path.unlink(missing_ok=True)
            yield

    def holder(self) -> str | None:
        """Return the process that is training here; None if there is none."""
        if not (self.path / LOCK).exists():
            return None
        with open_in_place(self.path / LOCK) as file:
            return _holder(file) if is_locked(file) else None

    def claim(self) -> TextIO | None:
        """Make the folder and reserve it for a training of this command; return None if another command has it.

        The claim ends when the returned file is closed, or when this process ends.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        refuse_links(self.path)  # its log and its list of starts will be written
        file = open_in_place(self.path / CLAIM)
        if take_lock(file):
            return file
        file.close()
        return None

    @property
    def study(self) -> str | None:
        """Study of the training; None before the first start."""
        study: str | None = self.read_state().get("tags", {}).get(record.STUDY)
        return study


R = TypeVar("R", bound=Mapping[str, Any])


def evaluations(records: Sequence[R]) -> list[R]:
    """Return the records of a training's evaluations, without those of early stages and of the end (`late`)."""
    return [journal_record for journal_record in records if not {"stage", "late"} & journal_record.keys()]


def _read_text(path: Path) -> str:
    return read_text(path, MOST_BYTES, errors="replace") if path.exists() else ""


def read_mapping(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none, or if it is damaged."""
    try:
        value = read_json(path) if path.exists() else None
    except UnreadableFile:
        raise
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _parse_record(line: str) -> dict[str, Any] | None:
    """Return the record in a line of a journal; None if it is invalid. biasbed writes ASCII alone."""
    if not line.isascii():
        return None
    try:
        value = parse_json(line)
        _RECORD.validate_python(value, strict=True)
    except ValueError:
        return None
    return cast(dict[str, Any], value)


@contextlib.contextmanager
def exclusive(folder: Path, work: str) -> Iterator[None]:
    """Lock a folder within the block; make it if it is missing. The lock ends with its process, even after a kill.

    Raises Failure, with the holder, if it is locked. work: a verb for the message, as `trained`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open_in_place(folder / LOCK) as file:
        while not take_lock(file):
            if is_locked(file):
                raise Failure(f"{folder} is being {work} by {_holder(file)}: wait for it, or stop it")
            time.sleep(0.01)  # another process holds it for a moment, to ask whether it is locked
        if os.fstat(file.fileno()).st_nlink == 1:  # a hard link could lead to somebody else's file
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield


def _holder(file: TextIO) -> str:
    file.seek(0)
    return file.read().strip() or "another process"


def folder_for(base: Path, resume: str, tracked: bool, study: str) -> RunFolder:
    """Return the folder to train in: the study's newest folder, or a new one if that is done or `resume` is `never`.

    A done folder is returned if `resume` is `once`, or if its results have not reached the server although runs are
    `tracked`. Folders of other studies are left out; one in which no training has begun may be used by any study.
    """
    series = _series(base)
    free = base.with_name(f"{base.name}-{len(series) + 1}") if series else base
    folders = [folder for folder in series if folder.study == study]
    folders = folders or [folder for folder in series if folder.study is None]
    if not folders or resume == "never":
        return RunFolder(free)
    done = [folder for folder in folders if folder.is_done]
    if resume == "once" and done:
        return done[0]
    newest = folders[-1]
    is_unsent = tracked and not newest.read_state().get("sent")
    return RunFolder(free) if newest.is_done and not is_unsent else newest


def find_finished(base: Path, study: str) -> RunFolder | None:
    """Return the first finished folder of the study with the key of `base`, None if there is none."""
    for folder in _series(base):
        if folder.study == study and folder.is_done:
            return folder
    return None


def _series(base: Path) -> list[RunFolder]:
    """Return the existing folders `<base>`, `<base>-2`, `<base>-3`, ..., the oldest first."""
    series: list[RunFolder] = []
    path = base
    while path.exists():
        series.append(RunFolder(path))
        path = base.with_name(f"{base.name}-{len(series) + 1}")
    return series


def all_folders(root: Path) -> list[RunFolder]:
    """Return all run folders below a folder of runs, finished or not."""
    return [RunFolder(path.parent) for path in sorted(root.glob(f"*/*/{STATE}"))]
