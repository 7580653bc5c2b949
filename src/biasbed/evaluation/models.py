"""Trained models, loaded from a checkpoint, a tracked run or a library, and logged as MLflow models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from biasbed import algorithms, networks, record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.presets import TESTING, is_within
from biasbed.compute import checkpoint
from biasbed.errors import UsageError, first_line
from biasbed.networks import MeanStd, Normalisation, library
from biasbed.networks.backbones import CONFIG_FILES
from biasbed.networks.network import content_hash
from biasbed.networks.weights import is_run_id
from biasbed.suites.label_map_files import UserMaps
from biasbed.system import files
from biasbed.tasks import Task
from biasbed.tracking import notes

if TYPE_CHECKING:
    from biasbed.suites.sets import EvaluationSet

# Packages that an exported network needs. MLflow would infer them in a process of its own, which takes ten seconds.
TO_LOAD = ("mlflow", "torch", "numpy")


class Predict(nn.Module):
    """Module whose forward pass is the algorithm's `predict`, for export."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


def log_model(best: Path, run_id: str, uri: str, named: str = "auto") -> None:
    """Log a checkpoint's weights to its run as an MLflow model with signature, input example and card.

    The model is exported by torch.export: it loads without pickled code, and maps images of any batch size to logits.
    named: the method, if it is the user's own.
    """
    import mlflow
    from mlflow import MlflowClient

    trained = from_checkpoint(best, named)
    algorithm, side = trained.algorithm, _tested_size(trained.settings)
    algorithm.to(memory_format=torch.contiguous_format)  # torch.export packs no other order without warning
    image, outputs = (trained.config.network.channels, side, side), algorithm.setup.num_classes
    mlflow.set_tracking_uri(uri)
    run = MlflowClient(uri).get_run(run_id)
    with tempfile.TemporaryDirectory() as temporary:
        model_uri = _log_exported(Predict(algorithm).eval(), image, outputs, run, uri, Path(temporary) / "model")
    note = run.data.tags.get(notes.NOTE, "")
    tags = {notes.NOTE: card(model_uri, image, trained.classes, outputs, note)}
    mlflow.set_logged_model_tags(model_uri.rpartition("/")[2], tags)


def _log_exported(module: nn.Module, image: Sequence[int], outputs: int, run: Any, uri: str, folder: Path) -> str:
    """Log a module to a run as `Model.log` of MLflow does, saved into a new folder; return the model's address.

    `Model.log` reads the history of each metric of the run, to copy those of one step to the model: half of all
    requests of a training. The tracker sends the model's metrics itself. image: shape [C,S,S] of an input.
    """
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    client, run_id = MlflowClient(uri), run.info.run_id
    logged = mlflow.initialize_logged_model(
        name=model_name(run.data.tags),
        source_run_id=run_id,
        params=run.data.params,
        experiment_id=run.info.experiment_id,
    )
    model_id, status = logged.model_id, LoggedModelStatus.FAILED
    signature = ModelSignature(
        Schema([TensorSpec(np.dtype(np.float32), (-1, *image))]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, outputs))]),
    )
    try:
        mlflow.pytorch.save_model(
            module,
            folder,
            mlflow_model=Model(
                artifact_path=logged.artifact_location, run_id=run_id, model_uuid=model_id, model_id=model_id
            ),
            signature=signature,
            input_example=np.random.default_rng(0).random((2, *image), dtype=np.float32),
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in TO_LOAD],
        )
        client.log_model_artifacts(model_id, str(folder))
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])  # only now, when the model is complete
        status = LoggedModelStatus.READY
    finally:
        client.finalize_logged_model(model_id, status)
    return f"models:/{model_id}"


def _tested_size(values: Mapping[str, Any]) -> int:
    """Return the pixels per side of a training's test images. values: its settings, by dotted name."""
    size = values.get("preprocess.size", values.get("stimuli.size", "auto"))
    return int(values["image_size"] if size == "auto" else size)


