"""Active MLflow run of the user's program, into which results are logged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path


def is_run_active() -> bool:
    """Return True if the user's program has started an MLflow run."""
    import mlflow

    return mlflow.active_run() is not None


def log_metrics(metrics: Mapping[str, float], step: int) -> None:
    """Log metrics into the active run; those that are NaN have no value and are left out."""
    import mlflow

    mlflow.log_metrics(drop_nan(metrics), step=step)


def drop_nan(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that have a value."""
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def log_folder(folder: Path) -> str:
    """Log all files of a folder as artifacts of the active run, and return the run's id."""
    import mlflow

    run = mlflow.active_run()
    assert run is not None
    mlflow.log_artifacts(str(folder))
    return str(run.info.run_id)
