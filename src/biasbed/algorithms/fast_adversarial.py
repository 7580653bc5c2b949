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
from biasbed.algorithms.presets import IMAGENET_CROPS, OPEN, SGD, epochs
from biasbed.algorithms.requests import Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.settings import setting


@dataclass(frozen=True)
class Stretch:
    """Part of the training with its own image size and batch size."""

    image_size: int
    batch_size: int
    part: float  # fraction of the training; the parts of all stretches add up to 1


def parse_stretches(specifications: Sequence[str]) -> list[Stretch]:
    """Return the stretches of specifications `<pixels>:<batch size>:<length>`. Raises ValueError for other formats.

    Lengths are relative to their sum.
    """
    stretches = []
    for specification in specifications:
        match = re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,5}):(\d+\.?\d*)", specification)
        if match is None or int(match[1]) < 8 or not float(match[3]):
            raise ValueError(
                f"hparams.phases={','.join(specifications)}: should be <pixels>:<batch size>:<length> for each, as "
                "128:512:6"
            )
        stretches.append(Stretch(int(match[1]), int(match[2]), float(match[3])))
    total = sum(stretch.part for stretch in stretches)
    return [replace(stretch, part=stretch.part / total) for stretch in stretches]


class FastAdversarial(ERM):
    """ERM on images changed by one step of an adversarial attack (algorithm 3).

    The attack starts with uniform noise in [-eps, eps], moves `step` times eps along the sign of the loss's gradient,
    and is clipped to eps and to images in [0,1]. It changes images before normalisation. Both forward passes run in
    training mode, so batch norm's statistics are updated twice in a step.
    """

    @dataclass(frozen=True)
    class HParams:
        eps: float = setting(4 / 255, "largest change of a value in [0,1] (authors, ImageNet)", gt=0, le=1)
        step: float = setting(1.25, "length of the attack's step, as a multiple of eps (paper, section 5)", gt=0, le=10)
        phases: tuple[str, ...] = setting(
            (), "stretches of the training: <pixels>:<batch size>:<length>, ... (none: one, as configured)"
        )

        def __post_init__(self) -> None:
            parse_stretches(self.phases)

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
        """Return one stage for each stretch. They share one schedule and optimizer, and the last one is tested."""
        stretches = parse_stretches(self.hparams.phases)
        if not stretches:
            return super().stages()
        ends = [*itertools.accumulate(stretch.part for stretch in stretches[:-1]), 1.0]
        stages = []
        for number, (stretch, end) in enumerate(zip(stretches, ends, strict=True), 1):
            is_last = number == len(stretches)
            stage = Stage(
                MAIN if is_last else f"phase_{number}",
                self.update,
                share=None if is_last else stretch.part,
                streams={MAIN: StreamRequest(size=stretch.batch_size, image_size=stretch.image_size)},
                course=(end - stretch.part, end),
                validate=not is_last,
            )
            stages.append(stage)
        return stages

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return super().losses(replace(batch, x=(batch.x + self.perturb(batch)).clamp(0, 1)))

    def perturb(self, batch: Batch) -> Tensor:
        """Return the change [N,C,H,W] of the images. Only the noise gets a gradient; the weights do not."""
        noise = self.draws(batch)
        loss = self.task.loss(self.logits((batch.x + noise).clamp(0, 1)), batch.y)
        self.note("attacked_at_random", loss)
        # The loss is scaled, or gradients of pixels would vanish in fp16. Those that overflow give no direction.
        (slope,) = torch.autograd.grad(self.setup.precision.scale(loss), noise)
        eps = self.hparams.eps
        return (noise + self.hparams.step * eps * slope.sign().nan_to_num()).clamp(-eps, eps).detach()

    def draw(self, batch: Batch) -> Tensor:
        return self.draw_noise(batch.x).requires_grad_()

    def draw_noise(self, x: Tensor) -> Tensor:
        """Return the attack's starting point for images [N,C,H,W]."""
        return uniform(x.shape, -self.hparams.eps, self.hparams.eps, self.group.generator, x.dtype)
