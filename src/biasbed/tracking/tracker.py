"""Tracker that sends a run's journal to MLflow, each record exactly once. It works on rank 0 only.

Every record is in the journal, with its timestamp, before it is sent. MLflow's stores drop a row that is equal in key,
step, value and timestamp, so sending the whole journal again is always safe. This repairs interruptions of the server,
of the training or of both. Records are made by `training/engine.py`, at the end of an epoch by
`_evaluate_last_stage`, a run's tags, those of git too, by `evaluation/tracked_job.py`.

Answers: Where does a number reach MLflow?
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbed import plugin_loader, record, redaction
from biasbed.errors import REFUSALS, CorruptImage, Failure, first_line, os_reason
from biasbed.settings import word
from biasbed.system.files import refuse_links
from biasbed.system.processes import ignore_first_signal, postponed, signal_of
from biasbed.system.strict import read_text
from biasbed.tracking import notes
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE, RUN_ID
from biasbed.tracking.pages import address
from biasbed.tracking.run_reader import StoredRun, find_runs
from biasbed.tracking.server import (
    describe_deletion,
    experiment_for,
    guarded,
    impatient,
    is_refusal,
    log_inputs,
    resolve_uri,
    user,
    writer,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

PARENT_RUN = "BIASBED_PARENT_RUN"  # variable with which a study passes the id of its run to its trainings
PATIENCE = 90.0  # seconds for which the end of a training waits for an unreachable server
RETRY_AFTER = 15.0  # seconds between attempts to reach it before the end

RESULTS = "biasbed.results"  # tag: digest of the journal
# Tags that are never taken from a folder's state, as the folder may be a stranger's.
OWNING = (record.IMPORT, record.ORIGIN_RUN, record.FOLDER_ID, RESULTS)

Record = dict[str, Any]  # {"step": int, "timestamp": ms, "metrics": {name: value}}


class SentElsewhere(Failure):
    """A finished run with the same results is on the server: the folder is a copy."""


def is_at(state: Record, uri: str) -> bool:
    """Return True if a folder's state is about this server; passwords are ignored."""
    return redaction.public_uri(state.get("tracking_uri", "")) == redaction.public_uri(uri)


