"""Steps of methods on a device, as the engine takes them: losses, places of waits, and resume."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biasbed.algorithms.base import Algorithm, Progress
from biasbed.algorithms.requests import Pass, Stage
from biasbed.batch import Batch
from biasbed.compute.device import set_arithmetic
from biasbed.compute.distributed import Group
from biasbed.errors import Failure
from biasbed.networks.network import as_input
from biasbed.training.reading import prepare
from biasbed.training.step_metrics import StepMetrics
from helpers.making import BUSY, CLASSES, EXAMPLES, TOWERS, batch_for, make

# Past the stretch in which a method trains without its own term.
WARM: Mapping[str, Mapping[str, Any]] = {name: {"warmup": 0.0} for name in ("disent", "hex", "biasensemble")}
FIRST, MEASURED, RESUMED = 3, 3, 2  # steps


@dataclass(frozen=True)
class Trial:
    """A small training of a method on a device."""

    name: str
    precision: str
    device: torch.device

    def group(self) -> Group:
        return Group(0, 1, self.device)

    def start(self, seed: int = 0) -> Algorithm:
        hparams = {**BUSY.get(self.name, {}), **WARM.get(self.name, {})}
        return make(self.name, hparams, precision=self.precision, seed=seed, group=self.group())

    def load(self, algorithm: Algorithm) -> Batch:
        """Return a batch as a loader hands it over: bytes, for a card in page-locked memory."""

        def as_bytes(batch: Batch) -> Batch:
            x = (batch.x.clamp(0, 1) * 255).to(torch.uint8)
            return replace(batch, x=x, extra={name: as_bytes(extra_batch) for name, extra_batch in batch.extra.items()})

        batch = as_bytes(batch_for(algorithm))
        return batch.pin_memory() if self.device.type == "cuda" else batch

    def send(self, algorithm: Algorithm, batch: Batch) -> Batch:
        return prepare(batch, algorithm.columns(algorithm.hparams), self.device)

    def take_stages(self, algorithm: Algorithm, batch: Batch) -> Stage:
        """Take a few steps of each stage before the last that trains the network; return that one.

        A method that only fits a layer in a pass has no such stage: its last one is returned.
        A pass sees the same images again and again, as many as there are training images. A method may find nothing
        among so few: its Failure is no fault of the card's.
        """
        phases = algorithm.stages()
        stages = [phase for phase in phases if isinstance(phase, Stage)]
        last = next((stage for stage in reversed(stages) if stage.steps is None), stages[-1])
        for phase in phases[: phases.index(last)]:
            if isinstance(phase, Pass):
                self.see(algorithm, phase, batch)
                continue
            phase.begin()
            for number in range(2):
                algorithm.progress = Progress(phase.name, step=number, steps_per_epoch=2, total=2)
                algorithm.set_rate(1.0)
                phase.update(self.send(algorithm, batch))
                algorithm.take_correct()
                algorithm.take_notes()
            phase.end()
        if self.name not in TOWERS:  # `make` has begun their only stage
            last.begin()
        return last

    def see(self, algorithm: Algorithm, looking: Pass, batch: Batch) -> None:
        with contextlib.suppress(Failure):
            looking.keep(self.look(algorithm, looking, batch))

    def look(self, algorithm: Algorithm, looking: Pass, batch: Batch) -> dict[str, Tensor]:
        """Return what a pass sees, as `training/per_example.py` hands it over."""
        algorithm.eval()
        with torch.no_grad(), algorithm.setup.precision.autocast():
            values = {name: value.cpu() for name, value in looking.look(self.send(algorithm, batch)).items()}
        algorithm.train()
        return {name: torch.cat([value] * EXAMPLES)[:EXAMPLES] for name, value in values.items()}

    def step(self, algorithm: Algorithm, stage: Stage, batch: Batch, number: int, step_metrics: StepMetrics) -> Tensor:
        """Take a step as Engine._update does; return its loss."""
        epoch, within = divmod(number, 3)
        algorithm.progress = Progress(stage.name, epoch, 8, within, 3, 1.0, 24)
        algorithm.set_rate(1.0)
        moved = self.send(algorithm, batch)
        terms = stage.update(moved)
        step_metrics.add(terms, len(moved), algorithm.take_correct(), algorithm.take_notes())
        return torch.stack([term.detach().float() for term in terms.values()]).sum()

    def decide(self, algorithm: Algorithm, batch: Batch) -> None:
        """Decide on images, as the evaluator does."""
        algorithm.eval()
        images = batch.x if batch.x.ndim == 4 else batch.x[:, 0]
        x = as_input(algorithm.group.send(images))
        with torch.inference_mode(), algorithm.setup.precision.autocast():
            logits = algorithm.predict(x)
            for predict in algorithm.predictors().values():
                predict(x)
        assert logits.device == self.device
        assert logits.shape == (len(x), CLASSES)
        algorithm.train()

    def resumes(self, algorithm: Algorithm, stage: Stage, batch: Batch, begun: int) -> bool:
        """Return True if another algorithm that goes on from this one's checkpoint comes to the same weights."""
        continued = self._continued(algorithm)
        position = [phase.name for phase in continued.stages()].index(stage.name)
        resumed = continued.stages()[position]
        assert isinstance(resumed, Stage)
        for number in range(begun, begun + RESUMED):
            self.step(algorithm, stage, batch, number, StepMetrics())
            self.step(continued, resumed, batch, number, StepMetrics())
        mine, theirs = algorithm.state_dict(), continued.state_dict()
        return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in mine.items())

    def _continued(self, algorithm: Algorithm) -> Algorithm:
        """Return another algorithm from this one's checkpoint, as Engine.restore does."""
        random = algorithm.group.random_states()
        file = io.BytesIO()
        torch.save((algorithm.marks(), algorithm.state_dict(), algorithm.optimizer_states(), random), file)
        file.seek(0)
        marks, weights, optimizers, random = torch.load(file, map_location="cpu", weights_only=True)
        continued = self.start(seed=9)
        continued.load_marks(marks)
        continued.load_state_dict(weights)
        continued.load_optimizer_states(optimizers)
        continued.group.load_random_states(random)
        return continued


