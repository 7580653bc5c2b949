"""Plots of a search by Optuna: its history, the importance of each setting, and the parameters of its trials."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import measures
from biasbed.studies.search import trials
from biasbed.studies.search.results import SearchState, group_by_subject
from biasbed.studies.search.search import Search
from biasbed.studies.search.space import Dimension, Value

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

AT_LEAST = 2  # complete trials, for a plot to show anything


def write_plots(folder: Path, states: Sequence[SearchState]) -> list[Path]:
    """Write three plots of each method in each cell, with all repeats; none if fewer than two trials are complete."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for repeats in group_by_subject(states).values():
        group = repeats[0].search.run.group
        complete = sum(trial.state.name == "COMPLETE" for trial in _list_outcomes(repeats))
        if complete < AT_LEAST:
            continue
        for name, draw in {"history": _history, "importance": _importance, "parallel": _parallel}.items():
            with plt.rc_context({"figure.figsize": (7.5, 4.2)}):  # which also undoes Optuna's change of the style
                draw(repeats)
                paths.append(folder / f"{group}_{name}.png")
                plt.savefig(paths[-1], dpi=120, bbox_inches="tight")
                plt.close("all")
    return paths


def _list_outcomes(repeats: Iterable[SearchState]) -> list[FrozenTrial]:
    outcomes: list[FrozenTrial] = []
    for state in repeats:
        outcomes += state.outcomes.values()
    return outcomes


def _scale(search: Search, value: float) -> float:
    return value * measures.scale(search.unit)


def _label(search: Search) -> str:
    unit = ", %" if search.unit == measures.FRACTION else ""
    return f"{search.metric}{unit}{' (ORACLE: test images)' if search.is_oracle else ''}"


def _make_study(search: Search, added: Sequence[FrozenTrial], name: str = "") -> Study:
    """Return a study in memory with these trials."""
    from optuna import create_study

    study = create_study(study_name=name or None, direction="maximize" if search.maximize else "minimize")
    study.add_trials(added)
    return study


def _make_trial(search: Search, trial: FrozenTrial) -> FrozenTrial:
    """Return a trial with its settings and value in the units that people read; failed if it is not complete."""
    from optuna.trial import TrialState, create_trial

    if trial.state.name != "COMPLETE" or trial.value is None:
        return create_trial(state=TrialState.FAIL)
    parameters: dict[str, Value] = {}
    distributions: dict[str, BaseDistribution] = {}
    drawn = search.parameters(trial)
    for dimension in search.space.dimensions:
        if dimension.name in drawn:
            value = drawn[dimension.name]
            parameters[dimension.name] = value if dimension.base is None else int(dimension.format(value))
            distributions[dimension.name] = _distribution(dimension)
    return create_trial(value=_scale(search, trial.value), params=parameters, distributions=distributions)


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    if dimension.base is not None:
        low, high = dimension.extremes
        return IntDistribution(int(low), int(high), log=int(low) > 0)
    log = dimension.distribution in ("loguniform", "intlog")
    if dimension.is_int:
        return IntDistribution(int(dimension.low), int(dimension.high), log=log)
    return FloatDistribution(dimension.low, dimension.high, log=log)


def _history(repeats: Sequence[SearchState]) -> None:
    """Plot every trial's value in the order of the search, and the best so far; marks pruned trials and the default."""
    from optuna.visualization.matplotlib import plot_optimization_history

    search = repeats[0].search
    studies = []
    for state in repeats:
        added = [_make_trial(search, trial) for trial in state.outcomes.values()]
        studies.append(_make_study(search, added, f"repeat {state.search.repeat or 0}"))
    axes = plot_optimization_history(studies if len(studies) > 1 else studies[0], target_name=_label(search))
    marked: dict[str, list[tuple[int, float]]] = {"pruned (value when it ended)": [], "default": []}
    for state in repeats:
        for index, trial in enumerate(state.outcomes.values()):
            if trial.value is None:
                continue
            if trial.state.name == "PRUNED":
                marked["pruned (value when it ended)"].append((index, _scale(search, trial.value)))
            elif trial.state.name == "COMPLETE" and trial.user_attrs.get(trials.DEFAULT):
                marked["default"].append((index, _scale(search, trial.value)))
    for (name, points), marker in zip(marked.items(), ("x", "D"), strict=True):
        if points:
            axes.scatter(*zip(*points, strict=True), label=name, marker=marker, color="black", zorder=3)
    axes.legend(bbox_to_anchor=(1.05, 1.0), loc="upper left")
    axes.set_title(f"{search.subject}: course of the search ({search.sampler}, {search.pruner} pruner)")


def _importance(repeats: Sequence[SearchState]) -> None:
    """Plot the share of the best trials' spread that each setting explains (PED-ANOVA, Watanabe et al. 2023).

    In a search with stages, only the last counts: before it, its settings had their defaults.
    """
    import matplotlib.pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization.matplotlib import plot_param_importances

    search = repeats[0].search
    last, added = search.stages[-1], []
    for state in repeats:
        for position, trial in state.outcomes.items():
            if trial.state.name == "COMPLETE" and trial.params and position >= last.first:
                added.append(trial)
    names = [name for name in last.names if all(name in trial.params for trial in added)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # with too few trials Optuna calls all settings equal
            study = _make_study(search, added)
            axes = plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=names)
        axes.legend([], frameon=False)  # an empty one: a single objective needs none
    except (ValueError, RuntimeError, UserWarning):  # also if all values are equal
        plt.close("all")
        axes = plt.subplots()[1]
        axes.text(0.5, 0.5, "these trials show no importances", ha="center", transform=axes.transAxes)
    axes.set_title("", loc="left")  # Optuna's
    axes.set_xlabel("importance (PED-ANOVA; sums to 1)")
    few = ": too few to rely on" if len(added) < 10 * max(1, len(names)) else ""
    axes.set_title(f"{search.subject}: importance of each setting ({len(added)} trials{few})")


def _parallel(repeats: Sequence[SearchState]) -> None:
    """Plot a line per complete trial through its value and its settings; a trial without a setting has None there."""
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    search = repeats[0].search
    study = _make_study(search, [_make_trial(search, trial) for trial in _list_outcomes(repeats)])
    axes = plot_parallel_coordinate(study, target_name=_label(search))
    axes.set_title(f"{search.subject}: settings and value of each complete trial", y=1.03)
