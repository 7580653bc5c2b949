"""Throw-away algorithms that prove the contract: several optimizers, state per example, streams, stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, Objective, Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest, View
from biasbed.batch import MAIN, Batch
from biasbed.data.views import ViewTransform
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
    """Declares nothing and looks for what it was not given: in batches, in a further stream, in a pass."""

    @classmethod
    def streams(cls, hparams: Any) -> dict[str, StreamRequest]:
        return {MAIN: StreamRequest(), "other": StreamRequest(size=6)}

    def stages(self) -> tuple[Phase, ...]:
        return (Pass("look", self.look, lambda values: None), Stage(MAIN, self.update))

    def pry(self, *batches: Batch) -> None:
        for batch in batches:
            names = [name for name in ("domain", "bias", "index") if getattr(batch, name) is not None]
            assert not names, f"sees {names}, which it must not"
            assert batch.parts == 1
        assert not self.told, f"is told {self.told}, which it must not be"

    def look(self, batch: Batch) -> dict[str, Tensor]:
        self.pry(batch)
        return {"seen": batch.y}

    def on_train_data(self, data: TrainData) -> None:
        self.told = [name for name, value in vars(data).items() if "bias" in name and value]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        self.pry(batch, batch.extra["other"])
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


class Overflowing(Plain):
    """A finite loss, and from the second epoch on infinite outputs, as running statistics that overflowed give them."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.register_buffer("scale", torch.ones(()))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if self.progress.epoch >= 1:
            self.scale.fill_(torch.inf)
        return super().losses(batch)

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) * self.scale


class DoubleLosses(Plain):
    """Computes in float64 throughout, by `losses` alone, so that DDP averages."""

    @dataclass(frozen=True)
    class HParams(Plain.HParams):
        noise: float = setting(0.0, "standard deviation of feature noise", ge=0)

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.double()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return super().losses(Batch(batch.x.double(), batch.y))

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.double())


