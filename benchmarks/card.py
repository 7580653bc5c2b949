"""Device of benchmarks/gpu.py, and its two sides: steps of our engine, and the same written by hand."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from engine import planned
from sides import Row, Work
from torch import nn

from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.networks.network import as_input
from biasbed.tracking.folder import RunFolder
from biasbed.training.engine import Engine
from biasbed.training.train import _make_engine

Pieces = Iterator[tuple[str, Callable[[], list[Row]]]]  # of a part: what each is called, and what measures it
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Card:
    """Device that is measured, and the sizes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.size, self.batch_size, self.steps = options.image_size, options.batch_size, options.steps
        self.rounds, self.is_cuda = options.rounds, self.device.type == "cuda"

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.is_cuda else "no GPU"

    def wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def clock(self) -> float:
        """Return a wall clock that waits for the device."""
        self.wait()
        return time.perf_counter()

    def images(self) -> Batch:
        """Return bytes on the device."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch_size, 3, self.size, self.size)
        x = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        x = x.contiguous(memory_format=torch.channels_last)
        y = torch.randint(4, (self.batch_size,), generator=generator)
        return Batch(x, y, index=torch.arange(self.batch_size)).map(lambda tensor: tensor.to(self.device))

    def autocast(self, precision: str) -> contextlib.AbstractContextManager[Any]:
        if precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[precision])

    def peak_mb(self, work: Work) -> float:
        """Return the allocator's peak in MiB; NaN without an allocator."""
        if not self.is_cuda:
            return float("nan")
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        return torch.cuda.max_memory_allocated(self.device) / 2**20


# --- the two sides ----------------------------------------------------------------------------------------------------


def engine_of(card: Card, precision: str) -> Engine:
    """Return an engine that is about to take its first step."""
    job = planned(
        algorithm="erm",
        backbone=card.options.backbone,
        image_size=card.size,
        batch_size=card.batch_size,
        precision=precision,
        device=card.device.type,
    )
    folder = RunFolder(Path(tempfile.mkdtemp(dir=card.options.scratch)))
    engine = _make_engine(job, folder, Group(0, 1, card.device))
    engine.plan = engine.reader.plan_stage(engine.phases[-1], 0)
    engine.steps_per_epoch = 10**6
    engine.algorithm.share_gradients()
    engine.algorithm.train()
    return engine


def ours(card: Card, engine: Engine, batch: Batch) -> Work:
    """Return a function that takes steps of the engine, all that it does between two batches included."""
    stage = engine.phases[-1]

    def work() -> None:
        for number in range(card.steps):
            engine._update(stage, number, 10**6, batch)  # type: ignore[arg-type]

    return work


def by_hand(card: Card, network: nn.Module, precision: str, batch: Batch) -> Work:
    """Return a function that takes the same steps of plain training, as one writes them down."""
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(card.device.type, enabled=precision == "fp16" and card.is_cuda)
    network.train()

    def work() -> None:
        for _ in range(card.steps):
            x, y = batch.x.to(card.device, non_blocking=True), batch.y.to(card.device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with card.autocast(precision):
                loss = nn.functional.cross_entropy(network(as_input(x)), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return work


def compiled(engine: Engine) -> Engine:
    """Return its network as torch.compile has it."""
    network: Any = engine.algorithm.network
    network.backbone.compile()
    return engine
