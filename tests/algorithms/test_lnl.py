"""Learning Not to Learn beyond its vectors: where the network is split, its phases, and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import cli
from biasbed.algorithms.make import from_checkpoint
from helpers.commands import ROOT
from helpers.making import batch_for, make


def test_lnl_s_second_phase_leaves_the_later_half_alone() -> None:
    """Gradients of zeros would let momentum move it."""
    algorithm: Any = make("lnl", {}, backbone="simple_conv")
    batch = batch_for(algorithm)
    algorithm.update(batch)
    snapshots: list[list[torch.Tensor]] = []
    apply = algorithm.apply_gradients

    def record(gradients: Any) -> None:
        apply(gradients)
        snapshots.append([parameter.detach().clone() for parameter in algorithm.network.parameters()])

    algorithm.apply_gradients = record
    algorithm.update(batch)
    moved = [not torch.equal(first, second) for first, second in zip(*snapshots, strict=True)]
    assert moved == algorithm.is_early
    assert 0 < sum(moved) < len(moved)


@pytest.mark.slow
def test_how_many_biases_there_are_goes_along_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    suite = f"{ROOT}/tests/helpers/toy_suite.py:Shades"
    words = ["train", "--suite", suite, "--data.labels", "yes", "--epochs", "1", "--tracking", "offline"]
    assert cli.main([*words, "--algorithm", "lnl", "--backbone", "simple_conv"]) == 0
    (path,) = tmp_path.rglob("last.ckpt")
    biases = torch.load(path, weights_only=False)["train_data"]["num_biases"]
    assert biases > 1
    trained: Any = from_checkpoint(path).algorithm
    assert trained.predictor.layers[-1].out_features == biases
