"""Cue-conflict images: their cues, from the name alone, and how decisions are counted. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from biasbed import measures

if TYPE_CHECKING:
    import numpy as np

    from biasbed.data.names import Coded


@dataclass(frozen=True)
class CueCounts:
    """Decisions on images whose cues conflict; images with shape = texture are not among them.

    shape_mrr, texture_mrr: mean reciprocal rank of either cue's class among all the model's outputs (Kim et al. 2026,
    arXiv 2603.10834); NaN where ranks were not recorded.
    """

    decisions: int
    shape: int
    texture: int
    shape_mrr: float = float("nan")
    texture_mrr: float = float("nan")

    @property
    def shape_bias(self) -> float:
        return measures.shape_bias(self.shape, self.texture)

    @property
    def shape_accuracy(self) -> float:
        return measures.accuracy(self.shape, self.decisions)

    @property
    def texture_accuracy(self) -> float:
        return measures.accuracy(self.texture, self.decisions)

    @property
    def coverage(self) -> float:
        """Share of decisions that are for either cue."""
        return measures.accuracy(self.shape + self.texture, self.decisions)


def count(
    shape: np.ndarray | Coded,
    texture: np.ndarray | Coded,
    decision: np.ndarray | Coded,
    rank: np.ndarray | None = None,
    texture_rank: np.ndarray | None = None,
) -> CueCounts:
    """Counts over the conflicting images among [N] classes of the cues and decisions, as names or as numbers.

    rank, texture_rank: [N] place of the shape's and the texture's class, 1 for the best.
    """
    conflict = shape != texture
    chosen = decision[conflict]
    ranks = [float("nan") if of is None else _mean_reciprocal(of[conflict]) for of in (rank, texture_rank)]
    shapes, textures = int((chosen == shape[conflict]).sum()), int((chosen == texture[conflict]).sum())
    return CueCounts(int(conflict.sum()), shapes, textures, *ranks)


def _mean_reciprocal(rank: np.ndarray) -> float:
    return float((1 / rank).mean()) if len(rank) else float("nan")
