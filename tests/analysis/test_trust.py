"""Trust measures of a study: read from stored scores at the chosen step, with intervals over images, in the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from biasbed import record
from biasbed.data.names import Coded
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions, write_predictions
from biasbed.evaluation.trust.metrics import TrustResults
from helpers.toy_runs import EPOCHS, Recorder

CLASSES = ("a", "b", "c")
KEPT = {"epochs": "4", "optim.lr": "0.1", "scores.keep": "fp32"}
pytestmark = pytest.mark.usefixtures("few_draws", "without_evidence", "without_figures")


def decided(name: str, sharpness: float, seed: int, images: int = 60, groups: bool = False) -> Decisions:
    generator = np.random.default_rng([len(name), images])
    labels = generator.integers(0, 3, images)
    logits = np.random.default_rng(seed).normal(size=(images, 3)) + sharpness * np.eye(3)[labels]
    energy = np.log(np.exp(logits).sum(axis=1))
    log_probability = logits - energy[:, None]
    return Decisions(
        "model",
        name,
        [f"{name}/{number}" for number in range(images)],  # type: ignore[arg-type]
        Coded(labels, CLASSES),
        Coded(logits.argmax(axis=1), CLASSES),
        CLASSES,
        group=Coded(np.arange(images) % 2, ("even", "odd")) if groups else None,
        confidence=np.exp(log_probability.max(axis=1)),
        log_probability=log_probability.astype(np.float32),
        energy=energy.astype(np.float32),
        max_softmax=np.exp(log_probability.max(axis=1)).astype(np.float32),
        label_map="identity",
    )


def keep(recorder: Recorder, run: str, decisions: Decisions, step: int = EPOCHS - 1) -> None:
    file = record.predictions_file(decisions.set, "last")
    write_predictions(recorder.folder / run / file, decisions, step)
    recorder.client.log_artifact(run, str(recorder.folder / run / file), str(Path(file).parent))


def study(recorder: Recorder, groups: bool = False) -> dict[str, list[list[Decisions]]]:
    stored: dict[str, list[list[Decisions]]] = {}
    for row, sharpness in (("erm", 1.0), ("infodrop", 2.0)):
        for seed in range(2):
            run = recorder.train(row, seed, settings=KEPT)
            files = [decided(name, sharpness, seed, groups=groups) for name in ("val", "plain", "sketch")]
            for decisions in files:
                keep(recorder, run, decisions)
            stored.setdefault(row, []).append(files)
    return stored


def test_values_are_means_over_runs_of_what_a_run_has(recorder: Recorder) -> None:
    stored = study(recorder)
    outcome = recorder.analyze(selection="last", bootstrap="200")
    table = outcome.analysis.trust.table.set_index(["dataset", "algorithm", "measure"])
    assert set(table.index.get_level_values("dataset")) == {"val", "plain", "sketch"}
    assert outcome.analysis.trust.calibrating == ("val",)
    for row, runs in stored.items():
        values = [TrustResults.from_decisions(files, ["val"], 0.1) for files in runs]
        for name in ("val", "plain", "sketch"):
            of_runs = [results.assessments[name].values() for results in values]
            for measure, scale in (("brier", 1), ("loss_scaled", 1), ("ece_scaled", 100), ("lac_coverage", 100)):
                expected = [scale * measures[measure] for measures in of_runs]
                line = table.loc[(name, row, measure)]
                assert line["mean"] == pytest.approx(np.mean(expected))
                assert line["std"] == pytest.approx(np.std(expected, ddof=1))
                assert line["low"] <= line["mean"] <= line["high"]
        temperatures = [results.calibrated.temperature for results in values if results.calibrated is not None]
        assert table.loc[("val", row, "temperature"), "mean"] == pytest.approx(np.mean(temperatures))
    less = table.loc[("sketch", "infodrop", "brier")]
    assert less["reference"] == "erm"
    assert less["difference"] == pytest.approx(less["mean"] - table.loc[("sketch", "erm", "brier"), "mean"])
    assert less["difference_low"] < less["difference"] < less["difference_high"] < 0
    assert ("val", "erm", "auroc_msp") not in table.index
    # The left-out sets of the protocol have no stored decisions.
    assert any(line.startswith("edge, erm: no decisions are stored") for line in outcome.analysis.trust.left_out)
    written = pd.read_csv(outcome.output_dir / "trust.csv")
    assert len(written) == len(table)
    page = (outcome.output_dir / "report.html").read_text()
    section = page[page.index('id="trust"') :]
    for words in ("NLL scaled", "AUROC, energy", "The same less erm", "edge, infodrop: no decisions are stored"):
        assert words in section
    assert "Mahalanobis</" not in section  # no features are stored


def test_groups_have_coverage_of_their_own(recorder: Recorder) -> None:
    study(recorder, groups=True)
    outcome = recorder.analyze(selection="last", bootstrap="200")
    groups = outcome.analysis.trust.groups
    assert set(groups["group"]) == {"even", "odd"}
    assert set(groups["measure"]) == {
        f"{own}{score}_{value}" for own in ("", "own_") for score in ("lac", "aps") for value in ("coverage", "size")
    }
    assert groups["images"].isin([15, 30]).any()
    assert (outcome.output_dir / "trust_groups.csv").exists()
    assert "coverage, own threshold" in (outcome.output_dir / "report.html").read_text()


def test_another_set_calibrates_and_more_may_be_missed(recorder: Recorder) -> None:
    study(recorder)
    usual = recorder.analyze(selection="last", bootstrap="200").analysis.trust.table
    other = recorder.analyze(selection="last", bootstrap="200", calibrate="plain", miss="0.4").analysis.trust
    assert other.calibrating == ("plain",)
    sizes = {}
    for name, table in (("usual", usual), ("other", other.table)):
        of_sketch = table[(table["dataset"] == "sketch") & (table["measure"] == "lac_size")]
        sizes[name] = of_sketch["mean"].to_numpy()
    assert (sizes["other"] < sizes["usual"]).all()
    assert set(other.table["dataset"]) == {"plain", "sketch"}


def test_a_set_that_is_not_there_can_t_calibrate(recorder: Recorder) -> None:
    study(recorder)
    with pytest.raises(UsageError, match="calibrate=plian: there is no such set; did you mean 'plain'"):
        recorder.analyze(selection="last", calibrate="plian")


def test_runs_that_store_no_scores_have_no_section(recorder: Recorder) -> None:
    for row in ("erm", "infodrop"):
        keep(recorder, recorder.train(row), decided("val", 1.0, 0))
    outcome = recorder.analyze(selection="last")
    assert not outcome.analysis.trust.applies
    assert 'id="trust"' not in (outcome.output_dir / "report.html").read_text()
    assert not (outcome.output_dir / "trust.csv").exists()
    with pytest.raises(UsageError, match="calibrate=plain: no run stores scores"):
        recorder.analyze(selection="last", calibrate="plain")


def test_scores_of_another_step_are_not_taken(recorder: Recorder) -> None:
    for row in ("erm", "infodrop"):
        run = recorder.train(row, settings=KEPT)
        for name in ("val", "plain"):
            keep(recorder, run, decided(name, 1.0, 0), step=EPOCHS - 2)
    trust = recorder.analyze(selection="last", bootstrap="200").analysis.trust
    assert trust.table.empty
    assert any("it can't be calibrated on val: the decisions of step 3" in line for line in trust.left_out)


def test_a_trust_measure_may_be_what_is_compared(recorder: Recorder) -> None:
    for row, base in (("erm", 0.6), ("infodrop", 0.4)):
        values = {f"test/brier/{name}": [base] * 4 for name in ("plain", "edge")}
        recorder.train(row, settings=KEPT, metrics=values)
    analysis = recorder.analyze(selection="last", sets="plain,edge", measure="brier").analysis
    assert analysis.scores.set_index(["algorithm", "dataset"])["mean"].to_dict() == {
        ("erm", "plain"): 0.6,
        ("erm", "edge"): 0.6,
        ("infodrop", "plain"): 0.4,
        ("infodrop", "edge"): 0.4,
    }
    assert all(not column.higher_is_better for column in analysis.sets)