class Tracker:
    """Writer of one run, to its folder first, then to the server."""

    def __init__(self, folder: RunFolder, run_id: str | None = None, offline: bool = False) -> None:
        """run_id: the run that `mlflow run` opened for the command, if any. offline: write to the folder alone."""
        self.folder, self.offline = folder, offline
        self.uri = "" if offline else resolve_uri()
        self.run_id = ""  # set when the run is opened
        self.is_finished = False  # True once nothing is left to do: the run can't end early any more
        self._given_run = run_id
        self._away_since: float | None = None  # time of the last failed attempt to send; None if the server answers
        self._behind = False  # True while the server lacks something that the folder has
        self._problem = ""  # reason of the last failure
        self._is_deleted = False  # True if the run was deleted on the server, so that retrying can't help
        refuse_links(folder.path)  # somebody else may have made the folder

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
        """Open the run (that of `mlflow run`, the interrupted one, or a new one) and send the folder's content.

        inputs: (context, name, fingerprint) of each data set. about: description in Markdown, with `notes.RUN_ID` as
        placeholder for the run's id; the outcome is put before it. Raises Failure if the server can't be reached, as
        nothing has been computed yet.
        """
        state = self.folder.own_state()
        attempts = int(state.get("attempts", 0)) + 1
        note = state["tags"].get(NOTE)
        run_tags = {record.ATTEMPTS: str(attempts), notes.NAME: name}
        tags = {**tags, **run_tags, record.FOLDER_ID: state["tags"][record.FOLDER_ID]}
        if note is not None:
            tags[NOTE] = note
        public = {key: redaction.public_value(word(value)) for key, value in params.items()}
        texts = {f"{record.CONFIG_PARAMETER}{key}": value for key, value in public.items()}
        state |= {"experiment": experiment, "tags": tags, "params": texts, "attempts": attempts, "sent": False}
        state["inputs"] = list(map(list, inputs))
        state["about"] = about
        self.folder.write_state(_with_note(state))
        if not self.offline:
            self.reopen()

    def reopen(self) -> None:
        """Open the run of a folder from the folder's state. Raises SentElsewhere if another run has its results."""
        with guarded(self.uri):
            state = self.folder.own_state()
            if self.folder.is_done:
                self._refuse_sent(state)
            self._open(state)

    def _refuse_sent(self, state: Record) -> None:
        """If another folder's run has exactly these results, note that they are sent, and raise SentElsewhere."""
        results, folder_id = self.folder.results, state["tags"][record.FOLDER_ID]
        for run in find_runs(self.uri, results=results) if results else ():
            if run.info.status == "FINISHED" and run.data.tags.get(record.FOLDER_ID) != folder_id:
                self._delete_own(state)
                self.run_id = ""
                address = redaction.public_uri(self.uri)
                state = {**self.folder.own_state(), "run_id": run.info.run_id, "tracking_uri": address}
                self.folder.write_state({**state, "sent": True})
                raise SentElsewhere(f"{self.folder.path} is left alone: its results were sent as run {run.info.run_id}")

    def _open(self, state: Record) -> None:
        """Open the run and send everything; then delete the folder's other runs.

        The folder has several runs if an answer of the server was lost, so that the client made a run again.
        """
        previous = self._find_own(state)
        self.run_id = self._given_run or self._reopen_run(previous) or self._create_run(state)
        self._given_run = None
        self._client.set_tag(self.run_id, record.FOLDER_ID, state["tags"][record.FOLDER_ID])
        state |= {"run_id": self.run_id, "tracking_uri": redaction.public_uri(self.uri)}
        self.folder.write_state(state)
        self._send_everything(state)
        self._delete_own(state, except_for=self.run_id)

    def _delete_own(self, state: Record, except_for: str = "") -> None:
        """Delete the runs of this folder, except for the one of this id."""
        for run in self._own_runs(state):
            if run.info.run_id != except_for:
                with contextlib.suppress(Exception):  # it may be deleted already
                    self._client.delete_run(run.info.run_id)

    def _own_runs(self, state: Record) -> list[StoredRun]:
        """Return the runs of this folder, without those of its copies, which have other ids, and imported ones."""
        runs = find_runs(self.uri, folder=state["tags"][record.FOLDER_ID])
        return [run for run in runs if record.ORIGIN_RUN not in run.data.tags]

    def _find_own(self, state: Record) -> Run | None:
        """Return the folder's run; of several that of the folder's state, else one with metrics."""
        runs = self._own_runs(state)
        runs.sort(key=lambda run: (run.info.run_id != state.get("run_id"), not run.data.metrics))
        return self._client.get_run(runs[0].info.run_id) if runs else None

    def _send_everything(self, state: Record) -> None:
        """Send description, data sets, records and files. The server stores each record once."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        self._send_description(state)
        inputs = []
        for context, name, fingerprint in state.get("inputs", ()):
            dataset = Dataset(name, fingerprint, "local", json.dumps({"name": name}))
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
        log_inputs(self._client, self.run_id, inputs)
        self._send_records(self.folder.read_journal())
        self._send_files(record.CONFIG_FILE, record.PROTOCOL_FILE, record.ENVIRONMENT_FILE)
        self._send_files(record.PICTURES_FOLDER, record.DATA_FOLDER)

    def _reopen_run(self, run: Run | None) -> str | None:
        """Reopen an interrupted run and return its id; None if there is none, or if it was deleted."""
        from mlflow.exceptions import MlflowException

        if run is None:
            return None
        try:
            self._client.update_run(run.info.run_id, status="RUNNING")
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"):
                return None
            raise
        return str(run.info.run_id)

    def _create_run(self, state: Record) -> str:
        """Create a run and return its id."""
        self.folder.write_state(state)  # before the request, so that a later attempt recognises the run after a kill
        tags = {**_describing(state), record.FOLDER_ID: state["tags"][record.FOLDER_ID]}
        tags.pop(NOTE, None)  # it contains the run's id
        tags |= {"mlflow.user": user(), "mlflow.source.type": "LOCAL"}
        parent = os.environ.get(PARENT_RUN)
        if parent:
            tags[notes.PARENT] = parent
        experiment = experiment_for(self._client, self.uri, state["experiment"])
        return str(self._client.create_run(experiment, tags=tags).info.run_id)

    def _send_description(self, state: Record) -> None:
        """Send parameters, tags and note, and delete outdated tags. A note that a user has changed stays."""
        from mlflow.entities import Param, RunTag

        present = self._client.get_run(self.run_id).data
        params = [Param(key, value) for key, value in state["params"].items() if key not in present.params]
        tags = _describing(state)
        if NOTE in tags:
            tags[NOTE] = tags[NOTE].replace(RUN_ID, self.run_id)
        our_notes = {tags.get(NOTE), *(text.replace(RUN_ID, self.run_id) for text in state.get("noted", ()))}
        if present.tags.get(NOTE, tags.get(NOTE)) not in our_notes:  # a user has changed the note
            tags.pop(NOTE, None)
        self._client.log_batch(self.run_id, params=params, tags=[RunTag(key, value) for key, value in tags.items()])
        stale = {record.ENDED_BY, record.ERROR}
        if present.tags.get(NOTE) in our_notes:
            stale.add(NOTE)
        for key in stale & (set(present.tags) - set(tags)):
            self._client.delete_tag(self.run_id, key)  # left by the previous attempt

    # --- while training ----------------------------------------------------------------------------------------------

    def restore(self, history: Sequence[Record]) -> None:
        """Reset the journal to the history in the checkpoint; called before `start`."""
        self.folder.write_journal(history)

    def log(self, result: Record) -> None:
        """Write a record to the journal, then to the server. If the server is away, it gets the record later."""
        self.folder.append_journal(result)
        if self._away_since is not None and time.monotonic() - self._away_since < RETRY_AFTER:
            return
        if self._behind:
            self._try(self._catch_up)
        else:
            self._try(functools.partial(self._send_records, [result]))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run, in the folder's state and on the server."""
        state = self._tagged(tags)
        self.folder.write_state(state)
        self._try(functools.partial(self._send_description, state))

    def _tagged(self, tags: Mapping[str, str]) -> Record:
        """Return the folder's state with these further tags."""
        state = self.folder.read_state()
        return {**state, "tags": {**state.get("tags", {}), **tags}, "params": state.get("params", {})}

    # --- the run's end -----------------------------------------------------------------------------------------------

    def finish(self, log_model: Callable[[str], None] | None = None) -> None:
        """Send results and the model, and end the run. Waits for an unreachable server, then raises Failure.

        Raises SentElsewhere if a copy of the folder has sent the same results.
        """
        self.folder.mark_done()
        deadline = time.monotonic() + PATIENCE
        with impatient(PATIENCE):
            self._conclude()
        if not self.offline:
            self._deliver(self._send_results, deadline)
            if log_model is not None:
                self._log_model(log_model)
            ended = time.monotonic() + PATIENCE / 3
            self._deliver(lambda: self._client.set_terminated(self.run_id, "FINISHED"), ended)
            self.is_finished = True  # before the state is written: ending the run early now would be final
            self.folder.write_state({**self.folder.read_state(), "sent": True})
        self.is_finished = True

    def _deliver(self, send: Callable[[], None], deadline: float) -> None:
        """Call `send` until it succeeds. Raises Failure at the deadline."""
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
        """Return the last lines that a command prints: the address of the run's page, and the folder."""
        where = "offline; `biasbed sync` sends it" if self.offline else address(self.uri, self.run_id)
        return f"{where}\n{self.folder.path}"

    def _conclude(self) -> None:
        """Put the result before the note, and remove the tags about earlier interruptions."""
        state = self.folder.read_state()
        stale = {record.ERROR, record.ENDED_BY} & set(state["tags"])
        tags = {name: value for name, value in state["tags"].items() if name not in stale}
        result = ""
        with contextlib.suppress(OSError, ValueError):  # a folder without a protocol has no best evaluation
            protocol = record.Protocol.from_json(read_text(self.folder.path / record.PROTOCOL_FILE))
            evaluation = notes.best_evaluation(protocol, self.folder.read_journal())
            result = notes.best(protocol, evaluation)
            exact = {name: value for name, value in evaluation.values.items() if record.is_finite(value)}
            if exact:
                tags[record.BEST_VALUES] = record.canonical_json(exact)
        state = _with_note({**state, "tags": tags}, result)
        self.folder.write_state(state)
        self._try(functools.partial(self._send_description, state))

    def _send_results(self) -> None:
        """Send predictions, tables, figures and the best checkpoint. Raises SentElsewhere for a copy's results."""
        if self._behind:
            self._catch_up()
        self._refuse_sent(self.folder.own_state())
        self._client.set_tag(self.run_id, RESULTS, self.folder.results)
        figures = sorted(path.name for path in self.folder.path.glob("*.png"))
        tables = (*record.EVALUATION_FILES, *plugin_loader.offers("decision_table"))
        self._send_files("predictions", record.EXAMPLES_FILE, *tables, *figures)
        best = self.folder.path / record.BEST_CHECKPOINT
        refuse_links(best)
        if best.exists():
            self._client.log_artifact(self.run_id, str(best), record.CHECKPOINT_FOLDER)

    def _log_model(self, log_model: Callable[[str], None]) -> None:
        """Log the run's model with its results, unless it is logged. If it can't be exported, only print a warning."""
        models: list[str] = []
        try:
            models = self._logged_models()
            if not models:
                log_model(self.run_id)
                models = self._logged_models()
            for model_id in models:
                self._send_model_results(model_id)
        except Exception as error:  # torch.export, MLflow and the server each raise their own types
            reason = redaction.public_text(first_line(error))
            lacking = "the MLflow model was logged without its results" if models else "no MLflow model was logged"
            print(f"warning: {lacking}: {reason}; the checkpoint was logged", file=sys.stderr)

    def _logged_models(self) -> list[str]:
        """Return the ids of the models that the run has logged."""
        outputs = self._client.get_run(self.run_id).outputs
        return [output.model_id for output in outputs.model_outputs] if outputs is not None else []

    def _send_model_results(self, model_id: str) -> None:
        """Send the metrics of the best evaluation as those of the model, with the data sets that they were measured on.

        MLflow's pages then show them with the model, and link model, data sets and run. The store drops them from the
        run's own metrics, which has equal rows already.
        """
        from mlflow.entities import Metric

        journal = self.folder.read_journal()
        protocol = record.Protocol.from_json(read_text(self.folder.path / record.PROTOCOL_FILE))
        step = notes.best_evaluation(protocol, journal).step
        fingerprints = {name: fingerprint for _, name, fingerprint in self.folder.read_state().get("inputs", ())}
        metrics: list[Metric] = []
        for result in journal:
            if result["step"] != step:
                continue
            for name, value in result["metrics"].items():
                parsed = record.parse_metric(name)
                if parsed is None or parsed.phase not in ("val", "test"):
                    continue
                dataset = (parsed.set, fingerprints[parsed.set]) if parsed.set in fingerprints else (None, None)
                metrics.append(Metric(name, value, result["timestamp"], result["step"], model_id, *dataset))
        self._send_metrics(metrics)

    def abort(self, status: str, tags: Mapping[str, str], note: str) -> None:
        """End the run early, unless all of it was sent.

        If the server is away, the tags and the note are sent when the work is resumed.
        """
        if not self.run_id or self.is_finished:
            return
        self._away_since = None
        tags = {name: redaction.public_message(value) for name, value in tags.items()}
        state = _with_note(self._tagged(tags), redaction.public_message(note))
        with contextlib.suppress(OSError):  # a full disk may be the reason; the server is told in any case
            self.folder.write_state(state)
        with impatient(PATIENCE / 6):  # for each: the run is ended even if it can't be described
            self._try(functools.partial(self._send_description, state))
            self._try(lambda: self._client.set_terminated(self.run_id, status))

    # --- sending -----------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> MlflowClient:
        return writer(self.uri)

    def _try(self, send: Callable[[], None]) -> bool:
        """Call `send` and return True on success. An unreachable server is reported once, and tried again later."""
        if self.offline or not self.run_id:
            return False
        try:
            with guarded(self.uri):
                send()
        except SentElsewhere:
            raise
        except Failure as failure:
            gone = describe_deletion(self.uri, self.run_id) if is_refusal(failure.__cause__) else ""
            is_news = not self._behind or bool(gone) != self._is_deleted
            self._problem, self._is_deleted = gone or str(failure), bool(gone)
            if is_news:
                print(f"warning: {self._problem}; training goes on, the journal keeps everything", file=sys.stderr)
            self._away_since, self._behind = time.monotonic(), True
            return False
        self._away_since, self._is_deleted = None, False
        return True

    def _catch_up(self) -> None:
        """Send everything again after the server was unreachable; it stores each row once."""
        self._send_everything(self.folder.read_state())
        self._behind = False
        print("the tracking server is back; the journal was sent", file=sys.stderr)

    def _send_records(self, records: Sequence[Record]) -> None:
        """Send the metrics of records."""
        from mlflow.entities import Metric

        metrics: list[Metric] = []
        for result in records:
            for name, value in result["metrics"].items():
                metrics.append(Metric(name, value, result["timestamp"], result["step"]))
        self._send_metrics(metrics)

    def _send_metrics(self, metrics: Sequence[Metric]) -> None:
        """Send metrics in requests of at most 1000, MLflow's limit."""
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + 1000])

    def _send_files(self, *names: str) -> None:
        """Send files and folders of the run's folder as artifacts; those that are missing are left out."""
        for name in names:
            path = self.folder.path / name
            refuse_links(path)
            if path.is_dir():
                self._client.log_artifacts(self.run_id, str(path), name)
            elif path.exists():
                self._client.log_artifact(self.run_id, str(path))


