"""Training of the networks that makers need: seeded patches and a resumable loop."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from biasbed.compute import checkpoint
from biasbed.data.source import Source
from biasbed.data.transforms import key_seed, shrink
from biasbed.errors import CorruptImage, Failure
from biasbed.settings import setting

log = logging.getLogger(__name__)

Tick = Callable[[int], object]  # progress callback: called with the number of steps since the last call
N = TypeVar("N", bound=nn.Module)
B = TypeVar("B")


@dataclass(frozen=True)
class FitOptions:
    """Settings of the training of a network."""

    size: int = setting(40, "short side in pixels of the images that the network works on", ge=16)
    steps: int = setting(500, "training steps", ge=1)
    batch_size: int = setting(16, "images per step", ge=1)
    lr: float = setting(1e-3, "highest learning rate of Adam", gt=0)
    seed: int = setting(0, "decides initial weights, order of images, crops and noise", ge=0)

    @property
    def total(self) -> int:
        """Total number of training steps."""
        return self.steps


def patches(source: Source, size: int, batch_size: int, seed: int, start: int = 0) -> Iterator[Tensor]:
    """Yield batches of random square crops [batch_size,3,S,S] in [0,1] without end, from batch number `start` on.

    Every image comes once before any comes again. An image whose short side is larger than `size` is resized to it
    first. S is `size`, or the shortest side in the batch if that is smaller. A batch depends only on its number and the
    seed. Raises Failure for an image that can't be decoded.
    """
    rows = shuffle_rows(len(source), seed, start * batch_size)
    for number in itertools.count(start):
        images = [shrink(_load(source, row), size) for row in itertools.islice(rows, batch_size)]
        side = min(size, *(min(image.shape[1:]) for image in images))
        generator = torch.Generator().manual_seed(key_seed(seed, number, 1))
        yield torch.stack([_crop(image, side, generator) for image in images]).float() / 255


def shuffle_rows(count: int, seed: int, start: int = 0) -> Iterator[int]:
    """Yield rows without end, shuffled anew in every pass over all of them, from position `start` on."""
    epoch, offset = divmod(start, count)
    while True:
        generator = torch.Generator().manual_seed(key_seed(seed, epoch, 0))
        yield from torch.randperm(count, generator=generator)[offset:].tolist()
        epoch, offset = epoch + 1, 0


def fit(
    network: N,
    batches: Callable[[int], Iterator[B]],
    loss: Callable[[B, torch.Generator], Tensor],
    options: FitOptions,
    *,
    device: torch.device | str = "cpu",
    tick: Tick = lambda count: None,
    resume: Path | None = None,
    identity: str = "",
    every: int = 100,
) -> N:
    """Train the parameters of `network` that require a gradient; return it in eval mode, frozen, on `device`.

    batches: returns the batches from a given step on.
    loss: returns the scalar to minimise for a batch, given a generator on `device` that is fresh for each step.
    resume: file for the state, written every `every` steps and at the end, and read if it exists. A resumed training is
        bit-equal to an uninterrupted one. A file of another training, by `identity` and `options`, is overwritten.
    Raises Failure if the loss is not finite.
    """
    network.to(device).train()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, options.lr)
    key = f"{identity} {options}"
    done = _restore(resume, key, network, optimizer, device)
    tick(done)
    for step, batch in zip(range(done, options.steps), batches(done), strict=False):
        _set_rate(optimizer, options.lr * rate_factor(step, options.steps))
        generator = torch.Generator(device).manual_seed(key_seed(options.seed, step, 2))
        optimizer.zero_grad(set_to_none=True)
        value = loss(batch, generator)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)  # the first steps of a deep network without norms
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == options.steps:
            if not torch.isfinite(value):
                raise Failure(f"the loss is {value.item()} after {step + 1} steps; try a smaller lr than {options.lr}")
            _save(resume, key, step + 1, network, optimizer)
        tick(1)
    return network.eval().requires_grad_(False)


def rate_factor(step: int, steps: int) -> float:
    """Return the factor of the learning rate: linear warmup over a twentieth of the steps, then cosine decay to 0."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def _restore(
    path: Path | None, key: str, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device | str
) -> int:
    """Load the state in the file if it belongs to this training; return the number of steps done."""
    if path is None or not path.exists():
        return 0
    try:
        state = checkpoint.load(path, device, {"key": str, "step": int, "network": dict, "optimizer": dict})
        if state["key"] != key:
            log.warning("%s is of another training: starting anew", path)
            return 0
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # a file may hold anything
        reason = checkpoint.first_line_of(error)
        raise Failure(f"{path} can't be continued ({reason}): remove it, and the same command starts anew") from None
    return int(state["step"])


def _save(path: Path | None, key: str, step: int, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"key": key, "step": step, "network": network.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(path, state)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _load(source: Source, row: int) -> Tensor:
    """Decode an image. Raises Failure if it can't be decoded, which ends the training."""
    try:
        return source.load(row)
    except CorruptImage as error:
        raise Failure(str(error)) from None


def _crop(image: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Return a square crop at a random place."""
    top, left = (int(torch.randint(length - side + 1, (), generator=generator)) for length in image.shape[1:])
    return image[:, top : top + side, left : left + side]
