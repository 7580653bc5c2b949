"""EnD: entangling and disentangling deep representations (Tartaglione, Barbano and Grangetto, CVPR 2021)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.groups import group_number
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, STEPS, epochs
from biasbed.batch import Batch, to_unit_length
from biasbed.networks import hooks, surgery
from biasbed.networks.heads import no_head_error
from biasbed.settings import setting


class Unit:
    """Normalisation of features [N,D] to length 1, in fp32 at least."""

    def __call__(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            return to_unit_length(features)


@dataclass(frozen=True, eq=False)
class BiasSums:
    """Sums over features h by class and bias from which the two terms follow, in float64.

    sums [C,K,D] of h, squares [C,K] of |h|^2, counts [C,K] of images. The sum of inner products over all pairs of a set
    of images is half of |sum of h|^2 - sum of |h|^2: it takes N D steps, where the pairs would take N^2 D.
    """

    sums: Tensor
    squares: Tensor
    counts: Tensor

    def orthogonality(self) -> Tensor:
        """Return the similarity of images with the same bias (equation 5): sum_b |sum of h_i.h_j| / number of pairs.

        Sums are over pairs i > j of any classes; the absolute value is taken once per bias. Returns 0 without pairs.
        """
        inner = (self.sums.sum(0).square().sum(1) - self.squares.sum(0)) / 2
        number = self.counts.sum(0)
        return inner.abs().sum() / (number * (number - 1) / 2).sum().clamp_min(1)

    def alignment(self) -> Tensor:
        """Return the dissimilarity of images of one class with different biases (equation 6).

        1 - the mean of (1 + h_i.h_j) / 2 over all such pairs; 0 without pairs.
        """
        inner = (self.sums.sum(1).square().sum(1) - self.sums.square().sum((1, 2))).sum() / 2
        number = (self.counts.sum(1).square() - self.counts.square().sum(1)).sum() / 2
        return torch.where(number > 0, (1 - inner / number.clamp_min(1)) / 2, 0)


class EnD(ERM):
    """ERM on features of length 1 with two terms on their inner products over all pairs of a batch.

    `alpha` times the similarity of images with the same bias, and `beta` times the dissimilarity of images of the same
    class with different biases. The same features go into the classifier, in evaluation too.
    """

    @dataclass(frozen=True)
    class HParams:
        alpha: float = setting(0.1, "weight of disentangling images of the same bias (authors)", ge=0)
        beta: float = setting(0.1, "weight of entangling images of a class across biases (authors)", ge=0)
        tanh: bool = setting(False, "tanh in place of the last ReLU, so that features may be opposite (authors: true)")

    needs_head: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"bias"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    coupled: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **BIASED_MNIST,
            **epochs(80),
            "batch_size": 256,
            **ADAM,
            **STEPS,
            "optim.milestones": (0.25, 0.5, 0.75),
            "hparams.alpha": 0.1,
            "hparams.beta": 0.1,
            "hparams.tanh": True,
        }
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        super().check_backbone(hparams, backbone)
        if hparams.tanh:
            surgery.replace_last_activation(copy.deepcopy(backbone), nn.Tanh())

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        backbone = self.network.get_submodule("backbone")
        if self.network.head is None:
            raise no_head_error(backbone)
        if hparams.tanh:
            surgery.replace_last_activation(backbone, nn.Tanh())
        hooks.insert_before(self.network.head, Unit())

    def on_train_data(self, data: TrainData) -> None:
        self.shape = (data.num_classes, data.num_biases)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        logits = self.network.classify(features)
        self.observe(logits, batch.y)
        with torch.autocast(self.group.device.type, enabled=False):
            sums = self.bias_sums(features, batch)
            terms = {
                "orthogonality": self.hparams.alpha * sums.orthogonality(),
                "alignment": self.hparams.beta * sums.alignment(),
            }
        loss = self.task.loss(logits, batch.y)
        return {"classification": loss, **{name: term.to(loss.dtype) for name, term in terms.items()}}

    def bias_sums(self, features: Tensor, batch: Batch) -> BiasSums:
        """Return the sums over all processes, from this process's features [N,D] of length 1."""
        assert batch.bias is not None
        h = features.double()
        columns = torch.cat([h, h.square().sum(1, keepdim=True), torch.ones_like(h[:, :1])], 1)
        number = group_number(batch.y, batch.bias, self.shape[1])
        local = columns.new_zeros(self.shape[0] * self.shape[1], columns.shape[1]).index_add(0, number, columns)
        images = self.group.sum(local.new_full((), len(h)))
        total = (self.mean_of_all(local / len(h)) * images).unflatten(0, self.shape)
        return BiasSums(total[..., :-2], total[..., -2], total[..., -1].detach().round())
