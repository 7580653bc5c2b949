"""Clipping, smoothed labels and refused recipes, with values derived by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm
from biasbed.batch import Batch
from biasbed.errors import UsageError
from biasbed.tasks import MULTI_CLASS, MultiLabel
from biasbed.training import recipe
from biasbed.training.resolve import resolve
from helpers.making import batch_for, images, make


def clipped(name: str, clip: float | None, **how: Any) -> tuple[Algorithm, dict[str, list[torch.Tensor]]]:
    """A method, and the gradients that its optimizers step with."""
    algorithm = make(name, **how)
    algorithm.setup = replace(algorithm.setup, clip=clip)
    seen: dict[str, list[torch.Tensor]] = {}
    for key, optimizer in algorithm._runtime.optimizers.items():

        def note(optimizer: Any, *_: Any, key: str = key) -> None:
            members = [p for group in optimizer.param_groups for p in group["params"]]
            seen[key] = [p.grad.clone() for p in members if p.grad is not None]

        optimizer.register_step_pre_hook(note)
    return algorithm, seen


def norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


@pytest.mark.parametrize(("precision", "accumulate"), [("fp32", 1), ("fp32", 2), ("fp16", 1)])
def test_gradients_are_clipped_after_unscaling_and_adding_up(precision: str, accumulate: int) -> None:
    """The same direction, at the length asked for; a limit that nothing exceeds changes nothing."""
    gradients = []
    for clip in (None, 0.01, 1e6):
        algorithm, seen = clipped("erm", clip, precision=precision, accumulate=accumulate)
        algorithm.update(Batch(images(8), torch.arange(8) % 5))
        gradients.append(seen["main"])
    plain, short, loose = gradients
    scale = 0.01 / (norm(plain) + 1e-6)
    assert scale < 0.5
    for one, other, same in zip(plain, short, loose, strict=True):
        torch.testing.assert_close(other, one * scale)
        assert torch.equal(same, one)


def test_every_optimizer_is_clipped_by_its_own_norm() -> None:
    algorithm, seen = clipped("sagnet", 1e-3)
    algorithm.update(batch_for(algorithm))
    assert set(seen) == {"main", "style", "adversarial"}
    for gradients in seen.values():
        assert float(norm(gradients)) == pytest.approx(1e-3, rel=1e-2)


def test_smoothed_labels_are_by_hand() -> None:
    """Cross-entropy with 0.9 + 0.1 / K at the label and 0.1 / K elsewhere; labels of 0 and 1 become 0.05 and 0.95."""
    logits, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    targets = torch.full((6, 4), 0.1 / 4, dtype=torch.float64)
    targets[torch.arange(6), y] += 0.9
    expected = -(targets * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(MULTI_CLASS.smoothed(0.1).loss(logits, y, "none"), expected)
    torch.testing.assert_close(MULTI_CLASS.smoothed(0.1).loss(logits, y), expected.mean())
    several, probability = torch.randint(2, (6, 4)), logits.sigmoid()
    soft = several * 0.9 + 0.05
    expected = -(soft * probability.log() + (1 - soft) * (1 - probability).log()).mean(1)
    torch.testing.assert_close(MultiLabel().smoothed(0.1).loss(logits, several, "none"), expected)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"algorithm": "lff", "label_smoothing": "0.1"}, "label_smoothing=0.1: lff weights images by"),
        ({"backbone": "mlp", "optim.layer_decay": "0.7"}, "MLP does not say which layers it has; take a network"),
    ],
)
def test_a_recipe_that_can_not_be_is_refused(flags: dict[str, str], message: str) -> None:
    config = resolve({"suite": "demo", "algorithm": "erm", **flags})
    with pytest.raises(UsageError, match=message) as caught:
        recipe.refuse_unmet(config, algorithms.load(config.algorithm))
    assert "\n" not in str(caught.value)
