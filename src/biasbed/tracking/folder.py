"""The folder of one training: found again by what is trained, locked while it is, holding all that resume needs."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.system import places, strict_yaml
from biasbed.system.files import append_line, has_lock, open_in_place, refuse_links, write_whole
from biasbed.system.strict import parse_json
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from biasbed.config import Config

DONE, LOCK, JOURNAL, STATE, ID = "done", "lock", "metrics.jsonl", "run.json", "id"
COMMAND = "command"  # there while a command works here, and after one that was killed
CLAIM = "claim"  # locked by the command that is about to train here, or whose training does


def home(config: Config) -> Path:
    """The folder of all runs of these settings' tracking server."""
    if config.output_dir != "auto":
        return Path(config.output_dir).expanduser().resolve()
    return places.home(resolve_uri() if config.tracking == "on" else "offline")


class RunState(TypedDict, total=False):
    """What the tracker notes of a folder's run."""

    tags: dict[str, str]
    params: dict[str, str]
    inputs: list[Annotated[list[str], Field(min_length=3, max_length=3)]]  # context, name, fingerprint
    about: str  # what people read of it, whatever its outcome
    noted: list[str]  # notes that it had before: any other one is somebody's own
    superseded: list[str]
    experiment: str
    opening: str
    starts: list[str]
    run_id: str
    tracking_uri: str
    attempts: int
    sent: bool
    owes_model: bool
    without_best: bool


_STATE = TypeAdapter(RunState)
START_LINE = re.compile("[0-9a-f]{32} [0-9a-f]{16}")


class StartRecord(NamedTuple):
    """A start of a training in a folder."""

    token: str  # known to the folder alone; the run on the server has its hash
    place: str  # identity of the folder in which it happened: a copy has another one


@dataclass(frozen=True)
class RunFolder:
    """`<output_dir>/<suite>/<algorithm>-s<seed>-<run_key[:8]>`, with `-2`, `-3`, .. for later runs of the same key."""

    path: Path

    @property
    def is_done(self) -> bool:
        """Whether its training has ended. One whose state is lost is continued at its end, which writes it anew."""
        return (self.path / DONE).exists() and bool(self.read_state())

    def mark_done(self) -> None:
        (self.path / DONE).touch()

    def unmark_done(self) -> None:
        (self.path / DONE).unlink(missing_ok=True)

    @contextlib.contextmanager
    def commanded(self) -> Iterator[None]:
        """Note that a command works here, until it ends by itself; a signal that ends it leaves the note."""
        write_whole(self.path / COMMAND, f"process {os.getpid()} on {socket.gethostname()}\n")
        try:
            yield
        except Exception:
            self.end_command()
            raise
        self.end_command()

    def end_command(self) -> None:
        (self.path / COMMAND).unlink(missing_ok=True)

    @property
    def was_cut_off(self) -> bool:
        """Whether the last command here was killed, perhaps after all was done: then nobody was told so."""
        return (self.path / COMMAND).exists()

    # --- journal -----------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def write_journal(self, records: Sequence[dict[str, Any]]) -> None:
        """Make the journal hold exactly these records."""
        write_whole(self.journal, "".join(json.dumps(entry) + "\n" for entry in records))

    def append_journal(self, entry: dict[str, Any]) -> None:
        append_line(self.journal, json.dumps(entry))

    def read_journal(self) -> list[dict[str, Any]]:
        """All whole records; a line that is damaged, or was cut off by a kill, is left out (the checkpoint has it)."""
        return [found for line in self._lines() if (found := _record(line)) is not None]

    @property
    def has_whole_journal(self) -> bool:
        """Whether every line of the journal can be read."""
        return all(_record(line) is not None for line in self._lines())

    def _lines(self) -> list[str]:
        return self.journal.read_text(errors="replace").splitlines() if self.journal.exists() else []

    # --- the run on the tracking server ------------------------------------------------------------------------------

    def read_state(self) -> dict[str, Any]:
        """What the tracker wrote: run id, tags, parameters. Empty before the first start, and where it is damaged."""
        state = mapping(self.path / STATE) or {}
        try:
            _STATE.validate_python(state, strict=True)
        except ValidationError:
            return {}
        return state

    @property
    def is_damaged(self) -> bool:
        """Whether what the tracker wrote is there, but can't be read."""
        return (self.path / STATE).exists() and not self.read_state()

    def write_state(self, state: dict[str, Any]) -> None:
        write_whole(self.path / STATE, json.dumps(state, indent=1))

    def identify(self) -> str:
        """The folder's id: drawn once and kept beside its state, so that its run is found again without that."""
        found = self._id_lines()[0]
        if not re.fullmatch("[0-9a-f]{16}", found):
            found = self.read_state().get("tags", {}).get(record.FOLDER_ID) or uuid.uuid4().hex[:16]
            self._write_id(found, self.read_starts())
        return found

    @property
    def marks(self) -> dict[str, str]:
        """Tags by which a run on a server is this folder's own; none before the first start."""
        known = self.read_state().get("tags", {}).get(record.FOLDER_ID)
        return {} if known is None else {record.FOLDER_ID: known}

    def read_starts(self) -> list[StartRecord]:
        """Return the starts of trainings in this folder, and in the one that it is a copy of. Both files have them."""
        lines = dict.fromkeys([*self.read_state().get("starts", ()), *self._id_lines()[1:]])
        return [StartRecord(*line.split()) for line in lines if START_LINE.fullmatch(line)]

    def add_start(self, token: str) -> list[str]:
        """Note a start and return all of them, for `starts` of the folder's state."""
        start = StartRecord(token, self.place)
        starts = [*(one for one in self.read_starts() if one != start), start]
        self._write_id(self.identify(), starts)
        return [" ".join(start) for start in starts]

    def become_another(self, folder_id: str) -> None:
        """Give the folder another id, and forget the starts of the one that it is a copy of."""
        self._write_id(folder_id, ())

    @property
    def place(self) -> str:
        """Identity of the folder on its disk: it stays if the folder is moved there, and a copy has another one."""
        open_in_place(self.path / LOCK).close()
        return record.digest([path.stat().st_ino for path in (self.path, self.path / LOCK)])[:16]

    def _id_lines(self) -> list[str]:
        path = self.path / ID
        return (path.read_text(errors="replace") if path.exists() else "").split("\n")

    def _write_id(self, folder_id: str, starts: Sequence[StartRecord]) -> None:
        lines = [folder_id, *(" ".join(start) for start in starts)]
        write_whole(self.path / ID, "".join(f"{line}\n" for line in lines))

    # --- one trainer at a time ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; Failure names the holder. What processes that were killed left half-written is removed."""
        with exclusive(self.path, "trained"):
            refuse_links(self.path)
            for path in (*self.path.glob("*.tmp"), *self.path.glob("predictions/*/*.tmp")):
                path.unlink(missing_ok=True)
            yield

    def holder(self) -> str | None:
        """Who is training here, None where nobody is."""
        if not (self.path / LOCK).exists():
            return None
        with open_in_place(self.path / LOCK) as file:
            return None if _lock(file) else _holder(file)

    def claim(self) -> TextIO | None:
        """Reserve the folder, which is made, for a training to be started; None where another command has done so.

        Closing what is returned ends it, and so does the end of this process.
        """
        make(self.path)
        refuse_links(self.path)  # its log and its list of starts are written, too
        file = open_in_place(self.path / CLAIM)
        if _lock(file):
            return file
        file.close()
        return None

    @property
    def study(self) -> str | None:
        """The study that it was trained for, None before the first start; by its settings where its state is lost."""
        study = self.read_state().get("tags", {}).get(record.STUDY)
        if study is None and (self.path / record.CONFIG_FILE).exists():
            with contextlib.suppress(UsageError):
                settings = strict_yaml.read(self.path / record.CONFIG_FILE, "config")
                study = settings.get("study") if isinstance(settings, dict) else None
        return study if isinstance(study, str) else None


