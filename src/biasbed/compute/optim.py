"""Optimizer as configured, and the learning rate as a function of the step, without any state to save.

The layer of each parameter, for layer-wise decay, comes from `networks/layers.py`.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.config import Optim


def rate_factor(optim: Optim, step: float, total: float, steps_per_epoch: int) -> float:
    """Return the factor of the initial rate at a step of `total`: linear warm-up, then the schedule.

    With `optim.restarts`, the schedule starts again at each of them and spans the steps up to the next one.
    """
    bounds = [0, *restart_steps(optim, total), total]
    number = bisect.bisect_right(bounds[:-1], step) - 1
    start, end = bounds[number], bounds[number + 1]
    return _schedule_factor(optim, step - start, end - start, steps_per_epoch)


def restart_steps(optim: Optim, total: float) -> list[int]:
    """Return the steps at which the schedule restarts, of `total` steps."""
    return [round(part * total) for part in optim.restarts]


def has_restart(optim: Optim, step: float, following: float, total: float) -> bool:
    """Return True if the schedule restarts after `step` and before or at `following`, the next step."""
    return any(step < start <= following for start in restart_steps(optim, total))


def _schedule_factor(optim: Optim, step: float, total: float, steps_per_epoch: int) -> float:
    """Return the factor of the initial rate at a step of a schedule without restarts."""
    if optim.schedule == "piecewise":  # each step at the rate of its end, as warm-up is
        return float(np.interp((step + 1) / total, optim.points, optim.factors))
    warmup_steps = round(optim.warmup * steps_per_epoch)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if optim.schedule == "cosine":
        done = (step - warmup_steps) / max(1, total - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * done))
    if optim.schedule == "step":
        passed = sum(step >= round(milestone * total) for milestone in optim.milestones)
        return optim.gamma**passed
    return 1.0


# --- parameters -------------------------------------------------------------------------------------------------------

Tensors = list[Tensor] | tuple[Tensor, ...]
# Key in a parameter group: positions of its parameters among those that `make_optimizer` was given.
POSITIONS = "places"


@dataclass(frozen=True)
class ParameterRoles:
    """Parameters of networks that may have their own rate or decay, by `id`."""

    head: Collection[int] = ()  # of classifiers
    embeddings: Collection[int] = ()  # position embeddings, class tokens and relative position tables
    depths: Mapping[int, int] = field(default_factory=dict)  # number of layers after the parameter's; missing: 0


def make_optimizer(
    optim: Optim,
    batch_size: int,
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    roles: ParameterRoles | None = None,
) -> torch.optim.Optimizer:
    """Return the configured optimizer at its initial rate for this global batch size.

    parameters: parameters, or groups of them with their own options, as in torch.
    """
    rate = optim.rate(batch_size)
    grouped: Any = parameters
    if optim.head_factor != 1 or optim.layer_decay != 1 or not (optim.decay_norms and optim.decay_embeddings):
        grouped = list(_groups(optim, rate, list(parameters), roles or ParameterRoles()))
    if optim.name == "sgd":
        return torch.optim.SGD(
            grouped, rate, momentum=optim.momentum, nesterov=optim.nesterov, weight_decay=optim.weight_decay
        )
    kind = torch.optim.Adam if optim.name == "adam" else torch.optim.AdamW
    return kind(grouped, rate, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay)


def list_parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the parameters in the order in which `make_optimizer` was given them, however it grouped them."""
    parameters: list[nn.Parameter] = []
    positions: list[int] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
        positions += group.get(POSITIONS, ())
    return [parameters[number] for number in np.argsort(positions)] if positions else parameters


@torch.no_grad()
def predict_first_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]
) -> list[Tensor]:
    """Return the parameters' values after the first step of a fresh optimizer with the same options.

    The parameters stay unchanged. The step is computed in closed form: a real optimizer would spend most of the time on
    its momenta. For a fresh Adam, the two means are the gradient g and its square, and a parameter moves by
    rate * g / (|g| + eps).
    """
    rows_by_id = {id(parameter): row for row, parameter in enumerate(parameters)}
    values: list[Tensor] = [*parameters]
    for group in optimizer.param_groups:
        rows = [rows_by_id[id(parameter)] for parameter in group["params"]]
        before = [parameters[row].detach() for row in rows]
        after = _take_first_step(optimizer, group, before, [gradients[row] for row in rows])
        for row, value in zip(rows, after, strict=True):
            values[row] = value
    return values


def _take_first_step(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], values: Tensors, slopes: Tensors
) -> Tensors:
    """Return a parameter group's values after the optimizer's first step, in closed form; slopes are the gradients."""
    rate, decay = group["lr"], group["weight_decay"]
    if isinstance(optimizer, torch.optim.AdamW):  # a subclass of Adam, so also handled below
        values = torch._foreach_mul(values, 1 - rate * decay)
    elif decay:
        slopes = torch._foreach_add(slopes, values, alpha=decay)
    if isinstance(optimizer, torch.optim.Adam):
        lengths = torch._foreach_abs(slopes)
        torch._foreach_add_(lengths, group["eps"])
        slopes = torch._foreach_div(slopes, lengths)
    elif group["nesterov"]:
        slopes = torch._foreach_mul(slopes, 1 + group["momentum"])
    return torch._foreach_add(values, slopes, alpha=-rate)


def _groups(optim: Optim, rate: float, parameters: list[Any], roles: ParameterRoles) -> Iterator[dict[str, Any]]:
    """Yield groups whose parameters share rate and decay: late layers first, and the body before the head and norms."""
    first = 0
    is_grouped = bool(parameters) and isinstance(parameters[0], dict)
    for options in parameters if is_grouped else [{"params": parameters}]:
        members = list(options["params"])
        kinds = [_kind_of(optim, parameter, roles) for parameter in members]
        for kind in sorted(set(kinds)):
            rows = [row for row, member_kind in enumerate(kinds) if member_kind == kind]
            group = {**options, "params": [members[row] for row in rows], POSITIONS: [first + row for row in rows]}
            if kind.depth:
                group["lr"] = group.get("lr", rate) * optim.layer_decay**kind.depth
            if kind.is_head:
                group["lr"] = group.get("lr", rate) * optim.head_factor
            if kind.is_spared:
                group["weight_decay"] = 0.0
            yield group
        first += len(members)


class _Kind(NamedTuple):
    """Depth and role of a parameter, by which groups are made and ordered."""

    depth: int
    is_head: bool
    is_spared: bool  # from weight decay


def _kind_of(optim: Optim, parameter: nn.Parameter, roles: ParameterRoles) -> _Kind:
    """Return the depth and role of a parameter, as far as the settings treat them differently."""
    depth = roles.depths.get(id(parameter), 0) if optim.layer_decay != 1 else 0
    is_head = optim.head_factor != 1 and id(parameter) in roles.head
    is_norm_or_bias = parameter.ndim <= 1
    is_spared = not optim.decay_norms and is_norm_or_bias
    if not optim.decay_embeddings and id(parameter) in roles.embeddings:
        is_spared = True
    return _Kind(depth, is_head, is_spared)
