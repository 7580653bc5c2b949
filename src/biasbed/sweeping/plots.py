"""Pictures of a search: its course, which settings mattered, and the parameters of every trial."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.sweeping.results import Found, of_algorithms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna import Study


def write(folder: Path, found: Sequence[Found]) -> list[Path]:
    """Pictures of each method with at least two complete trials, its repeats together."""
    written = []
    for algorithm, repeats in of_algorithms(found).items():
        study = _joined(repeats)
        if sum(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False)) >= 2:
            written += _of(folder, algorithm, repeats[0], study)
    return written


def _joined(repeats: Sequence[Found]) -> Study:
    """The trials that count, of all repeats, in memory: without attempts that were given up."""
    from optuna import create_study

    study = create_study(direction="maximize" if repeats[0].search.maximize else "minimize")
    for one in repeats:
        study.add_trials([trial for trial in one.outcomes.values() if trial.state.name in ("COMPLETE", "PRUNED")])
    return study


def _of(folder: Path, algorithm: str, one: Found, study: Study) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.exceptions import ExperimentalWarning
    from optuna.visualization import matplotlib as draw

    metric = one.search.metric + (" (ORACLE)" if one.search.is_oracle else "")
    kinds: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "history": (draw.plot_optimization_history, {"target_name": metric}),
        "importance": (draw.plot_param_importances, {}),
        "parallel": (draw.plot_parallel_coordinate, {"target_name": metric}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, (plot, options) in kinds.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            axes = plot(study, **options)
        path = folder / f"{algorithm}_{kind}.png"
        _save(axes, path, f"{algorithm}: {kind}, {metric}")
        written.append(path)
        plt.close("all")
    return written


def _save(axes: Axes, path: Path, title: str) -> None:
    figure = axes.figure
    axes.set_title(title, fontsize=11)
    figure.savefig(path, dpi=120, bbox_inches="tight")  # type: ignore[union-attr]
