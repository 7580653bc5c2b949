"""Shape-texture debiased training (Li, Yu, Tan, Mei, Tang, Shen, Yuille and Xie, ICLR 2021)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Algorithm, Setup
from biasbed.algorithms.draws import with_draws
from biasbed.algorithms.presets import BIASBED_CODE, BIASBED_PAPER, IMAGENET_CROPS, OPEN, SGD, STEPS, epochs
from biasbed.batch import Batch
from biasbed.errors import UsageError
from biasbed.networks import stages, surgery
from biasbed.settings import setting
from biasbed.tasks import Task

AUTHORS: Mapping[str, Any] = {
    "backbone": "resnet50",
    "init": "scratch",
    **IMAGENET_CROPS,
    **epochs(100),
    "batch_size": 512,
    **SGD,
    "optim.lr": 0.2,
    "optim.lr_batch": 512,
    "optim.weight_decay": 1e-4,
    **STEPS,
    "optim.milestones": (0.3, 0.6, 0.9),
    "optim.warmup": 5.0,
    "precision": "fp32",
    "hparams.alpha": 0.5,
    "hparams.label_gamma": 0.8,
    "hparams.multi_grid": True,
    "hparams.milestones": (0.3, 0.6, 0.9),
    "hparams.min_size": 112,
}
# Both halves at full size, no warm-up. BiasBed's code also mislabels and mis-scales; see docs/methods/debiased.md.
CODE: Mapping[str, Any] = {
    **BIASBED_CODE,
    "optim.lr": 0.2,
    "hparams.alpha": 0.5,
    "hparams.label_gamma": 0.8,
    "hparams.multi_grid": False,
    "hparams.milestones": OPEN,
    "hparams.min_size": OPEN,
}


def stylised_losses(task: Task, logits: Tensor, y: Tensor, permutation: Tensor, label_gamma: float) -> Tensor:
    """Return the loss [N] of stylised images: label_gamma on the shape's label, the rest on the texture donor's."""
    shape = task.loss(logits, y, reduction="none")
    texture = task.loss(logits, y[permutation], reduction="none")
    return label_gamma * shape + (1 - label_gamma) * texture


def stylised_size(size: int, fraction: float, step: int, milestones: Sequence[float], min_size: int = 1) -> int:
    """Return the pixels per side of the stylised images at a step (from 0) of an epoch that begins at `fraction`.

    Each stretch between two drops of the rate alternates between two sizes in even and odd steps: 1/2 and 1/sqrt(2) of
    the full size in its first half, 1/sqrt(2) and 1 in its second half. Never less than `min_size`, or than `size` if
    that is smaller.
    """
    ends = [0.0, *milestones, 1.0]
    start, end = next((a, b) for a, b in itertools.pairwise(ends) if fraction < b)
    even, odd = (0.5, math.sqrt(0.5)) if fraction < (start + end) / 2 else (math.sqrt(0.5), 1.0)
    return min(size, max(min_size, round(size * (odd if step % 2 else even))))


class Debiased(Algorithm):
    """ERM on every batch and on a copy of it in which each image has the texture of another one.

    AdaIN style transfer (strength `alpha`) makes the copy. Its labels are mixed: `label_gamma` of the image's own, the
    rest of the texture's. The loss is the mean over both halves. Every batch norm has a twin with its own statistics
    and affine parameters for the stylised half; predictions use the main norms. A network without batch norms has twins
    of all its norms instead (ours). Batch statistics and permutations are per process, as in the authors' code (64
    images each): two processes do not reproduce one.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.5, "strength of the style transfer (authors)", ge=0, le=1)
        label_gamma: float = setting(0.8, "share of the shape's label in a stylised image's (authors)", ge=0, le=1)
        multi_grid: bool = setting(False, "stylised images at reduced sizes for speed (BiasBed no; authors yes)")
        milestones: tuple[float, ...] = setting((0.3, 0.6, 0.9), "multi_grid: where its cycle restarts (authors)")
        min_size: int = setting(32, "multi_grid: least pixels of a stylised image's side (authors: 112 of 224)", ge=9)

    maps: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("style",)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        "biasbed_code": CODE,
        "authors": AUTHORS,
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        surgery.norms_to_split(backbone)
        family = stages.family_of(backbone)
        if hparams.multi_grid and family is not None and family.kind == "vit":
            raise UsageError(
                f"hparams.multi_grid=true trains on stylised images of several sizes, and {type(backbone).__name__} "
                "takes one size only: give hparams.multi_grid=false"
            )

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()
        self.auxiliary_norms, self.norms = surgery.split_norms(self.network.get_submodule("backbone"))
        # In a list, so that it is neither trained nor saved; fetched on demand, because predictions do not need it.
        self._style: list[nn.Module] = []

    @property
    def style(self) -> nn.Module:
        """Style network, frozen."""
        if not self._style:
            self._style.append(self.setup.prepared("style"))
        return self._style[0]

    def start(self) -> None:
        """Fetch the style network, so that training without one fails before its first step; build the optimizers."""
        _ = self.style
        super().start()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if not self.training:
            return {"classification": self.task.loss(self.network(batch.x), batch.y)}
        permutation, shrunk = self.draws(batch)
        clean, stylised = self._logits(batch.x, self.stylise(shrunk, permutation))
        self.observe(clean, batch.y)
        texture = stylised_losses(self.task, stylised, batch.y, permutation, self.hparams.label_gamma)
        # Halved, because the loss is the mean over the images of both halves.
        return {"classification": self.task.loss(clean, batch.y) / 2, "stylised": texture.mean() / 2}

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return the texture's donor for each image, and the images to stylise."""
        if not self.training:
            return None
        permutation = torch.randperm(len(batch), generator=self.group.generator, device=self.group.device)
        return permutation, self._shrunk(batch.x)

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits

    @torch.no_grad()
    def stylise(self, x: Tensor, permutation: Tensor) -> Tensor:
        """Return images [N,3,H,W] in [0,1] with the texture of image permutation[i]; not clamped, as the authors'."""
        stylised: Tensor = self.style.permute(x, permutation, self.hparams.alpha)  # type: ignore[operator]
        return stylised.to(x.dtype)

    def _shrunk(self, x: Tensor) -> Tensor:
        """Return the images to stylise. With `multi_grid` they are shrunk by nearest neighbours before the transfer, as
        in the authors' code, which makes the transfer cheaper too."""
        if not self.hparams.multi_grid:
            return x
        fraction, step = self.progress.epoch / self.progress.epochs, self.progress.step
        milestones, least = self.hparams.milestones, self.hparams.min_size
        size = [stylised_size(side, fraction, step, milestones, least) for side in x.shape[2:]]
        return functional.interpolate(x, size, mode="nearest")

    def _logits(self, x: Tensor, stylised: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the images through the main norms, and of their copies through the auxiliary ones."""
        if stylised.shape == x.shape:
            with with_draws(self.norms, [len(x)] * len(self.norms)):
                logits: Tensor = self.network(torch.cat([x, stylised]))
            return logits[: len(x)], logits[len(x) :]
        clean: Tensor = self.network(x)
        with with_draws(self.norms, [0] * len(self.norms)):
            return clean, self.network(stylised)