def model_name(tags: Mapping[str, str]) -> str:
    """Return `<suite>-<row>-<cell>-s<seed>` of a training's run; the cell is left out if the run has none."""
    parts = [tags.get(name, "") for name in (record.SUITE, record.ROW, record.CELL)]
    return "-".join([*filter(None, parts), f"s{tags.get(record.SEED, '')}"])


def card(uri: str, image: Sequence[int], classes: Sequence[str] | None, outputs: int, note: str) -> str:
    """Return the model card in Markdown, which says how to use the model. note: that of the run that trained it."""
    names = ", ".join(classes) if classes else f"{outputs} classes"
    if len(names) > 1000:
        names = f"{names[:1000]}, ..."
    pixels = "RGB in [0, 1]" if image[0] == 3 else "in [0, 1]"
    return notes.joined(
        f"Takes images as float32 [N, {', '.join(map(str, image))}], {pixels} (it normalises them itself), and gives "
        f"logits [N, {outputs}]: {names}.",
        f'```python\nimport mlflow.pytorch\n\nmodel = mlflow.pytorch.load_model("{uri}")\n'
        "del model.eval, model.train  # PyTorch's stand-ins, which refuse to be called\n```",
        "It is exported (torch.export) as it computes in evaluation, in any mode: `eval()` and `train()` "
        "change nothing. The second line lets programs call them.",
        note,
    )


class OwnTransform(Protocol):
    """User's transform of test images."""

    def use_for(self, evaluation_set: EvaluationSet) -> EvaluationSet:
        """Return the set with this transform in place of its own."""
        ...


@dataclass(frozen=True)
class TestedModel:
    """Trained model that is to be tested."""

    module: nn.Module
    predict: Callable[[Tensor], Tensor]  # [N,C,H,W] in [0,1] -> logits [N,outputs]
    algorithm: str  # method of a checkpoint; the name of any other model
    seed: int  # of its training; 0 if unknown
    classes: tuple[str, ...] | None  # names of its outputs, in order; None if unknown
    outputs: int
    # Settings by dotted name, as it was tested during its training, or as its library recommends.
    preprocessing: Mapping[str, Any]
    task: Task | None = None  # that it has learnt; None if unknown
    normalisation: Normalisation | None = None  # of its images
    transform: OwnTransform | None = None  # the user's transform, in place of those of the sets
    maps: UserMaps | None = None  # the user's label maps
    backbone: str = ""  # of a checkpoint; other models are named by it

    @property
    def own_normalisation(self) -> dict[str, Any]:
        """Normalisation as an entry of the run's identity; empty if architecture or published weights imply it."""
        normalisation = self.normalisation
        if normalisation is None or normalisation.kind not in ("given", "checkpoint"):
            return {}
        return {"normalisation": list(normalisation.values)}

    def refuse_shape(self, shape: Sequence[int], name: str) -> None:
        """Raise UsageError if the network doesn't take images [C,H,W] of this shape. name: a set that has them."""
        try:
            with torch.inference_mode(), networks.refuse_lost_border(self.module, shape[0]):
                self.predict(torch.full((2, *shape), 0.5))
        except (AssertionError, RuntimeError, ValueError, UsageError) as error:
            reason, size = first_line(error), " x ".join(map(str, shape[shape[0] == 3 :]))
            raise UsageError(
                f"the model doesn't take images of {size} pixels, which those of '{name}' come to "
                f"({reason}): choose image_size=, preprocess.size= or stimuli.size="
            ) from None

    @cached_property
    def weights(self) -> str:
        """Hash of the weights' content, independent of their file's name."""
        return content_hash(self.module.state_dict())


