"""Methods with tables of losses: the authors' own loops, with a table of logits in place of each network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.lff import LfF
from biasbed.algorithms.relative_difficulty import amplified, cross_entropy
from biasbed.batch import Batch
from replays import Case, close, setup


def is_close(found: Tensor, case: Case, key: str) -> None:
    close(found, case[key], rtol=1e-7, atol=1e-9)


def replay_amplified(case: Case) -> None:
    logits, y = torch.from_numpy(case["logits"]).requires_grad_(), torch.from_numpy(case["y"])
    loss = amplified(cross_entropy(logits, y), float(case["q"]))
    loss.mean().backward()
    is_close(loss, case, "loss")
    assert logits.grad is not None
    is_close(logits.grad, case, "grad_logits_of_mean")


class Of(nn.Module):
    """The logits of one of two networks, of "images" that are both's [N,2,K]."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.number]


def replay_lff(case: Case) -> None:
    y, classes = torch.from_numpy(case["y"]), int(case["num_classes"])
    networks: Iterator[Of] = map(Of, itertools.count())
    algorithm = LfF(LfF.HParams(float(case["alpha"]), float(case["q"])), setup(classes, lambda: next(networks)))
    algorithm.on_train_data(TrainData(len(y), classes, 0))
    for step in range(int(case["steps"])):
        index = torch.from_numpy(case[f"index_{step}"])
        both = torch.stack([torch.from_numpy(case[f"logits_{name}_table"][step]) for name in "db"], 1)
        x = both[index].requires_grad_()
        terms = algorithm.losses(Batch(x, y[index], index=index))
        total = terms["biased"] + terms["classification"]
        (slope,) = torch.autograd.grad(total, x)
        debiased, biased = (cross_entropy(x[:, number], y[index]) for number in (0, 1))
        weights = algorithm.per_example()["weight"][index]
        is_close(total, case, f"total_{step}")
        is_close(weights, case, f"weight_{step}")
        is_close(weights * debiased, case, f"loss_d_weighted_{step}")
        is_close(amplified(biased, algorithm.hparams.q), case, f"loss_b_{step}")
        is_close(slope[:, 0], case, f"grad_logits_d_{step}")
        is_close(slope[:, 1], case, f"grad_logits_b_{step}")
        for averages, name in zip(algorithm.tables.losses, "bd", strict=True):
            is_close(averages, case, f"ema_{name}_{step}")


REPLAYS = {"debiasing/gce_*": replay_amplified, "debiasing/lff_steps": replay_lff}
UNCOMPARED = {"debiasing/gce_*": {"textbook_gce_value": "of the textbook's form, which has the same gradient over q"}}
