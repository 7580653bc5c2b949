"""Correctness on a GPU: every method in bf16 beside fp32, the tests that need one, steps of the configured network."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import torch
from card import Card, Pieces, engine_of
from results import ROOT
from sides import Goal, Row

from biasbed import algorithms
from biasbed.compute.distributed import Group

PRECISION = "bf16"


def every_method(card: Card) -> Pieces:
    """One for each method."""
    wanted = card.options.methods
    for name in algorithms.names():
        if wanted == "all" or name in wanted.split(","):
            yield name, functools.partial(compared, name, card.device)


def compared(name: str, device: torch.device) -> list[Row]:
    """Raises whatever the card refuses."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    from helpers.steps import compare

    found = compare(name, PRECISION, device)
    resumed = "bit-equal" if found.resumed else "**NOT bit-equal**"
    return [
        Row.of(f"{name}: {PRECISION} losses' distance from fp32", found.distances, Goal(0.1), f"resumed {resumed}"),
        Row.of(f"{name}: not resumed bit-equal", [float(not found.resumed)], Goal(0)),
        Row.of(f"{name}: waits of a step", [found.waits], Goal(1 if name == "hex" else 0), found.where),
    ]


def tests(card: Card) -> Pieces:
    if card.options.tests != "none":
        yield card.options.tests, functools.partial(run_tests, card.options.tests)


def run_tests(which: str) -> list[Row]:
    """Run the tests that need a GPU, or the whole suite."""
    path, marked = ("tests/compute/test_gpu.py", "gpu") if which == "gpu" else ("tests", "not slow")
    words = [path, "-m", marked, "-q", "-k", "not every_method_in_bf16"]  # those have rows of their own
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing was printed"]
    print("\n".join(lines[-20:]))
    return [Row.of(f"tests marked `{marked}`: exit code", [done.returncode], Goal(0), lines[-1].strip("= "))]


def of_steps(card: Card) -> Pieces:
    """Losses of the same few steps: narrow arithmetic beside fp32, and through NCCL (gloo on a CPU) beside without."""
    for precision in card.options.precisions.split(","):
        yield precision, functools.partial(narrow_losses, card, precision)
    yield "nccl" if card.is_cuda else "gloo", functools.partial(joined_losses, card)


def narrow_losses(card: Card, precision: str) -> list[Row]:
    apart = distances(losses(card, precision), losses(card, "fp32"))
    return [Row.of(f"{precision}: losses' distance from fp32", apart, Goal(0.05), "relative, of each step")]


def joined_losses(card: Card) -> list[Row]:
    with joined(card) as group:
        apart = distances(losses(card, "fp32", group), losses(card, "fp32"))
    backend = "nccl" if card.is_cuda else "gloo"
    return [Row.of(f"{backend} on one device: losses' distance", apart, Goal(1e-3), "DDP around the method")]


def distances(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [abs(one / other - 1) for one, other in zip(some, others, strict=True)]


def losses(card: Card, precision: str, group: Group | None = None) -> list[float]:
    engine, batch = engine_of(card, precision, group=group), card.images()
    if group is not None:
        engine.algorithm._runtime.ddp = group.wrap(engine.algorithm, find_unused_parameters=False)
    found: list[float] = []
    while len(found) < 5:
        scale = engine.precision.state_dict()["scale"]
        engine._update(engine.phases[-1], len(found), 10**6, batch)  # type: ignore[arg-type]
        metrics = engine.step_metrics.metrics(Group(0, 1, card.device), 1.0)
        engine.step_metrics = type(engine.step_metrics)()
        if engine.precision.state_dict()["scale"] >= scale:  # else fp16's step was skipped, and comes again
            found.append(next(value for name, value in metrics.items() if name.startswith("train/loss")))
    return found


@contextlib.contextmanager
def joined(card: Card) -> Iterator[Group]:
    """A group of one process that is joined all the same."""
    from torch import distributed as dist

    with tempfile.NamedTemporaryFile() as file:
        store = dist.FileStore(file.name, 1)  # type: ignore[attr-defined]
        dist.init_process_group("cpu:gloo,cuda:nccl" if card.is_cuda else "gloo", store=store, rank=0, world_size=1)
        try:
            yield Group(0, 1, card.device)
        finally:
            dist.destroy_process_group()
