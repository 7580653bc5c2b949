"""Position in training, and live objects of a training step: what the engine and an algorithm hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

Optimizer = torch.optim.Optimizer


@dataclass
class Progress:
    """Where training stands; the engine sets it before every update. Whole numbers count from 0."""

    stage: str = "main"
    epoch: int = 0  # within the stage
    epochs: int = 1
    step: int = 0  # within the epoch
    steps_per_epoch: int = 1
    weight: float = 1.0  # this process's share of the step's examples, times the number of processes
    total: int | None = None  # steps of the stage, where they are not those of whole epochs

    @property
    def fraction(self) -> float:
        """Part of the stage that is done, in [0, 1)."""
        return self._done / self._total

    def is_past(self, part: float) -> bool:
        """Whether a part of the stage is done: from the step on at which `optim.restarts` at that part falls."""
        return self._done >= round(part * self._total)

    @property
    def _done(self) -> int:
        return self.epoch * self.steps_per_epoch + self.step

    @property
    def _total(self) -> int:
        return self.epochs * self.steps_per_epoch if self.total is None else self.total


@dataclass
class Notes:
    """Training decisions and named numbers that `losses` reports beside the loss."""

    correct: Tensor | None = None
    values: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, other: Notes) -> None:
        """Append the reports of one part of a step."""
        if other.correct is not None:
            self.correct = other.correct if self.correct is None else self.correct + other.correct
        for name, values in other.values.items():
            self.values.setdefault(name, []).extend(values)


@dataclass
class Runtime:
    """Live objects of a training that are no part of the algorithm's state."""

    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    ddp: DistributedDataParallel | None = None
    notes: Notes = field(default_factory=Notes)  # since the engine last took them
    draws: tuple[Any] | None = None  # return value of `Algorithm.draw`, for the losses that are being computed
    weight: Tensor | None = None  # `Progress.weight`, likewise
    frozen: list[str] = field(default_factory=list)  # modules, by name
    released: list[str] = field(default_factory=list)  # modules and optimizers, by name
