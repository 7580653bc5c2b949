"""MLDG: meta-learning for domain generalisation (Li, Yang, Song and Hospedales, AAAI 2018), first-order variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from biasbed.algorithms.base import Objective, Setup
from biasbed.algorithms.domains import PAPER_2020, DomainERM, pair_in_ring
from biasbed.algorithms.draws import HostDraws
from biasbed.algorithms.presets import OPEN
from biasbed.batch import Batch
from biasbed.compute.optim import predict_first_step
from biasbed.settings import setting

Theta = Mapping[str, Tensor]


def pair_with_held_out(order: Sequence[int], n_meta_test: int) -> list[tuple[int, int]]:
    """Return pairs of each domain but the last `n_meta_test` with these in turn. At least one domain comes first."""
    count = min(n_meta_test, len(order) - 1)
    train, test = order[: len(order) - count], order[len(order) - count :]
    return [(domain, test[number % count]) for number, domain in enumerate(train)] if count else []


class MLDG(DomainERM):
    """Steps that lower one domain's risk and, after a trial step on it, another domain's risk too.

    For each pair (i, j) of domains a trial step follows the gradient of i's risk, from the current weights and with a
    fresh optimizer like the configured one (with Adam each weight moves by about the learning rate, whatever its
    gradient). The gradient of i's risk at the current weights plus `beta` times that of j's risk after the trial step
    is summed over the pairs and divided by the number of domains; one step follows it. There are no second derivatives.
    """

    @dataclass(frozen=True)
    class HParams:
        beta: float = setting(1.0, "weight of the risk after the step ahead (DomainBed)", ge=0)
        n_meta_test: int = setting(1, "split: domains after the step ahead, but one fewer than there are", ge=1)
        pairing: Literal["split", "ring"] = setting(
            "split", "domains before and after the step ahead: apart (split), or each with the next (ring, until 2022)"
        )

    coupled: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper2020": {**PAPER_2020, "hparams.beta": OPEN, "hparams.n_meta_test": OPEN, "hparams.pairing": "ring"}
    }

    hparams: HParams

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self._host = HostDraws(setup.group)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        weights = dict(self.network.named_parameters())
        pairs = self._draw_pairs()
        if not pairs:
            gradients, risk = self._gradients(weights, batch)
            self.apply_gradients({"main": gradients})
            return {"classification": risk}
        parts = batch.by_domain()
        total, before, after = [torch.zeros_like(weight) for weight in weights.values()], [], []
        for train, test in pairs:
            gradients, risk = self._gradients(weights, parts[train])
            moved = self._take_trial_step(weights, gradients)
            gradients_ahead, risk_ahead = self._gradients(moved, parts[test])
            torch._foreach_add_(total, gradients, alpha=1 / self.num_domains)
            torch._foreach_add_(total, gradients_ahead, alpha=self.hparams.beta / self.num_domains)
            before.append(risk)
            after.append(self.hparams.beta * risk_ahead)
        self.apply_gradients({"main": total})
        risks = {"classification": before, "meta_test": after}
        return {name: torch.stack(values).sum() / self.num_domains for name, values in risks.items()}

    def _draw_pairs(self) -> list[tuple[int, int]]:
        """Return pairs of domains, before and after the trial step, alike on all processes."""
        order = torch.randperm(self.num_domains, generator=self._host.shared_generator(self.progress)).tolist()
        if self.hparams.pairing == "ring":
            return pair_in_ring(order)
        return pair_with_held_out(order, self.hparams.n_meta_test)

    def _gradients(self, weights: Theta, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """Return the gradient of a risk at the given weights, over all processes, and the risk."""

        def objectives(part: Batch) -> dict[str, Objective]:
            logits = functional_call(self.network, dict(weights), (part.x,))
            return {"risk": (self.task.loss(logits, part.y), weights.values())}

        gradients, terms = self.grads(batch, objectives)
        return gradients["risk"], terms["risk"]

    def _take_trial_step(self, weights: Theta, gradients: Sequence[Tensor]) -> Theta:
        """Return the weights after one step of a fresh optimizer like the main one. The weights stay unchanged.

        Gradients that overflowed under fp16 count as zero: the update will be skipped, and its loss must be a number.
        """
        if self.setup.precision.name == "fp16":
            gradients = [gradient.nan_to_num(0.0, 0.0, 0.0) for gradient in gradients]
        moved = predict_first_step(self.optimizer("main"), list(self.network.parameters()), gradients)
        return {name: weight.requires_grad_() for name, weight in zip(weights, moved, strict=True)}
