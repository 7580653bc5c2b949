"""Reading back what a training left: folders, checkpoints, and every row of the tracking database."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import torch


def run_folders(home: Path) -> list[Path]:
    """Return the run folders below an output folder, by name."""
    return sorted(path.parent for path in home.glob("*/*/run.json"))


def weights(folder: Path, name: str = "last.ckpt") -> dict[str, torch.Tensor]:
    """Return all parameters and buffers of a run's algorithm."""
    state: dict[str, torch.Tensor] = torch.load(folder / name, weights_only=True)["algorithm"]
    return state


def history(folder: Path) -> dict[int, dict[str, float]]:
    """A run's record per epoch, those of stages under the same number, without what depends on clock or machine."""
    metrics: dict[int, dict[str, float]] = {}
    for line in torch.load(folder / "last.ckpt", weights_only=True)["history"]:
        metrics.setdefault(line["step"], {}).update(timeless(line["metrics"]))
    return metrics


def timeless(metrics: dict[str, float]) -> dict[str, float]:
    phases, clocked = ("time/", "memory/", "system/"), ("_seconds", "_per_second", "_mb")
    return {n: v for n, v in metrics.items() if not n.startswith(phases) and not n.endswith(clocked)}


def stored(uri: str, run_id: str) -> dict[int, dict[str, float]]:
    """Return every metric row of a run on the server by step; fails where one is there twice."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        rows = connection.execute("select key, step, value from metrics where run_uuid = ?", (run_id,)).fetchall()
    twice = [key for key, count in Counter((name, step) for name, step, _ in rows).items() if count > 1]
    assert not twice, f"stored more than once: {twice[:5]}"
    metrics_by_step: dict[int, dict[str, float]] = {}
    for name, step, value in rows:
        metrics_by_step.setdefault(step, {})[name] = value
    return {step: timeless(metrics) for step, metrics in metrics_by_step.items()}


def all_runs(uri: str, **tags: str) -> list[Any]:
    """Return the active runs of all experiments that have these tags (kind="train" means biasbed.kind)."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    clauses = [f"tags.`biasbed.{name}` = '{value}'" for name, value in tags.items()]
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, " and ".join(clauses)))


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    """Bit-equal tensors under equal names."""
    assert left.keys() == right.keys()
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert not different, f"differ: {different[:5]}"
