"""Run of a study on the tracking server: the parent of its trainings, and the study's finished runs there."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from biasbed import record
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.studies.plan import Lacking, PlannedRun, RunIdentity, group_name
from biasbed.studies.status import Finished
from biasbed.system.files import refuse_links, write_whole
from biasbed.system.processes import interruptible, postponed
from biasbed.tracking import notes
from biasbed.tracking.comparison import offer_study
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.pages import address
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import experiment_for, guarded, resolve_uri, writer
from biasbed.tracking.study_row import refresh
from biasbed.tracking.tracker import PARENT_RUN

# Files in a study's folder: its status, for `sync`; its table or, of a sweep, its searches; its cost.
NOTE, TABLE, SWEPT, LEDGER = "study.json", "table.yaml", "sweep.yaml", "ledger.csv"
TRIALS, WINNERS = "trials.csv", "winners.yaml"  # of a sweep
LOGGED = (TABLE, SWEPT, record.NOT_APPLICABLE_FILE, LEDGER, TRIALS, WINNERS)


def find_finished_runs(uri: str, study: str, **tags: str) -> dict[RunIdentity, Finished]:
    """Return the study's finished trainings and tests by identity. If several runs have one, the first stays."""
    finished: dict[RunIdentity, Finished] = {}
    for run in find_runs(uri, study=study, **tags):
        if run.data.tags.get(record.KIND) in record.TABLED and run.info.status == "FINISHED":
            group = group_name(*_row_and_cell(run.data.tags))
            identity = RunIdentity(group, run.data.tags.get(record.RUN_KEY, ""))
            finished.setdefault(identity, Finished(run.info.run_id, run.data.metrics))
    return finished


def _row_and_cell(tags: Mapping[str, str]) -> tuple[str, str]:
    return tags.get(record.ROW, ""), tags.get(record.CELL, "")


def refuse_mixture(
    uri: str, study: str, suite: str, hashes: Mapping[tuple[str, str], str], kind: str = "train"
) -> None:
    """Raise UsageError if the study exists already with another suite, or with other settings of a row in a cell.

    Analysis would refuse such a study later. hashes: (row, cell) -> config_hash of its planned runs. kind: of its runs,
    `trial` for a sweep and `train` for a benchmark.
    """
    conflicts: dict[tuple[str, str], str] = {}
    for run in find_runs(uri, study=study):
        tags = run.data.tags
        if tags.get(record.KIND) in ({"train", "trial"} - {kind}):
            _refuse_kind(study, kind)
        if tags.get(record.SUITE, suite) != suite:
            raise UsageError(f"the study '{study}' is one of the suite {tags[record.SUITE]}: name another with study=")
        if tags.get(record.KIND) in record.TABLED and run.info.status == "FINISHED":
            position = _row_and_cell(tags)
            if hashes.get(position, tags.get(record.CONFIG_HASH)) != tags.get(record.CONFIG_HASH):
                conflicts[position] = run.info.run_id
    for position in hashes:  # the first in the order of the plan, not in which runs happened to end
        if position in conflicts:
            raise UsageError(
                f"the study '{study}' has finished runs of {group_name(*position)} with other settings or data "
                f"(run {conflicts[position]}): name another with study="
            )


def refuse_folder(folder: Path, study: str, kind: str) -> None:
    """Raise UsageError if the study's folder is that of a sweep, or for kind `trial` that of a study of trainings."""
    if (folder / (SWEPT if kind == "train" else TABLE)).exists():
        _refuse_kind(study, kind)


def _refuse_kind(study: str, kind: str) -> NoReturn:
    """Raise UsageError for a study whose runs are of the other kind than this one."""
    existing = "a sweep" if kind == "train" else "a study of trainings, no sweep"
    raise UsageError(f"the study '{study}' is {existing}: name another with study=")


