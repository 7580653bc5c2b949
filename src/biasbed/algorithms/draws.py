"""Random draws of a training step: made outside the network, handed in for one forward pass, gone after it.

A network is therefore its plain backbone whenever nobody hands it draws: in `predict`, in evaluation, in an export.
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


class Place(Protocol):
    """Where something inserted into a network finds its draws."""

    draw: Any

    def forget(self) -> None: ...


class Drawn:
    """Something inserted into a network that acts only while `draw` holds its draws of the current forward pass."""

    draw: Any = None

    def forget(self) -> None:
        """Drop the draws and whatever else belongs to one forward pass."""
        self.draw = None


@contextlib.contextmanager
def with_draws(places: Sequence[Place], draws: Sequence[Any]) -> Iterator[None]:
    """Hand each place its draws for the forward pass inside the block."""
    for place, draw in zip(places, draws, strict=True):
        place.draw = draw
    try:
        yield
    finally:
        for place in places:
            place.forget()


def uniform(
    size: Sequence[int], low: float, high: float, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draws from [low, high), on the generator's device.

    What is drawn are whole multiples of 2^-24, the same in every dtype and on every CPU; they are scaled in `dtype`.
    `uniform_` rounds its product and sum to fp32 in one on some CPUs and in two on others.
    """
    unit = torch.rand(size, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)
    return torch.full_like(unit, low).add_(unit, alpha=high - low)


def normal(size: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal draws, on the generator's device; none beyond 5.8.

    Made of `uniform` ones (Box and Muller 1958), as what torch draws as normal is rounded in fp32, and not alike on all
    CPUs.
    """
    radius, angle = uniform((2, *size), 0, 1, generator, dtype).unbind()
    return (-2 * (1 - radius).log()).sqrt() * (2 * math.pi * angle).cos()


def dropout_mask(
    size: Sequence[int], rate: float, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """0 at this rate, else 1 / (1 - rate), on the generator's device."""
    kept = torch.rand(size, generator=generator, device=generator.device) >= rate
    return kept.to(dtype) / (1 - rate)


class HostDraws:
    """A generator on the CPU for draws that Python itself must know: which layers act, where a slice starts.

    Read from the group's generator, which lives on the compute device, they would make the host wait for the device in
    every step. So they are keyed instead of streamed: seeded by the seed of the rank's own generator and the position
    in training, which is all a resumed training needs to draw the same again. Draws that only kernels use come from
    the group's generator itself.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._position: tuple[str, int, int] | None = None
        self._part = 0

    def generator(self, progress: Progress) -> torch.Generator:
        """Freshly seeded; differs between ranks, steps, and the parts of one accumulated step."""
        position = (progress.stage, progress.epoch, progress.step)
        self._part = self._part + 1 if position == self._position else 0
        self._position = position
        return self._seeded(*position, self._part)

    def epoch_generator(self, progress: Progress) -> torch.Generator:
        """Freshly seeded; the same throughout an epoch, also after a resume in its midst; differs between ranks."""
        return self._seeded(progress.stage, progress.epoch)

    def shared_generator(self, progress: Progress) -> torch.Generator:
        """Freshly seeded; equal on all ranks, and for the parts of one accumulated step."""
        seed = self._group.shared_generator.initial_seed()
        return _seeded(seed, progress.stage, progress.epoch, progress.step)

    def _seeded(self, *position: str | int) -> torch.Generator:
        return _seeded(self._group.generator.initial_seed(), *position)


def _seeded(seed: int, *position: str | int) -> torch.Generator:
    digest = hashlib.blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
