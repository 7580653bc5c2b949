"""GroupDRO: distributionally robust optimisation over groups (Sagawa, Koh, Hashimoto and Liang, ICLR 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.domains import PAPER_2020, DomainERM
from biasbed.algorithms.groups import GROUP, group_labels, group_number
from biasbed.algorithms.presets import OPEN, WATERBIRDS, WHOLE_IMAGES, epochs
from biasbed.algorithms.requests import Pass, Phase, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.settings import setting

DOMAINS, GROUPS = "domain", "group"


class GroupDRO(DomainERM):
    """Weighted mean of the groups' risks, with larger weights for groups whose risks have been high (algorithm 1).

    In every step each group's weight q is multiplied by exp(eta * its risk), then all weights are divided by their sum.
    The loss uses the new weights as constants. Groups are domains, or the combinations of class and bias in the
    training images, drawn equally often. For the latter, `adjustment` / sqrt(images of the group) is added to the risk
    that updates q (equation 5).
    """

    @dataclass(frozen=True)
    class HParams:
        eta: float = setting(0.01, "how fast the weights follow the risks (DomainBed, authors)", ge=0)
        mean_over_domains: bool = setting(
            False, "divide the loss by the number of domains, as DomainBed did until January 2021"
        )
        groups: Literal["domain", "group"] = setting(DOMAINS, "groups: domains, or class x bias", optional=True)
        adjustment: float = setting(
            0.0, "C of C / sqrt(images), added to each group's risk for its weight (authors)", ge=0, optional=True
        )

        def __post_init__(self) -> None:
            unread = "adjustment" if self.groups == DOMAINS else "mean_over_domains"
            if getattr(self, unread):
                raise ValueError(f"hparams.{unread}={getattr(self, unread)} has no meaning with groups={self.groups}")

    coupled: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {**PAPER_2020, "hparams.eta": OPEN, "hparams.mean_over_domains": True},
        "authors": {
            **WATERBIRDS,
            **WHOLE_IMAGES,
            **epochs(300),
            "batch_size": 128,
            "optim.lr": 1e-3,
            "optim.weight_decay": 1e-4,
            "hparams.eta": 0.01,
            "hparams.mean_over_domains": False,
            "hparams.groups": GROUPS,
            "hparams.adjustment": 0.0,
        },
    }

    hparams: HParams
    q: Tensor
    counts: Tensor

    @classmethod
    def columns(cls, hparams: Any) -> frozenset[str]:
        return frozenset({"bias"}) if hparams.groups == GROUPS else cls.uses

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(by=GROUP)} if hparams.groups == GROUPS else super().streams(hparams)

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.num_biases, number = data.num_biases, data.num_domains
        if self.hparams.groups == GROUPS:
            number = data.num_classes * data.num_biases
            self.register_buffer("counts", torch.ones(number, dtype=torch.float64))
        self.register_buffer("q", torch.full((number,), 1 / number, dtype=torch.float64))

    def stages(self) -> Sequence[Phase]:
        """Return a pass that counts the images of every group, then training."""
        passes = (Pass("groups", group_labels, self.count_groups),) if self.hparams.groups == GROUPS else ()
        return (*passes, *super().stages())

    def count_groups(self, values: Mapping[str, Tensor]) -> None:
        """Count the images of every group. Groups without training images get weight 0."""
        number = group_number(values["y"], values["bias"], self.num_biases)
        self.counts.copy_(torch.bincount(number, minlength=len(self.counts)))
        self.q.copy_((self.counts > 0) / (self.counts > 0).sum())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        self.observe(logits, batch.y)
        risks = self.risks(logits, batch)
        # q exp(eta L) / sum, by its logarithm, so that large risks do not overflow.
        self.q.copy_((self.q.log() + self.hparams.eta * self.adjusted_risks(risks.detach())).softmax(0))
        self.note_weights()
        scale = self.num_domains if self.hparams.mean_over_domains else 1
        return {"classification": (self.q.to(risks.dtype) * risks).sum() / scale}

    def risks(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of each group's images over all processes; 0 for a group that the batch lacks."""
        if self.hparams.groups == DOMAINS:
            return super().risks(logits, batch)
        assert batch.bias is not None
        each = self.task.loss(logits, batch.y, reduction="none")
        number = group_number(batch.y, batch.bias, self.num_biases)
        both = torch.stack([each, torch.ones_like(each)], 1)
        sums, images = self.mean_of_all(both.new_zeros(len(self.q), 2).index_add(0, number, both) / len(each)).unbind(1)
        return sums / torch.where(images > 0, images, 1)

    def adjusted_risks(self, risks: Tensor) -> Tensor:
        """Return the risks that update the weights."""
        if not self.hparams.adjustment:
            return risks
        return risks + self.hparams.adjustment / self.counts.clamp_min(1).sqrt()

    def note_weights(self) -> None:
        """Log the weight of every domain. Of groups, which may be many, log the sum of those that conflict and the
        largest."""
        if self.hparams.groups == DOMAINS:
            for domain, weight in enumerate(self.q.clone()):
                self.note(f"q_{domain}", weight)
            return
        q = self.q.view(-1, self.num_biases)
        self.note("q_conflicting", q.sum() - q.diagonal().sum())
        self.note("q_largest", q.max())
