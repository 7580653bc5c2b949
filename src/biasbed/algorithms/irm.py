"""IRM: invariant risk minimisation (Arjovsky, Bottou, Gulrajani and Lopez-Paz, arXiv 1907.02893)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from biasbed.algorithms.domains import Annealed
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN, Batch, at_least_fp32


def scale_derivatives(logits: Tensor, y: Tensor) -> Tensor:
    """Return the derivative [N] of each image's cross-entropy by a factor of its logits [N,K], at factor 1.

    Computed as sum_k p_k z_k - z_y with p = softmax(z), so nothing is differentiated twice. In fp32 at least.
    """
    z = at_least_fp32(logits)
    return (z.softmax(dim=1) * (z - z.gather(1, y[:, None]))).sum(1)


def irm_penalty(logits: Tensor, y: Tensor) -> Tensor:
    """Return the penalty of one domain's logits [N,K].

    It is the product of the mean derivatives over the images at even and at odd positions: an unbiased
    estimate of the squared derivative of the risk by a factor of the logits (IRMv1). Zero for one image.
    """
    derivatives = scale_derivatives(logits, y)
    even, odd = (half.sum() / max(1, len(half)) for half in (derivatives[::2], derivatives[1::2]))
    return even * odd


class IRM(Annealed):
    """ERM with a penalty if a domain's risk would fall with a scaling of the logits (IRMv1).

    The penalty of a domain is its `irm_penalty`: an unbiased estimate of the squared derivative, which may be negative.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        # Parts of even size: positions count over the whole batch, however many processes share it.
        return {MAIN: StreamRequest(per_domain=True, multiple=2)}

    def penalty(self, logits: Tensor, batch: Batch, risks: Tensor) -> Tensor:
        """Return the mean penalty of the domains; zero for domains with a single image."""
        derivatives = self.by_domain(scale_derivatives(logits, batch.y))
        halves = [half.sum(1) / max(1, half.shape[1]) for half in (derivatives[:, ::2], derivatives[:, 1::2])]
        even, odd = self.mean_of_all(torch.stack(halves))
        return (even * odd).mean()
