"""A study on the tracking server: its own run, which its trainings are nested under, and what it finds there."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.studies.plan import PlannedRun, place_of
from biasbed.studies.standing import Finished
from biasbed.system.files import refuse_links, write_whole
from biasbed.system.processes import Interrupted, ignore_signals, interruptible
from biasbed.tracking import notes
from biasbed.tracking.comparison import offer_study
from biasbed.tracking.finding import find_runs
from biasbed.tracking.folder import make, mapping
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.pages import address
from biasbed.tracking.server import experiment_for, guarded, resolve_uri, writer
from biasbed.tracking.study_row import refresh
from biasbed.tracking.tracker import PARENT_RUN

# In a study's folder: how it stands; what it is, of which only one is there; what it cost; what a sweep has besides.
NOTE, TABLE, SWEPT, LEDGER = "study.json", "table.yaml", "sweep.yaml", "ledger.csv"
TRIALS, WINNERS, PLOTS = "trials.csv", "winners.yaml", "plots"
KEPT = (TABLE, SWEPT, record.NOT_APPLICABLE_FILE, LEDGER, TRIALS, WINNERS, PLOTS)
TIMES = ("time/epoch_seconds", "time/evaluation_seconds", "time/stages_seconds", "time/late_seconds")


def finished_runs(uri: str, study: str, **tags: str) -> dict[tuple[str, str], Finished]:
    """The study's finished trainings and tests by `PlannedRun.identity`; of several with one the first."""
    found: dict[tuple[str, str], Finished] = {}
    for run in find_runs(uri, study=study, **tags):
        if run.data.tags.get(record.KIND) in record.TABLED and run.info.status == "FINISHED":
            identity = place_of(*_row_and_cell(run.data.tags)), run.data.tags.get(record.RUN_KEY, "")
            found.setdefault(identity, Finished(run.info.run_id, run.data.metrics))
    return found


def _row_and_cell(tags: Mapping[str, str]) -> tuple[str, str]:
    """Of a run on the server; before there were rows, each method was one."""
    return tags.get(record.ROW, tags.get(record.ALGORITHM, "")), tags.get(record.CELL, "")


def refuse_mixture(
    uri: str, study: str, suite: str, hashes: Mapping[tuple[str, str], str], kind: str = "train"
) -> None:
    """UsageError where the study exists already with another suite, or with other settings of a row in a cell.

    Analysis would refuse the mixture in the end. hashes: (row, cell) -> its config_hash. kind: of the study's runs: a
    sweep has trials and a benchmark trainings.
    """
    others: dict[tuple[str, str], str] = {}
    for run in find_runs(uri, study=study):
        tags = run.data.tags
        if tags.get(record.KIND) in ({"train", "trial"} - {kind}):
            what = "a sweep" if kind == "train" else "a study of trainings, no sweep"
            raise UsageError(f"the study '{study}' is {what}: name another with study=")
        if tags.get(record.SUITE, suite) != suite:
            raise UsageError(f"the study '{study}' is one of the suite {tags[record.SUITE]}: name another with study=")
        if tags.get(record.KIND) in record.TABLED and run.info.status == "FINISHED":
            where = _row_and_cell(tags)
            if hashes.get(where, tags.get(record.CONFIG_HASH)) != tags.get(record.CONFIG_HASH):
                others[where] = run.info.run_id
    for where in filter(others.__contains__, hashes):  # in the order of the plan, not in which runs happened to end
        raise UsageError(
            f"the study '{study}' has finished runs of {place_of(*where)} with other settings or data "
            f"(run {others[where]}): name another with study="
        )


