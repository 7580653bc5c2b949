"""Evaluator plug-in of MLflow: `mlflow.models.evaluate(..., evaluators="biasbed")`. MLflow finds it by entry point.

Light at import: MLflow imports it with its own evaluators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from biasbed.errors import UsageError
from biasbed.settings import find_near_name

if TYPE_CHECKING:
    from torch import Tensor, nn

SET_COLUMN = "set"  # of the data: names of evaluation sets


class BiasbedEvaluator(ModelEvaluator):
    """Evaluator of image classifiers on the sets of a suite.

    evaluator_config: arguments of `biasbed.evaluate`; `suite` is required. The images are the suite's: of MLflow's
    `data` the column `set` is read, which names evaluation sets; without such a column all sets are tested.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Mapping[str, Any], **kwargs: Any) -> bool:
        """Return True if the configuration names a suite, so that other evaluations stay as they are."""
        return "suite" in (evaluator_config or {})

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any],
        model: Any = None,
        model_id: str | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Test the model, log into the run of MLflow's evaluation, and return metrics and tables.

        Raises UsageError as `biasbed.evaluate` does, and if there is no model.
        """
        import tempfile

        import mlflow

        from biasbed.api.active_run import drop_nan, log_metrics
        from biasbed.api.evaluation import evaluate

        if model is None:
            raise UsageError("evaluators='biasbed' tests a model on a suite's images: give model=")
        arguments = dict(evaluator_config)
        frame: Any = getattr(dataset, "features_data", None)
        columns = [str(column) for column in getattr(frame, "columns", ())]
        near = find_near_name(SET_COLUMN, columns)
        if SET_COLUMN in columns:
            arguments.setdefault("sets", sorted(set(frame[SET_COLUMN])))
        elif near is not None:
            raise UsageError(f"data: the column '{near}' is not read; call it '{SET_COLUMN}' if it names the sets")
        card = evaluate(find_network(model), **arguments)
        with tempfile.TemporaryDirectory() as temporary:
            folder = card.save(temporary)
            mlflow.log_artifacts(temporary)
            artifacts = _read_tables(folder, mlflow.get_artifact_uri())
        mlflow.log_table(card.metrics.astype({"n": float}), "biasbed_metrics.json")
        if model_id is None:  # MLflow logs the metrics of a logged model by itself
            log_metrics(card.values, 0)
        return EvaluationResult(drop_nan(card.values), artifacts, run_id)


def find_network(model: Any) -> nn.Module | Callable[[Tensor], Tensor]:
    """Return the network in a pyfunc model; without one a function that gives `predict` the images as an array.

    A function that was given to MLflow is called with images [N,C,H,W] in [0,1], as a tensor.
    """
    import torch

    python_model = getattr(model, "python_model", None)
    if python_model is not None:
        return lambda x: python_model.predict(None, x)
    try:
        network = model.get_raw_model()
    except (AttributeError, NotImplementedError):
        network = None
    if isinstance(network, torch.nn.Module):
        return network
    return lambda x: torch.as_tensor(_to_array(model.predict(x.cpu().numpy())))


def _to_array(scores: Any) -> Any:
    """Return scores [N,K] of a data frame or of an array."""
    return scores.to_numpy(dtype="float32") if hasattr(scores, "to_numpy") else scores


def _read_tables(folder: Path, uri: str) -> dict[str, Any]:
    """Return the tables of a folder as artifacts of an evaluation, by name."""
    import pandas as pd
    from mlflow.models.evaluation.artifacts import CsvEvaluationArtifact, ParquetEvaluationArtifact

    artifacts: dict[str, Any] = {}
    for path in sorted(folder.glob("*.csv")):
        artifacts[path.stem] = CsvEvaluationArtifact(f"{uri}/{path.name}", pd.read_csv(path))
    for path in sorted(folder.glob("predictions/*/*.parquet")):
        inner = path.relative_to(folder).as_posix()
        name = f"predictions/{path.parent.name}"
        artifacts[name] = ParquetEvaluationArtifact(f"{uri}/{inner}", pd.read_parquet(path))
    return artifacts
