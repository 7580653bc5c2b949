"""Deviations of runs and epochs together, from a CSV's column or from one's own curves."""

from __future__ import annotations

import csv
import importlib.resources
import statistics

import pytest

from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.averages import AVERAGES
from biasbed.settings import build
from helpers.toy_runs import SETS, Recorder


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_own_runs_pool_every_epoch_of_every_run(recorder: Recorder) -> None:
    curves = {seed: {name: [0.1, 0.2 + 0.01 * seed, 0.3, 0.35 + 0.02 * seed] for name in SETS} for seed in range(3)}
    for seed, of_sets in curves.items():
        recorder.train("erm", seed, of_sets)
    analysis = compute(RunStore(recorder.uri), recorder.options(selection="last_n", n="3"))
    row = analysis.data(AVERAGES)[analysis.data(AVERAGES)["dataset"] == "edge"].iloc[0]
    epochs = [100 * value for of_sets in curves.values() for value in of_sets["edge"][1:]]
    means = [statistics.fmean(of_sets["edge"][1:]) * 100 for of_sets in curves.values()]
    assert row["std_pooled"] == pytest.approx(statistics.pstdev(epochs))
    assert row["std_between_runs"] == pytest.approx(statistics.stdev(means))
    assert (row["num_runs"], row["num_epochs"]) == (3, 3)
    assert list(analysis.scores["std"]) == pytest.approx([row["std_between_runs"]] * 6)
    assert compute(RunStore(recorder.uri), recorder.options()).data(AVERAGES).empty


@pytest.mark.slow
def test_published_deviations_pool_as_all_epochs_would(published_uri: str) -> None:
    """Two epochs a deviation above and below a run's mean have that mean and deviation; all together the pooled one."""
    options = build(
        AnalyzeOptions, {"study": "published_biasbed", "selection": "last_n", "tracking_uri": published_uri}
    )
    analysis = compute(RunStore(published_uri), options)
    file = importlib.resources.files("biasbed.published").joinpath("biasbed_runs.csv")
    epochs: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        if row["selection"] == "last_30":
            mean, deviation = float(row["accuracy"]), float(row["std_over_epochs"])
            epochs.setdefault((row["algorithm"], row["dataset"]), []).extend((mean - deviation, mean + deviation))
    pooled = {(row["algorithm"], row["dataset"]): row for row in analysis.data(AVERAGES).to_dict("records")}
    assert pooled.keys() == epochs.keys()
    assert len(pooled) == 80
    for cell, values in epochs.items():
        assert pooled[cell]["num_runs"] == len(values) / 2
        assert pooled[cell]["mean"] == pytest.approx(statistics.fmean(values))
        assert pooled[cell]["std_pooled"] == pytest.approx(statistics.pstdev(values))
