"""ReBias: independence of a network that can only be biased (Bahng, Chun, Yun, Choo and Oh, ICML 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Objective, Optimizer, Setup
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.hsic import hsic, median_width
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS, epochs
from biasbed.batch import Batch, at_least_fp32
from biasbed.settings import setting


class ReBias(ERM):
    """ERM whose features are to be independent of those of a second network, the biased one, that sees little at once.

    In each step the biased network learns the classes by its own loss minus `biased_weight` times the dependence, so
    that it follows whatever it can; then the network does by its own loss plus `weight` times the dependence, which is
    `hsic` of both networks' features. The two have an optimizer each.
    """

    @dataclass(frozen=True)
    class HParams:
        weight: float = setting(1.0, "weight of the dependence in the network's loss (authors)", ge=0)
        biased_weight: float = setting(1.0, "weight of the dependence in the biased network's loss (authors)", ge=0)
        biased_backbone: str = setting("simple_conv_1x1", "the biased network, of a small receptive field (authors)")
        width: float | None = setting(
            None, "of both Gaussian kernels (none: by the median heuristic, once an epoch; authors: 1)", gt=0
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
        """No bias labels, but a bias that a small receptive field sees."""
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
        """The network is not stepped in between, so its features, computed once, serve both losses."""
        with self.setup.precision.autocast():
            features = self.network.features(batch.x)
        gradients, terms = self.grads(batch, lambda part: self.biased_loss(part, features.detach()))
        self.apply_gradients(gradients)
        gradients, more = self.grads(batch, lambda part: self.network_loss(part, features))
        self.apply_gradients(gradients)
        return {"network": more["main"], "biased": terms["biased"]}

    def biased_loss(self, batch: Batch, features: Tensor) -> dict[str, Objective]:
        """The biased network's. features [N,D]: the network's, constants here."""
        seen = self.biased.features(batch.x)
        if self.hparams.width is None and self.progress.step == 0:
            self._set_widths(features, seen)
        loss = self.task.loss(self.biased.classify(seen), batch.y)
        total = loss - self.hparams.biased_weight * self.dependence(features, seen)
        return {"biased": (total, self.biased.parameters())}

    def network_loss(self, batch: Batch, features: Tensor) -> dict[str, Objective]:
        """The network's, with features [N,D]; the biased network's, after its step, are constants here."""
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
        """HSIC of both networks' features [N,D], [N,E] of all processes' images, in float64."""
        with torch.autocast(self.group.device.type, enabled=False):
            x, y = self._of_all(features, seen)
            return hsic(x, y, *self.widths.unbind())

    def _set_widths(self, *features: Tensor) -> None:
        """The kernels' widths for this epoch, of the networks as its first batch finds them."""
        with torch.autocast(self.group.device.type, enabled=False):
            self.widths.copy_(torch.stack([median_width([x]) for x in self._of_all(*features)]))

    def _of_all(self, *features: Tensor) -> list[Tensor]:
        return [self.group.gather(at_least_fp32(x)) for x in features]
