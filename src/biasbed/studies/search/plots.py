"""Pictures of a search: its course, which settings mattered, and the parameters of every trial."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.studies.search import trials
from biasbed.studies.search.results import SearchState, by_subject
from biasbed.studies.search.space import Dimension

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna.trial import FrozenTrial

BLUE, GREY, RED = "#2b6cb0", "#9aa5b1", "#c53030"
AT_LEAST = 2  # complete trials, for a picture to show anything


def write(folder: Path, found: Sequence[SearchState]) -> list[Path]:
    """Three pictures of each method in each cell, its repeats together."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for repeats in by_subject(found).values():
        ended = [t for one in repeats for t in one.outcomes.values() if t.state.name in ("COMPLETE", "PRUNED")]
        if sum(trial.state.name == "COMPLETE" for trial in ended) < AT_LEAST:
            continue
        for name, draw in {"history": _history, "importance": _importance, "parallel": _parallel}.items():
            figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
            draw(axes, repeats, ended)
            written.append(folder / f"{repeats[0].search.run.place}_{name}.png")
            figure.savefig(written[-1], dpi=120)
            plt.close(figure)
    return written


def _label(one: SearchState) -> str:
    unit = "" if "loss" in one.search.metric else ", %"
    return f"{one.search.metric}{unit}{' (ORACLE: test images)' if one.search.is_oracle else ''}"


def _scaled(one: SearchState, value: float) -> float:
    return value if "loss" in one.search.metric else 100 * value


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _history(axes: Axes, repeats: Sequence[SearchState], ended: Sequence[FrozenTrial]) -> None:
    """Every trial's value in the order of the search, and the best so far."""
    from matplotlib.ticker import MaxNLocator

    one = repeats[0]
    better = max if one.search.maximize else min
    groups: dict[str, list[tuple[int, float]]] = {"complete": [], "pruned (value when it ended)": [], "default": []}
    for repeat in repeats:
        best: list[tuple[int, float]] = []
        for where, trial in repeat.outcomes.items():
            if trial.value is None:
                continue
            point = (where, _scaled(one, trial.value))
            is_complete = trial.state.name == "COMPLETE"
            kind = "default" if trial.user_attrs.get(trials.DEFAULT) else "complete"
            groups[kind if is_complete else "pruned (value when it ended)"].append(point)
            if is_complete:
                best.append((where, point[1] if not best else better(best[-1][1], point[1])))
        axes.step(*zip(*best, strict=True), where="post", color=BLUE, lw=1.2, label="best so far") if best else None
    looks: tuple[dict[str, Any], ...] = (
        {"c": BLUE, "s": 26},
        {"facecolors": "none", "edgecolors": GREY, "s": 26},
        {"c": RED, "marker": "D", "s": 40, "zorder": 3},
    )
    for (name, points), look in zip(groups.items(), looks, strict=True):
        if points:
            axes.scatter(*zip(*points, strict=True), label=name, **look)
    axes.set(xlabel="trial", ylabel=_label(one))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # of several repeats once
    axes.legend(handles.values(), handles.keys(), fontsize=8, frameon=False)
    _title(axes, f"{one.search.subject}: course of the search ({one.search.sampler}, {one.search.pruner} pruner)")


