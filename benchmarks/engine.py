"""Cost of the engine beside a bare PyTorch loop, step by step (methods.py: of each method beside ERM).

    PYTHONPATH=src python benchmarks/all.py engine

Both sides take the same steps of the same training in one process on one thread: after each step of the engine the
bare loop takes one, so that whatever else the machine does meets both. The bare loop holds what no training can leave
out: loader, augmentation, forward, backward, SGD step. The engine adds rate, tallies, the finite check, progress and
DDP's place. The same with a network that costs next to nothing shows what the engine takes by itself.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sides import Clock, Goal, Row, seconds

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.algorithms.requests import Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config
from biasbed.data.loading import TrainLoader
from biasbed.data.streams import BatchPlan
from biasbed.networks.network import as_input
from biasbed.tracking.folder import RunFolder
from biasbed.training import job
from biasbed.training.engine import Engine
from biasbed.training.resolve import resolve
from biasbed.training.train import _make_engine

TITLE = "Engine"
HOW = (
    "`benchmarks/engine.py`: ERM on the demo's images, one thread, processor time; a step of the engine and one of the "
    "bare loop in turn, ratios of neighbours. What is asked is the first row."
)
WARM = 3  # steps


def planned(**settings: Any) -> job.Job:
    """Return a training without loader processes, whose time a processor's clock would not see."""
    return job.plan(resolve({"evaluate_every": 10**6, "nproc": 1, "workers": 0, **settings}))


def bare_step(of: job.Job) -> Callable[[], None]:
    """Return a function that takes a step of the same ERM, written plainly."""
    settings: Config = of.config
    torch.manual_seed(settings.seed)
    data = TrainData(2200, len(of.suite.classes), 1)
    method = make_algorithm(settings, of.suite.task, Group(), Precision(), data)
    network: Any = method.network
    stream = of.suite.stream(StreamRequest(), of.training_data, settings.batch_size)
    batches = TrainLoader(BatchPlan({MAIN: stream}, settings.seed), 0, False).from_step(0, 10**6)
    rate = settings.optim.rate(settings.batch_size)
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=1e-4)
    network.train()

    def step() -> None:
        batch = next(batches)[2]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(as_input(batch.x)), batch.y)
        loss.backward()
        optimizer.step()

    return step


@dataclass
class Turns:
    """The seconds of the engine's steps and of those of another side, which has its turn after each."""

    bare: Callable[[], object]
    clock: Clock = time.process_time
    ours: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def within(self, engine: Engine) -> None:
        """Have the other side take its turn before the engine asks for the next batch."""
        batches = engine._batches

        def watched(total: int) -> Iterator[Any]:
            found, began = batches(total), self.clock()
            for one in found:
                yield one
                self.ours.append(self.clock() - began)
                self.others.append(seconds(self.bare, self.clock))
                began = self.clock()

        engine._batches = watched  # type: ignore[method-assign]
        engine._evaluate_and_record = lambda bar: None  # type: ignore[method-assign]

    @property
    def ratios(self) -> list[float]:
        return [ours / other for ours, other in zip(self.ours[WARM:], self.others[WARM:], strict=True)]


def side_by_side(steps: int, **settings: Any) -> Turns:
    """Return the engine's steps of ERM and bare ones."""
    of = planned(algorithm="erm", steps=steps + WARM, **settings)
    turns = Turns(bare_step(of))
    with tempfile.TemporaryDirectory() as folder:
        engine = _make_engine(of, RunFolder(Path(folder)), Group())
        turns.within(engine)
        with contextlib.redirect_stderr(io.StringIO()):
            engine._run_stage(Stage(MAIN, engine.algorithm.update))
    return turns


def rows(quick: bool = False, *, steps: int = 40) -> list[Row]:
    torch.set_num_threads(1)
    full = side_by_side(2 if quick else steps, **({"backbone": "resnet10", "batch_size": 4} if quick else {}))
    tiny = side_by_side(4 if quick else 5 * steps, backbone="mlp", batch_size=2)
    each = [
        1000 * (ours - bare_seconds) for ours, bare_seconds in zip(tiny.ours[WARM:], tiny.others[WARM:], strict=True)
    ]
    bare = 1000 * statistics.median(full.others[WARM:])
    share = [1 + extra / bare for extra in each]
    return [
        Row.of("engine / bare loop", full.ratios, Goal(1.02), f"a bare step takes {bare:.0f} ms"),
        Row.of("what the engine takes by itself in a step", each, None, "measured with an MLP and two images", "ms"),
        Row.of("1 + that / a bare step", share, Goal(1.02), "the same ratio, with less noise in it"),
    ]
