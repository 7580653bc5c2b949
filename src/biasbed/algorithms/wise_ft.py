"""WiSE-FT: weights between those before and those after fine-tuning (Wortsman et al., CVPR 2022)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from biasbed.algorithms.base import Setup
from biasbed.algorithms.lp_ft import LPFT
from biasbed.algorithms.probe import Probe
from biasbed.algorithms.requests import VALIDATION, Pass, Phase, Stage
from biasbed.batch import MAIN, Batch
from biasbed.networks.interpolation import Snapshot, interpolate
from biasbed.settings import setting

ALPHAS = tuple(number / 10 for number in range(11))


class WiSEFT(LPFT):
    """LP-FT, then a mean of the weights at the beginning and at the end of fine-tuning.

    The beginning is the network with the last layer of its linear probe. The mean is tested once, at the end.
    """

    @dataclass(frozen=True)
    class HParams(Probe.HParams):
        alpha: float | Literal["validation"] = setting(
            0.5, "share of the fine-tuned weights (paper, section 3), or the best on validation images"
        )
        alphas: tuple[float, ...] = setting(ALPHAS, "shares to try with alpha=validation")

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.alpha != "validation" and not 0 <= float(self.alpha) <= 1:
                raise ValueError(f"hparams.alpha={self.alpha}: from 0 to 1, or validation")
            if not self.alphas or not all(0 <= alpha <= 1 for alpha in self.alphas):
                raise ValueError("hparams.alphas: one share or more, each from 0 to 1")

    hparams: HParams
    alpha: Tensor
    accuracies: Tensor  # on validation images, by the numbers of `hparams.alphas`

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.initial, self.tuned = Snapshot(self.network), Snapshot(self.network)
        alpha = 0.0 if isinstance(hparams.alpha, str) else float(hparams.alpha)
        self.register_buffer("alpha", torch.tensor(alpha, dtype=torch.float64))
        self.register_buffer("accuracies", torch.zeros(len(hparams.alphas), dtype=torch.float64))

    def stages(self) -> Sequence[Phase]:
        """Return LP-FT's phases, passes over validation images that choose alpha, and a step without change."""
        return (
            *self.passes(),
            Stage("fine_tuning", self.update, share=1.0, begin=self.keep_initial, end=self.keep_tuned, validate=True),
            *self.trials(),
            Stage(MAIN, self.evaluate_batch, steps=1, learns=False),
        )

    def trials(self) -> Sequence[Pass]:
        """Return a pass over the validation images for each alpha to try."""
        if self.hparams.alpha != "validation":
            return ()
        passes = []
        for number, alpha in enumerate(self.hparams.alphas):
            store, mix = functools.partial(self.store_accuracy, number), functools.partial(self.try_alpha, alpha)
            passes.append(Pass(f"alpha_{number}", self.decide, store, (VALIDATION,), mix))
        return passes

    def try_alpha(self, alpha: float) -> None:
        """Give the network the mean of the weights, and keep the ends for another mean."""
        interpolate(self.network, self.initial, self.tuned, alpha)

    def decide(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return True for each image that is decided as labelled, by the name `correct`."""
        return {"correct": self.task.right(self.predict(batch.x), batch.y)}

    def keep_initial(self) -> None:
        """Copy the weights before fine-tuning."""
        self.initial.copy_from(self.network)

    def keep_tuned(self) -> None:
        """Copy the weights after fine-tuning, and mix them with the first ones unless validation images choose."""
        self.tuned.copy_from(self.network)
        if self.hparams.alpha != "validation":
            self.mix()

    def store_accuracy(self, number: int, values: Mapping[str, Tensor]) -> None:
        """Store the validation accuracy of one alpha. After the last, take the best; of equal ones the first."""
        self.accuracies[number] = values["correct"].double().mean()
        if number + 1 == len(self.accuracies):
            self.alpha.fill_(self.hparams.alphas[int(self.accuracies.argmax())])
            self.mix()

    def mix(self) -> None:
        """Make the mean of the weights the network's, and delete the ends."""
        interpolate(self.network, self.initial, self.tuned, float(self.alpha))
        self.release("initial", "tuned")

    def evaluate_batch(self, batch: Batch) -> Mapping[str, Tensor]:
        self.note("alpha", self.alpha)
        return super().evaluate_batch(batch)
