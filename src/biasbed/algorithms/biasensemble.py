"""BiasEnsemble: a biased network that is taught images alone which several biased networks are sure of.

Lee, Park, Kim, Lee, Choi and Choo, *Revisiting the Importance of Amplifying Bias for Debiasing*, AAAI 2023.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Objective, Optimizer, Setup, TrainData
from biasbed.algorithms.disent import SWAPPING_MNIST, Disentangled, Swapping
from biasbed.algorithms.lff import Apart
from biasbed.algorithms.relative_difficulty import DifficultyWeighted, Pair, amplified, cross_entropy
from biasbed.algorithms.requests import Pass, Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.errors import Failure
from biasbed.settings import setting


def selected(probabilities: Tensor, threshold: float, agreement: int) -> Tensor:
    """[N] bool: of which images at least `agreement` of M networks give the label a probability [M,N] above this."""
    return (probabilities > threshold).sum(0) >= agreement


class BiasEnsemble(DifficultyWeighted):
    """LfF or DisEnt, whose biased classifier learns the cross-entropy of images that biased networks are sure of.

    First several networks are trained for a short while, one after the other, by what amplifies a bias, and each is
    kept as it was when it decided most validation images rightly. Images whose label most of them are sure of are taken
    for those that agree with the bias; the biased classifier is taught these alone, plainly (section 3.2).
    """

    @dataclass(frozen=True)
    class HParams(Swapping):
        base: Literal["lff", "disent"] = setting("lff", "method whose biased classifier it is (authors: either)")
        biased_backbone: str | None = setting(None, "base=lff: network that is to be biased (none: as configured)")
        models: int = setting(5, "biased networks (authors)", ge=1, le=100)
        share: float = setting(0.02, "part of training for each of them (authors: 1,000 steps to 50,000)", gt=0, lt=1)
        threshold: float = setting(0.99, "probability above which a network is sure of a label (authors)", ge=0, lt=1)
        agreement: int = setting(3, "of so many that are sure, at least, an image is selected (authors)", ge=1)

        def __post_init__(self) -> None:
            if self.agreement > self.models:
                raise ValueError(f"hparams.agreement={self.agreement}: there are {self.models} networks (models)")
            if self.biased_backbone is not None and self.base != "lff":
                raise ValueError(f"hparams.biased_backbone: with base={self.base} both encoders are as configured")

    unused_parameters: ClassVar[bool] = True  # of the networks that are trained first
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **SWAPPING_MNIST,
            "steps": 55_000,
            "optim.milestones": (0.2, 0.4, 0.6, 0.8),
            "hparams.base": "lff",
            "hparams.biased_backbone": None,
            "hparams.models": 5,
            "hparams.share": 1 / 55,
            "hparams.threshold": 0.99,
            "hparams.agreement": 3,
        }
    }

    hparams: HParams
    probabilities: Tensor
    selected: Tensor

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        own = hparams.biased_backbone
        self.pair: Pair = Disentangled(setup, hparams) if hparams.base == "disent" else Apart(setup, own)
        # All at once, as processes draw alike only here; those that are done are let go of.
        made = (setup.network() if own is None else setup.network(own) for _ in range(hparams.models))
        self.pool = nn.ModuleList(made)

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        sure = torch.zeros(self.hparams.models, data.num_examples, dtype=torch.float64)
        self.register_buffer("probabilities", sure)
        self.register_buffer("selected", torch.ones(data.num_examples, dtype=torch.bool))  # until it is known

    def optimizers(self) -> dict[str, Optimizer]:
        first = {f"pool.{number}": network for number, network in enumerate(self.pool)}
        parameters = {"main": self.pair, **first}
        return {name: self.setup.optimizer(network.parameters()) for name, network in parameters.items()}

    def stages(self) -> Sequence[Phase]:
        """A stage and a pass for each of the biased networks."""
        first = (self._of_one(number) for number in range(self.hparams.models))
        return (*itertools.chain.from_iterable(first), Stage(MAIN, self.update))

    def _of_one(self, number: int) -> Sequence[Phase]:
        name, own = f"biased_{number + 1}", f"pool.{number}"
        stage = Stage(
            name,
            functools.partial(self.update_biased, own),
            share=self.hparams.share,
            rate=lambda part: 1.0,
            validate=lambda x: self.get_submodule(own)(x),
            best=own,
        )
        look, keep = functools.partial(self.look, own), functools.partial(self.keep, number)
        return stage, Pass(f"{name}_scores", look, keep)

    def update_biased(self, own: str, batch: Batch) -> dict[str, Tensor]:
        """A step of one of the networks that are trained first."""
        network = self.get_submodule(own)

        def objectives(part: Batch) -> dict[str, Objective]:
            logits = network(part.x)
            self.observe(logits, part.y)
            loss = amplified(cross_entropy(logits, part.y), self.hparams.q).mean()
            return {own: (loss, network.parameters())}

        gradients, terms = self.grads(batch, objectives)
        self.apply_gradients(gradients)
        return {"biased": terms[own]}

    def look(self, own: str, batch: Batch) -> Mapping[str, Tensor]:
        """The probability [N] that one of the networks gives the label."""
        shown = at_least_fp32(self.get_submodule(own)(batch.x)).softmax(1)
        return {"probability": shown.gather(1, batch.y[:, None]).squeeze(1)}

    def keep(self, number: int, found: Mapping[str, Tensor]) -> None:
        """Failure where the last of them leaves no image to select, or none out."""
        self.probabilities[number] = found["probability"].to(self.probabilities)
        self.release(f"pool.{number}")
        if number < self.hparams.models - 1:
            return
        self.selected.copy_(selected(self.probabilities, self.hparams.threshold, self.hparams.agreement))
        if bool(self.selected.all()) or not bool(self.selected.any()):
            which, more = ("every", "larger") if bool(self.selected.any()) else ("no", "smaller")
            other = "shorter" if more == "larger" else "longer"
            raise Failure(
                f"{which} training image is selected as one that biased networks are sure of: a {more} "
                f"hparams.threshold or hparams.agreement, or a {other} hparams.share, tells images apart"
            )

    def biased_mean(self, ce: Tensor, index: Tensor) -> Tensor:
        """The mean over those that are selected, 0 where none is."""
        return self.mean_over(ce, self.selected[index].to(ce.dtype))

    def per_example(self) -> Mapping[str, Tensor]:
        return {**super().per_example(), "left_out": ~self.selected}
