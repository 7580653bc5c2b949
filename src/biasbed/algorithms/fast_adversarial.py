"""Fast adversarial training (Wong, Rice and Kolter, *Fast is better than free: Revisiting adversarial training*, ICLR
2020).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.draws import uniform
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import IMAGENET_CROPS, SGD, epochs
from biasbed.algorithms.recipes import OPEN
from biasbed.algorithms.requests import Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.settings import setting


@dataclass(frozen=True)
class Stretch:
    """A part of the training with images and batches of their own size."""

    image_size: int
    batch_size: int
    part: float  # of the training, up to 1 over all stretches


def stretches(words: Sequence[str]) -> list[Stretch]:
    """Of words `<pixels>:<batch>:<length>`; ValueError for others. Lengths count in proportion to their sum."""
    found = [re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,5}):(\d+\.?\d*)", word) for word in words]
    numbers = [(int(match[1]), int(match[2]), float(match[3])) for match in found if match]
    if len(numbers) < len(words) or not all(length > 0 and size >= 8 for size, _, length in numbers):
        raise ValueError(
            f"hparams.phases={','.join(words)}: should be <pixels>:<batch size>:<length> for each, as 128:512:6"
        )
    total = sum(length for *_, length in numbers)
    return [Stretch(size, batch, length / total) for size, batch, length in numbers]


class FastAdversarial(ERM):
    """ERM on images that one step of an attack has changed (algorithm 3).

    The attack starts at uniform noise in [-eps, eps], goes `step` times eps up the sign of the loss's slope, and stays
    within eps and within [0,1]. What it changes are images before they are normalised; both forward passes are those of
    training, so that batch norm's statistics move twice in a step.
    """

    @dataclass(frozen=True)
    class HParams:
        eps: float = setting(4 / 255, "largest change of a value in [0,1] (authors, ImageNet)", gt=0, le=1)
        step: float = setting(1.25, "length of the attack's step, as a multiple of eps (paper, section 5)", gt=0, le=10)
        phases: tuple[str, ...] = setting(
            (), "stretches of the training: <pixels>:<batch size>:<length>, ... (none: one, as configured)"
        )

        def __post_init__(self) -> None:
            stretches(self.phases)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            "backbone": "resnet50",
            "init": "scratch",
            **IMAGENET_CROPS,
            **epochs(15),
            "batch_size": OPEN,
            **SGD,
            "optim.lr": 0.4,
            "optim.lr_batch": None,
            "optim.weight_decay": 1e-4,
            "optim.decay_norms": False,
            "optim.schedule": "piecewise",
            "optim.milestones": OPEN,
            "optim.gamma": OPEN,
            "optim.points": (0.0, 1 / 15, 6 / 15, 12 / 15, 1.0),
            "optim.factors": (0.0, 1.0, 0.1, 0.01, 0.001),
            "optim.warmup": 0.0,
            "optim.restarts": (),
            "precision": "fp16",
            "hparams.eps": 4 / 255,
            "hparams.step": 1.25,
            "hparams.phases": ("128:512:6", "224:224:6", "288:128:3"),
        }
    }

    hparams: HParams

    def stages(self) -> Sequence[Phase]:
        """One after the other, along one course of the rate; the optimizer goes on. The last one is tested."""
        found = stretches(self.hparams.phases)
        if not found:
            return super().stages()
        ends = [*itertools.accumulate(stretch.part for stretch in found[:-1]), 1.0]
        return [
            Stage(
                MAIN if last else f"phase_{number}",
                self.update,
                share=None if last else stretch.part,
                streams={MAIN: StreamRequest(size=stretch.batch_size, image_size=stretch.image_size)},
                course=(end - stretch.part, end),
                validate=not last,
            )
            for number, (stretch, end) in enumerate(zip(found, ends, strict=True), 1)
            for last in [number == len(found)]
        ]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return super().losses(replace(batch, x=(batch.x + self.attack(batch)).clamp(0, 1)))

    def attack(self, batch: Batch) -> Tensor:
        """What is added to the images, [N,C,H,W]. Only the noise is differentiated by: no gradient of a weight is."""
        noise = self.draws(batch)
        loss = self.task.loss(self.logits((batch.x + noise).clamp(0, 1)), batch.y)
        self.note("attacked_at_random", loss)
        # Scaled, as slopes of pixels would vanish in fp16; where they overflow there is no direction.
        (slope,) = torch.autograd.grad(self.setup.precision.scale(loss), noise)
        eps = self.hparams.eps
        return (noise + self.hparams.step * eps * slope.sign().nan_to_num()).clamp(-eps, eps).detach()

    def draw(self, batch: Batch) -> Tensor:
        return self.noise(batch.x).requires_grad_()

    def noise(self, x: Tensor) -> Tensor:
        """Where the attack starts, for images [N,C,H,W]."""
        return uniform(x.shape, -self.hparams.eps, self.hparams.eps, self.group.generator, x.dtype)
