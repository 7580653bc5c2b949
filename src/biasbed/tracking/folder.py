"""Folder of one training: its lock, journal, state and identity.

A training that resumes reads it in `training/train.py`.

Answers: What lies in a run's folder, and who may write there?
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from biasbed import record
from biasbed.errors import Failure, UnreadableFile, UsageError
from biasbed.system import places, strict_yaml
from biasbed.system.files import append_line, has_lock, is_locked, open_in_place, refuse_links, write_whole
from biasbed.system.signature import is_alive, signature
from biasbed.system.strict import parse_json, read_json, read_text
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from biasbed.config import Config

DONE, LOCK, JOURNAL, STATE, ID = "done", "lock", "metrics.jsonl", "run.json", "id"
COMMAND = "command"  # exists while a command works here, and after a command that was killed
CLAIM = "claim"  # locked by the command that is about to train here, or whose training runs here


def home(config: Config) -> Path:
    """Return the folder of all runs of the tracking server that these settings name."""
    if config.output_dir != "auto":
        return Path(config.output_dir).expanduser().resolve()
    return places.home(resolve_uri() if config.tracking == "on" else "offline")


class RunState(TypedDict, total=False):
    """State of a folder's run, as the tracker writes it."""

    tags: dict[str, str]
    params: dict[str, str]
    inputs: list[Annotated[list[str], Field(min_length=3, max_length=3)]]  # context, name, fingerprint
    about: str  # description of the run in Markdown, without its outcome
    noted: list[str]  # earlier notes by biasbed; any other note is a user's
    superseded: list[str]
    experiment: str
    starts: list[str]
    run_id: str
    tracking_uri: str
    attempts: int
    sent: bool
    owes_model: bool
    without_best: bool


MOST_BYTES = 2**30  # of a journal
_STATE = TypeAdapter(RunState)


class _JournalRecord(TypedDict):
    """Entries that every record of a journal has; others are not checked."""

    step: int
    timestamp: Annotated[int, Field(ge=0)]
    metrics: dict[str, float]


_RECORD = TypeAdapter(_JournalRecord)
START_LINE = re.compile("[0-9a-f]{32} [0-9a-f]{16}")


class StartRecord(NamedTuple):
    """Start of a training in a folder."""

    token: str  # secret of the folder; the run on the server has its hash
    inode: str  # identity of the folder in which it started; a copy has another one


@dataclass(frozen=True)
class RunFolder:
    """Folder `<output_dir>/<suite>/<algorithm>-s<seed>-<run_key[:8]>`; later runs of the same key get `-2`, `-3` ..."""

    path: Path

    @property
    def is_done(self) -> bool:
        """True if its training has ended. If its state is lost, the training continues at its end and rewrites it."""
        return (self.path / DONE).exists() and bool(self.read_state())

    def mark_done(self) -> None:
        (self.path / DONE).touch()

    def unmark_done(self) -> None:
        (self.path / DONE).unlink(missing_ok=True)

    @contextlib.contextmanager
    def commanded(self) -> Iterator[None]:
        """Note that this process works here. It stays if a signal ends the block, or the process before its end."""
        write_whole(self.path / COMMAND, signature())
        try:
            yield
        except Exception:
            self.end_command()
            raise
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk: the note says as much once this process is gone
                write_whole(self.path / COMMAND, "ended by a signal")
            raise
        self.end_command()

    def end_command(self) -> None:
        """Have the note, also a killed command's, removed at the end of this process: only then has it said all.

        A `multiprocessing` finalizer, because children of `multiprocessing` do not call what `atexit` registers.
        """
        if (self.path / COMMAND).exists():
            write_whole(self.path / COMMAND, signature())
            Finalize(None, self._remove_note, exitpriority=0)

    def _remove_note(self) -> None:
        if _read_text(self.path / COMMAND) == signature():
            (self.path / COMMAND).unlink(missing_ok=True)

    @property
    def was_cut_off(self) -> bool:
        """True if the last command here was killed, even if only before it could report that everything is done."""
        path = self.path / COMMAND
        return path.exists() and not is_alive(_read_text(path))

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

    @property
    def has_whole_journal(self) -> bool:
        """True if every line of the journal can be read."""
        return None not in map(_parse_record, self._lines())

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

    @property
    def is_damaged(self) -> bool:
        """True if the tracker's state exists and can't be read."""
        return (self.path / STATE).exists() and not self.read_state()

    def write_state(self, state: dict[str, Any]) -> None:
        write_whole(self.path / STATE, json.dumps(state, indent=1))

    def identify(self) -> str:
        """Return the folder's id, drawn once and stored apart from its state, so that its run is found without that."""
        folder_id = self._id_lines()[0]
        if not re.fullmatch("[0-9a-f]{16}", folder_id):
            folder_id = self.read_state().get("tags", {}).get(record.FOLDER_ID) or uuid.uuid4().hex[:16]
            self._write_id(folder_id, self.read_starts())
        return folder_id

    @property
    def marks(self) -> dict[str, str]:
        """Tags of the runs that belong to this folder; none before the first start."""
        folder_id = self.read_state().get("tags", {}).get(record.FOLDER_ID)
        return {} if folder_id is None else {record.FOLDER_ID: folder_id}

    def read_starts(self) -> list[StartRecord]:
        """Return the starts of trainings in this folder, and in the one that it is a copy of, from both files."""
        lines = dict.fromkeys([*self.read_state().get("starts", ()), *self._id_lines()[1:]])
        return [StartRecord(*line.split()) for line in lines if START_LINE.fullmatch(line)]

    def add_start(self, token: str) -> list[str]:
        """Note a start and return all of them, for `starts` of the folder's state."""
        start = StartRecord(token, self.inode)
        starts = [earlier for earlier in self.read_starts() if earlier != start] + [start]
        self._write_id(self.identify(), starts)
        return [" ".join(start) for start in starts]

    def become_another(self, folder_id: str) -> None:
        """Give the folder another id. It keeps the starts: copies with equal results still draw equal tokens."""
        self._write_id(folder_id, self.read_starts())

    @property
    def inode(self) -> str:
        """Identity of the folder on its disk: it stays when the folder is moved there, and a copy has another one."""
        open_in_place(self.path / LOCK).close()
        return record.digest([path.stat().st_ino for path in (self.path, self.path / LOCK)])[:16]

    def _id_lines(self) -> list[str]:
        return _read_text(self.path / ID).split("\n")

    def _write_id(self, folder_id: str, starts: Sequence[StartRecord]) -> None:
        lines = [folder_id, *(" ".join(start) for start in starts)]
        write_whole(self.path / ID, "".join(f"{line}\n" for line in lines))

    # --- one trainer at a time ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, and remove half-written files of killed processes. Raises Failure that names the holder."""
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
        """Make and reserve the folder for a training to be started; return None if another command has reserved it.

        The claim ends when the returned file is closed, or when this process ends.
        """
        make_folder(self.path)
        refuse_links(self.path)  # its log and its list of starts are written as well
        file = open_in_place(self.path / CLAIM)
        if has_lock(file):
            return file
        file.close()
        return None

    @property
    def study(self) -> str | None:
        """Study of the training, None before the first start; read from its settings if its state is lost."""
        study = self.read_state().get("tags", {}).get(record.STUDY)
        if study is None and (self.path / record.CONFIG_FILE).exists():
            with contextlib.suppress(UsageError):
                settings = strict_yaml.read(self.path / record.CONFIG_FILE, "config")
                study = settings.get("study") if isinstance(settings, dict) else None
        return study if isinstance(study, str) else None


