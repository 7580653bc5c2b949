"""BiasEnsemble: a biased classifier that learns only from images that several biased networks are sure of.

Lee, Park, Kim, Lee, Choi and Choo, *Revisiting the Importance of Amplifying Bias for Debiasing*, AAAI 2023.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Objective, Optimizer, Setup, TrainData
from biasbed.algorithms.disent import SWAPPING_MNIST, Disentangled, Swapping
from biasbed.algorithms.lff import SeparateNetworks
from biasbed.algorithms.relative_difficulty import DifficultyWeighted, Pair, amplify, cross_entropy
from biasbed.algorithms.requests import Pass, Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.errors import Failure
from biasbed.settings import setting


def select(probabilities: Tensor, threshold: float, agreement: int) -> Tensor:
    """Return a mask [N] of images whose label gets a probability [M,N] above `threshold` in `agreement` networks."""
    return (probabilities > threshold).sum(0) >= agreement


class BiasEnsemble(DifficultyWeighted):
    """LfF or DisEnt whose biased classifier learns the cross-entropy of images that biased networks are sure of.

    First several biased networks are trained briefly, one after the other, with the amplified loss; each is kept at its
    best validation accuracy. Images whose label most networks are sure of are taken to agree with the bias, and only
    these teach the biased classifier, by their plain cross-entropy (section 3.2).
    """

    @dataclass(frozen=True)
    class HParams(Swapping):
        base: Literal["lff", "disent"] = setting("lff", "method of the biased classifier (authors: either)")
        biased_backbone: str | None = setting(None, "base=lff: biased network (none: as configured)")
        models: int = setting(5, "biased networks (authors)", ge=1, le=100)
        share: float = setting(0.02, "part of training for each of them (authors: 1,000 steps to 50,000)", gt=0, lt=1)
        threshold: float = setting(0.99, "probability above which a network is sure of a label (authors)", ge=0, lt=1)
        agreement: int = setting(3, "networks that must be sure of a selected image (authors)", ge=1)

        def __post_init__(self) -> None:
            if self.agreement > self.models:
                raise ValueError(f"hparams.agreement={self.agreement}: there are {self.models} networks (models)")
            if self.biased_backbone is not None and self.base != "lff":
                raise ValueError(f"hparams.biased_backbone: with base={self.base} both encoders are as configured")

    unused_parameters: ClassVar[bool] = True  # those of the biased networks
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
        backbone = hparams.biased_backbone
        is_disent = hparams.base == "disent"
        self.pair: Pair = Disentangled(setup, hparams) if is_disent else SeparateNetworks(setup, backbone)
        # All networks are made now, because only here all processes draw alike. Each is released after its stage.
        make = setup.network if backbone is None else functools.partial(setup.network, backbone)
        self.pool = nn.ModuleList(make() for _ in range(hparams.models))

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        sure = torch.zeros(self.hparams.models, data.num_examples, dtype=torch.float64)
        self.register_buffer("probabilities", sure)
        self.register_buffer("selected", torch.ones(data.num_examples, dtype=torch.bool))  # all until selection

    def optimizers(self) -> dict[str, Optimizer]:
        biased = {f"pool.{number}": network for number, network in enumerate(self.pool)}
        modules = {"main": self.pair, **biased}
        return {name: self.setup.optimizer(module.parameters()) for name, module in modules.items()}

    def stages(self) -> Sequence[Phase]:
        """Return a stage and a pass for each of the biased networks, then training."""
        phases: list[Phase] = []
        for number in range(self.hparams.models):
            phases += self._network_phases(number)
        return (*phases, Stage(MAIN, self.update))

    def _network_phases(self, number: int) -> Sequence[Phase]:
        name, path = f"biased_{number + 1}", f"pool.{number}"
        stage = Stage(
            name,
            functools.partial(self.update_biased, path),
            share=self.hparams.share,
            rate=lambda part: 1.0,
            validate=lambda x: self.get_submodule(path)(x),
            best=path,
        )
        look = functools.partial(self.label_probability, path)
        return stage, Pass(f"{name}_scores", look, functools.partial(self.store_probabilities, number))

    def update_biased(self, path: str, batch: Batch) -> dict[str, Tensor]:
        """Take a step of the biased network with this submodule path."""
        network = self.get_submodule(path)

        def objectives(part: Batch) -> dict[str, Objective]:
            logits = network(part.x)
            self.observe(logits, part.y)
            loss = amplify(cross_entropy(logits, part.y), self.hparams.q).mean()
            return {path: (loss, network.parameters())}

        gradients, terms = self.grads(batch, objectives)
        self.apply_gradients(gradients)
        return {"biased": terms[path]}

    def label_probability(self, path: str, batch: Batch) -> Mapping[str, Tensor]:
        """Return the probability [N] that a biased network gives to the label."""
        probabilities = at_least_fp32(self.get_submodule(path)(batch.x)).softmax(1)
        return {"probability": probabilities.gather(1, batch.y[:, None]).squeeze(1)}

    def store_probabilities(self, number: int, values: Mapping[str, Tensor]) -> None:
        """Store a network's probabilities, release it, and after the last one select images.

        Raises Failure if all images or none are selected.
        """
        self.probabilities[number] = values["probability"].to(self.probabilities)
        self.release(f"pool.{number}")
        if number < self.hparams.models - 1:
            return
        self.selected.copy_(select(self.probabilities, self.hparams.threshold, self.hparams.agreement))
        if bool(self.selected.all()):
            problem, change, opposite = "every training image is", "raise", "lower"
        elif not bool(self.selected.any()):
            problem, change, opposite = "no training image is", "lower", "raise"
        else:
            return
        raise Failure(
            f"{problem} selected as one that biased networks are sure of: {change} hparams.threshold or "
            f"hparams.agreement, or {opposite} hparams.share"
        )

    def biased_mean(self, ce: Tensor, index: Tensor) -> Tensor:
        """Return the mean over selected images; 0 if there is none."""
        return self.mean_over(ce, self.selected[index].to(ce.dtype))

    def per_example(self) -> Mapping[str, Tensor]:
        return {**super().per_example(), "left_out": ~self.selected}
