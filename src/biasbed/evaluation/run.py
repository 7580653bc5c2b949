"""The tracked run of a test without training: of a model, or of decisions that somebody recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from biasbed import record
from biasbed.system import code
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker


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
    weights: str = ""  # content hash of the tested model
    code: str = ""  # hash of the source behind the numbers

    def folder(self) -> RunFolder:
        """A new one."""
        return RunFolder(self.home / "evaluate" / f"{self.name}-{time.time_ns():x}")

    def start(self, folder: RunFolder, tracker: Tracker) -> None:
        """Write what describes the run, and open it on the server."""
        settings = {key: list(v) if isinstance(v, tuple) else v for key, v in self.settings.items()}
        (folder.path / record.CONFIG_FILE).write_text(yaml.safe_dump(settings))
        (folder.path / record.PROTOCOL_FILE).write_text(self.protocol.to_json())
        experiment = f"biasbed-{self.suite}" if self.experiment == "auto" else self.experiment
        tracker.start(f"evaluate-{self.name}", experiment, self._tags(), self.settings)

    def _tags(self) -> dict[str, str]:
        commit, dirty = code.git_state()
        key = record.digest({**self.what, "protocol": self.protocol.hash, "data": self.data})
        return {
            record.KIND: "evaluate",
            record.STUDY: self.study,
            record.SUITE: self.suite,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.ALGORITHM: record.slug(self.algorithm),
            record.SEED: str(self.seed),
            record.CONFIG_HASH: key,
            record.RUN_KEY: key,
            record.DATA_FINGERPRINT: self.data,
            record.WEIGHTS: self.weights,
            record.CODE_HASH: self.code,
            record.GIT_COMMIT: commit,
            record.GIT_DIRTY: dirty,
            record.SCHEMA_TAG: record.SCHEMA,
        }


def finish(tracker: Tracker, metrics: Mapping[str, float]) -> None:
    """Log the metrics and end the run."""
    tracker.log({"step": 0, "timestamp": int(time.time() * 1000), "metrics": dict(metrics)})
    tracker.finish()
