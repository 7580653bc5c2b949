"""Tracked jobs: the tags, folder, start and end that a training shares with the evaluation of a given model.

Answers: What do a training and an evaluation share: tags, folder, start, end?
"""

from __future__ import annotations

import abc
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from biasbed import limits, record, suites
from biasbed.config import Config
from biasbed.errors import Failure
from biasbed.published.display_names import display_name
from biasbed.system import code
from biasbed.system.code_hash import code_hash
from biasbed.system.files import write_whole
from biasbed.tracking.folder import RunFolder, find_finished, folder_for, home
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.tracker import Tracker, ends_run

if TYPE_CHECKING:
    from biasbed.compute.distributed import Group
    from biasbed.networks import Normalisation


@dataclass(frozen=True, kw_only=True)
class TrackedJob(abc.ABC):
    """Training or evaluation before it starts: everything that identifies, names and describes its run."""

    KIND: ClassVar[str]  # value of the tag `record.KIND`
    WORK: ClassVar[str]  # verb in messages: the model is `trained`, or `tested`

    config: Config
    algorithm: str  # identifier of the method, or of the model that is tested
    suite_name: str
    protocol: record.Protocol
    fingerprint: str  # of all images that the run sees
    tested: str  # hash of everything that it is tested on
    config_hash: str  # of what is computed, seed aside
    run_key: str  # of what is computed, seed included
    suite_cell: str = ""  # the suite's name of the training data, if it has several
    test_domains: tuple[str, ...] = ()  # held-out domains, on which it is tested; empty: tested on all
    overlaps: Sequence[str] = ()  # kinds of test condition that the model's training resembles
    model_class: type | None = None  # of the method or network
    normalisation: Normalisation | None = None  # of the network's input

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the run in MLflow's pages."""

    @property
    @abc.abstractmethod
    def base(self) -> Path:
        """Path of the first folder that runs with this key have."""

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Settings by dotted name, as JSON values."""

    @abc.abstractmethod
    def own_tags(self) -> dict[str, str]:
        """Return the tags that only this kind of job has."""

    @property
    def row(self) -> str:
        """Name of the row in tables that the run belongs to."""
        if self.config.row != "auto":
            return self.config.row
        return record.slug(self.algorithm)

    @property
    def cell(self) -> str:
        """Name of the training data, if several are told apart; else empty."""
        if self.config.cell != "auto":
            return self.config.cell
        return self.suite_cell

    @property
    def is_offline(self) -> bool:
        return self.config.tracking == "offline"

    @property
    def home(self) -> Path:
        """Path of the folder of all runs of the suite."""
        return home(self.config) / self.suite_name

    @property
    def code_hash(self) -> str:
        """Hash of the source behind the numbers; empty if no model is run."""
        if self.model_class is None:
            return ""
        return code_hash(self.model_class, suites.load(self.config.suite))

    def find_folder(self) -> RunFolder:
        """Return the folder of the job's run, which may exist already."""
        return folder_for(self.base, self.config.resume, not self.is_offline, self.config.study)

    def take_folder(self) -> RunFolder:
        """Return the folder to work in."""
        return self.find_folder()

    def tags(self) -> dict[str, str]:
        """Return the tags of the job's run in MLflow; those that would be empty are left out."""
        tags = {
            record.KIND: self.KIND,
            record.STUDY: self.config.study,
            record.SUITE: self.suite_name,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.TESTED: self.tested,
            record.ALGORITHM: record.slug(self.algorithm),
            record.ROW: self.row,
            record.DISPLAY_NAME: display_name(self.row),
            record.SEED: str(self.config.seed),
            record.CONFIG_HASH: self.config_hash,
            record.RUN_KEY: self.run_key,
            record.DATA_FINGERPRINT: self.fingerprint,
            record.CODE_HASH: self.code_hash,
            **code.git_tags(),
            record.SCHEMA_TAG: record.SCHEMA,
            **limits.tags(self.protocol.limit),
        }
        optional = {
            record.OVERLAPS: ",".join(sorted(self.overlaps)),
            record.CELL: self.cell,
            record.TEST_DOMAINS: ",".join(self.test_domains),
        }
        tags |= {name: value for name, value in optional.items() if value}
        if self.normalisation is not None:
            tags[record.NORMALISATION] = record.canonical_json(self.normalisation.as_json())
        return tags | self.own_tags()

    def open_run(
        self,
        tracker: Tracker,
        about: str,
        inputs: Sequence[tuple[str, str, str]] = (),
        more_tags: Mapping[str, str] | None = None,
    ) -> None:
        """Open the run on the server.

        about: its description, in Markdown. inputs: (context, name, fingerprint) of each data set.
        """
        config = self.config
        experiment = f"biasbed-{self.suite_name}" if config.experiment == "auto" else config.experiment
        tags = {**self.tags(), **(more_tags or {})}
        tracker.start(self.name, experiment, tags, self.settings, inputs, about)

    def write_description(self, folder: RunFolder) -> None:
        """Write the files of settings and protocol."""
        write_whole(folder.path / record.CONFIG_FILE, yaml.safe_dump(self.settings, sort_keys=False))
        write_whole(folder.path / record.PROTOCOL_FILE, self.protocol.to_json())


def join_name(*parts: str) -> str:
    """Join the parts of a run's name, or of its folder's, that are not empty."""
    return "-".join(filter(None, parts))


def share_folder(job: TrackedJob, group: Group) -> RunFolder:
    """Choose the job's folder on rank 0 and return it on every rank."""
    path = None
    if group.is_main:
        folder = job.take_folder()
        print_repetition(job, folder)
        path = str(folder.path)
    return RunFolder(Path(group.share_object(path)))


def print_repetition(job: TrackedJob, folder: RunFolder) -> None:
    """Print which finished run has the same settings, if the job repeats it although nobody asked for that."""
    finished = find_finished(job.base, job.config.study)
    if finished is None or folder.path.exists() or job.config.resume == "never":
        return
    run_id = finished.read_state().get("run_id")
    run = f"run {run_id}, {finished.path}" if run_id else str(finished.path)
    repetition = f"this one is {job.WORK} anew into {folder.path.name}; resume=once leaves it out"
    print(f"a finished run has the same settings: {run}; {repetition}", file=sys.stderr)


@contextlib.contextmanager
def working_in(folder: RunFolder, is_main: bool = True) -> Iterator[None]:
    """Hold the folder on rank 0 while a command works in it.

    Raises Failure if another command is working there, or has finished the work in the meantime.
    """
    if not is_main:
        yield
        return
    with folder.locked():
        if folder.is_done:
            raise Failure(f"{folder.path} has been finished in the meantime")
        yield


@contextlib.contextmanager
def tracking(job: TrackedJob, folder: RunFolder, is_main: bool = True) -> Iterator[Tracker | None]:
    """Yield the tracker of the job's run on rank 0, None on other ranks. If the block fails, the run notes why."""
    tracker = None
    if is_main:
        run_id = take_run_id(folder.marks, job.is_offline)
        folder.unmark_done()  # a folder whose state was lost is complete again only at the end of the work
        tracker = Tracker(folder, run_id, job.is_offline)
    with ends_run(tracker):
        yield tracker
