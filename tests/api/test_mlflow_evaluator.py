"""The plug-in, through MLflow's own call: found by entry point, its numbers those of `biasbed.evaluate`."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from typing import Any

import mlflow
import pandas as pd
import pytest
import torch
from mlflow.models.evaluation.evaluator_registry import ModelEvaluatorRegistry, _model_evaluation_registry
from torch import nn

import biasbed
from biasbed.datasets.digits import CLASSES
from helpers.commands import ROOT
from helpers.runs import stored, timeless

CONFIG: dict[str, Any] = {"suite": "demo", "limit": 60, "image_size": 16, "classes": list(CLASSES)}
SETS = pd.DataFrame({"set": ["edge", "cue_conflict"]})


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point of pyproject.toml, as pip would install it."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    points = [
        EntryPoint(name, value, "mlflow.model_evaluator") for name, value in described["mlflow.model_evaluator"].items()
    ]
    registry = ModelEvaluatorRegistry()
    monkeypatch.setattr("mlflow.models.evaluation.evaluator_registry.get_entry_points", lambda group: points)
    registry.register_entrypoints()
    monkeypatch.setitem(_model_evaluation_registry._registry, "biasbed", registry._registry["biasbed"])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10)).eval()


def evaluated(model: Any, **arguments: Any) -> Any:
    return mlflow.models.evaluate(model, SETS, model_type="image-classifier", evaluators="biasbed", **arguments)


def test_a_network_is_tested_through_mlflow(tracking: str, plugged_in: None) -> None:
    expected = biasbed.evaluate(network(), sets=["edge", "cue_conflict"], **CONFIG)
    with mlflow.start_run() as run:
        result = evaluated(network(), evaluator_config=CONFIG)
    assert timeless(result.metrics) == timeless(expected.values) == stored(tracking, run.info.run_id)[0]
    predictions = {"predictions/edge", "predictions/cue_conflict"}
    assert set(result.artifacts) == {"evaluation", "shape_bias", "looks_at", *predictions}
    pd.testing.assert_frame_equal(result.artifacts["predictions/edge"].content, expected.predictions("edge"))
    pd.testing.assert_frame_equal(biasbed.predictions(run.info.run_id, "edge"), expected.predictions("edge"))
    table = mlflow.load_table("biasbed_metrics.json", run_ids=[run.info.run_id])
    assert table["value"].tolist() == pytest.approx(expected.metrics["value"].tolist(), abs=1e-9)


def test_a_logged_model_is_tested_by_its_address(tracking: str, plugged_in: None) -> None:
    example = torch.rand(2, 3, 16, 16).numpy()
    with mlflow.start_run():
        info = mlflow.pytorch.log_model(network(), name="net", input_example=example, pip_requirements=["torch"])
        result = evaluated(info.model_uri, evaluator_config=CONFIG)
    expected = biasbed.evaluate(network(), sets=["edge", "cue_conflict"], **CONFIG)
    assert timeless(result.metrics) == timeless(expected.values)


def test_a_misspelt_column_is_not_ignored(tracking: str, plugged_in: None) -> None:
    frame = pd.DataFrame({"sets": ["edge"]})
    with pytest.raises(biasbed.UsageError, match="the column 'sets' is not read; call it 'set'"):
        mlflow.models.evaluate(
            network(), frame, model_type="image-classifier", evaluators="biasbed", evaluator_config=CONFIG
        )


def test_other_evaluations_are_left_alone(tracking: str, plugged_in: None) -> None:
    with pytest.raises(mlflow.MlflowException, match="could not be evaluated"):
        evaluated(network(), evaluator_config={})
