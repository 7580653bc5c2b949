"""Shape bias: counts of decisions for shape and for texture on cue-conflict images. Standard library only.

Its interval is in `evaluation/intervals.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from biasbed import measures

if TYPE_CHECKING:
    import numpy as np

    from biasbed.data.names import Coded

NAN = float("nan")


@dataclass(frozen=True)
class CueCounts:
    """Counts of decisions on images whose cues conflict, without images whose shape and texture are the same class.

    shape_mrr, texture_mrr: mean reciprocal rank of either cue's class among all the model's outputs (Kim et al. 2026,
    arXiv 2603.10834); NaN if ranks were not recorded.
    """

    decisions: int
    shape: int
    texture: int
    shape_mrr: float = NAN
    texture_mrr: float = NAN

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
    """Count decisions on the conflicting images.

    shape, texture, decision: [N] classes of the cues and decisions, as names or as numbers. rank, texture_rank: [N]
    rank of the shape's and the texture's class among all outputs, 1 for the best.
    """
    conflict = shape != texture
    chosen = decision[conflict]
    return CueCounts(
        decisions=int(conflict.sum()),
        shape=int((chosen == shape[conflict]).sum()),
        texture=int((chosen == texture[conflict]).sum()),
        shape_mrr=NAN if rank is None else _mean_reciprocal(rank[conflict]),
        texture_mrr=NAN if texture_rank is None else _mean_reciprocal(texture_rank[conflict]),
    )


def _mean_reciprocal(rank: np.ndarray) -> float:
    return float((1 / rank).mean()) if len(rank) else NAN
