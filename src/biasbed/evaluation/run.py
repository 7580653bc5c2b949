"""The tracked run of a test without training: of a model, or of decisions that somebody recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from biasbed import limits, record
from biasbed.system import code
from biasbed.system.files import write_whole
from biasbed.tracking import notes
from biasbed.tracking.folder import RunFolder, folder_for
from biasbed.tracking.tracker import Tracker

if TYPE_CHECKING:
    from biasbed.networks import Normalisation


@dataclass(frozen=True)
class EvaluationRun:
    """A run of kind `evaluate` before it starts: what it is called and what describes it."""

    name: str
    suite: str
    study: str
    experiment: str
    algorithm: str
    seed: int
    offline: bool
    home: Path
    settings: Mapping[str, Any]
    what: Mapping[str, Any]  # of the settings, those that change the numbers
    protocol: record.Protocol
    data: str  # fingerprint
    row: str  # what it is one of in tables
    tested: str  # hash of all that is tested
    cell: str = ""  # beside which trainings it stands there
    test_domains: tuple[str, ...] = ()  # that those hold out, and it is tested on; empty: on all
    weights: str = ""  # content hash of the tested model
    parameters: int | None = None  # of the tested model
    code: str = ""  # hash of the source behind the numbers
    normalisation: Normalisation | None = None  # of the tested model's images
    overlaps: tuple[str, ...] = ()  # kinds of condition that the model's training resembles

    @cached_property
    def config_hash(self) -> str:
        """What is tested how, held-out domains aside."""
        return record.digest({**self.what, "protocol": self.protocol.hash, "data": self.data})

    @property
    def run_key(self) -> str:
        held_out = list(self.test_domains)
        return record.digest({"config": self.config_hash, "test_domains": held_out}) if held_out else self.config_hash

    @property
    def base(self) -> Path:
        """The first of the folders that runs with this key have."""
        return self.home / self.suite / "-".join(filter(None, (self.row, self.cell, self.run_key[:8])))

    def folder(self, resume: str) -> RunFolder:
        """Where it is carried out, or has been.

        A test that has ended goes on there if its numbers are lost, or are still to be sent: that makes again what was
        lost since, and nothing else, as decisions that are whole are kept.
        """
        folder = folder_for(self.base, resume, not self.offline, self.study)
        if folder.is_done and not (folder.read_journal() and (self.offline or folder.read_state().get("sent"))):
            folder.unmark_done()
        return folder

    def start(self, folder: RunFolder, tracker: Tracker) -> None:
        """Write what describes the run, and open it on the server."""
        settings = {key: list(v) if isinstance(v, tuple) else v for key, v in self.settings.items()}
        write_whole(folder.path / record.CONFIG_FILE, yaml.safe_dump(settings))
        write_whole(folder.path / record.PROTOCOL_FILE, self.protocol.to_json())
        experiment = f"biasbed-{self.suite}" if self.experiment == "auto" else self.experiment
        name = limits.marked(self.name, self.protocol.limit)
        tracker.start(name, experiment, self.tags(), self.settings, about=self.about)

    @property
    def about(self) -> str:
        """A paragraph and a list of commands, in Markdown."""
        number = len(self.protocol.columns)
        return notes.joined(
            f"A test without training: **{self.row}** on {number} set{'s' if number != 1 else ''} of the suite "
            f"**{self.suite}**{limits.clause(self.protocol.limit)}.",
            f"{self.normalisation_line[:1].upper()}{self.normalisation_line[1:]}." if self.normalisation else "",
            notes.commands(
                {
                    "goes on, if it was cut off": notes.own_command(),
                    "tested once more, with a verdict": notes.command("reproduce", run=notes.RUN_ID),
                    "beside others": notes.command("analyze", suite=self.suite, study=self.study),
                }
            ),
        )

    @property
    def normalisation_line(self) -> str:
        """How the tested model's images are normalised, in words. Empty if there are no images."""
        return "" if self.normalisation is None else self.normalisation.line

    def tags(self) -> dict[str, str]:
        commit, dirty = code.git_state()
        parameters = {} if self.parameters is None else {record.PARAMETERS: str(self.parameters)}
        return {
            record.KIND: "evaluate",
            record.STUDY: self.study,
            record.SUITE: self.suite,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.TESTED: self.tested,
            record.ALGORITHM: record.slug(self.algorithm),
            record.ROW: self.row,
            record.SEED: str(self.seed),
            record.CONFIG_HASH: self.config_hash,
            record.RUN_KEY: self.run_key,
            record.DATA_FINGERPRINT: self.data,
            record.WEIGHTS: self.weights,
            record.CODE_HASH: self.code,
            record.GIT_COMMIT: commit,
            record.GIT_DIRTY: dirty,
            record.SCHEMA_TAG: record.SCHEMA,
            **(
                {record.NORMALISATION: record.canonical_json(self.normalisation.as_json())}
                if self.normalisation
                else {}
            ),
            **({record.OVERLAPS: ",".join(sorted(self.overlaps))} if self.overlaps else {}),
            **({record.CELL: self.cell} if self.cell else {}),
            **({record.TEST_DOMAINS: ",".join(self.test_domains)} if self.test_domains else {}),
            **parameters,
            **limits.tags(self.protocol.limit),
        }


def run_name(usual: str, row: str, cell: str) -> str:
    """What a run is called: by row and cell where it is given a row, else as it usually is."""
    return f"evaluate-{usual}" if row == "auto" else "-".join(filter(None, (row, cell)))


def finish(tracker: Tracker, metrics: Mapping[str, float]) -> None:
    """Log the metrics, unless an attempt before has, and end the run."""
    if not tracker.folder.read_journal():
        tracker.folder.write_journal([])  # without what is left of a damaged one
        tracker.log({"step": 0, "timestamp": int(time.time() * 1000), "metrics": dict(metrics)})
    tracker.finish()


def left_alone(folder: RunFolder) -> dict[str, float]:
    """The metrics of a run that is finished."""
    folder.end_command()
    print(f"{folder.path.name} is finished already; resume=never tests anew")
    found: dict[str, float] = dict(folder.read_journal()[-1]["metrics"])
    return found
