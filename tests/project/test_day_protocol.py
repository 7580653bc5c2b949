"""benchmarks/day_protocol.py: its early stops are Optuna's, and it reads the courses of a recorded sweep."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.pruners import SuccessiveHalvingPruner
from optuna.trial import TrialState

from helpers import benchmarks
from helpers.commands import ROOT

day_protocol = benchmarks.load("day_protocol")


@pytest.mark.parametrize("seed", range(20))
def test_trainings_end_where_optuna_ends_them(seed: int) -> None:
    """The record before training is no evaluation, so the first rung is at record 1."""
    courses = np.random.default_rng(seed).normal(size=(6, 18)).cumsum(axis=1)
    study = optuna.create_study(direction="maximize", pruner=SuccessiveHalvingPruner(1, 3))
    rungs: dict[int, list[float]] = {}
    for course in courses:
        trial, end = study.ask(), len(course)
        for step in range(1, len(course)):
            trial.report(course[step], step)
            if trial.should_prune():
                end = step + 1
                break
        if end < len(course):
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, course.max())
        assert day_protocol.find_end(course, rungs) == end


def test_the_best_validation_of_a_whole_training_decides() -> None:
    make = day_protocol.Course
    first = make(np.array([10.0, 60, 70]), np.array([1.0, 2, 3]))
    worse = make(np.array([10.0, 50, 90]), np.array([4.0, 5, 6]))
    assert day_protocol.search([first, worse], is_halved=False) == (6.0, 6)
    assert day_protocol.search([first, worse], is_halved=True) == (3.0, 5)  # ended at its first evaluation


def test_a_recorded_sweep_is_read_by_domain() -> None:
    """ERM on VLCS by DomainBed's code; jobs that hold out two domains are for another rule."""
    source = ROOT / "tests" / "vectors" / "domainbed" / "recorded_sweep.csv"
    (domains,) = day_protocol.read(source)["VLCS"].values()
    assert len(domains) == 4
    for domain in domains:
        assert (len(domain.defaults), len(domain.draws)) == (1, 1)
