"""One mini-batch, flat, as every algorithm sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import default_collate

MAIN = "main"  # the stream that is the batch itself, others are its `extra`; and the name of the last stage


@dataclass
class Batch:
    """N images and their columns. A column is None unless the data have it *and* the algorithm declares to use it.

    parts: number of equal parts, one after the other, that the batch consists of. Each is of one domain, in the order
    of the domains' numbers. 1 if domains are mixed, or if there are none.
    """

    x: Tensor  # [N,C,H,W] in [0,1], not normalised; [N,V,C,H,W] for an algorithm that declares `views = V`
    y: Tensor = None  # type: ignore[assignment]  # [N] class indices, or multi-hot [N,K]; None in an unlabelled stream
    index: Tensor | None = None  # [N] permanent number of each example in the training data
    domain: Tensor | None = None  # [N]
    bias: Tensor | None = None  # [N]
    extra: Mapping[str, Batch] = field(default_factory=dict)  # batches of the step's other streams, by stream name
    parts: int = 1

    def __len__(self) -> int:
        return len(self.x)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with `function` applied to every column, also in the extra streams."""
        columns: dict[str, Any] = {name: function(value) for name, value in self._columns().items()}
        return replace(self, **columns, extra={name: batch.map(function) for name, batch in self.extra.items()})

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory, from which copies to a GPU need not wait. DataLoader calls this."""
        return self.map(Tensor.pin_memory)

    def select(self, rows: Tensor | slice) -> Batch:
        """Return the examples of some rows (a mask, indices or a slice), without the extra streams."""
        columns: dict[str, Any] = {name: value[rows] for name, value in self._columns().items()}
        return replace(self, **columns, extra={}, parts=1)

    def by_domain(self) -> dict[int, Batch]:
        """Return a batch for each domain that is present, keyed by the domain's number, in order.

        A batch of equal parts is divided without waiting for the device: training domains are numbered from 0.
        """
        if self.domain is None:
            raise ValueError("this batch has no domain column: declare uses = {'domain'} and train on several domains")
        if self.parts > 1:
            size = len(self) // self.parts
            return {number: self.select(slice(number * size, (number + 1) * size)) for number in range(self.parts)}
        return {int(d): self.select(self.domain == d) for d in torch.unique(self.domain).tolist()}

    def split(self, parts: int) -> list[Batch]:
        """Split the batch, and its extra streams, into parts whose sizes differ by at most one.

        A batch of equal parts by domain is split within each domain, so that every part has all domains.
        """
        chunks = {name: self._chunks(value, parts) for name, value in self._columns().items()}
        extra = {name: batch.split(parts) for name, batch in self.extra.items()}
        split = []
        for i in range(parts):
            columns: dict[str, Any] = {name: chunk[i] for name, chunk in chunks.items()}
            split.append(replace(self, **columns, extra={name: batches[i] for name, batches in extra.items()}))
        return split

    def _chunks(self, column: Tensor, parts: int) -> list[Tensor]:
        if self.parts == 1:
            return list(torch.tensor_split(column, parts))
        by_domain = column.unflatten(0, (self.parts, -1))
        return [chunk.flatten(0, 1) for chunk in torch.tensor_split(by_domain, parts, dim=1)]

    def _columns(self) -> dict[str, Tensor]:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("extra", "parts")}
        return {name: value for name, value in values.items() if value is not None}


def stacked(examples: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape along a new first axis. Images [C,H,W] keep their memory format (channels last).

    Uses torch's `default_collate`, which makes a loader worker's batch in shared memory at once. A batch made elsewhere
    would be copied there, and the worker's heap would grow from batch to batch.
    """
    batch: Tensor
    if examples[0].ndim == 3 and examples[0].stride(0) == 1:
        batch = default_collate([image.permute(1, 2, 0) for image in examples])
        return batch.permute(0, 3, 1, 2)
    batch = default_collate(list(examples))
    return batch


def at_least_fp32(x: Tensor) -> Tensor:
    """Return x in fp32, or in float64 if it is float64: for sums, moments and losses under autocast."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def to_unit_length(features: Tensor) -> Tensor:
    """Return features [N,D] of length 1, in fp32 or more.

    Features that are all zero stay so and get no gradient: they have no direction, and 1 / eps times their gradient
    would move all weights. An image of exactly the mean colour has such features in a fresh ConvNeXt.
    """
    h = at_least_fp32(features)
    return functional.normalize(torch.where((h != 0).any(1, keepdim=True), h, h.detach()), dim=1)
