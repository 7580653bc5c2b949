"""Averaged weights: evaluated, kept and exported in the place of the live ones, which go on training.

What is averaged are the parameters, and with them the running statistics of norm layers: those of the last step belong
to other weights, and to compute them anew takes a pass over training images at every evaluation (Cha et al.'s code
makes one at the end; in both papers they are frozen, and the mean of what is frozen is that). All other buffers (tables
with a row per image, counts) are the live ones.

Sums are kept in float64, so that a mean of thousands of weights that differ in their last digits is their mean.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from biasbed.compute.distributed import Group
from biasbed.config import Swad


class Total:
    """A sum of weights at several steps, by name, and of how many."""

    def __init__(self, sums: Mapping[str, Tensor] | None = None, count: int = 0) -> None:
        self.sums, self.count = dict(sums or {}), count

    def add(self, weights: Mapping[str, Tensor], count: int = 1) -> None:
        """Add the weights at one step, or the sum of those at several."""
        if self.sums:
            torch._foreach_add_(list(self.sums.values()), [weights[name] for name in self.sums])
        else:
            self.sums = {name: tensor.detach().to(torch.float64, copy=True) for name, tensor in weights.items()}
        self.count += count

    def merge(self, other: Total) -> None:
        """Take over what another one has."""
        if other.count:
            self.add(other.sums, other.count)

    def mean(self) -> dict[str, Tensor]:
        return {name: total / self.count for name, total in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "count": self.count}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> Total:
        return cls({name: tensor.to(device) for name, tensor in state["sums"].items()}, state["count"])


class Average:
    """`average=none`: the live weights are tested. The others say what their mean is made of."""

    def __init__(self, module: nn.Module, group: Group) -> None:
        self.module, self.group = module, group

    @torch.no_grad()
    def weights(self) -> dict[str, Tensor]:
        """The live weights that are averaged, by name: parameters and running statistics."""
        found: dict[str, Tensor] = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        for prefix, norm in self.module.named_modules():
            if isinstance(norm, _NormBase):
                own = {"running_mean": norm.running_mean, "running_var": norm.running_var}
                found |= {f"{prefix}.{name}": buffer for name, buffer in own.items() if buffer is not None}
        return found

    def add(self, step: int) -> None:
        """Take note of the live weights after a step of the last stage; the first is 1."""

    def judge(self) -> None:
        """Take note of an evaluation, before it; every rank takes part."""

    def mean(self) -> Mapping[str, Tensor]:
        """What stands in for the live weights; nothing where they are tested themselves."""
        return {}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[Mapping[str, Tensor]]:
        """Within the block the mean is in the place of the live weights, which it is given; every rank takes part."""
        mean = self.mean()
        if not mean:
            yield {}
            return
        self.group.share_buffers(self.module)  # as with any evaluation, the live ones are rank 0's after it
        weights = self.weights()
        live = {name: tensor.clone() for name, tensor in weights.items()}
        _copy(mean, weights)
        try:
            yield live
        finally:
            _copy(live, weights)

    def checkpoint(self, live: Mapping[str, Tensor]) -> dict[str, Any]:
        """The part of a checkpoint that goes on with averaging; `live` as `in_place` gave them."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, whose tested weights are loaded already."""


class _Mean(Average):
    """What those that average have in common."""

    def checkpoint(self, live: Mapping[str, Tensor]) -> dict[str, Any]:
        return {"average": {"live": dict(live), **self.state_dict()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        own = state["average"]
        if own["live"]:
            _copy(own["live"], self.weights())
        self.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError


class SMA(_Mean):
    """The mean of the weights after every step from one on (Arpit et al. 2022); before it the live ones."""

    def __init__(self, module: nn.Module, group: Group, first: int) -> None:
        super().__init__(module, group)
        self.first, self.total = first, Total()

    def add(self, step: int) -> None:
        if step >= self.first:
            self.total.add(self.weights())

    def mean(self) -> Mapping[str, Tensor]:
        return self.total.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total = Total.of(state["total"], self.group.device)


class SWAD(_Mean):
    """The mean over the steps of a valley of the validation loss (Cha et al. 2021, algorithm 1).

    The loss is that of the live weights, known at evaluations. The valley starts at the first evaluation that has the
    smallest loss of `optimum_patience` in a row, itself the first of them, and that one's weights are the first of the
    mean. Its threshold is `tolerance` times the mean loss of these. It ends with the last evaluation that was at or
    below it when `overfit_patience` in a row are above. What stands in for the live weights at any time is what the
    algorithm would return if training ended there; before a start is found these are the live weights themselves (the
    algorithm's mean would be over all steps from the first; its authors' code takes those since the evaluation before).

    Two sums and, before the start, `optimum_patience` are all that must be kept: a step that is not in the valley for
    sure lies after the last evaluation that is.
    """

    def __init__(self, module: nn.Module, group: Group, settings: Swad, loss: Callable[[], float]) -> None:
        """loss: of the live weights on validation images, equal on all ranks, which all take part."""
        super().__init__(module, group)
        self.settings, self.loss = settings, loss
        self.threshold: float | None = None  # there is a start
        self.window: list[tuple[float, Total]] = []  # before that: loss at evaluations that may be it, steps up to each
        self.inside, self.since = Total(), Total()  # up to the last evaluation that is in the valley, and after it
        self.above = 0  # evaluations in a row above the threshold
        self.ended = False

    def add(self, step: int) -> None:
        if not self.ended and (self.window or self.threshold is not None):
            self.since.add(self.weights())

    def judge(self) -> None:
        if self.ended:
            return
        loss = self.loss()
        if self.threshold is not None:
            self._follow(loss)
        elif not math.isfinite(loss):
            self.window, self.since = [], Total()
        else:
            self._seek(loss)

    def _seek(self, loss: float) -> None:
        """Only the smallest loss so far may be a start: any other has a smaller one before or after it."""
        if not self.window or loss < self.window[0][0]:
            self.window, self.since = [], Total()
            self.since.add(self.weights())
        self.window.append((loss, self.since))
        self.since = Total()
        if len(self.window) == self.settings.optimum_patience:
            self.threshold = self.settings.tolerance * fmean(loss for loss, _ in self.window)
            for known, steps in self.window:
                self.since.merge(steps)
                self._follow(known)
            self.window = []

    def _follow(self, loss: float) -> None:
        assert self.threshold is not None
        if loss <= self.threshold:
            self.inside.merge(self.since)
            self.since, self.above = Total(), 0
            return
        self.above += 1
        if self.above >= self.settings.overfit_patience:
            self.since, self.ended = Total(), True

    def mean(self) -> Mapping[str, Tensor]:
        whole = Total()
        if self.threshold is not None:
            whole.merge(self.inside)
            whole.merge(self.since)
        return whole.mean()

    def state_dict(self) -> dict[str, Any]:
        return {
            **{"threshold": self.threshold, "above": self.above, "ended": self.ended},
            **{"inside": self.inside.state_dict(), "since": self.since.state_dict()},
            "window": [[loss, steps.state_dict()] for loss, steps in self.window],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device = self.group.device
        self.threshold, self.above, self.ended = state["threshold"], state["above"], state["ended"]
        self.inside, self.since = Total.of(state["inside"], device), Total.of(state["since"], device)
        self.window = [(loss, Total.of(steps, device)) for loss, steps in state["window"]]


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])
