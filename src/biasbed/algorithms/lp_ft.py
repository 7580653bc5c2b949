"""LP-FT: a linear probe, then fine-tuning of all weights (Kumar, Raghunathan, Jones, Ma and Liang, ICLR 2022)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from biasbed.algorithms.probe import Probe
from biasbed.algorithms.requests import Phase, Stage
from biasbed.batch import MAIN


class LPFT(Probe):
    """ERM that starts from the last layer of a linear probe, so that the first steps do not distort the features."""

    def stages(self) -> Sequence[Phase]:
        return (*self.passes(), Stage(MAIN, self.update))

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits
