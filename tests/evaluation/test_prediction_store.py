"""Scores of all classes kept with decisions: what is stored, what is measured of it, and how it is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import parquet
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn

from biasbed import cli, measures, record
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import NO_SCORES, ScoreSettings
from biasbed.data.source import MemorySource
from biasbed.data.transforms import SquareResize
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.prediction_files import read_predictions, write_predictions
from biasbed.evaluation.prediction_store import PredictionStore
from biasbed.networks.network import as_input
from biasbed.suites.label_maps import Grouped
from biasbed.suites.sets import EvaluationSet
from biasbed.tasks import MultiLabel
from helpers.commands import ROOT
from helpers.runs import run_folders

metrics = pytest.importorskip("biasbed.plugins.trust.metrics")
TrustResults, scored_images = metrics.TrustResults, metrics.scored_images
FOGS = f"{ROOT}/tests/helpers/toy_suite.py:Fogs"
FULL = ScoreSettings(keep="fp32")
CLASSES = ("a", "b", "c", "d")


def make_set(size: int = 37, name: str = "set") -> EvaluationSet:
    generator = np.random.default_rng(size)
    source = MemorySource(
        name=name,
        classes=CLASSES,
        y=generator.integers(0, 4, size),
        ids=[f"{name}/{number}" for number in range(size)],
        group=np.array(["odd", "even"] * size)[:size],
        images=generator.integers(0, 256, (size, 3, 8, 8), dtype=np.uint8),
    )
    return EvaluationSet(name, source, SquareResize(8))


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 4)).eval()


def decide(
    model: nn.Module, sets: list[EvaluationSet], scores: ScoreSettings = FULL, batch: int = 8
) -> dict[str, Decisions]:
    evaluator = Evaluator(sets, Group(), Precision(), batch, 0, False, scores=scores)
    decided = evaluator.decide(model)
    assert decided is not None
    return decided


def images_of(member: EvaluationSet) -> Tensor:
    source = member.source
    assert isinstance(source, MemorySource)
    return as_input(torch.as_tensor(source.images))


def test_what_is_kept_is_what_the_model_says(model: nn.Sequential) -> None:
    member = make_set()
    decisions = decide(model, [member])["set"]
    with torch.inference_mode():
        logits = model(images_of(member)).double().numpy()
    assert decisions.log_probability == pytest.approx(log_softmax(logits, axis=1), abs=1e-5)
    assert decisions.energy == pytest.approx(logsumexp(logits, axis=1), abs=1e-5)
    assert decisions.max_softmax == pytest.approx(decisions.confidence, abs=1e-6)
    half = decide(model, [member], ScoreSettings(keep="fp16"))["set"]
    assert half.log_probability is not None
    assert half.log_probability.dtype == np.float16
    assert half.log_probability == pytest.approx(decisions.log_probability, abs=2e-3)


def test_files_give_back_what_was_kept(model: nn.Sequential, tmp_path: Path) -> None:
    path = tmp_path / record.predictions_file("set", "last")
    for scores in (FULL, ScoreSettings(keep="fp16")):
        decisions = decide(model, [make_set()], scores)["set"]
        write_predictions(path, decisions, 3)
        again = read_predictions(path)
        assert again.classes == CLASSES
        for name in ("log_probability", "energy", "max_softmax"):
            assert (getattr(again, name) == getattr(decisions, name)).all(), name
        named = [*record.PREDICTIONS][-3:]
        assert [name for name in parquet.read_schema(path).names if name in named] == named


def test_nothing_is_kept_unless_it_is_asked_for(model: nn.Sequential, tmp_path: Path) -> None:
    decisions = decide(model, [make_set()], NO_SCORES)["set"]
    write_predictions(tmp_path / "plain.parquet", decisions, 0)
    assert not {"log_probability", "energy", "max_softmax"} & set(parquet.read_schema(tmp_path / "plain.parquet").names)
    assert scored_images(decisions) is None
    results = TrustResults.from_decisions([decisions], ["set"], 0.1)
    assert results.metrics({"set": ["test"]}) == {}


def test_sets_under_conditions_and_of_several_labels_keep_none(model: nn.Sequential) -> None:
    member = make_set()
    conditions = replace(member.source, condition=np.zeros(37, np.int32), conditions=("fog",))
    several = replace(member.source, y=np.eye(4, dtype=np.int64)[member.source.y], group=None)
    sets = [
        replace(member, name="fogged", source=conditions),
        EvaluationSet("marks", several, member.transform, task=MultiLabel()),
    ]
    for decisions in decide(model, sets).values():
        assert decisions.log_probability is None


def test_grouped_outputs_keep_probabilities_of_their_classes_and_energies_of_all_outputs(model: nn.Sequential) -> None:
    member = make_set()
    grouped = Grouped(((0, 1), (2,), (3,)), "prob_mean")
    source = replace(member.source, y=np.array([0, 0, 1, 2])[member.source.y], classes=("ab", "c", "d"))
    decisions = decide(model, [replace(member, source=source, label_map=grouped)])["set"]
    plain = decide(model, [member])["set"]
    assert decisions.log_probability is not None
    assert np.exp(decisions.log_probability).sum(axis=1) == pytest.approx(np.ones(37), abs=1e-5)
    assert (decisions.energy == plain.energy).all()
    assert (decisions.max_softmax == plain.max_softmax).all()
    assert np.exp(decisions.log_probability.max(axis=1)) == pytest.approx(decisions.confidence, abs=1e-6)


def test_stored_decisions_without_the_scores_are_made_again(model: nn.Sequential, tmp_path: Path) -> None:
    member = make_set()
    write_predictions(tmp_path / record.predictions_file("set", "last"), decide(model, [member], NO_SCORES)["set"], 0)
    for scores, is_enough in ((NO_SCORES, True), (FULL, False)):
        store = PredictionStore(tmp_path, [member], "model", skip=False, scores=scores)
        assert ("set" in store.read_finished()) == is_enough


@pytest.mark.parametrize("damage", ["log_probability", "energy", "classes"])
def test_damaged_scores_are_said(model: nn.Sequential, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "last.parquet"
    write_predictions(path, decide(model, [make_set()])["set"], 0)
    table = parquet.read_table(path)
    if damage == "log_probability":
        values = table[damage].to_pylist()
        table = table.set_column(table.column_names.index(damage), damage, [[row[:3] for row in values]])
    elif damage == "energy":
        table = table.drop_columns([damage])
    else:
        table = table.replace_schema_metadata({"label_map": "identity"})
    parquet.write_table(table, path)
    with pytest.raises(UsageError, match="its columns of scores are not whole"):
        read_predictions(path)


# --- measures of several sets -----------------------------------------------------------------------------------------


def test_a_set_that_calibrates_is_measured_on_its_other_half(model: nn.Sequential) -> None:
    sets = [make_set(40, "val"), make_set(30, "test")]
    results = TrustResults.from_decisions(decide(model, sets).values(), ["val"], 0.1)
    assert {name: len(assessment.images) for name, assessment in results.assessments.items()} == {"val": 20, "test": 30}
    metrics = results.metrics({"val": ["val"], "test": ["test"]})
    assert "val/temperature/val" in metrics
    assert "val/auroc_msp/val" not in metrics
    assert {name.split("/")[1] for name in metrics if name.startswith("test/")} == {
        name for name, measure in measures.MEASURES.items() if measure.of_scores and "mahalanobis" not in name
    }
    again = TrustResults.from_decisions(reversed(decide(model, sets).values()), ["val"], 0.1)
    assert again.metrics({"val": ["val"], "test": ["test"]}) == pytest.approx(metrics)


def test_without_calibration_there_is_the_brier_score_alone(model: nn.Sequential) -> None:
    decided = decide(model, [make_set(40, "val"), make_set(1, "single")])
    for calibrating in ([], ["missing"], ["single"]):
        results = TrustResults.from_decisions(decided.values(), calibrating, 0.1)
        assert set(results.metrics({"val": ["test"], "single": ["test"]})) == {"test/brier/val", "test/brier/single"}


def test_a_label_that_is_no_class_leaves_a_set_out(model: nn.Sequential) -> None:
    decisions = replace(decide(model, [make_set()])["set"], label=["z"] * 37)  # type: ignore[arg-type]
    assert scored_images(decisions) is None


# --- commands ---------------------------------------------------------------------------------------------------------


def list_metrics(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def test_a_training_measures_every_evaluation_and_late_sets_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    words = ["train", "--suite", FOGS, "--device", "cpu", "--tracking", "offline", "--test_every", "clear:end"]
    assert cli.main([*words, "--scores.keep", "fp32"]) == 0
    (folder,) = run_folders(tmp_path)
    *evaluations, late = list_metrics(folder)
    assert all("val/temperature/val" in metrics and "test/auroc_msp/clear" not in metrics for metrics in evaluations)
    assert {"test/auroc_energy/clear", "test/lac_size/clear"} <= set(late)
    assert not [name for metrics in (*evaluations, late) for name in metrics if name.endswith("_scaled/fogged")]
    clear, validation = (read_predictions(folder / record.predictions_file(name, "last")) for name in ("clear", "val"))
    decided = [replace(clear, set="clear"), replace(validation, set="val")]
    trust = TrustResults.from_decisions(decided, ["val"], 0.1).metrics({"clear": ["test"], "val": []})
    assert {name: late[name] for name in trust} == pytest.approx(trust)

    words = ["evaluate", "--model", str(folder / "last.ckpt"), "--suite", FOGS, "--device", "cpu", "--row", "again"]
    words += ["--tracking", "offline", "--scores.keep", "fp16"]
    assert cli.main(words) == 0
    assert "name a set of the training distribution with scores.calibrate=<set>" in capsys.readouterr().out
    assert cli.main([*words, "--resume", "never", "--scores.calibrate", "clear"]) == 0
    printed = capsys.readouterr().out
    assert "scaled: at the temperature" in printed
    (tested,) = (path for path in run_folders(tmp_path) if "again" in path.name and (path / "trust.csv").exists())
    table = pd.read_csv(tested / "trust.csv")
    assert set(table["set"]) == {"clear"}
    assert (table["images"] == 18).all()
    assert ((table["low"] <= table["value"] + 1e-12) & (table["value"] <= table["high"] + 1e-12)).all()

    files = ",".join(str(folder / record.predictions_file(name, "last")) for name in ("val", "clear"))
    assert cli.main(["evaluate", "--model", files, "--scores.calibrate", "val", "--tracking", "offline"]) == 0
    assert "detection" in capsys.readouterr().out
    kept = set(run_folders(tmp_path))
    assert cli.main(["evaluate", "--model", files, "--scores.calibrate", "vall", "--tracking", "offline"]) == 2
    assert "there is no evaluation set 'vall'; did you mean 'val'" in capsys.readouterr().err
    assert set(run_folders(tmp_path)) == kept


ANSWERS = """subj,session,trial,rt,object_response,category,condition,imagename
net,1,1,NaN,cat,cat,0,cat1.png
net,1,2,NaN,dog,cat,0,cat2.png
"""


def test_decisions_without_scores_can_t_calibrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    (tmp_path / "answers.csv").write_text(ANSWERS)
    words = ["evaluate", "--model", str(tmp_path / "answers.csv"), "--tracking", "offline"]
    assert cli.main([*words, "--scores.calibrate", "decisions"]) == 2
    assert "no scores of all classes on two or more images of 'decisions'" in capsys.readouterr().err
    assert not run_folders(tmp_path)
