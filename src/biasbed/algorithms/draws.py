"""Random draws of a training step: made outside the network and passed to it for one forward pass.

Without draws a network is its plain backbone: in `predict`, in evaluation, in an export.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from biasbed.algorithms.base import Progress
    from biasbed.compute.distributed import Group


class TakesDraws(Protocol):
    """Callback in a network that reads its draws from `draw`."""

    draw: Any

    def forget(self) -> None: ...


class Drawn:
    """Callback in a network that acts only while `draw` holds the draws of the current forward pass."""

    draw: Any = None

    def forget(self) -> None:
        """Delete the draws and everything else that belongs to one forward pass."""
        self.draw = None


@contextlib.contextmanager
def with_draws(callbacks: Sequence[TakesDraws], draws: Sequence[Any]) -> Iterator[None]:
    """Set each callback's draws for the forward pass inside the block."""
    for callback, draw in zip(callbacks, draws, strict=True):
        callback.draw = draw
    try:
        yield
    finally:
        for callback in callbacks:
            callback.forget()


def uniform(
    size: Sequence[int], low: float, high: float, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return uniform draws from [low, high) on the generator's device.

    The draws are multiples of 2^-24, the same in every dtype and on every CPU, scaled in `dtype`. (`uniform_` rounds
    its product and sum to fp32 together on some CPUs and separately on others.)
    """
    unit = torch.rand(size, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)
    return torch.full_like(unit, low).add_(unit, alpha=high - low)


def normal(size: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standard normal draws on the generator's device, none beyond 5.8.

    Made from `uniform` draws (Box and Muller 1958), because torch rounds its normal draws in fp32, not alike on all
    CPUs.
    """
    radius, angle = uniform((2, *size), 0, 1, generator, dtype).unbind()
    return (-2 * (1 - radius).log()).sqrt() * (2 * math.pi * angle).cos()


def dropout_mask(
    size: Sequence[int], rate: float, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return a mask of 0 with probability `rate`, else 1 / (1 - rate), on the generator's device."""
    kept = torch.rand(size, generator=generator, device=generator.device) >= rate
    return kept.to(dtype) / (1 - rate)


class HostDraws:
    """CPU generators for draws that Python itself reads: which layers act, where a slice starts.

    Reading such draws from the group's generator, which is on the compute device, would make the host wait in every
    step. Instead each generator is seeded with the seed of the rank's generator and the position in training, so that a
    resumed training draws the same again. Draws that only kernels use come from the group's generator.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._position: tuple[str, int, int] | None = None
        self._part = 0

    def generator(self, progress: Progress) -> torch.Generator:
        """Return a newly seeded generator that differs between ranks, steps, and parts of an accumulated step."""
        position = (progress.stage, progress.epoch, progress.step)
        self._part = self._part + 1 if position == self._position else 0
        self._position = position
        return self._seeded(*position, self._part)

    def epoch_generator(self, progress: Progress) -> torch.Generator:
        """Return a newly seeded generator that stays the same throughout an epoch and differs between ranks."""
        return self._seeded(progress.stage, progress.epoch)

    def shared_generator(self, progress: Progress) -> torch.Generator:
        """Return a newly seeded generator that is equal on all ranks and for all parts of an accumulated step."""
        seed = self._group.shared_generator.initial_seed()
        return _seeded(seed, progress.stage, progress.epoch, progress.step)

    def _seeded(self, *position: str | int) -> torch.Generator:
        return _seeded(self._group.generator.initial_seed(), *position)


def _seeded(seed: int, *position: str | int) -> torch.Generator:
    digest = hashlib.blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
