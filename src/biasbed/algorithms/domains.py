"""Base classes of methods that know the domains of their training images: shared batches, penalties, distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import OPEN, TRAINING
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.settings import setting

# Settings of Gulrajani and Lopez-Paz (2021) at the time of their tables, for methods whose code has changed since.
PAPER_2020: Mapping[str, Any] = {name: OPEN for name in TRAINING if name != "hparams"}


class DomainERM(ERM):
    """ERM on batches with equal parts of all training domains, one domain after the other."""

    uses: ClassVar[frozenset[str]] = frozenset({"domain"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(per_domain=True)}

    def on_train_data(self, data: TrainData) -> None:
        self.num_domains = data.num_domains

    def by_domain(self, values: Tensor) -> Tensor:
        """Return a batch's values [N,...] split by domain: [D,N/D,...]."""
        return values.unflatten(0, (self.num_domains, -1))

    def risks(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss [D] of each domain's images over all processes."""
        return self.mean_of_all(self.by_domain(self.task.loss(logits, batch.y, reduction="none")).mean(1))


class UpdateCount(nn.Module):
    """Integer that the host reads without waiting for the device, saved in checkpoints."""

    value = 0

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.value)

    def set_extra_state(self, state: Tensor) -> None:
        self.value = int(state)


def pair_in_ring(order: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of each domain and the next one in a circle; a single domain is paired with itself."""
    return list(zip(order, [*order[1:], order[0]], strict=True))


class Annealed(DomainERM):
    """Mean of the domains' risks plus a weighted `penalty`.

    The weight is 1 in the first `anneal` updates and `penalty_weight` afterwards. Because the loss jumps then, the
    optimizer's momenta are reset before that update.
    """

    @dataclass(frozen=True)
    class HParams:
        penalty_weight: float = setting(100.0, "weight of the penalty after `anneal` updates (DomainBed)", ge=0)
        anneal: int = setting(500, "updates in which the penalty has weight 1 (DomainBed)", ge=0)

    coupled: ClassVar[bool] = True

    hparams: HParams

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.updates = UpdateCount()

    def penalty(self, logits: Tensor, batch: Batch, risks: Tensor) -> Tensor:
        """Return the penalty over all processes. logits: [N,K]. risks: mean loss [D] of each domain."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        risks = self.risks(logits, batch)
        penalty = self.penalty(logits, batch, risks)
        self.note("raw_penalty", penalty)
        return {"classification": risks.mean(), "penalty": self.draws(batch).to(penalty.dtype) * penalty}

    def draw(self, batch: Batch) -> Tensor:
        """Return the weight in this update, and count the update. The weight stays on the host."""
        done = self.updates.value
        if done == self.hparams.anneal:
            self.reset_optimizer("main")
        self.updates.value += 1
        weight = 1.0 if done < self.hparams.anneal else self.hparams.penalty_weight
        return torch.tensor(weight, dtype=torch.float64)


class Matching(DomainERM):
    """ERM plus `gamma` times the distance between the domains' features over all processes (`penalty`)."""

    @dataclass(frozen=True)
    class HParams:
        gamma: float = setting(1.0, "weight of the distance between domains (DomainBed)", ge=0)

    needs_head: ClassVar[bool] = True
    coupled: ClassVar[bool] = True

    hparams: HParams

    def penalty(self, features: Sequence[Tensor]) -> Tensor:
        """Return the mean distance over pairs of domains. features: [B,d] of each domain, in fp32 at least."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        with torch.autocast(self.group.device.type, enabled=False):
            penalty = self.penalty(self._gather_by_domain(at_least_fp32(features))).to(loss.dtype)
        self.note("raw_penalty", penalty)
        return {"classification": loss, "penalty": self.hparams.gamma * penalty}

    def _gather_by_domain(self, features: Tensor) -> list[Tensor]:
        """Return the features [B,d] of each domain over all processes, from this process's features [N,d]."""
        gathered = self.group.gather(features).unflatten(0, (self.group.world, self.num_domains, -1))
        return [domain.flatten(0, 1) for domain in gathered.unbind(1)]


def averaging_matrix(features: Sequence[Tensor], ddof: int = 0) -> Tensor:
    """Return the matrix [D,N] that averages rows of all images by domain, dividing by their number minus `ddof`."""
    return torch.block_diag(*(x.new_full((1, len(x)), 1 / max(1, len(x) - ddof)) for x in features))


def mean_distance(products: Tensor) -> Tensor:
    """Return the mean squared distance over pairs of points, from their inner products [D,D].

    Never negative, whatever rounding makes of a distance of zero; zero for one point.
    """
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * products).clamp_min(0)
    return distances.sum() / max(1, len(products) * (len(products) - 1))