def find(model: str, weights: str = "none", named: str = "auto", mean_std: MeanStd | None = None) -> TestedModel:
    """Load the model that `model=` names: a checkpoint, a tracked run's id, or a library's model.

    A checkpoint is a file, or a folder in biasbed's layout (`checkpoint.save_folder`).

    weights: for a library's model, a file or the name of published weights. The name may also be part of the model's
    name (`torchvision:<name>:<weights>`, `timm:<name>.<tag>`). named: the method of a checkpoint, if it is the user's
    own. mean_std: of the images of a library's model, in place of those of its weights.

    Raises UsageError for anything else, Failure if published weights can't be fetched.
    """
    path = files.find_file(model, "model") or _model_folder(model)
    is_library = model.startswith(networks.sources()) and path is None
    if mean_std is not None and not is_library:
        raise UsageError(f"mean= and std= are for a library's model: model={model} has those of its training")
    if path is not None:
        if files.split_setting(model).part:
            raise UsageError(f"model={model}: a checkpoint of biasbed is tested whole; give model={path}")
        return _load_checkpoint(path, named)
    if is_library:
        if named != "auto":
            raise UsageError(f"algorithm={named}: {model} was trained with no method of yours")
        return _load_library_model(model, weights, mean_std)
    if is_run_id(model):
        from biasbed.tracking.server import download_checkpoint

        with tempfile.TemporaryDirectory() as folder:
            return _load_checkpoint(download_checkpoint(model, Path(folder)), named, f"run {model}")
    raise UsageError(
        f"model={model}: neither a checkpoint file, nor a run id (32 hex digits), nor a library's model "
        f"({', '.join(f'{source}<name>' for source in networks.sources())}), nor a file of decisions (.csv, .parquet)"
    )


def _model_folder(model: str) -> Path | None:
    """Return the folder that `model=` names if it is in biasbed's layout, as `export format=huggingface` writes it.

    Raises UsageError for a folder in timm's layout, which has to be named as `timm:local-dir:<folder>`.
    """
    folder = Path(model).expanduser()
    if (folder / checkpoint.FOLDER_FILE).is_file():
        return folder
    if (folder / CONFIG_FILES[0]).is_file():
        raise UsageError(f"model={model}: a folder in timm's layout; give model=timm:local-dir:{folder}")
    return None


def _load_checkpoint(path: Path, named: str, where: str = "") -> TestedModel:
    """Load a model that biasbed has trained, with the preprocessing of its own tests."""
    trained = from_checkpoint(path, named, where)
    preprocessing = {}
    for name, value in trained.settings.items():
        if name == "image_size" or is_within(name, TESTING):
            preprocessing[name] = value
    return TestedModel(
        module=trained.algorithm,
        predict=trained.algorithm.predict,
        algorithm=algorithms.identifier(trained.config.algorithm),
        seed=trained.config.seed,
        classes=trained.classes,
        outputs=trained.algorithm.setup.num_classes,
        preprocessing=preprocessing,
        task=trained.task,
        normalisation=trained.normalisation,
        backbone=trained.config.backbone,
    )


def _load_library_model(model: str, weights: str, mean_std: MeanStd | None) -> TestedModel:
    """Load `<library>:<name>[:<weights>]`, with weights of the library or from a file."""
    parts = networks.split_model(model)
    assert parts is not None
    name, weights_in_name = parts
    if weights_in_name and weights != "none":
        raise UsageError(f"model={model} and weights={weights} both name weights: give one of them")
    weights = weights_in_name or weights
    architecture = networks.resolve(name)
    row = f"{architecture.library}:{Path(architecture.name).name}" if architecture.is_local else name
    path = files.find_file(weights, "weights")
    if path is not None:
        loaded = library.from_file(name, path, files.split_setting(weights).part, mean_std)
    else:
        weights = _choose_weights(name, weights)
        loaded = library.fetch(name, weights, mean_std)
        if not name.endswith(f".{weights}") and not architecture.has_own_config:
            row += f":{weights}"
    network = loaded.network.eval()
    return TestedModel(
        module=network,
        predict=network,
        algorithm=record.slug(row),
        seed=0,
        classes=loaded.classes,
        outputs=loaded.outputs,
        preprocessing=loaded.preprocessing,
        normalisation=loaded.normalisation,
    )


def _choose_weights(model: str, weights: str) -> str:
    """Return the name of a library model's weights: the given one, else the only ones that are published.

    Raises UsageError for an unknown model, and if there are no published weights or several.
    """
    names = library.published_weights(model)
    if weights != "none":
        return weights
    if len(names) != 1:
        choice = f"one of {', '.join(names)}, or a file" if names else "<file>"
        raise UsageError(f"model={model} needs weights: weights={choice}")
    return names[0]
