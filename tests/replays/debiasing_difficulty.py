"""Methods with tables of losses: the authors' own loops, with a table of outputs in place of each network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Progress, TrainData
from biasbed.algorithms.biasensemble import BiasEnsemble, select
from biasbed.algorithms.disent import DisEnt
from biasbed.algorithms.lff import LfF
from biasbed.algorithms.relative_difficulty import DifficultyWeighted, amplify, cross_entropy
from biasbed.batch import Batch
from helpers.scripted import Script, permutation
from replays import Case, close, setup


def is_close(ours: Tensor, case: Case, key: str, atol: float = 1e-9) -> None:
    close(ours, case[key], rtol=1e-7, atol=atol)


def replay_amplified(case: Case) -> None:
    logits, y = torch.from_numpy(case["logits"]).requires_grad_(), torch.from_numpy(case["y"])
    loss = amplify(cross_entropy(logits, y), float(case["q"]))
    loss.mean().backward()
    is_close(loss, case, "loss")
    assert logits.grad is not None
    is_close(logits.grad, case, "grad_logits_of_mean")


class Of(nn.Module):
    """The outputs of one of two networks, of "images" that are both's [N,2,K]."""

    num_features: int

    def __init__(self, number: int, num_features: int = 0) -> None:
        super().__init__()
        self.number, self.num_features = number, num_features

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.number]


def start(cls: type[DifficultyWeighted], settings: Mapping[str, Any], case: Case, width: int = 0) -> DifficultyWeighted:
    """Ours on such networks, before its first step; of BiasEnsemble with the case's selection."""
    classes = int(case["num_classes"])
    networks: Iterator[Of] = (Of(number, width) for number in itertools.count())
    published = {name: float(case[name]) for name in ("alpha", "q") if name in case}
    algorithm = cls(cls.HParams(**published, **settings), setup(classes, lambda **how: next(networks)))
    algorithm.on_train_data(TrainData(len(case["y"]), classes, 0))
    if isinstance(algorithm, BiasEnsemble):
        algorithm.selected.zero_()[torch.from_numpy(case["selected_index"])] = True
    return algorithm


def compare_averages(algorithm: DifficultyWeighted, case: Case, step: int) -> None:
    for averages, name in zip(algorithm.tables.losses, "bd", strict=True):
        is_close(averages, case, f"ema_{name}_{step}")


def follow_lff(cls: type[DifficultyWeighted], case: Case, atol: float) -> None:
    """atol: BiasEnsemble's program adds 1e-8 to the largest losses of the biased network."""
    algorithm, y = start(cls, {}, case), torch.from_numpy(case["y"])
    for step in range(int(case["steps"])):
        index = torch.from_numpy(case[f"index_{step}"])
        both = torch.stack([torch.from_numpy(case[f"logits_{name}_table"][step]) for name in "db"], 1)
        x = both[index].requires_grad_()
        terms = algorithm.losses(Batch(x, y[index], index=index))
        total = terms["biased"] + terms["classification"]
        (slope,) = torch.autograd.grad(total, x)
        debiased, biased = (cross_entropy(x[:, number], y[index]) for number in (0, 1))
        weights = algorithm.per_example()["weight"][index]
        is_close(total, case, f"total_{step}", atol)
        is_close(weights, case, f"weight_{step}", atol)
        is_close(weights * debiased, case, f"loss_d_weighted_{step}", atol)
        is_close(slope[:, 0], case, f"grad_logits_d_{step}", atol)
        is_close(slope[:, 1], case, f"grad_logits_b_{step}", atol)
        if isinstance(algorithm, BiasEnsemble):
            is_close(biased[algorithm.selected[index]], case, f"loss_b_selected_{step}")
        else:
            is_close(amplify(biased, algorithm.hparams.q), case, f"loss_b_{step}")
            compare_averages(algorithm, case, step)


