"""Linear probe: logistic regression on the features of a frozen network (Radford et al., ICML 2021, appendix A.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from biasbed.algorithms import logistic_regression
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.last_layer import LastLayer
from biasbed.algorithms.refit import Refit
from biasbed.algorithms.requests import VALIDATION, Pass, Phase, Stage
from biasbed.batch import MAIN, Batch
from biasbed.settings import setting

STRENGTHS = (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)


class Probe(Refit):
    """Multinomial logistic regression with an L2 penalty on the network's features. Only the last layer is fitted.

    The features are those of all training images, as in tests. C is searched on validation images.
    """

    @dataclass(frozen=True)
    class HParams:
        strengths: tuple[float, ...] = setting(
            STRENGTHS, "values of C to begin the search with, rising; a single one is used without validation (CLIP)"
        )
        halvings: int = setting(
            4, "times that the interval around the best C is halved: to 8 values a decade (CLIP)", ge=0, le=20
        )

        def __post_init__(self) -> None:
            rising = list(self.strengths) == sorted(set(self.strengths))
            if not self.strengths or min(self.strengths) <= 0 or not rising:
                raise ValueError("hparams.strengths: one value of C or more, rising, all above 0")

    needs_head: ClassVar[bool] = True
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    hparams: HParams

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.num_examples = data.num_examples

    def stages(self) -> Sequence[Phase]:
        """Return the passes that fit the probe, and a step without change, so that the model is tested."""
        return (*self.passes(), Stage(MAIN, self.evaluate_batch, steps=1, learns=False))

    def passes(self) -> Sequence[Pass]:
        """Return the pass that fits the probe. One for all images: a training that is cut off begins it anew."""
        data = ("train", VALIDATION) if len(self.hparams.strengths) > 1 else ()
        return (Pass("features", self.embed_with_label, self.fit, data),)

    def embed_with_label(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"y": batch.y, "features": self.setup.features(self.network, batch.x)}

    def fit(self, values: Mapping[str, Tensor]) -> None:
        """Fit the last layer on the first process and copy it to all of them.

        values: features and labels of the training images and, if C is searched, of the validation images.
        """
        x, y = values["features"].cpu().numpy(), values["y"].cpu().numpy()
        self.refuse_missing(y[: self.num_examples])
        layer = self.search(x, y) if self.group.is_main else None
        self.set_head(*self.group.share_object(layer))

    def search(self, x: np.ndarray, y: np.ndarray) -> LastLayer:
        """Return the layer fitted to the training images, with the C whose fit decides the validation images best."""
        training, validation = slice(self.num_examples), slice(self.num_examples, None)
        layers: dict[float, LastLayer] = {}

        def score(strength: float) -> float:
            layers[strength] = logistic_regression.fit(x[training], y[training], strength)
            return logistic_regression.accuracy(layers[strength], x[validation], y[validation])

        strengths = self.hparams.strengths
        if len(strengths) == 1:
            return logistic_regression.fit(x[training], y[training], strengths[0])
        return layers[logistic_regression.search(score, strengths, self.hparams.halvings)]

    def predict(self, x: Tensor) -> Tensor:
        return self.network.classify(self.setup.features(self.network, x))