class DoubleGradients(SagNetLike):
    """Computes in float64 throughout, with three optimizers, `grads` and a clip."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.double()

    def objectives(self, batch: Batch) -> dict[str, Objective]:
        return super().objectives(Batch(batch.x.double(), batch.y))

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.double())


# --- what a method may ask for ----------------------------------------------------------------------------------------


class Grain(ViewTransform):
    """Noise on an image, as floats."""

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        strength: float = setting(0.1, "standard deviation", ge=0)

    def __call__(self, image: Tensor) -> Tensor:
        return (image / 255 + self.settings.strength * torch.randn(image.shape)).clamp(0, 1)


class Streaming(Plain):
    """Three views of every image, one of them as it was cropped, that are to agree; and more images without labels."""

    @dataclass(frozen=True)
    class HParams(Plain.HParams):
        grain: float = setting(0.2, "of the third view", ge=0)

    @classmethod
    def streams(cls, hparams: Any) -> dict[str, StreamRequest]:
        grain = View(f"{__name__}:Grain", {"strength": hparams.grain})
        return {
            MAIN: StreamRequest(views=(View(), View("jitter", {"p": 0.8}), grain), shared=True),
            "unlabelled": StreamRequest(size=8, labelled=False, replacement=True),
        }

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.head(self.features(batch.x.flatten(0, 1))).unflatten(0, batch.x.shape[:2])
        self.observe(logits[:, 0], batch.y)
        unlabelled = batch.extra["unlabelled"]
        assert unlabelled.y is None, "a stream without labels has some"
        sure = -self.head(self.features(unlabelled.x)).log_softmax(1).amax(1).mean()
        return {
            "classification": self.task.loss(logits[:, 0], batch.y),
            "agreement": (logits - logits[:, :1]).square().mean(),
            "sureness": 0.1 * sure,
        }


class Staged(Plain):
    """A first network says which images it finds hard; the second draws these more often, after the first is gone."""

    unused_parameters: ClassVar[bool] = True  # of the first, before it is gone

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.first = nn.Sequential(TinyNet(), nn.Linear(16, setup.num_classes))
        self.register_buffer("begun_and_ended", torch.zeros(2))

    def on_train_data(self, data: TrainData) -> None:
        self.register_buffer("hardness", torch.zeros(data.num_examples))

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        main = [*self.features.parameters(), *self.head.parameters()]
        return {"main": self.setup.optimizer(main), "first": self.setup.optimizer(self.first.parameters())}

    def stages(self) -> tuple[Phase, ...]:
        small = {MAIN: StreamRequest(size=6, image_size=24, drop_last=True)}
        hard = {MAIN: StreamRequest(weights="hardness", replacement=True)}
        return (
            Stage(
                *("first", self.update_first),
                epochs=1,
                begin=lambda: self.begun_and_ended.add_(torch.tensor([1.0, 0.0])),
                end=self.end_first,
                streams=small,
                validate=self.predict_first,
            ),
            Pass("hardness", self.look, self.keep),
            Stage(MAIN, self.update, streams=hard, rate=lambda part: 1 - 0.5 * part, begin=self.begin_main),
        )

    def update_first(self, batch: Batch) -> dict[str, Tensor]:
        def objectives(part: Batch) -> dict[str, Objective]:
            return {"first": (self.task.loss(self.first(part.x), part.y), self.first.parameters())}

        gradients, terms = self.grads(batch, objectives)
        self.apply_gradients(gradients)
        return terms

    def end_first(self) -> None:
        self.begun_and_ended += torch.tensor([0.0, 1.0])
        self.freeze(self.first)

    def predict_first(self, x: Tensor) -> Tensor:
        return self.first(x)

    def look(self, batch: Batch) -> dict[str, Tensor]:
        assert not self.first.training
        return {"loss": self.task.loss(self.first(batch.x), batch.y, reduction="none")}

    def keep(self, values: Mapping[str, Tensor]) -> None:
        self.hardness.copy_(values["loss"].clamp_min(0.01))

    def begin_main(self) -> None:
        self.release("first")

    def per_example(self) -> dict[str, Tensor]:
        return {"hardness": self.hardness}


class Fading(Plain):
    """Decides by brightness, as `toy_suite` draws its classes; from the seventh step on it finds everything dark."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.register_buffer("age", torch.zeros(()))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        self.age += 1
        return super().losses(batch)

    def predict(self, x: Tensor) -> Tensor:
        level = 255 * x.mean((1, 2, 3))[:, None] - 20
        classes = -(level - 60 - 50 * torch.arange(3, device=x.device)).square() / 1000
        return torch.where(self.age > 6, torch.arange(3, 0, -1, device=x.device).to(x.dtype), classes)


class Remembering(Plain):
    """A first stage that ages what decides in it, and keeps it at its best."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.first = Fading(hparams, setup)

    def stages(self) -> tuple[Phase, ...]:
        first = Stage("first", self.update_first, epochs=3, validate=self.first.predict, best="first")
        return (first, Stage(MAIN, self.update))

    def update_first(self, batch: Batch) -> Mapping[str, Tensor]:
        self.first.age += 1
        return self.update(batch)


class Coupled(Plain):
    """A mean over a selection of images, of which a process may have none, and a penalty of the whole batch."""

    coupled: ClassVar[bool] = True

    @dataclass(frozen=True)
    class HParams(Plain.HParams):
        label: int = setting(0, "class that alone is learnt", ge=0)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        z = self.features(batch.x)
        logits = self.head(z)
        self.observe(logits, batch.y)
        each = self.task.loss(logits, batch.y, reduction="none")
        chosen = batch.y == self.hparams.label if batch.y.ndim == 1 else batch.y[:, 0] > 0
        gathered = self.group.gather(z)
        spread = (gathered.T @ gathered / len(gathered) - torch.eye(16, device=z.device)).square().mean()
        return {"classification": self.mean_over(each, chosen.to(each.dtype)), "spread": 0.1 * spread}
