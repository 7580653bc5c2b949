"""Training state: position, history and best evaluation of a training, and one printed line per evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from biasbed import measures, record
from biasbed.tracking.tracker import Record

POSITION = ("stage", "step", "due", "begun", "ended", "earlier")  # fields of the state that are plain values


@dataclass
class TrainingState:
    """Position and results of a training; a checkpoint holds them beside the states of the live objects."""

    stage: int = 0
    step: int = 0  # within the stage: the next one to take
    due: bool = False  # an evaluation comes before that step
    begun: bool = False  # True once the stage has begun
    ended: bool = False  # True once it has taken its last step
    earlier: float = 0.0  # seconds that the stages before the last took
    tables: dict[str, Tensor] = field(default_factory=dict)  # weights by which the stage's images are drawn
    kept: dict[str, Any] = field(default_factory=dict)  # {"value", "weights"} of the best validation of the stage
    history: list[Record] = field(default_factory=list)
    best: dict[str, float] | None = None  # {"value", "number"} of the best evaluation by the monitor

    def position(self) -> dict[str, Any]:
        """Return the fields that are plain values."""
        return {name: getattr(self, name) for name in POSITION}

    def begin_stage(self, stage: int) -> None:
        """Go on to the beginning of a stage."""
        self.stage, self.step = stage, 0
        self.due = self.begun = self.ended = False
        self.tables, self.kept = {}, {}

    def keep_better(self, value: float, module: nn.Module) -> None:
        """Keep a copy of a module's weights if the value is the best of the stage so far."""
        if not self.kept or measures.is_better(value, self.kept["value"], higher_is_better=True):
            weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
            self.kept = {"value": value, "weights": weights}


@contextlib.contextmanager
def replaced_weights(module: nn.Module, weights: Mapping[str, Any]) -> Iterator[None]:
    """Give a module other weights within the block."""
    current = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.load_state_dict(weights)
    try:
        yield
    finally:
        module.load_state_dict(current)


def with_phase(name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics with another phase: `test/loss/ink` becomes `<name>/loss/ink`. name: a stage, or a predictor."""
    return {f"{name}/{metric.partition('/')[2]}": value for metric, value in metrics.items()}


def describe_record(result: Record, unit: str, headlines: Collection[str]) -> str:
    """Return one line about an evaluation, or about an epoch of a stage before the last.

    unit: in which the last stage counts. headlines: the measures to show for every set.
    """
    metrics, values = result["metrics"], {}
    if "stage" in result:
        stage = result["stage"]
        for name, value in metrics.items():
            if name.split("/")[1] == "accuracy" and ":" not in name:
                values[name.removeprefix(f"{stage}/accuracy").lstrip("/") or "training"] = value
        start = f"{stage}, epoch {result['step']}: loss {metrics[f'{stage}/loss']:.4g}"
    else:
        for name, value in metrics.items():
            if _is_headline(name, headlines):
                values[name.rsplit("/", 1)[1]] = value
        start = f"{unit} {result['step']}: loss {metrics['train/loss']:.4g}"
    shown = [f"{name} {100 * value:.1f}" for name, value in values.items()]
    return f"{start} | {' '.join(shown)}"


def _is_headline(name: str, headlines: Collection[str]) -> bool:
    metric = record.parse_metric(name)
    return metric is not None and metric.phase in ("val", "test") and metric.measure in headlines and not metric.group
