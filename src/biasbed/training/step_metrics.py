"""Sums of what updates return, between two evaluations."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from biasbed.compute.distributed import Group
from biasbed.errors import Failure

NONE: Mapping[str, Tensor] = {}


class StepMetrics:
    """Sums of what updates return, on the device: reading them costs one wait per evaluation, not one per step."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}  # images behind each sum: a method may leave a term out of some steps
        self.images = 0
        self.not_finite: Tensor | None = None

    def add(
        self,
        terms: Mapping[str, Tensor],
        images: int,
        correct: Tensor | None = None,
        notes: Mapping[str, Tensor] = NONE,
    ) -> None:
        """What a step returned, on how many images, how many decisions were right, and what is no part of the loss."""
        values = {name: value.detach().double() for name, value in terms.items()}
        total = torch.stack(list(values.values())).sum()
        noted = {name: value.double() for name, value in notes.items()}
        sums = {name: value * images for name, value in {**noted, **values, "loss": total}.items()}
        if correct is not None:
            sums["accuracy"] = correct.double()
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + images
        bad = ~total.isfinite()
        self.not_finite = bad if self.not_finite is None else self.not_finite | bad
        self.images += images

    def means(self, group: Group) -> dict[str, float]:
        """Each term's mean over the images of all processes that it was taken on."""
        names = sorted(self.sums)
        counts = torch.tensor([self.counts[name] for name in names], dtype=torch.float64, device=group.device)
        sums, counts = group.sum(torch.stack([torch.stack([self.sums[name] for name in names]), counts])).tolist()
        return {name: total / count for name, total, count in zip(names, sums, counts, strict=True)}

    def metrics(self, group: Group, seconds: float) -> dict[str, float]:
        """The means by their metrics' names, how long they took, and the memory that it took."""
        images = group.sum(torch.tensor(float(self.images), device=group.device)).item()
        found = {f"train/{name}": value for name, value in self.means(group).items()}
        found["time/epoch_seconds"] = seconds
        found["time/images_per_second"] = images / max(seconds, 1e-9)
        found["memory/peak_mb"] = _peak_mb(group.device)
        return found

    def failure(self, step: int) -> Failure:
        """What is said where a loss was not finite before a step (from 1)."""
        terms = [name for name, value in self.sums.items() if not value.isfinite()]
        named = ", ".join(name for name in terms if name not in ("loss", "accuracy"))
        return Failure(
            f"the loss is not finite ({named or 'on another process, or its gradient'}) before step {step}; the last "
            "good checkpoint is kept. Lower optim.lr, add optim.warmup, or use precision=fp32"
        )

    def state_dict(self) -> dict[str, Any]:
        sums = {name: value.cpu() for name, value in self.sums.items()}
        return {"sums": sums, "counts": self.counts, "images": self.images}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.counts, self.images = dict(state["counts"]), state["images"]


def _peak_mb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
