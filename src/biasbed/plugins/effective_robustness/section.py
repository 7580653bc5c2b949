"""Effective robustness: accuracy on a shifted set above what accuracy elsewhere predicts.

Accuracies of unlike plain models on two sets lie near a line on probit axes (Taori et al., Measuring Robustness to
Natural Distribution Shifts in Image Classification, NeurIPS 2020; Miller et al., Accuracy on the Line, ICML 2021). The
points that a row lies above that line are its effective robustness. The line is fitted through rows that are declared
plain; with few of them it is loose, which its prediction intervals show.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.columns import Column, by_name
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    interval,
    make_table,
    number,
    text_cell,
)
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile, PlannedFigure, Section, Sentences, ShownPart
from biasbed.errors import UsageError
from biasbed.plugins.effective_robustness.options import EffectiveOptions, effective_options
from biasbed.settings import refuse_unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "effective_robustness.csv"
FEW = 10  # rows that are all named in the figure, as their names do not lie over each other
TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9)  # percent
LEAST = 4  # plain rows that a line takes: three leave one degree of freedom for the scatter
COLUMNS = (
    *("reference", "dataset", "algorithm", "plain", "reference_accuracy", "accuracy", "predicted"),
    *("residual", "low", "high", "extrapolated", "slope", "intercept", "r2"),
)


class EffectiveRobustness(Section[pd.DataFrame]):
    """Accuracy on shifted sets above what accuracy elsewhere predicts; the data are `COLUMNS`."""

    name = "effective"
    title = "Effective robustness"
    before = "over-images"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return effective_table(
            scores.mean_matrix(analysis.scores), analysis.columns, effective_options(analysis.options), analysis.alpha
        )

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        description = "accuracy on shifted sets above the line through plain rows, on probit axes"
        yield CsvFile(FILE, data.round(SCORE_DIGITS), description)

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        pairs = list(data.groupby(["reference", "dataset"], sort=False))
        if pairs:
            yield Sentences(tuple(describe_line(rows, analysis.alpha, analysis.label) for _, rows in pairs))
        for (reference, dataset), rows in pairs:
            yield PlannedFigure(
                f"effective_{dataset}_by_{reference}",
                functools.partial(scatter, analysis, rows),
                description=f"accuracy on {dataset} by that on {reference}, and the line through plain rows",
                alt="accuracy on a shifted set by accuracy elsewhere",
                caption="Both axes are probits of accuracies, on which plain models lie near a line.",
            )
            yield make_pair_table(rows, analysis, links)


EFFECTIVE_ROBUSTNESS = EffectiveRobustness()

# --- what is computed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbitLine:
    """Least-squares line of y on x: probits of accuracies of plain models, to which nothing was done for robustness."""

    x: np.ndarray  # [n] of the plain models
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
        """Residuals of the plain rows, [n]."""
        return self.y - (self.intercept + self.slope * self.x)

    @property
    def r2(self) -> float:
        """Coefficient of determination; NaN if all y are equal."""
        total = float(((self.y - self.y.mean()) ** 2).sum())
        return 1 - float((self._residuals**2).sum()) / total if total else math.nan

    def margin(self, x: float, alpha: float) -> float:
        """Return half the width of the prediction interval for one further plain model at x.

        It is by Student's t with n - 2 degrees of freedom, as two of n are spent on slope and intercept.
        """
        from scipy import stats

        n = len(self.x)
        scatter = math.sqrt(float((self._residuals**2).sum()) / (n - 2))
        spread = float(((self.x - self.x.mean()) ** 2).sum())
        distance = 1 + 1 / n + (x - float(self.x.mean())) ** 2 / spread
        return float(stats.t.ppf(1 - alpha / 2, n - 2)) * scatter * math.sqrt(distance)

    def is_far(self, x: float) -> bool:
        """Return True if x lies outside the plain rows' range by more than its width."""
        low, high = float(self.x.min()), float(self.x.max())
        width = high - low
        return not low - width <= x <= high + width


def effective_table(
    means: pd.DataFrame, sets: Sequence[Column], options: EffectiveOptions, alpha: float
) -> pd.DataFrame:
    """Return `COLUMNS`, a row for each pair of sets and each algorithm that has both; empty if no pair is asked for.

    residual: accuracy - predicted, in points; low, high: its interval, by the prediction interval of one further plain
    row. means: sets x algorithms, percent. Raises UsageError for unknown names, sets without accuracies, and too few
    plain rows.
    """
    pairs = () if options.effective == "none" else options.effective
    frames = [_compare_pair(means, *_parse_pair(pair, sets), options, alpha) for pair in pairs]
    if frames:
        return pd.concat(frames, ignore_index=True)
    return pd.DataFrame(columns=list(COLUMNS))


