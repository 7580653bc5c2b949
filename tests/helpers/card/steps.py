"""Steps of methods on the simulated card, as the engine takes them: `python -m helpers.card.steps <names> <precision>`.

Prints a JSON line per method: what a step costs, where the host waits, and whether training resumes bit-equal.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Progress
from biasbed.algorithms.requests import Pass, Stage
from biasbed.batch import Batch
from biasbed.compute.device import settle_arithmetic
from biasbed.compute.distributed import Group
from biasbed.errors import Failure
from biasbed.networks.network import as_input
from biasbed.training.reading import prepare
from biasbed.training.tally import Tally
from helpers.card.simulation import Card, switch_on
from helpers.making import BUSY, CLASSES, EXAMPLES, batch_for, make

CUDA = torch.device("cuda:0")
# Past the stretch in which a method trains without its own term.
WARM: Mapping[str, Mapping[str, Any]] = {
    "disent": {"warmup": 0.0},
    "hex": {"warmup": 0.0},
    "biasensemble": {"models": 3},
}
FIRST, MEASURED, RESUMED = 3, 3, 2  # steps


def started(name: str, precision: str, seed: int = 0) -> Algorithm:
    hparams = {**BUSY.get(name, {}), **WARM.get(name, {})}
    return make(name, hparams, precision=precision, seed=seed, group=Group(0, 1, CUDA))


def loaded(algorithm: Algorithm) -> Batch:
    """A batch as a loader hands it over: bytes in page-locked memory."""

    def as_bytes(batch: Batch) -> Batch:
        x = (batch.x.clamp(0, 1) * 255).to(torch.uint8)
        return replace(batch, x=x, extra={name: as_bytes(other) for name, other in batch.extra.items()})

    return as_bytes(batch_for(algorithm)).pin_memory()


def sent(algorithm: Algorithm, batch: Batch) -> Batch:
    return prepare(batch, algorithm.columns(algorithm.hparams), CUDA)


def take_stages(algorithm: Algorithm, batch: Batch) -> Stage:
    """Take a few steps of each stage but the last that trains the network; return that one.

    A pass sees the same images again and again, as many as there are training images. A method may find nothing among
    so few: its Failure is no fault of the card's.
    """
    phases = algorithm.stages()
    stages = [phase for phase in phases if isinstance(phase, Stage)]
    last = next(stage for stage in reversed(stages) if stage.steps is None)
    for phase in phases[: phases.index(last)]:
        if isinstance(phase, Pass):
            with contextlib.suppress(Failure):
                phase.keep(seen(algorithm, phase, batch))
            continue
        phase.begin()
        for number in range(2):
            algorithm.progress = Progress(phase.name, step=number, steps_per_epoch=2, total=2)
            algorithm.set_rate(1.0)
            phase.update(sent(algorithm, batch))
            algorithm.take_correct()
            algorithm.take_notes()
        phase.end()
    last.begin()
    return last


def seen(algorithm: Algorithm, looking: Pass, batch: Batch) -> dict[str, Tensor]:
    """Return what a pass sees, as `training/passes.py` hands it over."""
    algorithm.eval()
    with torch.no_grad():
        found = {name: value.cpu() for name, value in looking.look(sent(algorithm, batch)).items()}
    algorithm.train()
    return {name: torch.cat([value] * EXAMPLES)[:EXAMPLES] for name, value in found.items()}


def step(algorithm: Algorithm, stage: Stage, batch: Batch, number: int, tally: Tally) -> None:
    """As Engine._update."""
    epoch, within = divmod(number, 3)
    algorithm.progress = Progress(stage.name, epoch, 8, within, 3, 1.0, 24)
    algorithm.set_rate(1.0)
    moved = sent(algorithm, batch)
    tally.add(stage.update(moved), len(moved), algorithm.take_correct(), algorithm.take_notes())


def decided(algorithm: Algorithm, batch: Batch) -> None:
    """Decide on images, as the evaluator does."""
    algorithm.eval()
    x = as_input(
        (batch.x if batch.x.ndim == 4 else batch.x[:, 0]).contiguous().pin_memory().to(CUDA, non_blocking=True)
    )
    with torch.inference_mode(), algorithm.setup.precision.autocast():
        logits = algorithm.predict(x)
        for predict in algorithm.predictors().values():
            predict(x)
    assert logits.is_cuda and logits.shape == (len(x), CLASSES)
    algorithm.train()


def continued(name: str, precision: str, algorithm: Algorithm) -> Algorithm:
    """Return another algorithm that goes on from this one's checkpoint, as Engine.restore does."""
    parts = (algorithm.marks(), algorithm.state_dict(), algorithm.optimizer_states(), algorithm.group.random_states())
    file = io.BytesIO()
    torch.save(parts, file)
    file.seek(0)
    marks, weights, optimizers, random = torch.load(file, map_location="cpu", weights_only=True)
    other = started(name, precision, seed=9)
    other.load_marks(marks)
    other.load_state_dict(weights)
    other.load_optimizer_states(optimizers)
    other.group.load_random_states([{key: state.cpu() for key, state in own.items()} for own in random])
    return other


def visit(card: Card, name: str, precision: str) -> dict[str, Any]:
    """Return what a method's steps cost. Raises what a real card would."""
    card.reset()
    algorithm = started(name, precision)
    making = card.costs()["waits"]
    batch = loaded(algorithm)
    stage, tally = take_stages(algorithm, batch), Tally()
    for number in range(FIRST):
        step(algorithm, stage, batch, number, tally)
    card.reset()
    for number in range(FIRST, FIRST + MEASURED):
        step(algorithm, stage, batch, number, tally)
    costs = {cost: total / MEASURED for cost, total in card.costs().items()}
    places = dict(card.places)
    card.reset()
    decided(algorithm, batch)
    deciding = card.costs()["waits"]
    other, begun = continued(name, precision, algorithm), FIRST + MEASURED
    position = [phase.name for phase in other.stages()].index(stage.name)
    resumed = other.stages()[position]
    assert isinstance(resumed, Stage)
    for number in range(begun, begun + RESUMED):
        step(algorithm, stage, batch, number, tally)
        step(other, resumed, batch, number, Tally())
    mine, theirs = algorithm.state_dict(), other.state_dict()
    equal = mine.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in mine.items())
    finite = not bool(tally.not_finite)
    return {**costs, "making": making, "deciding": deciding, "places": places, "resumed": equal, "finite": finite}


def main() -> None:
    names, precision = sys.argv[1], sys.argv[2]
    card = switch_on()
    settle_arithmetic(CUDA)
    for name in algorithms.names() if names == "all" else names.split(","):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                print(json.dumps({"method": name, **visit(card, name, precision)}), flush=True)
            except (RuntimeError, NotImplementedError, AssertionError) as error:
                print(json.dumps({"method": name, "fault": f"{type(error).__name__}: {error}"[:500]}), flush=True)


if __name__ == "__main__":
    main()
