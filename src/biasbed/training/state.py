"""Where training stands, and one line about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from biasbed import measures, record
from biasbed.tracking.tracker import Record


@dataclass
class TrainingState:
    """Where training stands; with the live objects' own states, this is what a checkpoint holds."""

    stage: int = 0
    step: int = 0  # within the stage: the next one to take
    due: bool = False  # an evaluation comes before that step
    begun: bool = False  # the stage has
    ended: bool = False
    earlier: float = 0.0  # seconds that the stages before the last took
    tables: dict[str, Tensor] = field(default_factory=dict)  # by which the stage's images are drawn
    kept: dict[str, Any] = field(default_factory=dict)  # {"value", "weights"} of the best validation of the stage
    history: list[Record] = field(default_factory=list)
    best: dict[str, float] | None = None  # {"value", "number"} of the best evaluation by the monitor

    def position(self) -> dict[str, Any]:
        """What is neither results nor tensors."""
        return {name: getattr(self, name) for name in ("stage", "step", "due", "begun", "ended", "earlier")}

    def enter(self, stage: int) -> None:
        """Go on to a stage."""
        self.stage, self.step, self.due, self.begun, self.ended, self.tables = stage, 0, False, False, False, {}
        self.kept = {}

    def keep_better(self, value: float, module: nn.Module) -> None:
        """Keep a copy of a module's weights where this value is the best of the stage so far."""
        if not self.kept or measures.is_better(value, self.kept["value"], higher_is_better=True):
            weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
            self.kept = {"value": value, "weights": weights}


def under(name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics of a stage, or of a further way to decide, under its name in place of their phase."""
    return {f"{name}/{metric.partition('/')[2]}": value for metric, value in metrics.items()}


def summary(entry: Record, unit: str, headlines: Collection[str]) -> str:
    """One line per evaluation, or epoch of a stage before the last.

    unit: in which the last stage counts. headlines: the measures that are shown of every set.
    """
    metrics = entry["metrics"]
    if "stage" in entry:
        stage = entry["stage"]
        names = [name for name in metrics if name.split("/")[1] == "accuracy" and ":" not in name]
        found = {name.removeprefix(f"{stage}/accuracy").lstrip("/") or "training": metrics[name] for name in names}
        shown = [f"{name} {100 * value:.1f}" for name, value in found.items()]
        return f"{stage}, epoch {entry['step']}: loss {metrics[f'{stage}/loss']:.4g} | {' '.join(shown)}"
    found = {name.rsplit("/", 1)[1]: value for name, value in metrics.items() if _is_headline(name, headlines)}
    shown = [f"{name} {100 * value:.1f}" for name, value in found.items()]
    return f"{unit} {entry['step']}: loss {metrics['train/loss']:.4g} | {' '.join(shown)}"


def _is_headline(name: str, measured: Collection[str]) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.phase in ("val", "test") and parsed.measure in measured and not parsed.group
