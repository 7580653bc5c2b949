"""Confidence intervals of an evaluation: of shape bias and accuracy, over images or observers.

Answers: How is the interval of the shape bias or of an accuracy computed?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from biasbed import measures
from biasbed.evaluation.decisions import IMAGE_VALUES, NAN, CountedValues, Decisions

RESAMPLES, SEED = 1000, 0
FEWEST_OBSERVERS = 5  # for an interval over observers: resamples of fewer hardly differ
LEVEL = 0.95
Interval = tuple[float, float]


def ratio_interval(hit: np.ndarray, counted: np.ndarray, cluster: np.ndarray) -> Interval:
    """Compute a percentile bootstrap interval over clusters of a ratio: hits among the trials that are counted.

    hit, counted: [N] bool per trial. cluster: [N] integers; the trials of one cluster, an image or an observer, are
    drawn together, so that ten answers to one image are one draw. NaN if nothing is counted.

    Source: Efron 1979; Field and Welsh 2007. A cluster enters by its two sums alone, so that drawing clusters is the
    same as drawing how many clusters have which sums.
    """
    number = np.unique(cluster, return_inverse=True)[1]
    sums = np.stack([np.bincount(number, hit), np.bincount(number, counted)], axis=1).astype(np.int64)

    def ratios(drawn: np.ndarray) -> np.ndarray:
        usable = drawn[drawn[:, 1] > 0]
        values: np.ndarray = usable[:, 0] / usable[:, 1]
        return values

    return sums_interval([sums], ratios)


def sums_interval(samples: Sequence[np.ndarray], statistic: Callable[[np.ndarray], np.ndarray]) -> Interval:
    """Compute a percentile bootstrap interval of a statistic of sums over clusters; NaN if it is never defined.

    samples: [N,D] values of each cluster, one array for each sample that is drawn independently. statistic: function
    of the sums [R,all D] of each resample; it leaves out those without a value.
    """
    random = np.random.default_rng(SEED)
    drawn = []
    for sums in samples:
        rows = _count_rows(sums)
        distinct, counts = rows.distinct[::-1], rows.counts[::-1]
        total = int(counts.sum())
        drawn.append(random.multinomial(total, counts / total, size=RESAMPLES) @ distinct)
    values = statistic(np.concatenate(drawn, axis=1))
    values = values[np.isfinite(values)]
    if not len(values):
        return NAN, NAN
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


class _Rows(NamedTuple):
    """Distinct rows of a matrix [N,D], sorted."""

    distinct: np.ndarray  # [K,D]
    counts: np.ndarray  # [K] number of times that each occurs


def _count_rows(sums: np.ndarray) -> _Rows:
    """Count equal rows, as `np.unique(axis=0)` does but faster."""
    code = np.zeros(len(sums), dtype=np.int64)
    for column in sums.T:
        values, number = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + number, return_inverse=True)[1]
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return _Rows(sums[first], counts)


def shape_bias_interval(decisions: Decisions, rows: np.ndarray | None = None) -> Interval:
    """Return the interval of the shape bias, shape / (shape + texture), over images (`share_interval`).

    rows: [N] bool, trials that count; None: all.
    """
    values = IMAGE_VALUES["shape_bias"].take(decisions)
    if rows is not None:
        values = values.select(rows)
    return share_interval(decisions, values)


def share_interval(decisions: Decisions, shares: CountedValues) -> Interval:
    """Return the interval of a share of decisions, over images (`proportion_interval`).

    Views of one photograph under several conditions count as one image.
    """
    return proportion_interval(shares.values, shares.counted, decisions.photograph_of_trial)


def proportion_interval(hit: np.ndarray, counted: np.ndarray, cluster: np.ndarray) -> Interval:
    """Return the interval of a proportion over images: hits among the trials that are counted.

    hit, counted: [N] bool per trial. cluster: [N] integers, the image of each trial. NaN if nothing is counted.

    If each image counts once, as for a model that is tested here, it is Wilson's. It takes the images as independent.
    Cue conflicts share images of shapes and of textures, so it is for other combinations of these, not for others.

    If some image counts several times, as in experiments with people, it is `ratio_interval`, which draws an image with
    all its answers. If all images have the same share, such resamples do not differ. It then is Wilson's, with the
    number of images as sample size.
    """
    hits, trials, images = int(hit[counted].sum()), int(counted.sum()), count_distinct(cluster[counted])
    if not trials:
        return NAN, NAN
    if trials > images:
        low, high = ratio_interval(hit & counted, counted, cluster)
        if low < high:
            return low, high
    return measures.wilson(images * hits / trials, images, LEVEL)


def observers_interval(decisions: Decisions, hit: np.ndarray, counted: np.ndarray, rows: np.ndarray) -> Interval:
    """Return the interval over observers, on the trials in `rows`; NaN if there are too few observers."""
    if decisions.member is None or decisions.member.max() + 1 < FEWEST_OBSERVERS:
        return NAN, NAN
    return ratio_interval(hit, counted, decisions.member[rows])


def accuracy_interval(decisions: Decisions) -> Interval:
    """Return the interval of the accuracy, over images (`share_interval`)."""
    return share_interval(decisions, IMAGE_VALUES["accuracy"].take(decisions))


def count_distinct(images: np.ndarray) -> int:
    """Return how many different images there are among [N] numbers of images."""
    return len(np.unique(images))
