"""Measures of biased data at the trials and epochs that each rule chooses."""

from __future__ import annotations

import pytest

from biasbed import record
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.biased_data import BIASED_DATA
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


def test_every_rule_chooses_among_the_same_trials_and_all_measures_are_of_its_choice(searched: Recorder) -> None:
    analysis = compute(RunStore(searched.uri), searched.options(study="search", bootstrap=200))
    choices = analysis.choices.set_index(["rule", "algorithm", "dataset"])
    frame = analysis.data(BIASED_DATA)
    measured = frame.set_index(["rule", "algorithm", "dataset", "measure"])["value"]
    for rule, draw in CHOSEN.items():
        for gain, algorithm in enumerate(("erm", "lff")):
            place = rule, algorithm, "x-5"
            assert tuple(choices.loc[place, ["trial", "optim.lr"]]) == (str((draw - gain) % 3), f"1e-{draw}")
            aligned, conflicting, accuracy = (100 * value + 5 * gain for value in TEST[draw])
            assert measured[(*place, "accuracy")] == pytest.approx(accuracy)
            assert measured[(*place, "conflicting_accuracy")] == pytest.approx(conflicting)
            assert measured[(*place, "ac_score")] == pytest.approx(2 * aligned * conflicting / (aligned + conflicting))
    labels = frame.drop_duplicates("rule").set_index("rule")["labels"]
    assert labels["worst_group"] == "groups of the validation images"
    assert labels["validation_accuracy"] == "classes of the validation images"
