"""Plots of a search: one set of files per method and cell, whatever the trials lack."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from biasbed.studies.search import plots, trials
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.space import Dimension, Space

SPACE = Space(
    "erm",
    (
        Dimension("optim.lr", "loguniform", 0.001, 1.0),
        Dimension("optim.name", "categorical", choices=("sgd", "adam")),
        Dimension("optim.momentum", "uniform", 0.5, 0.99, when={"optim.name": ("sgd",)}),
        Dimension("batch_size", "floor_power", 3.0, 5.5, base=2.0),
    ),
)
NAMES = ["history", "importance", "parallel"]


def trial(number: int, name: str, state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    values: dict[str, Any] = {"optim.lr": 0.01 * (number + 1), "optim.name": name, "batch_size": 3.0 + number / 5}
    if name == "sgd":
        values["optim.momentum"] = 0.9
    distributions = {d.name: plots._distribution(d) for d in SPACE.dimensions[:3]}
    distributions["batch_size"] = plots._distribution(Dimension("batch_size", "uniform", 3.0, 5.5))
    return create_trial(
        state=state,
        value=None if state == TrialState.FAIL else 0.5 + number / 100,
        params=values,
        distributions={key: distributions[key] for key in values},
        user_attrs={trials.DEFAULT: True} if number == 0 else {},
    )


def searched(added: list[FrozenTrial], repeat: int | None) -> SearchState:
    for number, frozen in enumerate(added):
        frozen.number = number
    search: Any = SimpleNamespace(
        subject="erm in art",
        maximize=True,
        metric="val/accuracy/val",
        unit="%",
        is_oracle=False,
        space=SPACE,
        parameters=lambda frozen: frozen.params,
        stages=(SimpleNamespace(first=0, names=SPACE.names),),
        sampler="tpe",
        pruner="median",
        repeat=repeat,
        run=SimpleNamespace(group="erm-art"),
    )
    return SearchState(search, added)


@pytest.mark.parametrize("repeats", [[None], [0, 1]])
def test_a_search_has_three_plots(repeats: list[int | None], tmp_path: Path) -> None:
    """Also with pruned and failed trials, and with settings that some trials lack; matplotlib's style stays."""
    kinds = {3: TrialState.PRUNED, 4: TrialState.FAIL}
    style = {name: mpl.rcParams[name] for name in ("axes.facecolor", "axes.grid", "figure.figsize")}
    states = []
    for repeat in repeats:
        added = [trial(n, ("sgd", "adam")[n % 2], kinds.get(n, TrialState.COMPLETE)) for n in range(8)]
        states.append(searched(added, repeat))
    paths = plots.write_plots(tmp_path, states)
    assert paths == [tmp_path / f"erm-art_{name}.png" for name in NAMES]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert {name: mpl.rcParams[name] for name in style} == style


def test_two_trials_are_enough_and_one_is_not(tmp_path: Path) -> None:
    assert len(plots.write_plots(tmp_path, [searched([trial(0, "sgd"), trial(1, "sgd")], None)])) == 3
    assert plots.write_plots(tmp_path, [searched([trial(0, "sgd"), trial(1, "sgd", TrialState.FAIL)], None)]) == []
