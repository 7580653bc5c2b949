"""Trained models: from a checkpoint, a tracked run or a library; and as an MLflow model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed import algorithms, checkpoint, networks, record
from biasbed.algorithms.base import Algorithm, Setup, TrainData, none_prepared
from biasbed.config import Config, config_class
from biasbed.distributed import Group
from biasbed.errors import Failure, UsageError, shown
from biasbed.networks import published
from biasbed.networks.weights import is_run_id
from biasbed.precision import Precision
from biasbed.schedules import make_optimizer
from biasbed.settings import build, flatten
from biasbed.tasks import MultiClass, Task


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


def from_checkpoint(path: Path, named: str = "auto", where: str = "") -> tuple[Algorithm, Config, tuple[str, ...]]:
    """The trained algorithm of one of our checkpoints, on the CPU, with its config and classes.

    named: the method, where it is the user's own; the file's own word for it is never imported. where: what messages
    call the file, in place of its path. Raises UsageError or Failure, of one line, whatever the file holds.
    """
    state = checkpoint.load(path, where=f"the checkpoint of {where}" if where else "")
    where = where or str(path)
    if "config" not in state or "algorithm" not in state:
        raise UsageError(
            f"{where} is no checkpoint of biasbed; for other weights give model=torchvision:<name> weights="
        )
    try:
        checkpoint.require(state, checkpoint.DESCRIPTION)
        values, classes = state["config"], tuple(map(str, state["classes"]))
        method = algorithms.vouched(values.get("algorithm"), named, where)
        config = build(
            config_class(algorithms.load(method).HParams), {**values, "algorithm": method, "init": "scratch"}
        )
        data = _train_data(state["train_data"], len(classes))
        algorithm = make_algorithm(config, MultiClass(), Group(), Precision(), data)
        algorithm.load_state_dict(state["algorithm"])
    except (UsageError, Failure) as error:
        raise type(error)(shown(str(error), 1000)) from None
    except Exception as error:  # a file may hold anything, and so may a method of the user's own
        raise Failure(f"{where} was written by other code: {checkpoint.brief(error)}") from None
    return algorithm.eval(), config, classes


def _train_data(values: Mapping[str, Any], classes: int) -> TrainData:
    """What the method learnt of its data; ValueError where that would make a network of another size."""
    data = TrainData(**values)
    if data.num_classes != classes or not all(isinstance(n, int) and n > 0 for n in values.values()):
        raise ValueError(f"it has {classes} classes, and its training data is said to be {data}")
    return data


# What an exported network needs. Said, since MLflow would find it out in a process of its own, for ten seconds.
TO_SERVE = ("mlflow", "torch", "numpy", "pandas")


class Predict(nn.Module):
    """`predict` as a module, for export."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


def log_model(best: Path, run_id: str, uri: str, named: str = "auto") -> None:
    """Log a checkpoint's weights to its run as an MLflow model with signature and input example.

    named: the method, where it is the user's own.

    Exported by torch.export: no pickled code is needed to load it, and any batch size can be served.
    """
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    algorithm, config, _ = from_checkpoint(best, named)
    algorithm.to(memory_format=torch.contiguous_format)  # torch.export packs no other order without warning
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
            Predict(algorithm).eval(),
            name=record.MODEL_NAME,
            signature=signature,
            input_example=example,
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in TO_SERVE],
        )


@dataclass(frozen=True)
class Model:
    """A trained model that is to be tested."""

    module: nn.Module
    predict: Callable[[Tensor], Tensor]  # [N,3,H,W] in [0,1] -> logits
    algorithm: str
    seed: int
    classes: tuple[str, ...] | None  # of its outputs, in order; None where the weights don't say
    outputs: int
    preprocessing: Mapping[str, Any]  # how it was tested in training or by its library: settings by dotted name


def find(model: str, weights: str = "none", named: str = "auto") -> Model:
    """What `model=` names: a checkpoint file, a tracked run's id, `torchvision:<name>` or `timm:<name>`.

    weights: for a library's model, a file or the name of published weights, which may also be part of the model's name
    (`torchvision:<name>:<weights>`, `timm:<name>.<tag>`). named: the method of a checkpoint, where it is the user's
    own. Raises UsageError for anything else, Failure where published weights can't be fetched.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return _ours(path, named)
    if model.startswith(("torchvision:", "timm:")):
        if named != "auto":
            raise UsageError(f"algorithm={named}: {model} was trained with no method of yours")
        return _library_model(model, weights)
    if is_run_id(model):
        from biasbed.tracking import download_checkpoint

        with tempfile.TemporaryDirectory() as folder:
            return _ours(download_checkpoint(model, Path(folder)), named, f"run {model}")
    raise UsageError(
        f"model={model}: neither a checkpoint file, nor a run id (32 hex digits), nor torchvision:<name> or "
        "timm:<name>, nor a file of decisions (.csv, .parquet)"
    )


def _ours(path: Path, named: str, where: str = "") -> Model:
    algorithm, config, classes = from_checkpoint(path, named, where)
    values = flatten(config)
    tested = ("image_size", "categories", "preprocess.")
    preprocessing = {key: value for key, value in values.items() if key.startswith(tested)}
    name, outputs = algorithms.identifier(config.algorithm), algorithm.setup.num_classes
    return Model(algorithm, algorithm.predict, name, config.seed, classes, outputs, preprocessing)


def _library_model(model: str, weights: str) -> Model:
    library, name, named = (*model.split(":", 2), "none")[:3]
    if "none" not in (named, weights):
        raise UsageError(f"model={model} and weights={weights} both name weights: give one of them")
    model, word = f"{library}:{name}", weights if named == "none" else named
    networks.check_name(model, resnet=False)
    path = Path(word).expanduser()
    if path.is_file():
        found = published.from_file(model, path)
    else:
        word = _weights(model, word)
        found = published.fetch(model, word)
        model += "" if model.endswith(f".{word}") else f":{word}"
    network = found.network.eval()
    return Model(network, network, record.slug(model), 0, found.classes, found.outputs, found.preprocessing)


def _weights(model: str, word: str) -> str:
    """The published weights that are meant; UsageError where there are none, or several to choose from."""
    known = published.published_weights(model)
    if word != "none":
        return word
    if len(known) != 1:
        choice = f"one of {', '.join(known)}, or a file" if known else "<file>"
        raise UsageError(f"model={model} needs weights: weights={choice}")
    return known[0]
