"""Training on attacked images, and its phases: images, batches and a rate of their own, one optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed import cli
from biasbed.algorithms.fast_adversarial import FastAdversarial
from biasbed.algorithms.requests import Stage
from biasbed.batch import Batch
from biasbed.compute.optim import rate_factor
from biasbed.config import Optim
from biasbed.errors import UsageError
from biasbed.settings import build
from helpers.commands import small_training
from helpers.grouped import journal
from helpers.making import make
from helpers.resumable import PHASED
from helpers.runs import run_folders


def images() -> Batch:
    """Return images, some of whose values are at the ends of [0,1]."""
    generator = torch.Generator().manual_seed(1)
    x = (1.4 * torch.rand(12, 3, 24, 24, generator=generator) - 0.2).clamp(0, 1)
    return Batch(x, torch.arange(12) % 5)


def test_the_attack_stays_within_its_bounds_and_raises_the_loss() -> None:
    method, batch = make("fast_adversarial", {"eps": 0.05, "step": 1.25}), images()
    assert isinstance(method, FastAdversarial)
    first = method.draw_noise(batch.x)
    assert (first.abs() <= 0.05).all()
    assert first.std() == pytest.approx(0.05 / np.sqrt(3), rel=0.05)
    method.draw_noise = lambda x: first.clone()  # type: ignore[method-assign]
    attacked = method.perturb(batch)
    assert attacked.abs().max() == pytest.approx(0.05)
    moved = attacked - first
    outside = (batch.x + first < 0) | (batch.x + first > 1)
    assert outside.float().mean() > 0.05
    assert (moved[outside] == 0).all(), "what is cut off has no slope"
    assert (moved[~outside] != 0).float().mean() > 0.9
    losses = [method.task.loss(method.logits((batch.x + noise).clamp(0, 1)), batch.y) for noise in (first, attacked)]
    assert losses[1] > losses[0] * 1.01


def test_the_attack_gives_no_weight_a_gradient_and_moves_the_statistics() -> None:
    method, batch = make("fast_adversarial"), images()
    assert isinstance(method, FastAdversarial)
    noise = method.perturb(batch)
    assert not noise.requires_grad
    assert all(parameter.grad is None for parameter in method.parameters())
    counts = [value for name, value in method.named_buffers() if name.endswith("num_batches_tracked")]
    before = [int(value) for value in counts]
    method.losses(batch)
    assert [int(value) - past for value, past in zip(counts, before, strict=True)] == [2] * len(counts)


def test_phases_follow_one_course() -> None:
    """Each at its own number of steps, as if the whole training had been at that number."""
    method = make("fast_adversarial", {"phases": ("16:6:6", "24:8:6", "32:12:3")})
    stages: list[Any] = list(method.stages())
    assert [stage.name for stage in stages] == ["phase_1", "phase_2", "main"]
    assert [stage.share for stage in stages] == [pytest.approx(0.4), pytest.approx(0.4), None]
    assert [(s.streams["main"].image_size, s.streams["main"].size) for s in stages] == [(16, 6), (24, 8), (32, 12)]
    course = Optim(schedule="piecewise", warmup=0.0, points=(0, 0.1, 0.4, 0.8, 1), factors=(0, 1, 0.1, 0.01, 0.001))
    for stage, steps, begin, end in zip(stages, (60, 45, 15), (0, 0.4, 0.8), (0.4, 0.8, 1), strict=True):
        first, total = stage.schedule_steps(steps)
        factors = [rate_factor(course, first + step, total, 1) for step in range(steps)]
        parts = begin + (end - begin) * (np.arange(steps) + 1) / steps
        np.testing.assert_allclose(factors, np.interp(parts, course.points, course.factors), rtol=1e-9)


def test_a_stage_that_says_nothing_has_the_whole_course() -> None:
    assert [Stage("main", lambda batch: {}).schedule_steps(total) for total in (1, 7)] == [(0, 1), (0, 7)]


def test_a_training_in_phases(image_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """42 images: an epoch in sixes at 16 pixels, then one in twelves at 32; momentum goes on."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    assert cli.main(small_training(image_root, "fast_adversarial", *PHASED)) == 0
    (folder,) = run_folders(tmp_path / "home")
    first, last = journal(folder)
    assert (first["stage"], first["step"], first["metrics"]["phase_1/lr"]) == ("phase_1", 1, pytest.approx(0.05))
    assert "phase_1/accuracy/val" in first["metrics"]
    assert (last["step"], last["metrics"]["train/lr"]) == (1, pytest.approx(0.05 * 0.1))
    assert last["metrics"]["train/attacked_at_random"] > 0
    assert {"test/accuracy/ink", "val/accuracy/val"} <= last["metrics"].keys()


@pytest.mark.parametrize("phases", ["128:512", "128:512:6,224:224:0", "4:512:6"])
def test_wrong_phases_are_refused(phases: str) -> None:
    with pytest.raises(UsageError, match=f"phases={phases}: should be <pixels>:<batch size>:<length> for each"):
        build(FastAdversarial.HParams, {"phases": phases})