R = TypeVar("R", bound=Mapping[str, Any])


def evaluations(records: Sequence[R]) -> list[R]:
    """Return a journal's records of evaluations, without those of earlier stages or from after the end."""
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
    """Return the record in a line of a journal; None if it is invalid. Only ASCII lines are biasbed's own."""
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
    """Lock a folder, which is made if it is missing. Raises Failure that names the holder and its work (`trained`).

    The lock ends with its process, however that ends.
    """
    make_folder(folder)
    with open_in_place(folder / LOCK) as file:
        while not has_lock(file):
            if is_locked(file):
                raise Failure(f"{folder} is being {work} by {_holder(file)}: wait for it, or stop it")
            time.sleep(0.01)  # others are only asking for the holder
        if os.fstat(file.fileno()).st_nlink == 1:  # else the file belongs to somebody else, too
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield


def make_folder(folder: Path) -> None:
    """Make a folder if it is missing. Raises UsageError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't make the folder {folder}: {error.strerror}") from None


def _holder(file: TextIO) -> str:
    file.seek(0)
    return file.read().strip() or "another process"


def folder_for(base: Path, resume: str, tracked: bool, study: str) -> RunFolder:
    """Return the folder to train in: the study's newest, or the next free name if it is done or `resume` is `never`.

    A done folder is returned if `resume` is `once`, if its results never reached a server although runs are `tracked`,
    or if its command was killed before it could report that everything is done. Folders of other studies are never
    returned; a folder in which no training has begun may be used by any study.
    """
    series = _series(base)
    free = base.with_name(f"{base.name}-{len(series) + 1}") if series else base
    folders = [folder for folder in series if folder.study == study]
    folders = folders or [folder for folder in series if folder.study is None and not folder.is_damaged]
    if not folders or resume == "never":
        return RunFolder(free)
    done = [folder for folder in folders if folder.is_done]
    if resume == "once" and done:
        return done[0]
    newest = folders[-1]
    is_unreported = newest.was_cut_off or (tracked and not newest.read_state().get("sent"))
    return RunFolder(free) if newest.is_done and not is_unreported else newest


def find_finished(base: Path, study: str) -> RunFolder | None:
    """Return the first finished folder of the study with the key of `base`, None if there is none."""
    for folder in _series(base):
        if folder.study == study and folder.is_done:
            return folder
    return None


def _series(base: Path) -> list[RunFolder]:
    """Return the folders of one key that exist, the oldest first."""
    series: list[RunFolder] = []
    path = base
    while path.exists():
        series.append(RunFolder(path))
        path = base.with_name(f"{base.name}-{len(series) + 1}")
    return series


def all_folders(root: Path) -> list[RunFolder]:
    """Return all run folders under a home, finished or not."""
    return [RunFolder(path.parent) for path in sorted(root.glob(f"*/*/{STATE}"))]
