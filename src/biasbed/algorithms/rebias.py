"""ReBias: independence from a network that can only be biased (Bahng, Chun, Yun, Choo and Oh, ICML 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Objective, Optimizer, Setup
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS, epochs
from biasbed.batch import Batch, at_least_fp32
from biasbed.settings import setting


def squared_distances(x: Tensor) -> Tensor:
    """Return |x_i - x_j|^2 [N,N] of rows [N,D] in float64: exactly 0 on the diagonal and never negative."""
    wide = x.double()
    squares = wide.square().sum(1)
    distances = (squares[:, None] + squares[None, :] - 2 * wide @ wide.T).clamp_min(0)
    return distances.masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), 0)


def median_width(batches: Sequence[Tensor]) -> Tensor:
    """Return a Gaussian kernel's width by the median heuristic: a float64 scalar without gradient.

    It is the root of the median of |u - v|^2 over all ordered pairs of rows within each batch [N,D], pairs of a row
    with itself included. If most rows are equal, it is 1e-4 of their root mean square length, or 1 if that is 0.
    """
    with torch.no_grad():
        distances = torch.cat([squared_distances(x).flatten() for x in batches]).sort().values
        median = (distances[(len(distances) - 1) // 2] + distances[len(distances) // 2]) / 2
        length = torch.cat([x.double().square().sum(1) for x in batches]).mean()
        square = torch.maximum(median, 1e-8 * length)
        return torch.where(square > 0, square, 1).sqrt()


def hsic(x: Tensor, y: Tensor, width_x: Tensor | float, width_y: Tensor | float) -> Tensor:
    """Return how dependent rows x [N,D] and y [N,E] of the same images are: a float64 scalar, 0 if independent.

    Hilbert-Schmidt independence criterion by its unbiased estimator, which may be negative (Song, Smola, Gretton, Bedo
    and Borgwardt, JMLR 2012, equation 5), with kernels exp(-|u - v|^2 / (2 width^2)):

        [ tr(KL) + (1'K1)(1'L1) / ((N-1)(N-2)) - 2 (K1)'(L1) / (N-2) ] / (N (N-3))

    with the diagonals of K and L set to 0. Computed as sum A_ij B_ij / (N (N-3)) of the two centred matrices (Szekely
    and Rizzo 2014), which is equal and loses no digits. Returns 0 for fewer than four images.
    """
    n = len(x)
    if n < 4:
        return (x.sum() + y.sum()).double() * 0
    return (_centred(x, width_x) * _centred(y, width_y)).sum() / (n * (n - 3))


def _centred(x: Tensor, width: Tensor | float) -> Tensor:
    """Return K_ij - sum_k K_ik / (N-2) - sum_k K_kj / (N-2) + sum K / ((N-1)(N-2)) for i != j, and 0 for i = j.

    Computed from the kernel minus 1, which has the same result and keeps the digits of small numbers.
    """
    n = len(x)
    kernel = torch.expm1(-squared_distances(x) / (2 * width**2))
    rows = kernel.sum(1)
    centred = kernel - (rows[:, None] + rows[None, :]) / (n - 2) + rows.sum() / ((n - 1) * (n - 2))
    return centred.masked_fill(torch.eye(n, dtype=torch.bool, device=x.device), 0)


class ReBias(ERM):
    """ERM whose features are made independent of a second, biased network's, which has a small receptive field.

    In each step the biased network first learns the classes by its loss minus `biased_weight` times the dependence, so
    that it follows the first network. Then the network learns by its loss plus `weight` times the dependence. The
    dependence is `hsic` of both networks' features. Each network has its own optimizer.
    """

    @dataclass(frozen=True)
    class HParams:
        weight: float = setting(1.0, "weight of the dependence in the network's loss (authors)", ge=0)
        biased_weight: float = setting(1.0, "weight of the dependence in the biased network's loss (authors)", ge=0)
        biased_backbone: str = setting("simple_conv_1x1", "the biased network, of a small receptive field (authors)")
        width: float | None = setting(
            None, "width of both Gaussian kernels (none: by the median heuristic, once an epoch; authors: 1)", gt=0
        )

    needs_head: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    at_least: ClassVar[int] = 4
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **BIASED_MNIST,
            **epochs(80),
            "batch_size": 256,
            **ADAM,
            **STEPS,
            "optim.milestones": (0.25, 0.5, 0.75),
            "hparams.weight": 1.0,
            "hparams.biased_weight": 1.0,
            "hparams.biased_backbone": "simple_conv_1x1",
            "hparams.width": 1.0,
        }
    }

    hparams: HParams
    widths: Tensor

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Return `bias_type`: no bias labels, but a bias that a small receptive field sees."""
        return super().needs(hparams) | {"bias_type"}

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.biased = setup.network(hparams.biased_backbone)
        fixed = 1.0 if hparams.width is None else hparams.width
        self.register_buffer("widths", torch.full((2,), fixed, dtype=torch.float64))  # the network's, the biased one's

    def optimizers(self) -> dict[str, Optimizer]:
        return {
            "main": self.setup.optimizer(self.network.parameters()),
            "biased": self.setup.optimizer(self.biased.parameters()),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step of each network. The first network's features, computed once, serve both losses."""
        with self.setup.precision.autocast():
            features = self.network.features(batch.x)
        gradients, terms = self.grads(batch, lambda part: self.biased_loss(part, features.detach()))
        self.apply_gradients(gradients)
        gradients, more = self.grads(batch, lambda part: self.network_loss(part, features))
        self.apply_gradients(gradients)
        return {"network": more["main"], "biased": terms["biased"]}

    def biased_loss(self, batch: Batch, features: Tensor) -> dict[str, Objective]:
        """Return the biased network's loss. features [N,D]: the first network's, constants here."""
        seen = self.biased.features(batch.x)
        if self.hparams.width is None and self.progress.step == 0:
            self._set_widths(features, seen)
        loss = self.task.loss(self.biased.classify(seen), batch.y)
        total = loss - self.hparams.biased_weight * self.dependence(features, seen)
        return {"biased": (total, self.biased.parameters())}

    def network_loss(self, batch: Batch, features: Tensor) -> dict[str, Objective]:
        """Return the network's loss. features [N,D]: its own. The biased network's are constants, after its step."""
        with torch.no_grad():
            seen = self.biased.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        dependence = self.dependence(features, seen)
        self.note("classification", loss)
        self.note("dependence", dependence)
        return {"main": (loss + self.hparams.weight * dependence, self.network.parameters())}

    def dependence(self, features: Tensor, seen: Tensor) -> Tensor:
        """Return the HSIC of both networks' features [N,D] and [N,E] over all processes' images, in float64."""
        with torch.autocast(self.group.device.type, enabled=False):
            x, y = self._gather(features, seen)
            return hsic(x, y, *self.widths.unbind())

    def _set_widths(self, *features: Tensor) -> None:
        """Set the kernels' widths for this epoch from the features of its first batch."""
        with torch.autocast(self.group.device.type, enabled=False):
            self.widths.copy_(torch.stack([median_width([x]) for x in self._gather(*features)]))

    def _gather(self, *features: Tensor) -> list[Tensor]:
        return [self.group.gather(at_least_fp32(x)) for x in features]