def _describing(state: Record) -> dict[str, str]:
    """Return the tags of a folder's state that describe its run, without those about its origin (`OWNING`)."""
    return {name: text for name, text in state["tags"].items() if name not in OWNING}


def _with_note(state: Record, outcome: str = "") -> Record:
    """Return the state with a note that begins with the outcome. Earlier notes by biasbed are kept in `noted`."""
    text, tags = notes.joined(outcome, state.get("about", "")), dict(state["tags"])
    earlier = list(state.get("noted", ()))
    if NOTE in tags:
        earlier.append(tags.pop(NOTE))
    if text:
        tags[NOTE] = text
    return {**state, "noted": list(dict.fromkeys(earlier)), "tags": tags}


# --- the end of a run, by success, error or signal --------------------------------------------------------------------


@contextlib.contextmanager
def ends_run(tracker: Tracker | None) -> Iterator[None]:
    """End the run early if the block fails, with the reason. Errors that a user can fix become a Failure."""
    try:
        yield
    except CorruptImage as error:
        _fail(tracker, f"{error}; corrupt=skip goes on without such files")
    except Failure as error:
        _fail(tracker, str(error))
    except KeyboardInterrupt as error:
        if tracker is not None and tracker.is_finished:
            ignore_first_signal()  # the signal came after the end of the work
            return
        name = signal_of(error).name
        if tracker is not None:
            tracker.abort("KILLED", {record.ENDED_BY: name}, f"ended by {name}; the same command continues it")
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REFUSALS:
            _fail(tracker, f"{os_reason(error)}; the same command continues it")
        if tracker is not None:
            with postponed():
                tracker.abort("FAILED", {record.ERROR: f"{type(error).__name__}: {error}"[:5000]}, "unforeseen error")
        raise


def _fail(tracker: Tracker | None, message: str) -> None:
    """End the run as failed, with this reason, and raise Failure."""
    if tracker is not None:
        with postponed():
            tracker.abort("FAILED", {record.ERROR: message}, message)
    raise Failure(message) from None
