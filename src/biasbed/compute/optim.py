"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable

import torch
from torch import nn

from biasbed.config import Optim


def rate_factor(optim: Optim, step: int, total: int, steps_per_epoch: int) -> float:
    """Factor of the initial rate at a step of `total`: linear warm-up, then the schedule, over the whole training.

    With `optim.restarts` over each stretch between two of them, as if it were a training of its own.
    """
    starts = [0, *restart_steps(optim, total)]
    number = bisect.bisect_right(starts, step) - 1
    end = (*starts, total)[number + 1]
    return _factor(optim, step - starts[number], end - starts[number], steps_per_epoch)


def restart_steps(optim: Optim, total: int) -> list[int]:
    """The steps, of `total`, at which the schedule begins anew."""
    return [round(part * total) for part in optim.restarts]


def begins_anew(optim: Optim, step: int, following: int, total: int) -> bool:
    """Whether the schedule begins anew after a step and no later than before the one that follows."""
    return any(step < start <= following for start in restart_steps(optim, total))


def _factor(optim: Optim, step: int, total: int, steps_per_epoch: int) -> float:
    warm = round(optim.warmup * steps_per_epoch)
    if step < warm:
        return (step + 1) / warm
    if optim.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))
    if optim.schedule == "step":
        return optim.gamma ** sum(step >= round(milestone * total) for milestone in optim.milestones)
    return 1.0


def make_optimizer(optim: Optim, batch_size: int, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The configured optimizer at its initial rate for this global batch size."""
    rate = optim.rate(batch_size)
    if optim.name == "sgd":
        return torch.optim.SGD(
            parameters, rate, momentum=optim.momentum, nesterov=optim.nesterov, weight_decay=optim.weight_decay
        )
    kind = torch.optim.Adam if optim.name == "adam" else torch.optim.AdamW
    return kind(parameters, rate, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay)
