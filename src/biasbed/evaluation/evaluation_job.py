"""Evaluation jobs: the test of a given model, or of recorded decisions, as a tracked job without steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from biasbed import limits, record
from biasbed.config import as_json
from biasbed.evaluation.tracked_job import TrackedJob, join_name
from biasbed.tracking import notes
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(TrackedJob):
    """Evaluation of a model, or of recorded decisions, before it starts."""

    KIND = "evaluate"
    WORK = "tested"

    usual_name: str  # name of the run if no row is given
    given_settings: Mapping[str, Any]  # by dotted name
    weights: str = ""  # content hash of the tested model
    parameters: int | None = None  # of the tested model
    backbone: str = ""  # of a tested checkpoint

    @property
    def name(self) -> str:
        name = join_name(self.config.row, self.cell)
        if self.config.row == "auto":
            name = f"evaluate-{self.usual_name}"
        return limits.marked(name, self.protocol.limit)

    @property
    def base(self) -> Path:
        return self.home / join_name(self.row, self.cell, self.run_key[:8])

    @property
    def settings(self) -> dict[str, Any]:
        return as_json(dict(sorted(self.given_settings.items())))

    @property
    def normalisation_line(self) -> str:
        """Sentence about the normalisation of the tested model's images; empty if there are no images."""
        if self.normalisation is None:
            return ""
        return self.normalisation.line

    def describe(self) -> str:
        """Return a description of the run and commands to go on with, in Markdown."""
        number = len(self.protocol.columns)
        line = self.normalisation_line
        return notes.joined(
            f"A test without training: **{self.row}** on {number} set{'s' if number != 1 else ''} of the suite "
            f"**{self.suite_name}**{limits.clause(self.protocol.limit)}.",
            f"{line[:1].upper()}{line[1:]}." if line else "",
            notes.commands(
                {
                    "goes on, if it was cut off": notes.own_command(),
                    "tested once more, with a verdict": notes.command("reproduce", run=notes.RUN_ID),
                    "beside others": notes.command("analyze", suite=self.suite_name, study=self.config.study),
                }
            ),
        )

    def own_tags(self) -> dict[str, str]:
        tags = {record.WEIGHTS: self.weights}
        if self.parameters is not None:
            tags[record.PARAMETERS] = str(self.parameters)
        return tags

    def take_folder(self) -> RunFolder:
        """Return the folder to work in. Reopens a finished evaluation that is still to be sent."""
        folder = self.find_folder()
        is_sent = self.is_offline or folder.read_state().get("sent")
        if folder.is_done and not is_sent:
            folder.unmark_done()
        return folder


class EvaluationIdentity(NamedTuple):
    """Hashes that identify an evaluation."""

    config_hash: str
    run_key: str


def identify(
    computed: Mapping[str, Any], protocol: record.Protocol, fingerprint: str, test_domains: tuple[str, ...] = ()
) -> EvaluationIdentity:
    """Return the identity of an evaluation. computed: the settings that change the numbers."""
    config_hash = record.digest({**computed, "protocol": protocol.hash, "data": fingerprint})
    run_key = config_hash
    if test_domains:
        run_key = record.digest({"config": config_hash, "test_domains": list(test_domains)})
    return EvaluationIdentity(config_hash, run_key)


def finish(tracker: Tracker, metrics: Mapping[str, float]) -> None:
    """Log the metrics, unless an earlier attempt has, and end the run."""
    if not tracker.folder.read_journal():
        tracker.log({"step": 0, "timestamp": int(time.time() * 1000), "metrics": dict(metrics)})
    tracker.finish()


def read_finished(folder: RunFolder) -> dict[str, float]:
    """Print that a run is finished and how to test anew; return its metrics."""
    print(f"{folder.path.name} is finished already; resume=never tests anew")
    metrics: dict[str, float] = dict(folder.read_journal()[-1]["metrics"])
    return metrics
