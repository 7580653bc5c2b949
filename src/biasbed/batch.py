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
    """Images and the columns that go with them; N examples.

    `x` is [N,C,H,W] RGB in [0,1] (networks normalise it themselves), or [N,V,C,H,W] for an algorithm that declares
    `views = V`. `y` is [N] class indices, or multi-hot [N,K]; None in a stream without labels. `index` [N] identifies
    an example of the training data for good. `domain` and `bias` [N] are None unless the data have them *and* the
    algorithm declares to use them. `extra` holds the batches that other streams contribute to the same step, by stream
    name. `parts`: of how many equal parts it consists, one after the other, each of one domain in the order of the
    domains' numbers; 1 where domains are mixed, or there are none.
    """

    x: Tensor
    y: Tensor = None  # type: ignore[assignment]  # which few methods have to ask for
    index: Tensor | None = None
    domain: Tensor | None = None
    bias: Tensor | None = None
    extra: Mapping[str, Batch] = field(default_factory=dict)
    parts: int = 1

    def __len__(self) -> int:
        return len(self.x)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """`function` applied to every column, extra streams included."""
        columns: dict[str, Any] = {name: function(value) for name, value in self._columns().items()}
        return replace(self, **columns, extra={name: batch.map(function) for name, batch in self.extra.items()})

    def pin_memory(self) -> Batch:
        """In page-locked memory, from which copies to a GPU need not wait; DataLoader calls this."""
        return self.map(Tensor.pin_memory)

    def select(self, rows: Tensor | slice) -> Batch:
        """The given examples of the main stream (a mask, indices or a slice); extra streams are left out."""
        columns: dict[str, Any] = {name: value[rows] for name, value in self._columns().items()}
        return replace(self, **columns, extra={}, parts=1)

    def by_domain(self) -> dict[int, Batch]:
        """One batch per domain present, in the order of the domains' numbers.

        Of equal parts without asking the device; they are numbered from 0, as domains are that train.
        """
        if self.domain is None:
            raise ValueError("this batch has no domain column: declare uses = {'domain'} and train on several domains")
        if self.parts > 1:
            size = len(self) // self.parts
            return {number: self.select(slice(number * size, (number + 1) * size)) for number in range(self.parts)}
        return {int(d): self.select(self.domain == d) for d in torch.unique(self.domain).tolist()}

    def split(self, parts: int) -> list[Batch]:
        """Parts whose sizes differ by at most one: consecutive ones, or of every domain's; extra streams likewise."""
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
        of_domains = column.unflatten(0, (self.parts, -1))
        return [chunk.flatten(0, 1) for chunk in torch.tensor_split(of_domains, parts, dim=1)]

    def _columns(self) -> dict[str, Tensor]:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("extra", "parts")}
        return {name: value for name, value in values.items() if value is not None}


def stacked(examples: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape along a new first axis; images [3,H,W] keep the order of memory that they come in.

    Decoders put channels last. torch's own function lays a loader worker's batch straight into shared memory; made
    anywhere else, it would be copied there, and the worker's heap would grow from batch to batch.
    """
    if examples[0].ndim == 3 and examples[0].stride(0) == 1:
        made: Tensor = default_collate([image.permute(1, 2, 0) for image in examples])
        return made.permute(0, 3, 1, 2)
    made = default_collate(list(examples))
    return made


def at_least_fp32(x: Tensor) -> Tensor:
    """x, widened to fp32 where it is narrower: for sums, moments and losses under autocast. Float64 stays as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def to_unit_length(features: Tensor) -> Tensor:
    """Return features [N,D] of length 1, in fp32 or more.

    Features that are all zero stay so and get no gradient: they have no direction, and 1 / eps times their gradient
    would move all weights. An image of exactly the mean colour has such features in a fresh ConvNeXt.
    """
    h = at_least_fp32(features)
    return functional.normalize(torch.where((h != 0).any(1, keepdim=True), h, h.detach()), dim=1)
