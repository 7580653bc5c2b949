"""Runs to send, and the files they are sent in."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from biasbed.options import ZipOptions
from biasbed.tracking.transfer import write_archive
from helpers.toy_runs import Recorder


def zipped(recorder: Recorder, *ids: str, **options: Any) -> Path:
    path = recorder.folder / f"{len(list(recorder.folder.glob('*.zip')))}.zip"
    options = options or {"run": ids}
    return write_archive(ZipOptions(file=str(path), **options))


def rich_run(recorder: Recorder) -> str:
    """Return a run with all that a run can have, and odd values."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    odd = {"test/loss/edge": (0.1 + 0.2, math.nan, math.inf, 5e-324)}
    settings = {f"optim.x{k}": "a, b\n'c' \"ä\"" for k in range(120)}
    run_id = recorder.train("infodrop", 3, metrics=odd, settings=settings, status="KILLED")
    client = recorder.client
    client.log_inputs(
        run_id, [DatasetInput(Dataset("edge", "d1", "local", "{}"), [InputTag("mlflow.data.context", "t")])]
    )
    client.log_text(run_id, "x" * 1000, "checkpoints/best.ckpt")
    client.log_text(run_id, "y", "predictions/edge/last.parquet")
    return run_id
