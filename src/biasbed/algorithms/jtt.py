"""JTT: just train twice (Liu, Haghgoo, Chen, Raghunathan, Koh, Sagawa, Liang and Finn, ICML 2021)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.base import Optimizer, Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import WATERBIRDS, WHOLE_IMAGES, epochs
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.errors import Failure
from biasbed.settings import setting


class JTT(ERM):
    """ERM twice: the second training reads images that a short first one gets wrong `upweight` times as often.

    The second network starts from its own initial weights (algorithm 1). Bias labels are not needed.
    """

    @dataclass(frozen=True)
    class HParams:
        identification: float = setting(
            1 / 6, "part of the training for the first network (authors: 60 epochs, then 300)", gt=0, lt=1
        )
        upweight: int = setting(
            20, "how often a pass of the second training reads an image of the error set (authors: 20, 50 or 100)", ge=2
        )

    unused_parameters: ClassVar[bool] = True  # the first network's, until it is released
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **WATERBIRDS,
            **WHOLE_IMAGES,
            **epochs(360),
            "batch_size": 64,
            "optim.lr": 1e-5,
            "optim.weight_decay": 1.0,
            "hparams.identification": 1 / 6,
            "hparams.upweight": 101,
        }
    }

    hparams: HParams
    error: Tensor

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.first = setup.network()

    def on_train_data(self, data: TrainData) -> None:
        self.register_buffer("error", torch.zeros(data.num_examples, dtype=torch.bool))

    def optimizers(self) -> dict[str, Optimizer]:
        make = self.setup.optimizer
        return {"main": make(self.network.parameters()), "first": make(self.first.parameters())}

    def stages(self) -> Sequence[Phase]:
        """Return the first training, the search for its errors, and the second training."""
        release_first = functools.partial(self.release, "first")
        return (
            Stage(
                "identification",
                functools.partial(self.update_other, "first"),
                share=self.hparams.identification,
                streams={MAIN: StreamRequest()},
                validate=self.predict_first,
            ),
            Pass("error_set", self.find_errors, self.store_errors),
            Stage(MAIN, self.update, begin=release_first, streams={MAIN: StreamRequest(weights="times")}),
        )

    def predict_first(self, x: Tensor) -> Tensor:
        """Return the logits of the first network."""
        logits: Tensor = self.first(x)
        return logits

    def find_errors(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return which images [N] the first network gets wrong."""
        return {"error": ~self.task.right(self.predict_first(batch.x), batch.y)}

    def store_errors(self, values: Mapping[str, Tensor]) -> None:
        """Store the error set. Raises Failure if the second training would be plain ERM."""
        wrong, images = int(values["error"].sum()), len(values["error"])
        if wrong in (0, images):
            number, change = ("none", "lower") if wrong == 0 else ("every one", "raise")
            raise Failure(
                f"jtt: the first training gets {number} of {images} training images wrong, so that none would count "
                f"more than others in the second: {change} hparams.identification={self.hparams.identification:.3g}"
            )
        self.error.copy_(values["error"])

    @property
    def times(self) -> Tensor:
        """Number of times [num_examples] that a pass of the second training reads each training image."""
        return 1 + (self.hparams.upweight - 1) * self.error

    def per_example(self) -> Mapping[str, Tensor]:
        return {"error": self.error}
