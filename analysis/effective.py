"""Does a row lose less on a shifted set than its accuracy elsewhere explains?

Accuracies of unlike plain models on two sets lie near a line on probit axes (Taori et al., Measuring Robustness to
Natural Distribution Shifts in Image Classification, NeurIPS 2020; Miller et al., Accuracy on the Line, ICML 2021). What
a row has above that line is its effective robustness, in points. The line is fitted through rows that are declared
plain; with few of them it is loose, and how loose is said.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis.columns import Column
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

LEAST = 4  # plain rows: of three, a line leaves one number to tell the scatter by
COLUMNS = (
    *("reference", "dataset", "algorithm", "plain", "reference_accuracy", "accuracy", "predicted"),
    *("residual", "low", "high", "extrapolated", "slope", "intercept", "r2"),
)


@dataclass(frozen=True)
class ProbitLine:
    """Least squares of y on x, both probits of accuracies."""

    x: np.ndarray  # [n] of the plain rows
    y: np.ndarray
    slope: float
    intercept: float

    @classmethod
    def through(cls, x: np.ndarray, y: np.ndarray) -> ProbitLine:
        """ValueError where all x are equal."""
        from scipy import stats

        found = stats.linregress(x, y)
        return cls(x, y, float(found.slope), float(found.intercept))

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x

    @property
    def _left(self) -> np.ndarray:
        """Of the plain rows' y."""
        return self.y - (self.intercept + self.slope * self.x)

    @property
    def r2(self) -> float:
        left = self._left
        total = float(((self.y - self.y.mean()) ** 2).sum())
        return 1 - float((left**2).sum()) / total if total else math.nan

    def reach(self, x: float, alpha: float) -> float:
        """Half the width of the prediction interval for one further plain row at x (t, n - 2 degrees of freedom)."""
        from scipy import stats

        n, left = len(self.x), self._left
        scatter = math.sqrt(float((left**2).sum()) / (n - 2))
        spread = float(((self.x - self.x.mean()) ** 2).sum())
        distance = 1 + 1 / n + (x - float(self.x.mean())) ** 2 / spread
        return float(stats.t.ppf(1 - alpha / 2, n - 2)) * scatter * math.sqrt(distance)

    def is_far(self, x: float) -> bool:
        """Whether x lies farther outside the plain rows' range than that is wide."""
        low, high = float(self.x.min()), float(self.x.max())
        return not low - (high - low) <= x <= high + (high - low)


def table(means: pd.DataFrame, sets: Sequence[Column], options: AnalyzeOptions) -> pd.DataFrame:
    """`COLUMNS`: a row for each pair of sets and each algorithm that has both; empty where no pair is asked for.

    means: sets x algorithms, percent. residual: accuracy - predicted, in points; low, high: of the residual, were the
    row one further plain one. Raises UsageError for unknown names, sets without accuracies, and too few plain rows.
    """
    pairs = () if options.effective == "none" else options.effective
    frames = [_pair(means, *_named(pair, sets), options) for pair in pairs]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def _named(pair: str, sets: Sequence[Column]) -> tuple[str, str]:
    """(reference, shifted set) of `<reference>:<set>`."""
    known = {column.name: column for column in sets}
    names = pair.split(":")
    if len(names) != 2:
        raise UsageError(f"effective={pair}: should be <reference set>:<shifted set>, as imagenet_200:imagenet_r")
    if names[0] == names[1]:
        raise UsageError(f"effective={pair}: names one set twice, whose accuracies explain themselves")
    for name in names:
        if name not in known:
            raise UsageError(f"effective={pair}: there is no set '{name}' in the tables{nearest(name, known)}")
        if known[name].unit != measures.FRACTION or not known[name].higher_is_better:
            raise UsageError(f"effective={pair}: '{name}' shows no accuracy, of which alone there is a probit")
    return names[0], names[1]


def _pair(means: pd.DataFrame, reference: str, shifted: str, options: AnalyzeOptions) -> pd.DataFrame:
    from scipy import stats

    accuracies = {name: means.loc[name].astype(float) for name in (reference, shifted)}
    x, y = (pd.Series(stats.norm.ppf(values / 100), means.columns) for values in accuracies.values())
    there = [str(name) for name in means.columns if np.isfinite(x[name]) and np.isfinite(y[name])]
    plain = _plain(options, [str(name) for name in means.columns], there, f"{reference}:{shifted}")
    line = ProbitLine.through(x[plain].to_numpy(), y[plain].to_numpy())
    about = (line.slope, line.intercept, line.r2)
    rows = []
    for name in there:
        middle, reach = line.at(x[name]), line.reach(x[name], options.alpha)
        places = (middle, middle - reach, middle + reach)
        predicted, low, high = (100 * float(stats.norm.cdf(place)) for place in places)
        on_reference, found = (values.to_dict()[name] for values in accuracies.values())
        numbers = (on_reference, found, predicted, found - predicted, found - high, found - low)
        rows.append((reference, shifted, name, name in plain, *numbers, line.is_far(x[name]), *about))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _plain(options: AnalyzeOptions, known: Collection[str], there: Collection[str], pair: str) -> list[str]:
    """The rows that the line goes through; UsageError where they are unknown or too few."""
    wanted = () if options.plain == "none" else options.plain
    for name in wanted:
        if name not in known:
            raise UsageError(f"plain={name}: there is no such row in the tables{nearest(name, known)}")
    found = [name for name in wanted if name in there]
    if len(found) < LEAST:
        lost = [name for name in wanted if name not in there]
        reason = f" ({', '.join(lost)} lack one of the two)" if lost else ""
        raise UsageError(
            f"effective={pair}: a line takes {LEAST} plain rows at least, and there are {len(found)}{reason}: name "
            "models that nothing was done to for robustness, as plain=resnet18,resnet50,..."
        )
    return found


def sentences(frame: pd.DataFrame, alpha: float) -> list[str]:
    """What is said of each pair of sets."""
    found = []
    for (reference, shifted), own in frame.groupby(["reference", "dataset"], sort=False):
        first, number = own.iloc[0], int(own["plain"].sum())
        others = own[~own["plain"].astype(bool)]
        above = others[(others["low"] > 0) & ~others["extrapolated"].astype(bool)]
        said = ", ".join(f"{row['algorithm']} ({row['residual']:+.1f})" for row in above.to_dict("records"))
        text = (
            f"{shifted} by {reference}: the line through {number} plain rows has slope {first['slope']:.4f}, intercept "
            f"{first['intercept']:.4f} and R² {first['r2']:.3f}, in probits. "
        )
        text += f"Above it by more than one further plain row would be ({100 * (1 - alpha):g} %): {said or 'no row'}."
        far = [str(name) for name in others.loc[others["extrapolated"].astype(bool), "algorithm"]]
        if far:
            text += f" Nothing can be said of {', '.join(far)}: they lie far outside the plain rows' range."
        found.append(text)
    return found