def _importance(axes: Axes, repeats: Sequence[SearchState], ended: Sequence[FrozenTrial]) -> None:
    """Share of the spread of the best trials' values that each setting explains (PED-ANOVA, Watanabe et al. 2023).

    Of a search in stages in the last: before, the others had their defaults.
    """
    from optuna import create_study
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    one = repeats[0]
    study = create_study(direction="maximize" if one.search.maximize else "minimize")
    last = one.search.stages[-1]
    complete = [t for t in ended if t.state.name == "COMPLETE" and t.params and trials.place(t, ended) >= last.first]
    study.add_trials(complete)
    names = [name for name in last.names if all(name in trial.params for trial in complete)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # too few trials: it would call all settings equal
        try:
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=names) if names else {}
        except (ValueError, RuntimeError, UserWarning):  # or all values are equal
            found = {}
    ordered = sorted(found.items(), key=lambda pair: pair[1])
    bars = axes.barh([name for name, _ in ordered], [value for _, value in ordered], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    axes.set(xlabel="importance (PED-ANOVA; sums to 1)", xlim=(0, 1.08))
    if not ordered:
        axes.text(0.5, 0.5, "not to be told from these trials", ha="center", transform=axes.transAxes)
    few = ": too few to rely on" if len(complete) < 10 * max(1, len(names)) else ""
    _title(axes, f"{one.search.subject}: importance of each setting ({len(complete)} trials{few})")


def _parallel(axes: Axes, repeats: Sequence[SearchState], ended: Sequence[FrozenTrial]) -> None:
    """A line per complete trial through its settings to its value; the darker, the better; red is the default's."""
    from matplotlib import colormaps

    one = repeats[0]
    complete = [trial for trial in ended if trial.state.name == "COMPLETE" and trial.value is not None]
    complete.sort(key=lambda trial: (trial.value or 0.0) * (1 if one.search.maximize else -1))
    values = [_scaled(one, trial.value or 0.0) for trial in complete]
    dimensions = one.search.space.dimensions
    low, high = min(values), max(values)
    shades = colormaps["Blues"]
    for rank, (trial, value) in enumerate(zip(complete, values, strict=True)):
        parameters = one.search.parameters(trial)
        heights = [_height(d, parameters.get(d.name)) for d in dimensions]
        heights.append((value - low) / (high - low) if high > low else 0.5)
        is_default = bool(trial.user_attrs.get(trials.DEFAULT))
        colour = RED if is_default else shades(0.3 + 0.7 * (rank + 1) / len(complete))
        axes.plot(range(len(heights)), heights, color=colour, lw=1.8 if is_default else 1.2, marker="o", ms=3)
    for index, dimension in enumerate(dimensions):
        _axis(axes, index, [(_height(dimension, value), text) for value, text in _ticks(dimension)])
    _axis(axes, len(dimensions), [(h, f"{low + h * (high - low):.3g}") for h in (0.0, 0.25, 0.5, 0.75, 1.0)])
    axes.set_xticks(range(len(dimensions) + 1), [*one.search.space.names, _label(one)], fontsize=8)
    axes.set(yticks=[], xlim=(-0.35, len(dimensions) + 0.55), ylim=(-0.05, 1.08))
    axes.spines["left"].set_visible(False)
    _title(axes, f"{one.search.subject}: settings and value of each complete trial (red: the default)")


def _axis(axes: Axes, where: int, ticks: Sequence[tuple[float, str]]) -> None:
    axes.axvline(where, color=GREY, lw=0.8, zorder=0)
    box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for height, text in ticks:
        place: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points", "va": "bottom", "zorder": 5}
        axes.annotate(text, (where, height), fontsize=7, bbox=box, **place)


def _height(dimension: Dimension, value: Any) -> float:
    """Where a value lies on its axis, from 0 to 1; NaN where the trial has none."""
    if value is None:
        return math.nan
    if dimension.choices:
        return dimension.choices.index(value) / (len(dimension.choices) - 1)
    low, high = dimension.low, dimension.high
    if dimension.distribution in ("loguniform", "intlog"):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return float((value - low) / (high - low))


def _ticks(dimension: Dimension) -> list[tuple[Any, str]]:
    """Values of an axis that are written beside it."""
    if dimension.choices:
        return [(choice, choice) for choice in dimension.choices]
    low, high = dimension.low, dimension.high
    if dimension.distribution in ("loguniform", "intlog"):
        middle = math.exp((math.log(low) + math.log(high)) / 2)
    else:
        middle = (low + high) / 2
    shown = dimension.in_words if dimension.base else "{:.3g}".format
    return [(value, shown(value)) for value in (low, middle, high)]
