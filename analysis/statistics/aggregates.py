"""Interquartile means and performance profiles of runs, with intervals by stratified bootstrap.

The interquartile mean drops the lowest and the highest quarter of all scores (runs x sets) and averages the rest: a few
outliers can't move it, and it uses more of the scores than a median. A performance profile is the share of scores above
each threshold. The stratified bootstrap draws runs independently on each set and keeps the sets. So its intervals speak
of other seeds on these sets, and not of other sets.

Source: Agarwal, Schwarzer, Castro, Courville and Bellemare 2021, sections 4.1 (stratified bootstrap), 4.2 (performance
profiles) and 4.3 (interquartile mean).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from biasbed.analysis.statistics.exact import Array

Positions = np.ndarray[Any, np.dtype[np.int64]]  # of runs

SEED = 0
TRIMMED = 0.25  # share that is dropped at either end
NUM_THRESHOLDS = 101
AGGREGATE_COLUMNS = ("algorithm", "num_runs", "num_sets", "interquartile_mean", "low", "high")
PROFILE_COLUMNS = ("algorithm", "threshold", "share", "low", "high")


def interquartile_mean(scores: Array) -> Array:
    """Return the mean of the middle half of the last two axes (runs x sets), from scipy's trimmed mean."""
    from scipy import stats

    pooled = scores.reshape(*scores.shape[:-2], -1)
    means: Array = np.asarray(stats.trim_mean(pooled, TRIMMED, axis=-1))
    return means


def profile(scores: Array, thresholds: Array) -> Array:
    """Return the share of scores above each threshold over the last two axes (runs x sets)."""
    pooled = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    number = pooled.shape[-1]
    rows = pooled.reshape(-1, number)
    shares = np.stack([1 - np.searchsorted(row, thresholds, side="right") / number for row in rows])
    return shares.reshape(*scores.shape[:-2], len(thresholds))


def draw_runs(num_runs: int, num_sets: int, number: int) -> Positions:
    """Draw runs with replacement, independently on each set: resamples x runs x sets of positions, seeded."""
    drawn: Positions = np.random.default_rng(SEED).integers(num_runs, size=(number, num_runs, num_sets))
    return drawn


def resample(scores: Array, drawn: Positions) -> Array:
    """Return the scores (runs x sets) of the drawn runs, resamples x runs x sets."""
    resampled: Array = scores[drawn, np.arange(scores.shape[1])]
    return resampled


def percentiles(resampled: Array, alpha: float) -> tuple[Array, Array]:
    """Return the percentile interval at 1 - alpha over the first axis."""
    low, high = np.quantile(resampled, [alpha / 2, 1 - alpha / 2], axis=0)
    return low, high


def aggregates(runs: Mapping[str, pd.DataFrame], alpha: float, number: int) -> pd.DataFrame:
    """Return `AGGREGATE_COLUMNS`; runs: algorithm -> scores, runs x sets; runs that lack a set don't count.

    The interval is NaN for a single run.
    """
    rows = []
    for name, frame in runs.items():
        scores = frame.dropna().to_numpy(dtype="float64")
        if not scores.size:
            continue
        bounds = (math.nan, math.nan)
        if len(scores) > 1:
            means = interquartile_mean(resample(scores, draw_runs(len(scores), scores.shape[1], number)))
            low, high = percentiles(means, alpha)
            bounds = (float(low), float(high))
        rows.append((name, *scores.shape, float(interquartile_mean(scores)), *bounds))
    return pd.DataFrame(rows, columns=list(AGGREGATE_COLUMNS))


def profiles(
    runs: Mapping[str, pd.DataFrame], alpha: float, number: int, *, lower_is_better: bool = False
) -> pd.DataFrame:
    """Return `PROFILE_COLUMNS` at evenly spaced thresholds from the worst to the best score of all algorithms.

    runs: as for `aggregates`. `share` is that of the scores better than the threshold. Each interval covers its own
    threshold. It is NaN for a single run.
    """
    sign = -1.0 if lower_is_better else 1.0
    complete = {name: sign * frame.dropna().to_numpy(dtype="float64") for name, frame in runs.items()}
    complete = {name: scores for name, scores in complete.items() if scores.size}
    if not complete:
        return pd.DataFrame(columns=list(PROFILE_COLUMNS))
    pooled = np.concatenate([scores.ravel() for scores in complete.values()])
    thresholds = np.linspace(pooled.min(), pooled.max(), NUM_THRESHOLDS)
    frames = []
    for name, scores in complete.items():
        low = high = np.full(len(thresholds), math.nan)
        if len(scores) > 1:
            drawn = draw_runs(len(scores), scores.shape[1], number)
            low, high = percentiles(profile(resample(scores, drawn), thresholds), alpha)
        columns = {"threshold": sign * thresholds, "share": profile(scores, thresholds), "low": low, "high": high}
        frames.append(pd.DataFrame(columns).assign(algorithm=name))
    return pd.concat(frames, ignore_index=True)[list(PROFILE_COLUMNS)]
