"""Throw-away algorithms that prove the contract: several optimizers, alternating networks, state per example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, Objective, Setup, Stage, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.batch import Batch
from biasbed.settings import setting


class TinyNet(nn.Module):
    """Two convolutions without batch norm; features [N,16]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x - 0.5)


class Plain(Algorithm):
    """`losses` alone, with a draw of each rank's generator where `noise` is on."""

    @dataclass(frozen=True)
    class HParams:
        noise: float = setting(0.0, "standard deviation of feature noise", ge=0)
        explode_at: int = setting(-1, "epoch at whose first step the loss becomes NaN")

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.features, self.head = TinyNet(), nn.Linear(16, setup.num_classes)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        z = self.features(batch.x)
        if self.hparams.noise:
            z = z + self.hparams.noise * torch.randn(z.shape, generator=self.group.generator, device=z.device)
        logits = self.head(z)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        return {"classification": loss * torch.nan if self.progress.epoch == self.hparams.explode_at else loss}

    def predict(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class SagNetLike(Algorithm):
    """Three optimizers, one forward, a clip after averaging; parameters in two of the optimizers."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.encoder = TinyNet()
        self.content, self.style = nn.Linear(16, setup.num_classes), nn.Linear(16, setup.num_classes)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        make = self.setup.optimizer
        return {
            "main": make([*self.encoder.parameters(), *self.content.parameters()]),
            "style": make(self.style.parameters()),
            "adversarial": make(self.encoder.parameters()),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        gradients, terms = self.grads(batch, self.objectives)
        self.apply_gradients(gradients, clip={"adversarial": 0.01})
        return terms

    def objectives(self, batch: Batch) -> dict[str, Objective]:
        z = self.encoder(batch.x)
        encoder = list(self.encoder.parameters())
        content = self.task.loss(self.content(z), batch.y)
        style = self.task.loss(self.style(z.detach().square()), batch.y)
        adversarial = -0.1 * self.style(z).log_softmax(1).mean()
        return {
            "style": (style, self.style.parameters()),
            "adversarial": (adversarial, encoder),
            "main": (content, [*encoder, *self.content.parameters()]),
        }

    def predict(self, x: Tensor) -> Tensor:
        return self.content(self.encoder(x))


class DannLike(Algorithm):
    """A discriminator of the label's parity every step, the encoder against it every second; Adam is reset once."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.encoder, self.head = TinyNet(), nn.Linear(16, setup.num_classes)
        self.discriminator = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        main = [*self.encoder.parameters(), *self.head.parameters()]
        return {
            "main": self.setup.optimizer(main),
            "discriminator": torch.optim.Adam(self.discriminator.parameters(), 1e-3),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        gradients, terms = self.grads(batch, self.discrimination)
        self.apply_gradients(gradients)
        if self.progress.epoch == 1 and self.progress.step == 0:
            self.reset_optimizer("discriminator")
        if self.progress.step % 2 == 1:
            gradients, more = self.grads(batch, self.classification)
            self.apply_gradients(gradients)
            terms |= more
        return terms

    def discrimination(self, batch: Batch) -> dict[str, Objective]:
        loss = self.task.loss(self.discriminator(self.encoder(batch.x).detach()), batch.y % 2)
        return {"discriminator": (loss, self.discriminator.parameters())}

    def classification(self, batch: Batch) -> dict[str, Objective]:
        z = self.encoder(batch.x)
        loss = self.task.loss(self.head(z), batch.y) - 0.1 * self.task.loss(self.discriminator(z), batch.y % 2)
        return {"main": (loss, [*self.encoder.parameters(), *self.head.parameters()])}

    def predict(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))


class LfFLike(Plain):
    """A running loss per training example, gathered over ranks, weights the loss; a first stage warms it up."""

    uses: ClassVar[frozenset[str]] = frozenset({"index"})

    def on_train_data(self, data: TrainData) -> None:
        self.register_buffer("running", torch.zeros(data.num_examples))

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("warm_up", self.update, epochs=1), Stage("main", self.update))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.index is not None
        each = self.task.loss(self.head(self.features(batch.x)), batch.y, reduction="none")
        index, seen = self.group.gather(batch.index), self.group.gather(each.detach())
        self.running[index] = 0.7 * self.running[index] + 0.3 * seen
        if self.progress.stage == "warm_up":
            return {"classification": each.mean()}
        return {"classification": (each * (1 + self.running[batch.index])).mean()}


class Unbiasing(Plain):
    """Images whose bias doesn't suggest their class count more; unless supervised, all count alike."""

    uses: ClassVar[frozenset[str]] = frozenset({"bias"})

    @dataclass(frozen=True)
    class HParams(Plain.HParams):
        supervised: bool = setting(True, "bias labels are used")
        weight: float = setting(4.0, "of an image that conflicts", gt=0)

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        return super().needs(hparams) if hparams.supervised else frozenset()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.head(self.features(batch.x))
        self.observe(logits, batch.y)
        each = self.task.loss(logits, batch.y, reduction="none")
        if not self.hparams.supervised:
            return {"classification": each.mean()}
        assert batch.bias is not None
        weight = torch.where(batch.bias == batch.y, 1.0, self.hparams.weight)
        return {"classification": (weight * each).sum() / weight.sum()}


class Prying(Plain):
    """Declares nothing and looks at what it was not given."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.bias is None, "biased by what it must not see"
        assert batch.index is None, "biased by what it must not see"
        return super().losses(batch)


class GlobalNoise(Plain):
    """Wrong: draws from the global generator."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        noisy = Batch(batch.x + 0.01 * torch.randn_like(batch.x), batch.y)
        return super().losses(noisy)


class BatchDependent(Plain):
    """Wrong: an image's decision depends on what else is in the batch."""

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x - x.mean())


class OneEach(ERM):
    """For images of one class each."""

    tasks = frozenset({"multi_class"})
