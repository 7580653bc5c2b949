"""DANN: features that hide their domain (Ganin, Ustinova, Ajakan et al., JMLR 2016), as in DomainBed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Objective, Optimizer, Setup, TrainData
from biasbed.algorithms.domains import PAPER_2020, DomainERM, UpdateCount
from biasbed.algorithms.draws import dropout_mask
from biasbed.algorithms.presets import OPEN
from biasbed.batch import Batch, at_least_fp32
from biasbed.settings import setting


class Discriminator(nn.Module):
    """Classifier of the domain of features [N,d]: linear layers with ReLU, and dropout before each ReLU."""

    def __init__(self, features: int, domains: int, width: int, depth: int, dropout: float) -> None:
        """depth: number of linear layers, at least two."""
        super().__init__()
        units = [features, *(width,) * (depth - 1), domains]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(units))
        self.dropout = dropout

    def forward(self, h: Tensor, generator: torch.Generator) -> Tensor:
        """Return the logits [N,D]. generator: draws the dropped units."""
        *hidden, last = self.layers
        for layer in hidden:
            h = layer(h)
            if self.dropout:
                h = h * dropout_mask(h.shape, self.dropout, generator, h.dtype)
            h = h.relu()
        logits: Tensor = last(h)
        return logits


class DANN(DomainERM):
    """ERM whose features are trained against a classifier of their domain, the discriminator.

    In `d_steps` of every 1 + `d_steps` updates the discriminator learns by the cross-entropy of the domains plus
    `grad_penalty` times the mean squared norm of its gradient by the features. In the remaining update the network
    learns by its own loss minus `penalty_weight` times the discriminator's. Each has its own optimizer; no gradient is
    reversed.
    """

    @dataclass(frozen=True)
    class HParams:
        penalty_weight: float = setting(1.0, "weight of the discriminator's loss in the network's (DomainBed)", ge=0)
        d_steps: int = setting(1, "steps of the discriminator for each of the network (DomainBed)", ge=1)
        grad_penalty: float = setting(0.0, "weight of the discriminator's squared gradient (DomainBed)", ge=0)
        width: int = setting(256, "units of the discriminator's layers (DomainBed)", ge=1)
        depth: int = setting(3, "linear layers of the discriminator (DomainBed)", ge=2)
        dropout: float = setting(0.0, "dropout in the discriminator (DomainBed)", ge=0, lt=1)
        lr_d: float | None = setting(None, "learning rate of the discriminator (none: that of the network)", gt=0)
        weight_decay_d: float = setting(0.0, "weight decay of the discriminator (DomainBed)", ge=0)

    defaults: ClassVar[Mapping[str, Any]] = {"optim.beta1": 0.5, "optim.beta2": 0.9}
    needs_head: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {
            **PAPER_2020,
            **{f"hparams.{name}": OPEN for name in ("penalty_weight", "d_steps", "width", "depth", "dropout")},
            "hparams.lr_d": OPEN,
            "hparams.weight_decay_d": OPEN,
            # Their code differentiated a constant sum, so the penalty was zero whatever its weight.
            "hparams.grad_penalty": 0.0,
        }
    }

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.updates = UpdateCount()

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        hparams, features = self.hparams, self.network.num_features
        self.discriminator = Discriminator(features, data.num_domains, hparams.width, hparams.depth, hparams.dropout)

    def adversary(self) -> list[nn.Parameter]:
        """Return the parameters that learn the domains."""
        return list(self.discriminator.parameters())

    def discriminator_input(self, features: Tensor, y: Tensor) -> Tensor:
        """Return the discriminator's input for images with features [N,d] and labels y."""
        return features

    def mean_loss(self, losses: Tensor, y: Tensor) -> Tensor:
        """Return the mean of the discriminator's losses [N] on images with labels y."""
        return losses.mean()

    def optimizers(self) -> dict[str, Optimizer]:
        adversary: dict[str, Any] = {"params": self.adversary(), "weight_decay": self.hparams.weight_decay_d}
        if self.hparams.lr_d is not None:
            adversary["lr"] = self.hparams.lr_d
        return {
            "main": self.setup.optimizer(self.network.parameters()),
            "discriminator": self.setup.optimizer([adversary]),  # type: ignore[list-item]
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        self.updates.value += 1
        cycle = 1 + self.hparams.d_steps
        if self.num_domains > 1 and self.updates.value % cycle < self.hparams.d_steps:
            gradients, terms = self.grads(batch, self.discriminator_objective)
        else:
            gradients, terms = self.grads(batch, self.network_objective)
            terms = {"network": terms["main"]}
        self.apply_gradients(gradients)
        return terms

    def discriminator_objective(self, batch: Batch) -> dict[str, Objective]:
        """Return the loss of the discriminator, without a gradient for the network."""
        with torch.no_grad():
            features = self.network.features(batch.x)
        return {"discriminator": (self.discriminator_loss(features, batch), self.adversary())}

    def network_objective(self, batch: Batch) -> dict[str, Objective]:
        """Return the loss of the network."""
        features = self.network.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        self.note("classification", loss)
        total = loss - self.hparams.penalty_weight * self.discriminator_loss(features, batch)
        return {"main": (total, self.network.parameters())}

    def discriminator_loss(self, features: Tensor, batch: Batch) -> Tensor:
        """Return the discriminator's loss on features [N,d], in fp32 at least, as it may be differentiated twice."""
        with torch.autocast(self.group.device.type, enabled=False):
            h = self.discriminator_input(at_least_fp32(features), batch.y)
            if not h.requires_grad:
                h.requires_grad_()
            logits = self.discriminator(h, self.group.generator)
            assert batch.domain is not None
            losses = functional.cross_entropy(logits, batch.domain, reduction="none")
            loss = self.mean_loss(losses, batch.y)
            if not self.hparams.grad_penalty:
                return loss
            (slope,) = torch.autograd.grad(losses.sum(), h, create_graph=True)
            return loss + self.hparams.grad_penalty * slope.square().sum(1).mean()
