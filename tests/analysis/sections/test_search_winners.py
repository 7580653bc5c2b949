"""Winners of one search under several criteria: which trial, at which epoch, and what it scores; means over methods."""

from __future__ import annotations

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis.report import data_files, summary
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.search_winners import SEARCH_WINNERS
from biasbed.suites.debiasing import MEASURES, RULES
from helpers.toy_runs import Recorder

pytestmark = pytest.mark.usefixtures("without_evidence")

PARTS = ("aligned_accuracy", "conflicting_accuracy")


def derived(phase: str) -> record.Derived:
    inputs = tuple(f"{phase}/{part}/x_{phase}" for part in PARTS)
    return record.Derived(phase, "ac_score", f"x_{phase}", "harmonic_mean", inputs)


PROTOCOL = record.Protocol(
    suite="toy",
    sets=(record.SetRecord("x_test", "accuracy", 100, 2, 0.5, measures=MEASURES, block="x"),),
    training_sets=("x",),
    validation_sets=("x_val",),
    monitor="val/ac_score/x_val",
    derived=(derived("val"), derived("test")),
    selection_rules=RULES,
)
# Of three trials aligned, conflicting and all validation images, and the worst group; the second epoch adds a point.
VALIDATION = [(0.9, 0.1, 0.8, 0.0), (0.6, 0.6, 0.6, 0.3), (0.5, 0.7, 0.5, 0.5)]
TEST = [(0.9, 0.1, 0.2), (0.6, 0.5, 0.5), (0.4, 0.8, 0.7)]  # aligned, conflicting, all
NAMES = (*PARTS, "accuracy", "worst_group_accuracy")
CHOSEN = {"best_validation": 1, "validation_accuracy": 0, "worst_group": 2}


@pytest.fixture
def searched(recorder: Recorder) -> Recorder:
    """Two methods in two cells; the second method is five points better in every test, its trials stand otherwise."""
    for gain, algorithm in enumerate(("erm", "lff")):
        for cell in ("x-1", "x-5"):
            for trial in range(3):
                draw = (trial + gain) % 3
                add(recorder, algorithm, cell, trial, draw, 0.05 * gain)
    return recorder


def add(recorder: Recorder, algorithm: str, cell: str, trial: int, draw: int, gain: float) -> None:
    values = {f"val/{name}/x_val": [v, v + 0.01] for name, v in zip(NAMES, VALIDATION[draw], strict=True)}
    tested = zip(NAMES, TEST[draw], strict=False)
    values |= {f"test/{name}/x_test": [0.0, value + gain] for name, value in tested if name != "accuracy"}
    tags = {
        **{record.KIND: "trial", record.REPEAT: "0", record.TRIAL: str(trial), record.TRIAL_STATE: "complete"},
        **{record.SPACE: algorithm, record.CONFIG_HASH: f"{algorithm}{trial}"},
        record.RUN_KEY: f"{algorithm}{cell}{trial}",
    }
    recorder.train(
        algorithm,
        0,
        {"x_test": [0.0, TEST[draw][2] + gain]},
        monitor=[0.0, 0.0],
        protocol=PROTOCOL,
        study="search",
        cell=cell,
        settings={"optim.lr": f"1e-{draw}", "epochs": "2"},
        metrics=values,
        **tags,
    )


def analysis_of(recorder: Recorder, study: str = "search") -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study=study, bootstrap=200))


def test_every_criterion_has_its_winners_from_the_same_trials(searched: Recorder) -> None:
    analysis = analysis_of(searched)
    frame = analysis.data(SEARCH_WINNERS).each.set_index(["rule", "algorithm", "dataset"])
    for rule, draw in CHOSEN.items():
        for gain, algorithm in enumerate(("erm", "lff")):
            winner = frame.loc[rule, algorithm, "x-5"]
            assert (winner["trial"], winner["optim.lr"]) == (str((draw - gain) % 3), f"1e-{draw}")
            aligned, conflicting, accuracy = (100 * value + 5 * gain for value in TEST[draw])
            assert winner["accuracy"] == pytest.approx(accuracy)
            assert winner["conflicting_accuracy"] == pytest.approx(conflicting)
            assert winner["ac_score"] == pytest.approx(2 * aligned * conflicting / (aligned + conflicting))
    assert frame.loc[("worst_group", "erm", "x-1"), "labels"] == "groups of the validation images"
    assert frame.loc[("validation_accuracy", "erm", "x-1"), "labels"] == ""

    means = analysis.data(SEARCH_WINNERS).means.set_index(["rule", "dataset"])
    for rule in CHOSEN:
        both = [frame.loc[(rule, algorithm, "x-1"), "ac_score"] for algorithm in ("erm", "lff")]
        assert means.loc[(rule, "x-1"), "ac_score"] == pytest.approx(sum(both) / 2)
        assert means.loc[(rule, "x-1"), "num_algorithms"] == 2
    assert means["worst_class_accuracy"].isna().all()  # nobody measured it


def test_without_a_search_there_are_none(recorder: Recorder) -> None:
    for algorithm in ("a", "b"):
        recorder.train(algorithm, 0, study="own")
    analysis = analysis_of(recorder, "own")
    assert analysis.data(SEARCH_WINNERS).each.empty
    assert isinstance(analysis.data(SEARCH_WINNERS).means, pd.DataFrame)
    assert not {"winners.csv", "criteria.csv"} & set(data_files.frames(analysis))
    assert SEARCH_WINNERS.title not in summary.render(analysis)
