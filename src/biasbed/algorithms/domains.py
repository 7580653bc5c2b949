"""What methods share that tell the domains of their training images apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.recipes import OPEN, TRAINING
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN, Batch

# The program of Gulrajani and Lopez-Paz (2021) at the time of their tables, for methods that have changed since.
PAPER_2020: Mapping[str, Any] = {name: OPEN for name in TRAINING if name != "hparams"}


class OfDomains(ERM):
    """ERM on equal parts of all training domains, of which a method can tell each."""

    uses: ClassVar[frozenset[str]] = frozenset({"domain"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(per_domain=True)}

    def on_train_data(self, data: TrainData) -> None:
        self.num_domains = data.num_domains

    def apart(self, values: Tensor) -> Tensor:
        """What a batch has of each image [N,...], by domain: [D,N/D,...]."""
        return values.unflatten(0, (self.num_domains, -1))

    def risks(self, logits: Tensor, batch: Batch) -> Tensor:
        """The mean loss [D] of each domain's images, those of all processes."""
        return self.mean_of_all(self.apart(self.task.loss(logits, batch.y, reduction="none")).mean(1))


class Count(nn.Module):
    """A number that the host knows without asking the device, and checkpoints keep."""

    value = 0

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.value)

    def set_extra_state(self, state: Tensor) -> None:
        self.value = int(state)


def ring(order: Sequence[int]) -> list[tuple[int, int]]:
    """Every domain with the one that follows it, in a circle; a single one with itself."""
    return list(zip(order, [*order[1:], order[0]], strict=True))
