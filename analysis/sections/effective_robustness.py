"""Effective robustness: accuracy on a shifted set above what accuracy elsewhere predicts.

Accuracies of unlike plain models on two sets lie near a line on probit axes (Taori et al., Measuring Robustness to
Natural Distribution Shifts in Image Classification, NeurIPS 2020; Miller et al., Accuracy on the Line, ICML 2021). The
points that a row lies above that line are its effective robustness. The line is fitted through rows that are declared
plain; with few of them it is loose, which its prediction intervals show.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column, by_name
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

LEAST = 4  # plain rows: with three, a line leaves one degree of freedom for the scatter
COLUMNS = (
    *("reference", "dataset", "algorithm", "plain", "reference_accuracy", "accuracy", "predicted"),
    *("residual", "low", "high", "extrapolated", "slope", "intercept", "r2"),
)


@dataclass(frozen=True)
class ProbitLine:
    """Least-squares line of y on x, both probits of accuracies."""

    x: np.ndarray  # [n] of the plain rows
    y: np.ndarray
    slope: float
    intercept: float

    @classmethod
    def through(cls, x: np.ndarray, y: np.ndarray) -> ProbitLine:
        """Fit the line. Raises ValueError if all x are equal."""
        from scipy import stats

        fit = stats.linregress(x, y)
        return cls(x, y, float(fit.slope), float(fit.intercept))

    def at(self, x: float) -> float:
        """Return the line's value at x."""
        return self.intercept + self.slope * x

    @property
    def _residuals(self) -> np.ndarray:
        """[n] residuals of the plain rows."""
        return self.y - (self.intercept + self.slope * self.x)

    @property
    def r2(self) -> float:
        """Coefficient of determination; NaN if all y are equal."""
        total = float(((self.y - self.y.mean()) ** 2).sum())
        if total:
            return 1 - float((self._residuals**2).sum()) / total
        return math.nan

    def margin(self, x: float, alpha: float) -> float:
        """Return half the width of the prediction interval for one further plain row at x (t, n - 2)."""
        from scipy import stats

        n = len(self.x)
        scatter = math.sqrt(float((self._residuals**2).sum()) / (n - 2))
        spread = float(((self.x - self.x.mean()) ** 2).sum())
        distance = 1 + 1 / n + (x - float(self.x.mean())) ** 2 / spread
        return float(stats.t.ppf(1 - alpha / 2, n - 2)) * scatter * math.sqrt(distance)

    def is_far(self, x: float) -> bool:
        """Return True if x lies outside the plain rows' range by more than its width."""
        low, high = float(self.x.min()), float(self.x.max())
        return not low - (high - low) <= x <= high + (high - low)


def effective_table(means: pd.DataFrame, sets: Sequence[Column], options: AnalyzeOptions) -> pd.DataFrame:
    """Return `COLUMNS`, a row for each pair of sets and each algorithm that has both; empty if no pair is asked for.

    means: sets x algorithms, percent. residual: accuracy - predicted, in points; low, high: its interval if the row is
    one further plain one. Raises UsageError for unknown names, sets without accuracies, and too few plain rows.
    """
    pairs = () if options.effective == "none" else options.effective
    frames = [_compare_pair(means, *_parse_pair(pair, sets), options) for pair in pairs]
    if frames:
        return pd.concat(frames, ignore_index=True)
    return pd.DataFrame(columns=list(COLUMNS))


def _parse_pair(pair: str, sets: Sequence[Column]) -> tuple[str, str]:
    """Return (reference, shifted set) of `<reference>:<set>`."""
    columns = by_name(sets)
    names = pair.split(":")
    if len(names) != 2:
        raise UsageError(f"effective={pair}: should be <reference set>:<shifted set>, as imagenet_200:imagenet_r")
    if names[0] == names[1]:
        raise UsageError(f"effective={pair}: names one set twice; name two different sets")
    for name in names:
        if name not in columns:
            raise UsageError(f"effective={pair}: there is no set '{name}' in the tables{nearest(name, columns)}")
        if columns[name].unit != measures.FRACTION or not columns[name].higher_is_better:
            raise UsageError(f"effective={pair}: '{name}' shows no accuracy, and only accuracies have a probit")
    return names[0], names[1]


def _compare_pair(means: pd.DataFrame, reference: str, shifted: str, options: AnalyzeOptions) -> pd.DataFrame:
    """Fit the baseline of a pair of sets, and return each row's accuracy above it."""
    from scipy import stats

    accuracies = means.loc[[reference, shifted]].astype(float)
    x, y = (pd.Series(stats.norm.ppf(accuracies.loc[name] / 100), means.columns) for name in (reference, shifted))
    names = [str(name) for name in means.columns]
    complete = [name for name in names if np.isfinite(x[name]) and np.isfinite(y[name])]
    plain = _plain_rows(options, names, complete, f"{reference}:{shifted}")
    line = ProbitLine.through(x[plain].to_numpy(), y[plain].to_numpy())
    rows = []
    for name in complete:
        middle, margin = line.at(x[name]), line.margin(x[name], options.alpha)
        probits = (middle, middle - margin, middle + margin)
        predicted, low, high = (100 * float(stats.norm.cdf(probit)) for probit in probits)
        on_reference, accuracy = accuracies[name].tolist()
        residuals = (accuracy - predicted, accuracy - high, accuracy - low)
        fit = (line.is_far(x[name]), line.slope, line.intercept, line.r2)
        about = (reference, shifted, name, name in plain)
        rows.append((*about, on_reference, accuracy, predicted, *residuals, *fit))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _plain_rows(options: AnalyzeOptions, names: Collection[str], complete: Collection[str], pair: str) -> list[str]:
    """Return the rows that the line goes through. Raises UsageError if they are unknown or too few.

    complete: rows with both accuracies.
    """
    plain = () if options.plain == "none" else options.plain
    for name in plain:
        if name not in names:
            raise UsageError(f"plain={name}: there is no such row in the tables{nearest(name, names)}")
    usable = [name for name in plain if name in complete]
    if len(usable) < LEAST:
        incomplete = [name for name in plain if name not in complete]
        reason = ""
        if incomplete:
            reason = f" ({', '.join(incomplete)} lack one of the two)"
        raise UsageError(
            f"effective={pair}: a line takes {LEAST} plain rows at least, and there are {len(usable)}{reason}: name "
            "models that nothing was done to for robustness, as plain=resnet18,resnet50,..."
        )
    return usable
