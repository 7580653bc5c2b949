"""A contrastive loss over weighted pairs of images (Hong and Yang, NeurIPS 2021): of views of images, all with all."""

from __future__ import annotations

import torch
from torch import Tensor


def contrastive(features: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Views of images whose pair has a weight are to be near each other, and far from all others.

    features [N,V,D]: of V views of N images, each of length 1; weights [N,N] >= 0: of pairs of images, that of an image
    with itself being one of two different views. With similarities s_ij = h_i.h_j / temperature of all V N views,

        l_i = - sum_j w_ij log( exp(s_ij) / sum_{k != i} exp(s_ik) ) / sum_j w_ij,    j != i,

    and the loss is the mean of all l_i. A view without any weight has l_i = 0, and counts in the mean.
    """
    views = features.shape[1]
    h, w = features.transpose(0, 1).flatten(0, 1), weights.to(features.dtype).repeat(views, views)
    itself = torch.eye(len(h), dtype=torch.bool, device=h.device)
    similarities = h @ h.T / temperature
    others = similarities.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    w = w.masked_fill(itself, 0)
    total = w.sum(1)
    each = (w * (others - similarities)).sum(1) / torch.where(total > 0, total, 1)
    return each.mean()
