"""What the engine costs beside a bare PyTorch loop, side by side (methods.py: what each method costs beside ERM).

    PYTHONPATH=src python benchmarks/engine.py [--rounds 7]

Both sides take the same steps of the same training in turn, in one process; the median of the rounds' ratios is
printed with its range. The bare loop holds what no training can leave out: loader, augmentation, forward, backward,
SGD step. The engine adds rate, tallies, the finite check, progress and DDP's place.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.algorithms.requests import Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.loading import TrainLoader
from biasbed.data.streams import BatchPlan
from biasbed.tracking.folder import RunFolder
from biasbed.training import job
from biasbed.training.resolve import resolve
from biasbed.training.train import _engine

STEPS = 24


def engine_side(algorithm: str, folder: Path) -> Callable[[], None]:
    """Steps of our engine, without evaluation and checkpoints."""
    planned = job.plan(resolve({"algorithm": algorithm, "steps": STEPS, "evaluate_every": 10**6, "nproc": 1}))
    engine = _engine(planned, RunFolder(folder), Group())
    method = engine.algorithm
    engine._boundary = lambda bar: None  # type: ignore[method-assign]

    def run() -> None:
        engine.state.step = 0
        with contextlib.redirect_stderr(io.StringIO()):
            engine._run_stage(Stage(MAIN, method.update))

    return run


def bare_side() -> Callable[[], None]:
    """The same steps of ERM, written plainly."""
    planned = job.plan(resolve({"steps": STEPS, "nproc": 1}))
    settings: Any = planned.config
    torch.manual_seed(settings.seed)
    data = TrainData(2200, len(planned.suite.classes), 1)
    method = make_algorithm(settings, planned.suite.task, Group(), Precision(), data)
    network: Any = method.network
    stream = planned.suite.stream(StreamRequest(), planned.training_data, settings.batch_size)
    loader = TrainLoader(BatchPlan({MAIN: stream}, settings.seed), 0, False)
    rate = settings.optim.rate(settings.batch_size)
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=1e-4)
    network.train()

    def run() -> None:
        for _, _, batch, _ in loader.from_step(0, STEPS):
            optimizer.zero_grad()
            x = (batch.x.float() / 255).contiguous(memory_format=torch.channels_last)
            loss = torch.nn.functional.cross_entropy(network(x), batch.y)
            loss.backward()
            optimizer.step()

    return run


def seconds(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def compare(name: str, ours: Callable[[], None], other: Callable[[], None], rounds: int) -> None:
    """Print the median and range of the ratio of CPU times; the first round warms up."""
    ratios = []
    for number in range(rounds + 1):
        sides = (ours, other) if number % 2 else (other, ours)
        times = {side: seconds(side) for side in sides}
        ratios.append(times[ours] / times[other])
    ratios = sorted(ratios[1:])
    print(f"{name:24} {statistics.median(ratios):.3f}  ({ratios[0]:.3f} to {ratios[-1]:.3f} in {rounds} rounds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        erm = engine_side("erm", Path(folder))
        compare("engine / bare loop", erm, bare_side(), rounds)


if __name__ == "__main__":
    main()
