"""Training with speckle noise (Rusak et al., *A Simple Way to Make Neural Networks Robust Against Diverse Image
Corruptions*, ECCV 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.draws import normal
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import IMAGENET_WEIGHTS, OPEN, SGD, STEPS, epochs
from biasbed.batch import Batch
from biasbed.settings import setting

NOISES = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")


def add_speckle(x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
    """Return images [N,C,H,W] in [0,1] with noise in proportion to their values: x + x sigma n, clamped to [0,1].

    sigma: strength of each image, [N,1,1,1]. noise: n, shaped like x.
    """
    return (x + x * sigma * noise).clamp(0, 1)


class Speckle(ERM):
    """ERM with speckle noise on part of each batch.

    The first floor(share * B) of a process's B images get noise; batches are shuffled, so these are random images. Each
    has its own strength, drawn from `sigmas`.
    """

    @dataclass(frozen=True)
    class HParams:
        share: float = setting(0.5, "part of a batch that has noise (authors)", gt=0, le=1)
        sigmas: tuple[float, ...] = setting(
            (0.15, 0.2, 0.35, 0.45, 0.6), "strengths; each image has one of them with equal probability (authors)"
        )

        def __post_init__(self) -> None:
            if not self.sigmas or min(self.sigmas) <= 0:
                raise ValueError("hparams.sigmas: one strength or more, all above 0")

    overlaps: ClassVar[Mapping[str, str]] = dict.fromkeys(NOISES, "")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            "backbone": "resnet50",
            "init": IMAGENET_WEIGHTS,
            "image_size": OPEN,
            "augment": OPEN,
            **epochs(120),
            "batch_size": 70,
            **SGD,
            "optim.lr": 1e-3,
            "optim.lr_batch": None,
            "optim.weight_decay": OPEN,
            **STEPS,
            "optim.milestones": (0.5,),
            "precision": OPEN,
            "hparams.share": 0.5,
            "hparams.sigmas": (0.15, 0.2, 0.35, 0.45, 0.6),
        }
    }

    hparams: HParams
    strengths: Tensor

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        sigmas = torch.tensor(hparams.sigmas, dtype=torch.float64)
        self.register_buffer("strengths", sigmas, persistent=False)

    def _count(self, x: Tensor) -> int:
        """Return the number of images that get noise."""
        return int(self.hparams.share * len(x) + 1e-9)

    def logits(self, x: Tensor) -> Tensor:
        count = self._count(x)
        if not count:
            return super().logits(x)
        sigma, noise = self.draws(Batch(x))
        return super().logits(torch.cat([add_speckle(x[:count], sigma, noise), x[count:]]))

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return strengths [M,1,1,1] and standard normal noise [M,C,H,W] of the M images that get noise."""
        x, generator = batch.x[: self._count(batch.x)], self.group.generator
        choice = torch.randint(len(self.strengths), (len(x), 1, 1, 1), generator=generator, device=x.device)
        return self.strengths.to(x.dtype)[choice], normal(x.shape, generator, x.dtype)