R = TypeVar("R", bound=Mapping[str, Any])


def evaluations(records: Sequence[R]) -> list[R]:
    """Of a journal's records those of evaluations; the others are of stages before the last, or came after the end."""
    return [entry for entry in records if "stage" not in entry and "late" not in entry]


def mapping(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none, or it can't be read."""
    try:
        found = parse_json(path.read_text()) if path.exists() else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _record(line: str) -> dict[str, Any] | None:
    """A line of a journal, None where it is none: what isn't ASCII we haven't written, also where it could be read."""
    if not line.isascii():
        return None
    try:
        found = parse_json(line)
        is_record = isinstance(found["step"], int) and isinstance(found["timestamp"], int)
        return found if is_record and isinstance(found["metrics"], dict) else None
    except (ValueError, TypeError, KeyError):
        return None


@contextlib.contextmanager
def exclusive(folder: Path, work: str) -> Iterator[None]:
    """Hold a folder, which is made where it is missing; Failure names the holder, and says what is being done to it.

    The lock ends with its process, however that ends.
    """
    make(folder)
    with open_in_place(folder / LOCK) as file:
        if not any(_lock(file, wait) for wait in (0.0, 0.05, 0.1)):  # somebody may just be looking who holds it
            raise Failure(f"{folder} is being {work} by {_holder(file)}: wait for it, or stop it")
        if os.fstat(file.fileno()).st_nlink == 1:  # else it is somebody else's file, too
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield


def make(folder: Path) -> None:
    """Make a folder where it is missing; UsageError where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't make the folder {folder}: {error.strerror}") from None


def _lock(file: TextIO, wait: float = 0.0) -> bool:
    """Whether the lock could be had, after `wait` seconds; it is held until the file is closed."""
    time.sleep(wait)
    return has_lock(file)


def _holder(file: TextIO) -> str:
    file.seek(0)
    return file.read().strip() or "another process"


def folder_for(base: Path, resume: str, tracked: bool, study: str) -> RunFolder:
    """The folder to train in: the study's newest one unless it is done or `resume` is `never`; then the next free name.

    With `resume=once` a done folder is returned as it is; so is one whose results never reached a server, where runs
    are `tracked`, and one whose command was killed before it could say that all is done. Folders of other studies are
    left alone; one that no training has begun in is anybody's.
    """
    series, free = [], base
    while free.exists():
        series.append(RunFolder(free))
        free = base.with_name(f"{base.name}-{len(series) + 1}")
    own = [f for f in series if f.study == study] or [f for f in series if f.study is None and not f.is_damaged]
    if not own or resume == "never":
        return RunFolder(free)
    done = [folder for folder in own if folder.is_done]
    if resume == "once" and done:
        return done[0]
    newest = own[-1]
    leave = newest.was_cut_off or (tracked and not newest.read_state().get("sent"))
    return RunFolder(free) if newest.is_done and not leave else newest


def all_folders(root: Path) -> list[RunFolder]:
    """All run folders under a home, finished or not."""
    return [RunFolder(path.parent) for path in sorted(root.glob(f"*/*/{STATE}"))]
