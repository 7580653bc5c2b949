"""Uncertainty that finite sets of images leave: McNemar's test and the paired bootstrap.

They tell whether two models, tested on the same images, differ by more than the choice of images
explains. The weights are fixed and only images are resampled, so nothing here speaks about other seeds.

Sources: McNemar 1947, exact as a binomial test of the images on which only one of the two is right (Dietterich 1998,
section 3.1, recommends it for methods that can be trained only once); paired bootstrap over images (Efron 1979; Koehn
2004, section 5), over clusters if several images are views of one photograph (Field and Welsh 2007).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from biasbed.analysis.statistics import exact

SEED = 0


@dataclass(frozen=True, eq=False)
class ImageAnswers:
    """Decisions of one model on the N images of a set, in the order of the images' names."""

    images: str  # digest of names, labels and conditions: equal digests mean the same images
    right: np.ndarray  # [N] bool
    photograph: np.ndarray | None = None  # [N] int, the photograph of which each image is a view; None: all differ


@dataclass(frozen=True)
class PairedComparison:
    """Comparison of two models on the images of one set."""

    images: int
    photographs: int
    both: int  # images on which both are right
    only_a: int
    only_b: int
    neither: int
    difference: float  # of accuracies, a - b, in points
    low: float
    high: float
    p: float  # McNemar's; NaN if images are not independent


def compare(a: ImageAnswers, b: ImageAnswers, alpha: float, number: int) -> PairedComparison:
    """Compare two models on the same images with `number` resamples. Raises ValueError if the images differ."""
    if a.images != b.images or len(a.right) != len(b.right):
        raise ValueError("they were not tested on the same images")
    both, only_a = int((a.right & b.right).sum()), int((a.right & ~b.right).sum())
    only_b, total = int((~a.right & b.right).sum()), len(a.right)
    is_independent = a.photograph is None
    cluster = np.arange(total) if a.photograph is None else a.photograph
    signs = a.right.astype(np.int64) - b.right
    low, high = interval(signs, cluster, alpha, number)
    return PairedComparison(
        images=total,
        photographs=len(np.unique(cluster)),
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=total - both - only_a - only_b,
        difference=100 * (only_a - only_b) / total,
        low=low,
        high=high,
        p=exact.sign_test(only_a, only_b) if is_independent else math.nan,  # McNemar's test
    )


def interval(signs: np.ndarray, cluster: np.ndarray, alpha: float, number: int) -> tuple[float, float]:
    """Return the percentile interval, in points, of the mean of signs [N] in {-1, 0, 1}; clusters [N] are resampled.

    Only a cluster's sum and size matter, so a resample is a multinomial draw over the distinct pairs of these.
    """
    code = np.unique(cluster, return_inverse=True)[1]
    sums = np.zeros(int(code.max()) + 1, dtype=np.int64)
    np.add.at(sums, code, signs)
    kinds, counts = np.unique(np.stack([sums, np.bincount(code)], axis=1), axis=0, return_counts=True)
    total = int(counts.sum())
    drawn = np.random.default_rng(SEED).multinomial(total, counts / total, size=number) @ kinds
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [alpha / 2, 1 - alpha / 2]).tolist()
    return 100 * low, 100 * high