class Compared(NamedTuple):
    """Steps of a method on a card in one precision beside those in fp32."""

    distances: list[float]  # of the losses of the first steps, relative to fp32's
    waits: float  # of a step, as PyTorch tells them
    where: str  # the first of them
    resumed: bool


def compare(name: str, precision: str, device: torch.device) -> Compared:
    """Train a method a few steps in both precisions, from the same weights and with the same draws."""
    set_arithmetic(device)
    plain, narrow = (losses(Trial(name, kind, device)) for kind in ("fp32", precision))
    distances = [abs(narrow_loss / plain_loss - 1) for narrow_loss, plain_loss in zip(narrow, plain, strict=True)]
    trial = Trial(name, precision, device)
    algorithm = trial.start()
    batch = trial.load(algorithm)
    stage = trial.take_stages(algorithm, batch)
    for number in range(FIRST):
        trial.step(algorithm, stage, batch, number, StepMetrics())
    waits = told_waits(trial, algorithm, stage, batch)
    trial.decide(algorithm, batch)
    resumed = trial.resumes(algorithm, stage, batch, FIRST + MEASURED)
    return Compared(distances, len(waits) / MEASURED, next(iter(waits), ""), resumed)


def losses(trial: Trial) -> list[float]:
    algorithm = trial.start()
    batch = trial.load(algorithm)
    stage = trial.take_stages(algorithm, batch)
    return [float(trial.step(algorithm, stage, batch, number, StepMetrics())) for number in range(FIRST)]


def told_waits(trial: Trial, algorithm: Algorithm, stage: Stage, batch: Batch) -> list[str]:
    """Take steps; return the places where PyTorch says that the host waits for the card."""
    if trial.device.type != "cuda":
        return []
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in range(FIRST, FIRST + MEASURED):
                trial.step(algorithm, stage, batch, number, StepMetrics())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]
    return [f"{warning.filename.rpartition('/')[2]}:{warning.lineno}" for warning in waits]
