"""The configured optimizer, and the learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.config import Optim


def rate_factor(optim: Optim, step: float, total: float, steps_per_epoch: int) -> float:
    """Factor of the initial rate at a step of `total`: linear warm-up, then the schedule, over the whole training.

    With `optim.restarts` over each stretch between two of them, as if it were a training of its own.
    """
    starts = [0, *restart_steps(optim, total)]
    number = bisect.bisect_right(starts, step) - 1
    end = (*starts, total)[number + 1]
    return _factor(optim, step - starts[number], end - starts[number], steps_per_epoch)


def restart_steps(optim: Optim, total: float) -> list[int]:
    """The steps, of `total`, at which the schedule begins anew."""
    return [round(part * total) for part in optim.restarts]


def begins_anew(optim: Optim, step: float, following: float, total: float) -> bool:
    """Whether the schedule begins anew after a step and no later than before the one that follows."""
    return any(step < start <= following for start in restart_steps(optim, total))


def _factor(optim: Optim, step: float, total: float, steps_per_epoch: int) -> float:
    if optim.schedule == "piecewise":  # each step at the rate of its end, as warm-up is
        return float(np.interp((step + 1) / total, optim.points, optim.factors))
    warm = round(optim.warmup * steps_per_epoch)
    if step < warm:
        return (step + 1) / warm
    if optim.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))
    if optim.schedule == "step":
        return optim.gamma ** sum(step >= round(milestone * total) for milestone in optim.milestones)
    return 1.0


# --- parameters -------------------------------------------------------------------------------------------------------

Tensors = list[Tensor] | tuple[Tensor, ...]
PLACES = "places"  # of a group's parameters, among those that the optimizer was asked for


def make_optimizer(
    optim: Optim,
    batch_size: int,
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    head: Iterable[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """The configured optimizer at its initial rate for this global batch size.

    parameters: or groups of them with options of their own, as torch takes them. head: the classifiers' parameters.
    """
    rate = optim.rate(batch_size)
    grouped: Any = parameters
    if optim.head_factor != 1 or not optim.decay_norms:
        grouped = list(_groups(optim, rate, list(parameters), {id(parameter) for parameter in head}))
    if optim.name == "sgd":
        return torch.optim.SGD(
            grouped, rate, momentum=optim.momentum, nesterov=optim.nesterov, weight_decay=optim.weight_decay
        )
    kind = torch.optim.Adam if optim.name == "adam" else torch.optim.AdamW
    return kind(grouped, rate, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Its parameters in the order in which it was asked for them, whatever groups `make_optimizer` made of them."""
    groups = optimizer.param_groups
    found: list[nn.Parameter] = [parameter for group in groups for parameter in group["params"]]
    places = [place for group in groups for place in group.get(PLACES, ())]
    return [found[number] for number in np.argsort(places)] if places else found


@torch.no_grad()
def first_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]
) -> list[Tensor]:
    """Where parameters of an optimizer would be after the first step of a fresh one like it; they stay as they are.

    In closed form, as an optimizer made for one step spends most of it on its momenta: of a fresh Adam the two
    means are the gradient g and its square, and a parameter moves by the rate times g / (|g| + eps).
    """
    place = {id(parameter): number for number, parameter in enumerate(parameters)}
    found: list[Tensor] = [*parameters]
    for group in optimizer.param_groups:
        rows = [place[id(parameter)] for parameter in group["params"]]
        own = [parameters[row].detach() for row in rows]
        for row, moved in zip(rows, _first_of(optimizer, group, own, [gradients[row] for row in rows]), strict=True):
            found[row] = moved
    return found


def _first_of(optimizer: torch.optim.Optimizer, group: dict[str, Any], own: Tensors, slopes: Tensors) -> Tensors:
    rate, decay = group["lr"], group["weight_decay"]
    if isinstance(optimizer, torch.optim.AdamW):  # an Adam, too
        own = torch._foreach_mul(own, 1 - rate * decay)
    elif decay:
        slopes = torch._foreach_add(slopes, own, alpha=decay)
    if isinstance(optimizer, torch.optim.Adam):
        lengths = torch._foreach_abs(slopes)
        torch._foreach_add_(lengths, group["eps"])
        slopes = torch._foreach_div(slopes, lengths)
    elif group["nesterov"]:
        slopes = torch._foreach_mul(slopes, 1 + group["momentum"])
    return torch._foreach_add(own, slopes, alpha=-rate)


def _groups(optim: Optim, rate: float, given: list[Any], head: set[int]) -> Iterator[dict[str, Any]]:
    """Groups whose parameters share rate and decay; the first has neither head nor norms, if there is anything else."""
    first = 0
    for whole in given if given and isinstance(given[0], dict) else [{"params": given}]:
        parameters = list(whole["params"])
        kinds = [(id(p) in head, not optim.decay_norms and p.ndim <= 1) for p in parameters]
        for is_head, is_spared in sorted(set(kinds)):
            rows = [row for row, kind in enumerate(kinds) if kind == (is_head, is_spared)]
            group = {**whole, "params": [parameters[row] for row in rows], PLACES: [first + row for row in rows]}
            if is_head:
                group["lr"] = group.get("lr", rate) * optim.head_factor
            if is_spared:
                group["weight_decay"] = 0.0
            yield group
        first += len(parameters)
