"""Step metrics: means of losses, notes and accuracy of training steps between two evaluations."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from biasbed import record
from biasbed.compute.distributed import Group
from biasbed.errors import Failure

NO_NOTES: Mapping[str, Tensor] = {}


class StepMetrics:
    """Sums over steps, on the device: reading them costs one wait per evaluation, not one per step."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}  # images behind each sum: a method may leave a term out of some steps
        self.images = 0
        self.not_finite: Tensor | None = None  # bool: some step's loss was NaN or infinite; None before any step

    def add(
        self,
        terms: Mapping[str, Tensor],
        images: int,
        correct: Tensor | None = None,
        notes: Mapping[str, Tensor] = NO_NOTES,
    ) -> None:
        """Add a step's terms of the loss, number of images, number of right decisions, and notes beside the loss."""
        values = {name: value.detach().double() for name, value in terms.items()}
        total = torch.stack(list(values.values())).sum()
        means = {**{name: value.double() for name, value in notes.items()}, **values, "loss": total}
        sums = {name: value * images for name, value in means.items()}
        if correct is not None:
            sums["accuracy"] = correct.double()
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + images
        is_bad = ~total.isfinite()
        self.not_finite = is_bad if self.not_finite is None else self.not_finite | is_bad
        self.images += images

    def means(self, group: Group) -> dict[str, float]:
        """Return each term's mean over the images of all processes that contributed to it."""
        names = sorted(self.sums)
        counts = torch.tensor([self.counts[name] for name in names], dtype=torch.float64, device=group.device)
        local = torch.stack([torch.stack([self.sums[name] for name in names]), counts])
        sums, totals = group.sum(local).tolist()
        means = {}
        for name, value, count in zip(names, sums, totals, strict=True):
            means[name] = value / count
        return means

    def metrics(self, group: Group, seconds: float) -> dict[str, float]:
        """Return the means as `train/<name>`, with speed and memory. seconds: duration of the steps."""
        images = group.sum(torch.tensor(float(self.images), device=group.device)).item()
        metrics = {f"train/{name}": value for name, value in self.means(group).items()}
        metrics["time/epoch_seconds"] = seconds
        metrics["time/images_per_second"] = images / max(seconds, 1e-9)
        metrics["memory/peak_mb"] = _peak_mb(group.device)
        return metrics

    def failure(self, step: int) -> Failure:
        """Return the Failure for a loss that was NaN or infinite before a step, counted from 1."""
        names = [name for name, value in self.sums.items() if not value.isfinite()]
        terms = ", ".join(name for name in names if name not in ("loss", "accuracy"))
        return Failure(
            f"the loss is not finite ({terms or 'on another process, or its gradient'}) before step {step}; the last "
            "good checkpoint is kept. Lower optim.lr, add optim.warmup, or use precision=fp32"
        )

    def state_dict(self) -> dict[str, Any]:
        sums = {name: value.cpu() for name, value in self.sums.items()}
        return {"sums": sums, "counts": self.counts, "images": self.images}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.counts, self.images = dict(state["counts"]), state["images"]


def warn_of_nan(metrics: Mapping[str, float], warned: set[str]) -> None:
    """Print a warning about each metric that is NaN or infinite, as a method's notes may be, and add it to `warned`."""
    for name, value in metrics.items():
        if not record.is_finite(value) and name not in warned:
            warned.add(name)
            print(f"warning: {name} is {value:g}: it is not logged", file=sys.stderr)


def _peak_mb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
