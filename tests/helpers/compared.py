"""Runs of a study that are compared in MLflow's pages, made without training."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from biasbed import record
from biasbed.tracking import comparison
from biasbed.tracking.comparison import Comparison


def protocol(*sets: str, cues: tuple[str, ...] = ("cue_conflict",), **changes: Any) -> record.Protocol:
    entries = []
    for name in sets or ("silhouette", "cue_conflict"):
        measures = ("accuracy", "loss", *(("shape_bias",) if name in cues else ()))
        entries.append(record.SetRecord(name, "accuracy", 100, 10, 0.1, measures))
    values = dict(suite="toy", training_sets=("train",), validation_sets=("val",), monitor="val/accuracy/val")
    return record.Protocol(sets=tuple(entries), **(values | changes))  # type: ignore[arg-type]


PROTOCOL = protocol()


def compared(kind: str = "train", study: str = "main", num_runs: int = 6, **changes: Any) -> Comparison:
    values = (kind, PROTOCOL.suite, study, PROTOCOL.hash)
    tags = dict(zip((*comparison.STUDY, record.PROTOCOL_HASH), values, strict=True))
    fields = {"tags": tags, "protocol": PROTOCOL, "experiments": {"1": num_runs}}
    return Comparison(**{**fields, **changes})


class Store:
    """A tracking database with runs as training leaves them."""

    def __init__(self, uri: str) -> None:
        self.client = MlflowClient(uri)

    def experiment(self, name: str) -> str:
        return str(self.client.create_experiment(name))

    def run(self, experiment: str, algorithm: str = "erm", kind: str = "train", **given: Any) -> str:
        tags = {record.KIND: kind, record.SUITE: "toy", record.STUDY: given.get("study", "main")}
        tags |= {record.PROTOCOL_HASH: PROTOCOL.hash, record.ALGORITHM: algorithm}
        run_id = str(self.client.create_run(experiment, tags=tags).info.run_id)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / record.PROTOCOL_FILE
            file.write_bytes(given.get("protocol", PROTOCOL.to_json().encode()))
            self.client.log_artifact(run_id, str(file))
        for name, value in given.get("params", {}).items():
            self.client.log_param(run_id, name, value)
        self.client.set_terminated(run_id, given.get("status", "FINISHED"))
        return run_id
