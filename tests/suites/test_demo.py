"""The embedded suite as a measuring instrument: what plain training, and training without either cue, must come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import children
from helpers.runs import history, run_folders

SETS = ("in_domain", "silhouette", "edge", "sketch", "cue_conflict", "stylized")


def trained(home: Path, *words: str) -> dict[str, float]:
    """The metrics of the best epoch of a default training on the embedded suite."""
    done = children.run(["train", *words, "--tracking", "offline"], env={"BIASBED_HOME": str(home)}, timeout=600)
    assert done.returncode == 0, done.stderr
    epochs = history(run_folders(home)[-1])
    return max(epochs.values(), key=lambda metrics: metrics["val/accuracy/val"])


def test_a_short_training_has_every_set(tmp_path: Path) -> None:
    metrics = trained(tmp_path, "--epochs", "1", "--image_size", "16", "--sets", "in_domain,cue_conflict")
    assert {"test/accuracy/in_domain", "test/shape_bias/cue_conflict", "val/accuracy/val"} <= set(metrics)
    assert "test/accuracy/edge" not in metrics


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_plain_training_is_texture_biased_yet_above_chance(tmp_path: Path, seed: str) -> None:
    metrics = trained(tmp_path, "--seed", seed)
    assert metrics["val/accuracy/val"] >= 0.95
    assert metrics["test/shape_bias/cue_conflict"] < 0.35
    assert sum(metrics[f"test/accuracy/{name}"] >= 0.2 for name in SETS) >= 4  # twice chance


@pytest.mark.slow
def test_without_texture_cues_the_same_model_goes_by_shape(tmp_path: Path) -> None:
    metrics = trained(tmp_path, "--train", "stylized")
    assert metrics["test/shape_bias/cue_conflict"] >= 0.8
    assert metrics["test/accuracy/silhouette"] >= 0.6


@pytest.mark.slow
def test_without_shapes_the_same_model_goes_by_texture(tmp_path: Path) -> None:
    assert trained(tmp_path, "--train", "texture")["test/shape_bias/cue_conflict"] <= 0.1
