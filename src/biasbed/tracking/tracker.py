"""From journal to MLflow, exactly once. The only user of mlflow while training; works on rank 0 alone.

Every record is in the journal, with its timestamp, before it is sent. MLflow's stores drop a row that is equal in key,
step, value and timestamp, so sending the whole journal again is always safe: that is how an interruption of the server,
of the training or of both is mended.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.errors import Failure, first_line
from biasbed.settings import word
from biasbed.system import places
from biasbed.system.files import refuse_links
from biasbed.tracking import mlflow_errors, notes
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE, RUN_ID
from biasbed.tracking.ownership import Ownership
from biasbed.tracking.pages import address
from biasbed.tracking.server import (
    deleted,
    experiment_for,
    guarded,
    impatient,
    log_inputs,
    resolve_uri,
    user,
    writer,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PARENT_RUN = "BIASBED_PARENT_RUN"  # by which a study tells its trainings whose they are
PATIENCE = 90.0  # seconds that the end of a training waits for a server that is away
RETRY_AFTER = 15.0  # seconds between attempts to reach it before that

Record = dict[str, Any]  # {"step": int, "timestamp": ms, "metrics": {name: value}}


def is_at(state: Record, uri: str) -> bool:
    """Whether what a folder knows of its run is about this server; passwords are no part of that."""
    return places.public_uri(state.get("tracking_uri", "")) == places.public_uri(uri)


class Tracker:
    """Writes one run: its folder first, then the server."""

    def __init__(self, folder: RunFolder, run_id: str | None = None, offline: bool = False) -> None:
        self.folder, self.offline = folder, offline
        self._given_run = run_id
        self._away_since: float | None = None
        self._behind = False  # the server lacks something that the folder has
        self._problem, self._is_deleted = "", False  # why the last attempt failed, and whether another could help
        self.uri = "" if offline else resolve_uri()
        self.run_id = ""
        refuse_links(folder.path)  # of a folder that somebody else has made
        self.owner = Ownership(folder, self.uri)
        self.is_finished = False  # nothing is left to do, and nothing that comes now ends it early

    # --- the run's beginning -----------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        experiment: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        inputs: Sequence[tuple[str, str, str]] = (),
        about: str = "",
    ) -> None:
        """Open the run: the one of `mlflow run`, the interrupted one, or a new one; then send all that is known.

        inputs: (context, name, fingerprint) of each data set. about: what people are to read of it, in Markdown, with
        `notes.RUN_ID` where its id is to stand; how it went is put before that. Raises Failure where the server can't
        be reached: nothing has been computed yet.
        """
        state = self.folder.read_state()
        attempts = int(state.get("attempts", 0)) + 1
        own = {record.ATTEMPTS: str(attempts), record.FOLDER_ID: self.folder.identify(), notes.NAME: name}
        before = state.get("tags", {}).get(NOTE)
        tags = {**tags, **own, **({} if before is None else {NOTE: before})}
        words = {f"{record.CONFIG_PARAMETER}{key}": places.public_value(word(value)) for key, value in params.items()}
        state |= {"experiment": experiment, "tags": tags, "params": words, "attempts": attempts, "sent": False}
        state["inputs"] = [list(entry) for entry in inputs]
        state["about"] = about
        self.owner.draw(state)
        self.folder.write_state(_noted(state))
        if not self.offline:
            self.reopen()

    def reopen(self) -> None:
        """Open the run of a folder by what the folder says of it."""
        with guarded(self.uri):
            self._open(self.folder.read_state())

    def _open(self, state: Record) -> None:
        """Every run that is given up for another stays in the state until it is deleted, whatever happens before."""
        if not self.owner.is_drawn:
            self.owner.draw(state)
        previous = self.owner.previous(state)
        if previous is not None:
            self.owner.claim(previous.info.run_id)  # also if it is given up: then it is ours to delete
        self.run_id = self._given_run or self._revived(previous) or self._created(state)
        self._given_run = None
        self.owner.claim(self.run_id)
        if previous is None:
            self.owner.settle(state, self.run_id)
        superseded = state.setdefault("superseded", [])
        if previous is not None and previous.info.run_id != self.run_id:
            superseded.append(previous.info.run_id)
        superseded += self._twins(state)
        state |= {"run_id": self.run_id, "tracking_uri": places.public_uri(self.uri)}
        self.folder.write_state(state)
        self._send_everything(state)
        for run_id in superseded:
            self.owner.delete(run_id)
        self.folder.write_state({**state, "superseded": []})

    def _send_everything(self, state: Record) -> None:
        self._send_description(state)
        self._send_inputs(state)
        self._send_records(self.folder.read_journal())
        self._send_files(record.CONFIG_FILE, record.PROTOCOL_FILE, record.ENVIRONMENT_FILE)
        self._send_files(record.PICTURES_FOLDER, record.DATA_FOLDER)

    def _twins(self, state: Record) -> list[str]:
        """Twins of the folder's run: the server made them, but its answer was lost, and the client asked again."""
        opening = state.get("opening")
        twins = [run for run in self.owner.runs(state) if opening and run.data.tags.get(record.OPENING) == opening]
        return [run.info.run_id for run in twins if run.info.run_id != self.run_id]

    def _revived(self, run: Run | None) -> str | None:
        """The interrupted run, running again, unless someone deleted it, or it has records that the folder has lost."""
        from mlflow.exceptions import MlflowException

        if run is None or self.owner.has_unknown(run):
            return None
        try:
            self._client.update_run(run.info.run_id, status="RUNNING")
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"):
                return None
            raise
        return str(run.info.run_id)

    def _created(self, state: Record) -> str:
        state["opening"] = uuid.uuid4().hex
        self.folder.write_state(state)  # before it is asked for: whoever is killed now knows what it asked for
        tags = {name: value for name, value in state["tags"].items() if name != NOTE}  # which is to name the run
        tags |= {record.OPENING: state["opening"], **self.owner.tags}
        tags |= {"mlflow.user": user(), "mlflow.source.type": "LOCAL"}
        parent = os.environ.get(PARENT_RUN)
        if parent:
            tags[notes.PARENT] = parent
        place = experiment_for(self._client, self.uri, state["experiment"])
        return str(self._client.create_run(place, tags=tags).info.run_id)

    def _send_description(self, state: Record) -> None:
        from mlflow.entities import Param, RunTag

        present = self._client.get_run(self.run_id).data
        params = [Param(key, value) for key, value in state["params"].items() if key not in present.params]
        words, before = dict(state["tags"]), state.get("noted", ())
        if NOTE in words:
            words[NOTE] = words[NOTE].replace(RUN_ID, self.run_id)
        own = {words.get(NOTE), *(text.replace(RUN_ID, self.run_id) for text in before)}
        if present.tags.get(NOTE, words.get(NOTE)) not in own:  # somebody's own words
            words.pop(NOTE, None)
        tags = [RunTag(key, value) for key, value in words.items()]
        self._client.log_batch(self.run_id, params=params, tags=tags)
        stale = {record.ENDED_BY, record.ERROR} | ({NOTE} if present.tags.get(NOTE) in own else set())
        for key in stale & (set(present.tags) - set(words)):
            self._client.delete_tag(self.run_id, key)  # of the attempt before

    def _send_inputs(self, state: Record) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        entries = [
            DatasetInput(
                Dataset(name, fingerprint, "local", json.dumps({"name": name})),
                [InputTag("mlflow.data.context", context)],
            )
            for context, name, fingerprint in state.get("inputs", ())
        ]
        log_inputs(self._client, self.run_id, entries)

    # --- while training ----------------------------------------------------------------------------------------------

    def restore(self, history: Sequence[Record]) -> None:
        """Make the journal what the checkpoint says it was; before `start`.

        Records beyond it were sent before that checkpoint was damaged. They come again with another time, so that the
        run they went to is given up for a new one.
        """
        state = self.folder.read_state()
        if len(self.folder.read_journal()) > len(history) and state.get("run_id"):
            state.setdefault("superseded", []).append(state.pop("run_id"))
            self.folder.write_state(state)
        self.folder.write_journal(history)

    def log(self, entry: Record) -> None:
        """One boundary's metrics, to the journal and then to the server. A server that is away costs no record."""
        self.folder.append_journal(entry)
        if self._away_since is not None and time.monotonic() - self._away_since < RETRY_AFTER:
            return
        self._try(lambda: self._catch_up() if self._behind else self._send_records([entry]))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        state = self._tagged(tags)
        self.folder.write_state(state)
        self._try(lambda: self._send_description(state))

    def _tagged(self, tags: Mapping[str, str]) -> Record:
        """What the folder says of its run, with these tags besides."""
        state = self.folder.read_state()
        return {**state, "tags": {**state.get("tags", {}), **tags}, "params": state.get("params", {})}

    # --- the run's end -----------------------------------------------------------------------------------------------

    def finish(self, log_model: Callable[[str], None] | None = None) -> None:
        """Send results and the model, and end the run. Waits a while for a server that is away, then raises Failure."""
        self.folder.mark_done()
        deadline = time.monotonic() + PATIENCE
        with impatient(PATIENCE):
            self._conclude()
        if not self.offline:
            self._deliver(self._send_results, deadline)
            owes = log_model is not None and not self._log_model(log_model)
            ended = time.monotonic() + PATIENCE / 3
            self._deliver(lambda: self._client.set_terminated(self.run_id, "FINISHED"), ended)
            self.is_finished = True  # before the folder says so: whoever ended it now would do so for good
            self.folder.write_state({**self.folder.read_state(), "sent": True, "owes_model": owes})
        self.is_finished = True

    def _deliver(self, send: Callable[[], None], deadline: float) -> None:
        """Send what belongs to the end, again and again until the deadline; Failure then."""
        while True:
            with impatient(deadline - time.monotonic()):
                if self._try(send):
                    return
            if self._is_deleted or time.monotonic() + RETRY_AFTER / 3 > deadline:
                restored = "restore it in MLflow, then run `biasbed sync`"
                remedy = restored if self._is_deleted else "run `biasbed sync` when the server is back"
                raise Failure(f"the training is done but {self._problem}; all is kept in {self.folder.path}: {remedy}")
            time.sleep(RETRY_AFTER / 3)

    def ending(self) -> str:
        """What a command ends with that made this run: the run's page, and the folder."""
        where = "offline; `biasbed sync` sends it" if self.offline else address(self.uri, self.run_id)
        return f"{where}\n{self.folder.path}"

    def _conclude(self) -> None:
        """The note begins with the result; a run that is whole in the end does not say why it once was not."""
        state = self.folder.read_state()
        stale = {record.ERROR, record.ENDED_BY} & set(state["tags"])
        tags = {name: value for name, value in state["tags"].items() if name not in stale}
        state = _noted({**state, "tags": tags}, self._result())
        self.folder.write_state(state)
        self._try(lambda: self._send_description(state))

    def _result(self) -> str:
        """What counts at the best evaluation; empty where the folder does not say what counts."""
        with contextlib.suppress(OSError, ValueError):
            protocol = record.Protocol.from_json((self.folder.path / record.PROTOCOL_FILE).read_text())
            return notes.best(protocol, self.folder.read_journal())
        return ""

    def _send_results(self) -> None:
        if self._behind:
            self._catch_up()
        figures = sorted(path.name for path in self.folder.path.glob("*.png"))
        self._send_files("predictions", record.EXAMPLES_FILE, *record.EVALUATION_FILES, *figures)
        best = self.folder.path / record.BEST_CHECKPOINT
        refuse_links(best)
        if best.exists():
            self._client.log_artifact(self.run_id, str(best), record.CHECKPOINT_FOLDER)

    def add_model(self, log_model: Callable[[str], None]) -> bool:
        """Log the model that a finished run owes, which ends when it did; whether it has the model now."""
        state = self.folder.read_state()
        self.run_id = state["run_id"]
        with guarded(self.uri):
            run = self._client.get_run(self.run_id)
            if run.data.tags.get(record.FOLDER_ID) != self.folder.identify() or self.owner.taken_by(run) is not None:
                raise Failure(f"{self.folder.path}: run {self.run_id} belongs to another folder; no model was logged")
            ended = run.info.end_time
            is_logged = self._log_model(log_model)
            self._client.set_terminated(self.run_id, "FINISHED", ended)
        self.folder.write_state({**state, "owes_model": not is_logged})
        return is_logged

    def _log_model(self, log_model: Callable[[str], None]) -> bool:
        """Once per run; whether it has one. A network that can't be exported costs the model, not the results."""
        try:
            outputs = self._client.get_run(self.run_id).outputs
            if outputs is None or not outputs.model_outputs:
                log_model(self.run_id)
        except Exception as error:  # torch.export, MLflow and the server each have their own kinds
            reason = places.public_text(first_line(error))
            print(f"warning: no MLflow model was logged: {reason}; the checkpoint was", file=sys.stderr)
            return False
        return True

    def abort(self, status: str, tags: Mapping[str, str], note: str) -> None:
        """End the run early; what can't be sent now is sent when the training is resumed."""
        if not self.run_id:
            return
        self._away_since = None
        tags = {name: places.public_message(value) for name, value in tags.items()}
        state = _noted(self._tagged(tags), places.public_message(note))
        with contextlib.suppress(OSError):  # a full disk may be why it ends; the server learns of that in any case
            self.folder.write_state(state)
        with impatient(PATIENCE / 6):  # each: a run that can't be described is ended all the same
            self._try(lambda: self._send_description(state))
            self._try(lambda: self._client.set_terminated(self.run_id, status))

    # --- sending -----------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> MlflowClient:
        return writer(self.uri)

    def _try(self, send: Callable[[], None]) -> bool:
        """Whether it was sent; a server that is away is reported once and tried again later."""
        if self.offline or not self.run_id:
            return False
        try:
            with guarded(self.uri):
                self._part_if_lost()
                send()
        except Failure as failure:
            gone = deleted(self.uri, self.run_id) if mlflow_errors.is_refusal(failure.__cause__) else ""
            is_news = self._away_since is None or not self._behind or bool(gone) != self._is_deleted
            self._problem, self._is_deleted = gone or str(failure), bool(gone)
            if is_news:
                print(f"warning: {self._problem}; training goes on, the journal keeps everything", file=sys.stderr)
            self._away_since, self._behind = time.monotonic(), True
            return False
        self._away_since, self._is_deleted = None, False
        return True

    def _part_if_lost(self) -> None:
        """Go on in a run of its own if somebody else has continued this one in a copy of the folder."""
        run = self._client.get_run(self.run_id)
        if self.owner.lost_to(run) is not None:
            state = self.folder.read_state()
            self.owner.part(state, run)
            self._open(state)

    def _catch_up(self) -> None:
        """Send everything again after the server was away; it keeps each row once."""
        self._send_everything(self.folder.read_state())
        self._behind = False
        print("the tracking server is back; the journal was sent", file=sys.stderr)

    def _send_records(self, records: Sequence[Record]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, entry["timestamp"], entry["step"])
            for entry in records
            for name, value in entry["metrics"].items()
        ]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + 1000])

    def _send_files(self, *names: str) -> None:
        for name in names:
            path = self.folder.path / name
            refuse_links(path)
            if path.is_dir():
                self._client.log_artifacts(self.run_id, str(path), name)
            elif path.exists():
                self._client.log_artifact(self.run_id, str(path))


def _noted(state: Record, outcome: str = "") -> Record:
    """What a folder says of its run, with a note that begins with how it went. Earlier notes of ours are remembered."""
    text, tags = notes.joined(outcome, state.get("about", "")), dict(state["tags"])
    before = tags.pop(NOTE, None)
    known = [*state.get("noted", ()), *([] if before is None else [before])]
    return {**state, "noted": list(dict.fromkeys(known)), "tags": {**tags, **({NOTE: text} if text else {})}}