def follow_disent(cls: type[DifficultyWeighted], more: Mapping[str, Any], case: Case) -> None:
    steps, first, width = int(case["steps"]), int(case["curr_step"]) + 1, case["z_i_table"].shape[2]
    names = {"biased_weight": "dis_align", "biased_swap_weight": "swap_align", "swap_weight": "swap"}
    settings = {ours: float(case[f"lambda_{theirs}"]) for ours, theirs in names.items()}
    algorithm: Any = start(cls, {**settings, "warmup": first / steps, **more}, case, width)
    pair, y, atol = algorithm.pair, torch.from_numpy(case["y"]), 1e-7 if more else 1e-9
    for head, name in ((pair.head, "i"), (pair.biased_head, "b")):
        head.weight = nn.Parameter(torch.tensor(case[f"fc_{name}_weight"]))
        head.bias = nn.Parameter(torch.tensor(case[f"fc_{name}_bias"]))
    for step in range(steps):
        algorithm.progress = Progress(step=step, steps_per_epoch=steps)
        index = torch.from_numpy(case[f"index_{step}"])
        both = torch.stack([torch.from_numpy(case[f"z_{name}_table"][step]) for name in "ib"], 1)
        x = both[index].requires_grad_()
        with Script(*([permutation(case[f"perm_{step}"])] if step >= first else [])):
            terms = algorithm.losses(Batch(x, y[index], index=index))
        total = torch.stack(list(terms.values())).sum()
        slopes = torch.autograd.grad(total, [x, pair.head.weight, pair.biased_head.weight])
        is_close(total, case, f"total_{step}", atol)
        is_close(algorithm.per_example()["weight"][index], case, f"weight_{step}", atol)
        is_close(slopes[0][:, 0], case, f"grad_z_i_{step}", atol)
        is_close(slopes[0][:, 1], case, f"grad_z_b_{step}", atol)
        is_close(slopes[1], case, f"grad_fc_i_weight_{step}", atol)
        is_close(slopes[2], case, f"grad_fc_b_weight_{step}", atol)
        compare_averages(algorithm, case, step)
        compare_terms(algorithm, terms, case, step)


def compare_terms(algorithm: Any, terms: Mapping[str, Tensor], case: Case, step: int) -> None:
    """Means of the reference's losses by image; those of no image are one number, 0."""
    weights = algorithm.pair.settings
    factors = {"dis_i": ("classification", 1.0), "dis_b": ("biased", weights.biased_weight)}
    if "swapped" in terms:
        factors["swap_i"] = ("swapped", weights.swap_weight)
        factors["swap_b"] = ("biased_swapped", weights.swap_weight * weights.biased_swap_weight)
    for theirs, (ours, factor) in factors.items():
        close(terms[ours], factor * case[f"{theirs}_{step}"].mean(), rtol=1e-7, atol=1e-7)


def replay_selection(case: Case) -> None:
    logits, y = torch.from_numpy(case["logits"]), torch.from_numpy(case["y"])
    algorithm: Any = BiasEnsemble(BiasEnsemble.HParams(models=len(logits)), setup(logits.shape[2], lambda: Of(0)))
    selected = []
    for number, scores in enumerate(logits):
        (batch,) = Batch(scores[:, None], y).split(1)
        selected.append(algorithm.label_probability(f"pool.{number}", batch)["probability"])
    probabilities = torch.stack(selected)
    is_close(probabilities, case, "gt_probability")
    chosen = select(probabilities, float(case["threshold"]), int(case["agreement"]))
    assert chosen.tolist() == case["selected_mask"].tolist()
    assert chosen.nonzero().flatten().tolist() == case["selected_index"].tolist()


REPLAYS: Mapping[str, Callable[[Case], None]] = {
    "debiasing/gce_*": replay_amplified,
    "debiasing/lff_steps": lambda case: follow_lff(LfF, case, 1e-9),
    "debiasing/disent_steps": lambda case: follow_disent(DisEnt, {}, case),
    "debiasing/biasensemble_lff_steps": lambda case: follow_lff(BiasEnsemble, case, 1e-7),
    "debiasing/biasensemble_disent_steps": lambda case: follow_disent(BiasEnsemble, {"base": "disent"}, case),
    "debiasing/biasensemble_selection": replay_selection,
    "debiasing/biasensemble_selection_at_threshold": replay_selection,
}
UNCOMPARED: Mapping[str, Mapping[str, str]] = {
    "debiasing/gce_*": {"textbook_gce_value": "of the textbook's form, which has the same gradient over q"},
    "debiasing/biasensemble_disent_steps": {"q": "of the amplify loss, which the ensemble's stages alone have"},
    "debiasing/biasensemble_selection_at_threshold": {
        "threshold": "what is not above 0.5 is not above a larger number either",
    },
}