def _parse_pair(pair: str, sets: Sequence[Column]) -> tuple[str, str]:
    """Return the names (reference, shifted set) of `<reference>:<set>`. Raises UsageError if they are no such pair."""
    columns = by_name(sets)
    names = pair.split(":")
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError(
            f"effective={pair}: should be <reference set>:<shifted set>, two sets, as imagenet_200:imagenet_r"
        )
    for name in names:
        refuse_unknown(name, columns, f"effective={pair}: there is no set '{name}' in the tables")
        if columns[name].unit != measures.FRACTION or not columns[name].higher_is_better:
            raise UsageError(f"effective={pair}: '{name}' shows no accuracy, and only accuracies have a probit")
    return names[0], names[1]


def _compare_pair(
    means: pd.DataFrame, reference: str, shifted: str, options: EffectiveOptions, alpha: float
) -> pd.DataFrame:
    """Return `COLUMNS` of one pair of sets: fit the line through the plain rows, and compare each row with it."""
    from scipy import stats

    accuracies = means.loc[[reference, shifted]].astype(float)
    x, y = (pd.Series(stats.norm.ppf(accuracies.loc[name] / 100), means.columns) for name in (reference, shifted))
    names = [str(name) for name in means.columns]
    complete = [name for name in names if np.isfinite(x[name]) and np.isfinite(y[name])]
    plain = _plain_rows(options, names, complete, f"{reference}:{shifted}")
    line = ProbitLine.through(x[plain].to_numpy(), y[plain].to_numpy())
    rows = []
    for name in complete:
        probit, margin = line.at(x[name]), line.margin(x[name], alpha)
        bounds = np.array([probit, probit - margin, probit + margin])
        predicted, lowest, highest = (100 * stats.norm.cdf(bounds)).tolist()  # of a plain row
        on_reference, accuracy = accuracies[name].tolist()
        residuals = (accuracy - predicted, accuracy - highest, accuracy - lowest)
        fit = (line.is_far(x[name]), line.slope, line.intercept, line.r2)
        about = (reference, shifted, name, name in plain)
        rows.append((*about, on_reference, accuracy, predicted, *residuals, *fit))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _plain_rows(options: EffectiveOptions, names: Collection[str], complete: Collection[str], pair: str) -> list[str]:
    """Return the rows that the line goes through: those of `plain=` with both accuracies.

    complete: rows with both. Raises UsageError if plain rows are unknown or too few.
    """
    plain = () if options.plain == "none" else options.plain
    for name in plain:
        refuse_unknown(name, names, f"plain={name}: there is no such row in the tables")
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


# --- how it is shown --------------------------------------------------------------------------------------------------


def describe_line(rows: pd.DataFrame, alpha: float, label: Labels) -> str:
    """Describe the line of a pair of sets, and the rows above it or too far from it. rows: `COLUMNS`."""
    line = rows.iloc[0]
    others = rows[~rows["plain"].astype(bool)]
    is_far = others["extrapolated"].astype(bool)
    above = others[(others["low"] > 0) & ~is_far].to_dict("records")
    names = ", ".join(f"{label(row['algorithm'])} ({row['residual']:+.1f})" for row in above) or "none"
    shifted, reference = label(str(line["dataset"])), label(str(line["reference"]))
    text = (
        f"{shifted} by {reference}: the line through {int(rows['plain'].sum())} plain rows has slope "
        f"{line['slope']:.4f}, intercept {line['intercept']:.4f} and R² {line['r2']:.3f}, in probits. Rows above the "
        f"{100 * (1 - alpha):g} % prediction interval for one more plain row: {names}."
    )
    if is_far.any():
        far = ", ".join(map(label, others.loc[is_far, "algorithm"]))
        text += f" Nothing can be said about {far}: they lie far outside the plain rows' range."
    return text


