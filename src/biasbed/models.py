"""Trained models: from a checkpoint, a tracked run or a library; and as an MLflow model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed import algorithms, checkpoint, networks, record
from biasbed.algorithms.base import Algorithm, Setup, TrainData, none_prepared
from biasbed.config import Config, config_class
from biasbed.distributed import Group
from biasbed.errors import Failure, UsageError
from biasbed.precision import Precision
from biasbed.schedules import make_optimizer
from biasbed.settings import build
from biasbed.tasks import MultiClass, Task

IMAGENET_CLASSES = 1000


def make_algorithm(
    config: Any,
    task: Task,
    group: Group,
    precision: Precision,
    data: TrainData,
    prepared: Callable[[str], nn.Module] = none_prepared,
) -> Algorithm:
    """The configured algorithm with fresh networks, on the group's device; `prepared` is needed for training only."""
    setup = Setup(
        num_classes=data.num_classes,
        task=task,
        network=lambda: networks.build(config.backbone, data.num_classes, config.init).to(group.device),
        optimizer=lambda parameters: make_optimizer(config.optim, config.batch_size, parameters),
        group=group,
        precision=precision,
        accumulate=config.accumulate,
        prepared=prepared,
    )
    algorithm = algorithms.load(config.algorithm)(config.hparams, setup)
    algorithm.on_train_data(data)
    return algorithm.to(group.device)


def from_checkpoint(path: Path) -> tuple[Algorithm, Config, tuple[str, ...]]:
    """The trained algorithm of one of our checkpoints, on the CPU, with its config and classes."""
    state = checkpoint.load(path)
    if "config" not in state or "algorithm" not in state:
        raise UsageError(
            f"{path} is no checkpoint of biasbed; for other weights give model=torchvision:<name> weights="
        )
    values = state["config"]
    cls = config_class(algorithms.load(values["algorithm"]).HParams)
    config = build(cls, {**values, "init": "scratch"})
    algorithm = make_algorithm(config, MultiClass(), Group(), Precision(), TrainData(**state["train_data"]))
    try:
        algorithm.load_state_dict(state["algorithm"])
    except RuntimeError as error:
        raise Failure(f"{path} was written by other code: {str(error).splitlines()[0]}") from None
    return algorithm.eval(), config, tuple(state["classes"])


class Predict(nn.Module):
    """`predict` as a module, for export."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


def log_model(best: Path, run_id: str, uri: str) -> None:
    """Log a checkpoint's weights to its run as an MLflow model with signature and input example.

    Exported by torch.export: no pickled code is needed to load it, and any batch size can be served.
    """
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    algorithm, config, _ = from_checkpoint(best)
    size, classes = config.image_size, algorithm.setup.num_classes
    example = np.random.default_rng(0).random((2, 3, size, size), dtype=np.float32)
    signature = ModelSignature(
        Schema([TensorSpec(np.dtype(np.float32), (-1, 3, size, size))]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, classes))]),
    )
    mlflow.set_tracking_uri(uri)
    was_active = mlflow.active_run()
    with mlflow.start_run(run_id=run_id, nested=was_active is not None):
        mlflow.pytorch.log_model(
            Predict(algorithm).eval(), name=record.MODEL_NAME, signature=signature, input_example=example
        )


@dataclass(frozen=True)
class Model:
    """A trained model that is to be tested."""

    module: nn.Module
    predict: Callable[[Tensor], Tensor]  # [N,3,H,W] in [0,1] -> logits
    algorithm: str
    seed: int
    image_size: int
    classes: tuple[str, ...] | None  # of its outputs, in order; None where the weights don't say
    num_outputs: int


def find(model: str, weights: str = "none") -> Model:
    """What `model=` names: a checkpoint file, a tracked run's id, `torchvision:<name>` or `timm:<name>` with weights.

    weights: for a library's model, a file or the name of published weights. Raises UsageError for anything else.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return _ours(path)
    if model.startswith(("torchvision:", "timm:")):
        networks.check_name(model, resnet=False)
        return _library_model(model, weights)
    if len(model) == 32 and all(c in "0123456789abcdef" for c in model):
        from biasbed.tracking import download_checkpoint

        with tempfile.TemporaryDirectory() as folder:
            return _ours(download_checkpoint(model, Path(folder)))
    raise UsageError(
        f"model={model}: neither a checkpoint file, nor a run id (32 hex digits), nor torchvision:<name> or timm:<name>"
    )


def _ours(path: Path) -> Model:
    algorithm, config, classes = from_checkpoint(path)
    outputs = algorithm.setup.num_classes
    name = algorithms.identifier(config.algorithm)
    return Model(algorithm, algorithm.predict, name, config.seed, config.image_size, classes, outputs)


def _library_model(model: str, weights: str) -> Model:
    if weights == "none":
        raise UsageError(f"model={model} needs weights=<file> or weights=<name of published weights>")
    path = Path(weights).expanduser()
    outputs, init = IMAGENET_CLASSES, f"named:{weights}"
    if path.is_file():
        outputs, init = _classifier_width(path), str(path)
    network = networks.build(model, outputs, init).eval()
    return Model(network, network, record.slug(model), 0, 224, None, outputs)


def _classifier_width(path: Path) -> int:
    """Rows of the classifier in a weights file, whatever its state dict is wrapped in."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for what is no weights file
        raise UsageError(
            f"weights={path}: no weights file that is safe to load: {str(error).splitlines()[0]}"
        ) from None
    while isinstance(state, Mapping):
        for name, value in state.items():
            if isinstance(value, Tensor) and name.endswith("fc.weight"):
                return int(value.shape[0])
        state = next((value for value in state.values() if isinstance(value, Mapping)), None)
    raise UsageError(f"weights={path}: holds no classifier of a ResNet (fc.weight)")
