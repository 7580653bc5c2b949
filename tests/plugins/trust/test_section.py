"""Trust measures of a study: read from stored scores at the chosen step, with intervals over images, in the report."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed import record
from biasbed.analysis.command import Outcome
from biasbed.analysis.options import AnalyzeOptions
from biasbed.data.names import Coded
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.plugins.trust.metrics import TrustResults
from biasbed.plugins.trust.section import TRUST, sentences
from biasbed.plugins.trust.section.assessed_rows import COLUMNS as TRUST_COLUMNS
from biasbed.plugins.trust.section.assessed_rows import TrustTables
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


def test_values_are_means_over_runs_and_their_interval_over_runs_is_welch_s(recorder: Recorder) -> None:
    stored = study(recorder, groups=True)
    outcome = recorder.analyze(selection="last", bootstrap="200")
    table = outcome.analysis.data(TRUST).table.set_index(["dataset", "algorithm", "measure"])
    assert set(table.index.get_level_values("dataset")) == {"val", "plain", "sketch"}
    assert outcome.analysis.data(TRUST).calibrating == ("val",)
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
    values_of: dict[str, list[float]] = {}
    for row, runs in stored.items():
        results = [TrustResults.from_decisions(files, ["val"], 0.1) for files in runs]
        values_of[row] = [100 * result.assessments["sketch"].values()["ece"] for result in results]
    welch = stats.ttest_ind(values_of["infodrop"], values_of["erm"], equal_var=False).confidence_interval(0.95)
    line = table.loc[("sketch", "infodrop", "ece")]
    assert (line["runs_low"], line["runs_high"]) == pytest.approx((welch.low, welch.high))
    # The left-out sets of the protocol have no stored decisions.
    assert any(line.startswith("edge, erm: no decisions are stored") for line in outcome.analysis.data(TRUST).left_out)
    groups = outcome.analysis.data(TRUST).groups
    assert set(groups["group"]) == {"even", "odd"}
    coverages = {f"{own}{score}_coverage" for own in ("", "own_") for score in ("lac", "aps")}
    assert coverages <= set(groups["measure"])
    assert (outcome.output_dir / "trust_groups.csv").exists()
    written = pd.read_csv(outcome.output_dir / "trust.csv")
    assert len(written) == len(table)
    page = (outcome.output_dir / "report.html").read_text()
    section = page[page.index('id="trust"') :]
    for words in ("NLL scaled", "AUROC, energy", "Difference to ERM", "edge, infodrop: no decisions are stored"):
        assert words in section


# --- what is concluded ------------------------------------------------------------------------------------------------


def sentences_of(outcome: Outcome, start: str) -> list[str]:
    return [
        line
        for line in sentences.trust_sentences(outcome.analysis.data(TRUST), outcome.analysis)
        if line.startswith(start)
    ]


@pytest.mark.parametrize(
    ("over_images", "over_runs", "phrase"),
    [
        ((-3, -1), (-4, -0.5), "better calibrated than ERM on"),
        ((1, 3), (0.5, 4), "worse calibrated than ERM on"),
        ((-3, -1), (-4, 0.5), "better calibrated than ERM for these weights alone on"),
        ((-3, -1), (math.nan, math.nan), "better calibrated than ERM for these weights alone on"),
        ((1, 3), (-9, -0.1), "worse calibrated than ERM for these weights alone on"),
        ((-3, 0), (-4, -0.5), "not shown to differ from ERM on"),
        ((-1, 3), (0.5, 4), "not shown to differ from ERM on"),
    ],
)
def test_one_row_is_called_better_only_where_both_intervals_leave_out_zero(
    over_images: tuple[float, float], over_runs: tuple[float, float], phrase: str
) -> None:
    line = dict.fromkeys(TRUST_COLUMNS, "") | {"dataset": "sketch", "algorithm": "erm", "measure": "ece"}
    line |= {"mean": 5.0, "low": 4.0, "high": 6.0, "difference": sum(over_images) / 2, "num_runs": 3}
    other = line | {"algorithm": "x", "reference": "erm"}
    other |= {"difference_low": over_images[0], "difference_high": over_images[1]}
    other |= {"runs_low": over_runs[0], "runs_high": over_runs[1]}
    rows = [other | {"measure": measure} for measure in ("ece", "ece_scaled")]
    table = pd.DataFrame([line, *rows], columns=list(TRUST_COLUMNS))
    trust = TrustTables(table, pd.DataFrame(), ("val",), ())
    analysis = SimpleNamespace(
        label=lambda name: name.upper(),
        alpha=0.05,
        options=AnalyzeOptions(miss=0.1),
    )
    lines = sentences.trust_sentences(trust, analysis)  # type: ignore[arg-type]
    assert [text for text in lines if text.startswith("X ")] == [
        text for text in lines if f"scaling: {phrase} SKETCH" in text
    ]
    assert sum(text.startswith("X ") for text in lines) == 2


def test_a_temperature_at_its_limit_is_named_and_in_no_mean(recorder: Recorder) -> None:
    """Scores that contradict the labels: the likelihood of equal probabilities is the highest."""
    expected = []
    for seed in range(3):
        for row in ("erm", "infodrop"):
            run = recorder.train(row, seed, settings=KEPT)
            contradicts = row == "infodrop" and seed == 1
            files = [decided(name, -1.0 if contradicts else 2.0, seed) for name in ("val", "plain")]
            for decisions in files:
                keep(recorder, run, decisions)
            calibrated = TrustResults.from_decisions(files, ["val"], 0.1).calibrated
            assert calibrated is not None
            assert calibrated.is_at_limit == contradicts
            if row == "infodrop" and not contradicts:
                expected.append(calibrated.temperature)
    outcome = recorder.analyze(selection="last", bootstrap="200")
    table = outcome.analysis.data(TRUST).table.set_index(["dataset", "algorithm", "measure"])
    line = table.loc[("val", "infodrop", "temperature")]
    assert (line["num_runs"], line["num_at_limit"]) == (2, 1)
    assert line["mean"] == pytest.approx(np.mean(expected))
    assert table.loc[("plain", "infodrop", "ece_scaled"), "num_at_limit"] == 1
    assert table.loc[("plain", "infodrop", "ece"), "num_at_limit"] == 0
    assert table.loc[("val", "erm", "temperature"), "num_at_limit"] == 0
    (said,) = sentences_of(outcome, "Temperature at the limit 100: ")
    assert f"{outcome.analysis.label('infodrop')} (seed 1)." in said
    assert "ERM" not in said
    assert "runs at a limit: 1" in (outcome.output_dir / "report.html").read_text()


# --- other settings ---------------------------------------------------------------------------------------------------


def test_another_set_calibrates_and_more_may_be_missed(recorder: Recorder) -> None:
    stored = study(recorder)
    trust = recorder.analyze(selection="last", bootstrap="200", calibrate="plain", miss="0.4").analysis.data(TRUST)
    assert trust.calibrating == ("plain",)
    assert set(trust.table["dataset"]) == {"plain", "sketch"}
    sizes = trust.table.set_index(["dataset", "algorithm", "measure"])["mean"]
    for row, runs in stored.items():
        results = [TrustResults.from_decisions(files, ["plain"], 0.4) for files in runs]
        expected = [result.assessments["sketch"].values()["lac_size"] for result in results]
        assert sizes["sketch", row, "lac_size"] == pytest.approx(np.mean(expected))


def test_a_measure_without_a_direction_is_not_compared(recorder: Recorder) -> None:
    study(recorder)
    with pytest.raises(UsageError, match="measure=lac_coverage: neither more nor less of it is better"):
        recorder.analyze(selection="last", measure="lac_coverage")


def test_runs_that_store_no_scores_have_no_section(recorder: Recorder) -> None:
    for row in ("erm", "infodrop"):
        keep(recorder, recorder.train(row), decided("val", 1.0, 0))
    outcome = recorder.analyze(selection="last")
    assert not outcome.analysis.data(TRUST).applies
    assert 'id="trust"' not in (outcome.output_dir / "report.html").read_text()
    assert not (outcome.output_dir / "trust.csv").exists()
    with pytest.raises(UsageError, match="calibrate=plain: no run stores scores"):
        recorder.analyze(selection="last", calibrate="plain")


def test_scores_of_another_step_are_not_taken(recorder: Recorder) -> None:
    for row in ("erm", "infodrop"):
        run = recorder.train(row, settings=KEPT)
        for name in ("val", "plain"):
            keep(recorder, run, decided(name, 1.0, 0), step=EPOCHS - 2)
    trust = recorder.analyze(selection="last", bootstrap="200").analysis.data(TRUST)
    assert trust.table.empty
    assert any("it can't be calibrated on val: the decisions of step 3" in line for line in trust.left_out)