class StudyRun:
    """The study's own run on the server. If there are several, it is the oldest.

    `mlflow run` opens a run for each call: the first becomes the study's run, later ones its children.
    """

    def __init__(
        self,
        uri: str,
        study: str,
        suite: str,
        experiment: str,
        launched: str | None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Open the run. Raises Failure if the server cannot be reached: nothing has been started then.

        launched: the run that `mlflow run` opened for this call. tags: additional ones.
        """
        self.uri, self.study, self.launched = uri, study, launched
        self.is_behind = False  # the server lacks something
        with guarded(uri):
            self.run_id = self._open({record.KIND: "study", record.STUDY: study, record.SUITE: suite}, experiment)
            writer(uri).update_run(self.run_id, status="RUNNING")
            for name, value in (tags or {}).items():
                writer(uri).set_tag(self.run_id, name, value)
            for run in find_runs(uri, study=study):
                is_child = run.data.tags.get(record.KIND) in (*record.TABLED, "trial")
                if is_child and run.data.tags.get(notes.PARENT) != self.run_id:
                    writer(uri).set_tag(run.info.run_id, notes.PARENT, self.run_id)

    def _open(self, tags: dict[str, str], experiment: str) -> str:
        """Return the id of the study's oldest run. If there is none, make it, or use the one of `mlflow run`."""
        client = writer(self.uri)
        name = f"biasbed-{tags[record.SUITE]}" if experiment == "auto" else experiment
        run_id = self.launched
        if run_id is not None:
            for key, value in tags.items():
                client.set_tag(run_id, key, value)
        if run_id is None and not self._candidates():
            experiment_id = experiment_for(client, self.uri, name)
            run_id = client.create_run(experiment_id, tags={**tags, notes.NAME: f"study-{self.study}"}).info.run_id
        oldest = self._candidates()[0]
        if run_id == oldest:
            client.set_tag(run_id, notes.NAME, f"study-{self.study}")
        if run_id is not None and run_id != oldest:  # another command was first
            if run_id == self.launched:
                client.set_tag(run_id, notes.PARENT, oldest)
                client.set_tag(run_id, notes.NAME, f"study-{self.study}-continued")
            else:
                client.delete_run(run_id)
        return oldest

    def _candidates(self) -> list[str]:
        """Return the ids of the runs that may be the study's, the oldest first."""
        runs = find_runs(self.uri, kind="study", study=self.study)
        return [run.info.run_id for run in runs if notes.PARENT not in run.data.tags]

    def log_files(self, folder: Path, ledger_under: str | None = None) -> None:
        """Log the study's files to its run. If the server is away, work goes on.

        ledger_under: folder of the run's artifacts for the ledger; by default the root.
        """

        def send() -> None:
            for name in LOGGED:
                path = folder / name
                refuse_links(path)
                if path.is_dir():
                    writer(self.uri).log_artifacts(self.run_id, str(path), name)
                elif path.exists():
                    target = ledger_under if name == LEDGER else None
                    writer(self.uri).log_artifact(self.run_id, str(path), target)

        self._try(send)

    def is_finished(self, run: PlannedRun) -> bool:
        """Return True if somebody has finished this run; False if the server does not answer."""
        finished: dict[RunIdentity, Finished] = {}
        self._try(lambda: finished.update(find_finished_runs(self.uri, run.study, run_key=run.run_key)))
        return run.identity in finished

    def finish(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED.

        `mlflow run` ends the run that it launched, unless the interrupt reaches it too: KILLED ends both.
        """
        run_ids = {self.run_id}
        if self.launched and status == "KILLED":
            run_ids.add(self.launched)
        for run_id in run_ids:
            self._try(functools.partial(self._terminate, run_id, status))

    def _terminate(self, run_id: str, status: str) -> None:
        writer(self.uri).set_terminated(run_id, status)

    def _try(self, send: Callable[[], Any]) -> None:
        """Call a function that uses the server; a failure is only a warning, and noted for `sync`."""
        try:
            with guarded(self.uri):
                send()
        except Failure as failure:
            self.is_behind = True
            print(f"warning: {failure}; no training is lost, and `biasbed sync` mends the study's run", file=sys.stderr)

    def publish(self) -> None:
        """Print links that compare the study's runs, and rewrite the results in its run on the server."""
        offer_study(self.uri, self.study)
        refresh(self.uri, self.study)


# --- from beginning to end --------------------------------------------------------------------------------------------


@dataclass
class OpenStudy:
    """Study while a command carries it out."""

    run: StudyRun | None = None  # its run on the server; None offline
    status: str = "FAILED"  # it will end as FINISHED, FAILED or KILLED
    # Callbacks that run at its end, also after an error or signal, before its run is ended.
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell its trainings their server and parent run."""
        if self.run is None:
            return {}
        return {"MLFLOW_TRACKING_URI": self.run.uri, PARENT_RUN: self.run.run_id}


@contextlib.contextmanager
def open_study(folder: Path, study: str, suite: str, config: Config, tags: Mapping[str, str]) -> Iterator[OpenStudy]:
    """Open a study's run, and end it with the status that the block leaves, or as KILLED after a signal.

    Its status is noted in its folder, for `sync`. Raises Failure if the server cannot be reached: nothing has been
    started then.
    """
    launched = take_run_id({record.KIND: "study", record.STUDY: study}, config.tracking == "offline")
    folder.mkdir(parents=True, exist_ok=True)
    note = {"study": study, "suite": suite, "experiment": config.experiment, "tags": dict(tags)}
    opened, has_begun = OpenStudy(), False
    try:
        with interruptible():
            if config.tracking == "on":
                opened.run = StudyRun(resolve_uri(), study, suite, config.experiment, launched, tags)
            has_begun = True
            write_note(folder, {**note, "status": "RUNNING", "sent": False})
            yield opened
    except KeyboardInterrupt:
        opened.status = "KILLED"
        raise
    finally:
        with postponed(), contextlib.ExitStack() as stack:
            stack.callback(_end_study, folder, opened, note if has_begun else None)
            opened.at_end.close()


def _end_study(folder: Path, opened: OpenStudy, note: Mapping[str, Any] | None) -> None:
    """End a study's run, and write its status into its folder. note: None if it has not begun."""
    if opened.run is not None:
        opened.run.log_files(folder)
        opened.run.finish(opened.status)
    is_sent = opened.run is not None and not opened.run.is_behind  # else `sync` sends it
    if note is not None:
        write_note(folder, {**note, "status": opened.status, "sent": is_sent})
    if opened.run is not None and is_sent:
        print(f"This study: {address(opened.run.uri, opened.run.run_id)}")
        opened.run.publish()


def write_lacking(folder: Path, lacking: Lacking) -> None:
    """Write, for analysis, what the rows' methods need and the data lack."""
    if lacking:
        write_whole(folder / record.NOT_APPLICABLE_FILE, record.canonical_json(lacking))


def write_note(folder: Path, note: Mapping[str, Any]) -> None:
    """Write the study's status into its folder."""
    write_whole(folder / NOTE, json.dumps(note, indent=1))
