"""Averaged weights (SMA, SWAD, EMA): evaluated, saved and exported instead of the live weights, which go on training.

The average covers parameters and the running statistics of norm layers. The statistics of the last step belong to other
weights, and recomputing them would take a pass over training images at every evaluation. (Cha et al.'s code makes one
pass at the end; both papers freeze the statistics, and the mean of frozen values is the same value.) All other buffers
(tables with a row per image, counts) are the live ones.

Sums of SMA and SWAD are float64, so that the mean of thousands of nearly equal weights is exact to fp32 precision. EMA
has the weights' own type, as timm's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.compute.average import Average, copy_weights
from biasbed.compute.distributed import Group
from biasbed.config import Ema, Swad


class Total:
    """Sum of the weights at several steps by name, and the number of steps."""

    def __init__(self, sums: Mapping[str, Tensor] | None = None, count: int = 0) -> None:
        self.sums, self.count = dict(sums or {}), count

    def add(self, weights: Mapping[str, Tensor], count: int = 1) -> None:
        """Add the weights at one step, or the sum of the weights at `count` steps."""
        if self.sums:
            torch._foreach_add_(list(self.sums.values()), [weights[name] for name in self.sums])
        else:
            self.sums = {name: tensor.detach().to(torch.float64, copy=True) for name, tensor in weights.items()}
        self.count += count

    def merge(self, total: Total) -> None:
        """Add another total to this one."""
        if total.count:
            self.add(total.sums, total.count)

    def mean(self) -> dict[str, Tensor]:
        """Return the mean of the weights by name; empty before the first step."""
        return {name: total / self.count for name, total in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "count": self.count}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> Total:
        """Return the total that `state_dict` described, on a device."""
        return cls({name: tensor.to(device) for name, tensor in state["sums"].items()}, state["count"])


class _Mean(Average):
    """Base of the averages: saves and restores the live weights with the state of the mean."""

    def checkpoint(self, live: Mapping[str, Tensor]) -> dict[str, Any]:
        return {"average": {"live": dict(live), **self.state_dict()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        average = state["average"]
        if average["live"]:
            copy_weights(average["live"], self.weights())
        self.load_state_dict(average)

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError


class SMA(_Mean):
    """Mean of the weights after every step from `first` on (Arpit et al. 2022); the live weights before."""

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
        self.total = Total.from_state(state["total"], self.group.device)


class SWAD(_Mean):
    """Mean over the steps of a valley of the validation loss (Cha et al. 2021, algorithm 1).

    The loss is computed with the live weights, at evaluations. The valley starts at the first evaluation whose loss is
    the smallest of `optimum_patience` evaluations in a row, itself the first of them; its weights are the first of the
    mean. The threshold is `tolerance` times the mean loss of these evaluations. The valley ends when `overfit_patience`
    evaluations in a row are above the threshold; its last step is that of the last evaluation at or below it. At any
    time, `mean` is what the algorithm would return if training ended now. Before a start is known, that is the live
    weights (the algorithm would return the mean over all steps; the authors' code, the mean since the last evaluation).

    Only two sums are kept, and `optimum_patience` more before the start: a step that is not yet certain to be in the
    valley lies after the last evaluation in it.
    """

    def __init__(self, module: nn.Module, group: Group, settings: Swad, loss: Callable[[], float]) -> None:
        """loss: returns the validation loss of the live weights, equal on all ranks. Every rank must call it."""
        super().__init__(module, group)
        self.settings, self.loss = settings, loss
        self.threshold: float | None = None  # set once the start is known
        self.window: list[tuple[float, Total]] = []  # candidates for the start: loss, and the steps up to each
        self.inside, self.since = Total(), Total()  # steps up to the last evaluation in the valley, and after it
        self.above = 0  # evaluations in a row above the threshold
        self.ended = False

    def add(self, step: int) -> None:
        if not self.ended and (self.window or self.threshold is not None):
            self.since.add(self.weights())

    def before_evaluation(self) -> None:
        if self.ended:
            return
        loss = self.loss()
        if self.threshold is not None:
            self._follow_valley(loss)
        elif not math.isfinite(loss):
            self.window, self.since = [], Total()
        else:
            self._seek_start(loss)

    def _seek_start(self, loss: float) -> None:
        """Add an evaluation to the window of candidates for the start, and set the threshold once it is full.

        A new smallest loss empties the window first: no earlier evaluation can be the start.
        """
        if not self.window or loss < self.window[0][0]:
            self.window, self.since = [], Total()
            self.since.add(self.weights())
        self.window.append((loss, self.since))
        self.since = Total()
        if len(self.window) == self.settings.optimum_patience:
            self.threshold = self.settings.tolerance * fmean(loss for loss, _ in self.window)
            for window_loss, steps in self.window:
                self.since.merge(steps)
                self._follow_valley(window_loss)
            self.window = []

    def _follow_valley(self, loss: float) -> None:
        """Extend the valley by the steps since the last evaluation, or count an evaluation above the threshold."""
        assert self.threshold is not None
        if loss <= self.threshold:
            self.inside.merge(self.since)
            self.since, self.above = Total(), 0
            return
        self.above += 1
        if self.above >= self.settings.overfit_patience:
            self.since, self.ended = Total(), True

    def mean(self) -> Mapping[str, Tensor]:
        total = Total()
        if self.threshold is not None:
            total.merge(self.inside)
            total.merge(self.since)
        return total.mean()

    def state_dict(self) -> dict[str, Any]:
        return {
            **{"threshold": self.threshold, "above": self.above, "ended": self.ended},
            **{"inside": self.inside.state_dict(), "since": self.since.state_dict()},
            "window": [[loss, steps.state_dict()] for loss, steps in self.window],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device = self.group.device
        self.threshold, self.above, self.ended = state["threshold"], state["above"], state["ended"]
        self.inside, self.since = Total.from_state(state["inside"], device), Total.from_state(state["since"], device)
        self.window = [(loss, Total.from_state(steps, device)) for loss, steps in state["window"]]


class EMA(_Mean):
    """Exponential moving average from the weights after step `first` on; the live weights before.

    The update is that of timm's `ModelEmaV3` with `update_after_step=first - 1`, to the bit. timm averages every buffer
    of floating point; tables of a method are the live ones here, as in every average.
    """

    def __init__(self, module: nn.Module, group: Group, first: int, settings: Ema) -> None:
        super().__init__(module, group)
        self.first, self.settings = first, settings
        self.averaged: dict[str, Tensor] = {}

    def decay_at(self, step: int) -> float:
        """Return the part of the average that this step keeps: none at `first`. Steps count from 1."""
        passed = step - self.first
        if passed <= 0:
            return 0.0
        if not self.settings.warmup:
            return self.settings.decay
        return min(1 - (1 + passed) ** (-2 / 3), self.settings.decay)

    @torch.no_grad()
    def add(self, step: int) -> None:
        if step < self.first:
            return
        weights = self.weights()
        if not self.averaged:
            self.averaged = {name: tensor.clone() for name, tensor in weights.items()}
            return
        live = [weights[name] for name in self.averaged]
        torch._foreach_lerp_(list(self.averaged.values()), live, weight=1.0 - self.decay_at(step))

    def mean(self) -> Mapping[str, Tensor]:
        return self.averaged

    def state_dict(self) -> dict[str, Any]:
        return {"averaged": self.averaged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.averaged = {name: tensor.to(self.group.device) for name, tensor in state["averaged"].items()}