class StudyRun:
    """The study's run. There is one, whoever calls how often: the oldest.

    `mlflow run` opens a run for each call; the first of them becomes the study's, later ones are filed under it.
    """

    def __init__(
        self,
        uri: str,
        study: str,
        suite: str,
        experiment: str,
        given: str | None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Open it. Raises Failure where the server can't be reached: nothing has been started then.

        given: the run that `mlflow run` opened for this call. tags: that it is to have besides.
        """
        self.uri, self.study, self.given = uri, study, given
        self.is_behind = False  # the server lacks something
        with guarded(uri):
            self.run_id = self._opened({record.KIND: "study", record.STUDY: study, record.SUITE: suite}, experiment)
            writer(uri).update_run(self.run_id, status="RUNNING")
            for name, value in (tags or {}).items():
                writer(uri).set_tag(self.run_id, name, value)
            known = find_runs(uri, study=study)
            for child in (run for run in known if run.data.tags.get(record.KIND) in (*record.TABLED, "trial")):
                if child.data.tags.get(notes.PARENT) != self.run_id:
                    writer(uri).set_tag(child.info.run_id, notes.PARENT, self.run_id)

    def _opened(self, tags: dict[str, str], experiment: str) -> str:
        client, name = writer(self.uri), f"biasbed-{tags[record.SUITE]}" if experiment == "auto" else experiment
        own = self.given
        if own is not None:
            for key, value in tags.items():
                client.set_tag(own, key, value)
        if own is None and not self._candidates():
            place = experiment_for(client, self.uri, name)
            own = client.create_run(place, tags={**tags, notes.NAME: f"study-{self.study}"}).info.run_id
        oldest = self._candidates()[0]
        if own == oldest:
            client.set_tag(own, notes.NAME, f"study-{self.study}")
        if own is not None and own != oldest:  # another command was first
            if own == self.given:
                client.set_tag(own, notes.PARENT, oldest)
                client.set_tag(own, notes.NAME, f"study-{self.study}-continued")
            else:
                client.delete_run(own)
        return oldest

    def _candidates(self) -> list[str]:
        found = find_runs(self.uri, kind="study", study=self.study)
        return [run.info.run_id for run in found if notes.PARENT not in run.data.tags]

    def log_kept(self, folder: Path, ledger_under: str | None = None) -> None:
        """Add what is kept of the study to its run. A server that is away costs no training: work goes on."""

        def send() -> None:
            for name in KEPT:
                path, under = folder / name, ledger_under if name == LEDGER else None
                refuse_links(path)
                if path.is_dir():
                    writer(self.uri).log_artifacts(self.run_id, str(path), name)
                elif path.exists():
                    writer(self.uri).log_artifact(self.run_id, str(path), under)

        self._try(send)

    def is_finished(self, run: PlannedRun) -> bool:
        """Whether somebody has finished this run, as far as the server answers."""
        return self._finished(run) is not None

    def _finished(self, run: PlannedRun) -> Finished | None:
        found: dict[tuple[str, str], Finished] = {}
        self._try(lambda: found.update(finished_runs(self.uri, run.study, run_key=run.run_key)))
        return found.get(run.identity)

    def time_records(self, run: PlannedRun) -> list[dict[str, Any]]:
        """Seconds per evaluation of a run that was finished on another machine, as its journal would have them."""
        steps: dict[int, dict[str, float]] = {}
        found = self._finished(run)

        def read(run_id: str) -> None:
            for name in TIMES:
                for metric in writer(self.uri).get_metric_history(run_id, name):
                    steps.setdefault(metric.step, {})[name] = metric.value

        if found is not None:
            self._try(lambda: read(found.run_id))
        return [{"step": step, "metrics": metrics} for step, metrics in sorted(steps.items())]

    def finish(self, status: str) -> None:
        """End it as FINISHED, FAILED or KILLED.

        A run of `mlflow run` that is filed under it is ended by that, unless whoever interrupts us interrupts it too.
        """
        ended = {self.run_id, *([self.given] if self.given and status == "KILLED" else [])}
        for run_id in ended:
            self._try(functools.partial(self._end, run_id, status))

    def _end(self, run_id: str, status: str) -> None:
        writer(self.uri).set_terminated(run_id, status)

    def _try(self, send: Callable[[], Any]) -> None:
        try:
            with guarded(self.uri):
                send()
        except Failure as failure:
            self.is_behind = True
            print(f"warning: {failure}; no training is lost, and `biasbed sync` mends the study's run", file=sys.stderr)


# --- from beginning to end --------------------------------------------------------------------------------------------


@dataclass
class OpenStudy:
    """A study that a command carries out."""

    run: StudyRun | None = None  # on the server
    status: str = "FAILED"  # that it ends with: FINISHED, FAILED or KILLED
    # What is to be done before its run is ended, however that comes about.
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which its trainings find server and parent."""
        if self.run is None:
            return {}
        return {"MLFLOW_TRACKING_URI": self.run.uri, PARENT_RUN: self.run.run_id}


@contextlib.contextmanager
def carried_out(folder: Path, study: str, suite: str, config: Config, tags: Mapping[str, str]) -> Iterator[OpenStudy]:
    """Open a study's run, and end it with the status that the block leaves, or as KILLED after a signal.

    How it stands is noted in its folder, for `sync`. Raises Failure where the server can't be reached: nothing has been
    started then.
    """
    given = take_run_id({record.KIND: "study", record.STUDY: study}, config.tracking == "offline")
    make(folder)
    note = {"study": study, "suite": suite, "experiment": config.experiment, "tags": dict(tags)}
    found, begun = OpenStudy(), False
    try:
        with interruptible():
            if config.tracking == "on":
                found.run = StudyRun(resolve_uri(), study, suite, config.experiment, given, tags)
            begun = True
            _keep_note(folder, {**note, "status": "RUNNING", "sent": False})
            yield found
    except (Interrupted, KeyboardInterrupt):
        ignore_signals()
        found.status = "KILLED"
        raise
    finally:
        try:
            found.at_end.close()
        finally:
            if found.run is not None:
                found.run.log_kept(folder)
                found.run.finish(found.status)
            is_sent = found.run is not None and not found.run.is_behind  # else `sync` does it
            if begun:
                _keep_note(folder, {**note, "status": found.status, "sent": is_sent})
            if found.run is not None and is_sent:
                print(f"This study: {address(found.run.uri, found.run.run_id)}")
                offer_study(found.run.uri, study)
                refresh(found.run.uri, study)


def note_left_out(folder: Path, lacking: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """For analysis, in the folder of a study: row -> cell -> what the row's method needs and the data don't have."""
    if lacking:
        write_whole(folder / record.NOT_APPLICABLE_FILE, record.canonical_json(lacking))


def _keep_note(folder: Path, note: Mapping[str, Any]) -> None:
    write_whole(folder / NOTE, json.dumps(note, indent=1))


def _is_whole(note: Mapping[str, Any]) -> bool:
    """Return True if a study's note is one that we have written."""
    words = [note.get(name) for name in ("study", "suite", "experiment", "status")]
    tags = note.get("tags")
    words += [*tags.keys(), *tags.values()] if isinstance(tags, dict) else [None]
    return "sent" in note and all(isinstance(word, str) for word in words)


def send_studies(root: Path, uri: str) -> int:
    """Make or mend the runs of studies below a folder of runs whose server lacks something; how many there were.

    Their trainings, sent before, are filed under them. Of several machines each adds its own ledger. Raises Failure
    where the server can't be used.
    """
    sent = 0
    for path in sorted(root.glob(f"studies/*/{NOTE}")):
        linked = [part for part in (path, path.parent, path.parents[1]) if part.is_symlink()]
        if linked:
            print(f"{linked[0]} is a symbolic link, which is not followed: the study is not sent", file=sys.stderr)
            continue
        note = mapping(path)
        if note is None or not _is_whole(note):
            print(f"{path} is damaged; the study's own command mends it", file=sys.stderr)
            continue
        if note["sent"] or note["status"] == "RUNNING":
            continue
        study_run = StudyRun(uri, note["study"], note["suite"], note["experiment"], None, note["tags"])
        study_run.log_kept(path.parent, ledger_under=f"machines/{record.slug(socket.gethostname())}")
        study_run.finish(note["status"])
        if study_run.is_behind:
            raise Failure(f"the study {note['study']} could not be sent: the same command tries again")
        _keep_note(path.parent, {**note, "sent": True})
        print(f"study {note['study']} -> run {study_run.run_id}")
        offer_study(uri, note["study"])
        refresh(uri, note["study"])
        sent += 1
    return sent
