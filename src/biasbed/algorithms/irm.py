"""IRM: invariant risk minimisation (Arjovsky, Bottou, Gulrajani and Lopez-Paz, arXiv 1907.02893)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.annealed import Annealed
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN, Batch, at_least_fp32


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """The derivative [N] of each image's cross-entropy by a factor of its logits [N,K], where that is 1.

    sum_k p_k z_k - z_y, with p the softmax of z: nothing has to be differentiated twice. In fp32 at least.
    """
    z = at_least_fp32(logits)
    return (z.softmax(dim=1) * (z - z.gather(1, y[:, None]))).sum(1)


class IRM(Annealed):
    """ERM with a penalty where a domain's risk would fall if the logits were scaled otherwise (IRMv1).

    Of each domain it is the product of two means of `slopes`, over the images at even and at odd positions of its part
    of the batch: an estimate without bias of the squared derivative, which may be negative.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        # Even parts, as positions are those of the whole batch, however many processes share it.
        return {MAIN: StreamRequest(per_domain=True, multiple=2)}

    def penalty(self, logits: Tensor, batch: Batch, risks: Tensor) -> Tensor:
        """Zero of domains with a single image."""
        found = self.apart(slopes(logits, batch.y))
        halves = [half.sum(1) / max(1, half.shape[1]) for half in (found[:, ::2], found[:, 1::2])]
        even, odd = self.mean_of_all(torch.stack(halves))
        return (even * odd).mean()