def make_pair_table(rows: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return the table of a pair of sets, the rows farthest above the line first."""
    reference, dataset = (analysis.label(str(rows[name].iloc[0])) for name in ("reference", "dataset"))
    columns = [
        TableColumn("", links.algorithm()),
        TableColumn("", _kind_cell),
        TableColumn(reference, number("reference_accuracy")),
        TableColumn(dataset, number("accuracy")),
        TableColumn("predicted", number("predicted")),
        TableColumn("above the line", interval("residual", "low", "high")),
    ]
    caption = (
        f"Accuracy on {dataset} above what accuracy on {reference} predicts, in points; below it, the "
        f"{100 * (1 - analysis.alpha):g} % prediction interval for one more plain row. Extrapolated: outside the plain "
        "rows' range by more than its width, where the line tells nothing."
    )
    records = rows.sort_values("residual", ascending=False, kind="stable").to_dict("records")
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)


def _kind_cell(row: TableRecord) -> TableCell:
    """Show if a row is plain, or too far from the plain ones."""
    if row["plain"]:
        return text_cell("plain")
    return text_cell("extrapolated" if row["extrapolated"] else "")


def scatter(analysis: Analysis, frame: pd.DataFrame) -> Figure:
    """Draw accuracies on two sets against each other, with the line and its band. frame: `COLUMNS` of the pair.

    Rows outside the band are named; if there are few, all are.
    """
    from biasbed.analysis.report.figures.style import SMALL, Sheet

    figure = Sheet(figsize=(6.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    x, y = _probits(frame["reference_accuracy"]), _probits(frame["accuracy"])
    first = frame.iloc[0]
    _draw_line(axes, frame, x)
    _draw_points(axes, frame, x, y)
    for row, a, b in zip(frame.to_dict("records"), x, y, strict=True):
        accuracies = f"{row['accuracy']:.1f} at {row['reference_accuracy']:.1f}"
        text = f"{analysis.label(row['algorithm'])}: {accuracies}, {row['residual']:+.1f} from the line"
        figure.tip(axes, float(a), float(b), text)
    named = (frame["low"] > 0) | (frame["high"] < 0) | frame["extrapolated"] | (len(frame) <= FEW)
    for name, a, b in zip(frame["algorithm"][named], x[named], y[named], strict=True):
        axes.annotate(
            analysis.label(str(name)), (a, b), (4, 3), textcoords="offset points", fontsize=7, color="#444444"
        )
    _set_percent_axis(axes, "x", x)
    _set_percent_axis(axes, "y", y)
    axes.set_xlabel(f"accuracy on {analysis.label(first['reference'])}, percent (probit scale)")
    axes.set_ylabel(f"accuracy on {analysis.label(first['dataset'])}, percent (probit scale)")
    figure.legend_below(*axes.get_legend_handles_labels(), SMALL)
    return figure


def _probits(percentages: pd.Series[float]) -> np.ndarray:
    """Return percentages on the probit scale: 50 is 0, 97.5 is 1.96."""
    from scipy import stats

    probits: np.ndarray = stats.norm.ppf(percentages.to_numpy() / 100)
    return probits


def _draw_line(axes: Axes, frame: pd.DataFrame, x: np.ndarray) -> None:
    """Draw the line through the plain rows, and the band that holds one more of them. x: probits of the reference."""
    from biasbed.analysis.report.figures.style import GREY, LIGHT

    ends, first = np.array([x.min(), x.max()]), frame.iloc[0]
    axes.plot(ends, first["intercept"] + first["slope"] * ends, color=GREY, lw=1, zorder=1, label="through plain rows")
    order = np.argsort(x)
    # `low` and `high` are of accuracy - predicted, so the band ends where that is 0.
    bottom, top = _probits(frame["accuracy"] - frame["high"])[order], _probits(frame["accuracy"] - frame["low"])[order]
    axes.fill_between(x[order], bottom, top, color=LIGHT, lw=0, zorder=0, label="one more of them")


def _draw_points(axes: Axes, frame: pd.DataFrame, x: np.ndarray, y: np.ndarray) -> None:
    """Draw a point per row, in one colour for each kind of row."""
    from biasbed.analysis.report.figures.style import COLOURS

    is_plain, is_far = frame["plain"].to_numpy(dtype=bool), frame["extrapolated"].to_numpy(dtype=bool)
    for kind, colour, face, chosen in (
        ("plain", COLOURS[6], COLOURS[6], is_plain),
        ("other", COLOURS[0], COLOURS[0], ~is_plain & ~is_far),
        ("extrapolated", COLOURS[1], "white", ~is_plain & is_far),
    ):
        axes.plot(x[chosen], y[chosen], "o", ms=5, color=colour, markerfacecolor=face, label=kind, zorder=2)


def _set_percent_axis(axes: Axes, axis: str, probits: np.ndarray) -> None:
    """Set limits and ticks of an axis of probits, with labels in percent. axis: x or y."""
    from scipy import stats

    margin = 0.08 * max(float(np.ptp(probits)), 0.1)
    low, high = probits.min() - margin, probits.max() + margin
    positions = {f"{tick:g}": float(stats.norm.ppf(tick / 100)) for tick in TICKS}
    shown = {label: position for label, position in positions.items() if low <= position <= high}
    if axis == "x":
        axes.set_xlim(low, high + 2 * margin)  # room for names
        axes.set_xticks(list(shown.values()), list(shown))
    else:
        axes.set_ylim(low, high)
        axes.set_yticks(list(shown.values()), list(shown))
    axes.grid(color="#ececec", lw=0.7)
    axes.set_axisbelow(True)
