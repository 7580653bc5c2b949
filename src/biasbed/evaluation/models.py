"""Trained models, loaded from a checkpoint, a tracked run or a library, and logged as MLflow models."""

from __future__ import annotations

import base64
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from biasbed import algorithms, networks, record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.presets import TESTING, is_within
from biasbed.compute import checkpoint
from biasbed.data.transforms import USUAL
from biasbed.errors import UsageError, first_line
from biasbed.evaluation import served_images
from biasbed.networks import MeanStd, Normalisation, library
from biasbed.networks.backbones import CONFIG_FILES
from biasbed.networks.lineage import content_hash
from biasbed.networks.weights import is_run_id
from biasbed.suites.user_label_maps import OwnMaps
from biasbed.system import files
from biasbed.tasks import Task
from biasbed.tracking import notes

if TYPE_CHECKING:
    from biasbed.suites.sets import EvaluationSet

# Requirements of an exported network. MLflow would infer them in a process of its own, which takes ten seconds.
TO_SERVE = ("mlflow", "torch", "numpy", "pandas", "pillow")


class Predict(nn.Module):
    """`predict` as a module, for export."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


def log_model(best: Path, run_id: str, uri: str, named: str = "auto") -> None:
    """Log a checkpoint's weights to its run as an MLflow model with signature, input example and card.

    named: the method, if it is the user's own.

    The model is exported by torch.export: it loads without pickled code. As a pyfunc it takes images and returns names
    of classes and scores (`served_images`). As a PyTorch model it takes tensors of any batch size and returns logits.
    """
    import mlflow
    from mlflow import MlflowClient

    algorithm, config, classes, values, task, _ = from_checkpoint(best, named)
    algorithm.to(memory_format=torch.contiguous_format)  # torch.export packs no other order without warning
    outputs, channels = algorithm.setup.num_classes, config.network.channels
    settings = image_settings(values, channels, classes, task)
    image = (channels, settings["size"], settings["size"])
    mlflow.set_tracking_uri(uri)
    run = MlflowClient(uri).get_run(run_id)
    with tempfile.TemporaryDirectory() as temporary:
        exported = Path(temporary) / "network"
        _export(algorithm, exported, image, outputs)
        (exported / served_images.SETTINGS_FILE).write_text(json.dumps(settings))
        model_uri = _log_flavor(_ImageFlavor(exported, settings), run, uri, Path(temporary) / "model")
    note = run.data.tags.get(notes.NOTE, "")
    tags = {notes.NOTE: card(model_uri, image, classes, outputs, note)}
    mlflow.set_logged_model_tags(model_uri.rpartition("/")[2], tags)


def _log_flavor(flavor: _ImageFlavor, run: Any, uri: str, folder: Path) -> str:
    """Log a model to a run as `Model.log` of MLflow does, saved into a new folder; return the model's address.

    `Model.log` reads the history of each metric of the run, to copy those of one step to the model: half of all
    requests of a training. The tracker sends the model's metrics itself.
    """
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    client, run_id = MlflowClient(uri), run.info.run_id
    logged = mlflow.initialize_logged_model(
        name=model_name(run.data.tags),
        source_run_id=run_id,
        params=run.data.params,
        experiment_id=run.info.experiment_id,
    )
    model_id, status = logged.model_id, LoggedModelStatus.FAILED
    try:
        model = Model(artifact_path=logged.artifact_location, run_id=run_id, model_uuid=model_id, model_id=model_id)
        flavor.save_model(str(folder), model)
        mlflow.pyfunc.load_model(str(folder)).predict(model.load_input_example(str(folder)))  # or it is not logged
        for compiled in folder.rglob("__pycache__"):
            shutil.rmtree(compiled)
        client.log_model_artifacts(model_id, str(folder))
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])  # the run has no model that is not whole
        status = LoggedModelStatus.READY
    finally:
        client.finalize_logged_model(model_id, status)
    return f"models:/{model_id}"


def _export(algorithm: Algorithm, folder: Path, image: Sequence[int], outputs: int) -> None:
    """Save the network as an MLflow model of PyTorch: float32 [N,C,S,S] in [0,1] -> logits."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    signature = ModelSignature(
        Schema([TensorSpec(np.dtype(np.float32), (-1, *image))]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, outputs))]),
    )
    mlflow.pytorch.save_model(
        Predict(algorithm).eval(),
        folder,
        signature=signature,
        input_example=np.random.default_rng(0).random((2, *image), dtype=np.float32),
        pip_requirements=_requirements(),
    )


def _requirements() -> list[str]:
    return [f"{name}=={version(name).partition('+')[0]}" for name in TO_SERVE]


def image_settings(values: Mapping[str, Any], channels: int, classes: Sequence[str], task: Task) -> dict[str, Any]:
    """Return how images become the network's input, as in the tests of its training (`ImageClassifier`).

    Images are prepared as photographs, if the suite has them, else as its stimuli. values: settings of the training, by
    dotted name.
    """
    group = "preprocess" if "preprocess.size" in values else "stimuli"
    size = values.get(f"{group}.size", "auto")
    size = values["image_size"] if size == "auto" else int(size)
    resize = values.get(f"{group}.resize")
    short, share = resize, None
    if group == "preprocess":
        short = round(size / USUAL) if resize == "auto" else int(values["preprocess.resize"])
        if values.get("preprocess.crop_first"):
            share = USUAL if resize == "auto" else size / short
    return {
        "size": size,
        "short": short,
        "share": share,
        "crop": values.get("preprocess.crop", "centre") if group == "preprocess" else "centre",
        "interpolation": values.get(f"{group}.interpolation", "bilinear"),
        "channels": channels,
        "classes": list(classes),
        "several": task.several,
    }


class _ImageFlavor:
    """Flavour by which MLflow saves: a pyfunc that takes images, and the PyTorch model inside it."""

    def __init__(self, exported: Path, settings: Mapping[str, Any]) -> None:
        self.exported, self.settings = exported, settings

    def save_model(self, path: str, mlflow_model: Any) -> None:
        """Save the model to a folder, with signature, example and the loader's code."""
        import mlflow
        import pandas as pd
        from mlflow.models import Model, ModelSignature
        from mlflow.types import ColSpec, DataType, Schema
        from mlflow.types.schema import AnyType, Array

        signature = ModelSignature(
            Schema([ColSpec(AnyType(), served_images.COLUMN)]),
            Schema(
                [
                    *(ColSpec(DataType.string, "class"), ColSpec(DataType.double, "score")),
                    *(ColSpec(Array(DataType.string), "classes"), ColSpec(Array(DataType.double), "scores")),
                ]
            ),
        )
        mlflow.pyfunc.save_model(
            path,
            mlflow_model=mlflow_model,
            loader_module=Path(served_images.__file__).stem,
            data_path=str(self.exported),
            code_paths=[served_images.__file__],
            signature=signature,
            input_example=pd.DataFrame({served_images.COLUMN: [self._example()]}),
            pip_requirements=_requirements(),
        )
        flavor = Model.load(str(self.exported)).flavors["pytorch"]
        data = f"{mlflow_model.flavors['python_function']['data']}/{flavor['model_data']}"
        mlflow_model.add_flavor("pytorch", **{**flavor, "model_data": data})
        mlflow_model.save(str(Path(path) / "MLmodel"))

    def _example(self) -> Any:
        """Return an image in base64, or as an array."""
        size, channels = self.settings["size"], self.settings["channels"]
        if channels not in (1, 3):  # no file has so many
            return np.zeros((channels, size, size)).tolist()
        pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        return base64.b64encode(buffer.getvalue()).decode()


def model_name(tags: Mapping[str, str]) -> str:
    """Return `<suite>-<row>-<cell>-s<seed>` of a training's run; the cell is left out if the run has none."""
    parts = [tags.get(name, "") for name in (record.SUITE, record.ROW, record.CELL)]
    return "-".join([*filter(None, parts), f"s{tags.get(record.SEED, '')}"])


def card(uri: str, image: Sequence[int], classes: Sequence[str] | None, outputs: int, note: str) -> str:
    """Return the model card in Markdown: how to use the model. note: of the run that trained it."""
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
        "As a pyfunc it takes images as paths, bytes, base64 or arrays, and gives names of classes and scores:",
        f'```python\nimport mlflow.pyfunc\n\nmodel = mlflow.pyfunc.load_model("{uri}")\n'
        'model.predict({"image": ["a.png"]})\n```',
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
    predict: Callable[[Tensor], Tensor]  # [N,C,H,W] in [0,1] -> logits
    algorithm: str
    seed: int
    classes: tuple[str, ...] | None  # of its outputs, in order; None if the weights don't say
    outputs: int
    preprocessing: Mapping[str, Any]  # of tests during its training or by its library: settings by dotted name
    task: Task | None = None  # that it has learnt; None if the weights don't say
    normalisation: Normalisation | None = None  # of its images
    transform: OwnTransform | None = None  # of the user's, in place of the sets' own
    maps: OwnMaps | None = None  # of the user's, from its outputs to classes

    @property
    def own_normalisation(self) -> dict[str, Any]:
        """Normalisation for the run's identity, if neither architecture nor published weights imply it."""
        normalisation = self.normalisation
        if normalisation is None or normalisation.kind not in ("given", "checkpoint"):
            return {}
        return {"normalisation": list(normalisation.values)}

    def refuse_shape(self, shape: Sequence[int], name: str) -> None:
        """Raise UsageError if the network doesn't take images [C,H,W] of this shape. name: a set that has them."""
        try:
            with torch.inference_mode(), networks.no_border_lost(self.module, shape[0]):
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
    path = files.named(model, "model") or _model_folder(model)
    is_library = model.startswith(networks.sources()) and path is None
    if mean_std is not None and not is_library:
        raise UsageError(f"mean= and std= are for a library's model: model={model} has those of its training")
    if path is not None:
        if files.split(model).part:
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
    """Return the folder that `model=` names, if `export format=huggingface` wrote its model in biasbed's own layout.

    Raises UsageError for a folder of timm's layout, which is named with its library.
    """
    folder = Path(model).expanduser()
    if (folder / checkpoint.FOLDER_FILE).is_file():
        return folder
    if (folder / CONFIG_FILES[0]).is_file():
        raise UsageError(f"model={model}: a folder in timm's layout; give model=timm:local-dir:{folder}")
    return None


def _load_checkpoint(path: Path, named: str, where: str = "") -> TestedModel:
    """Load a model that biasbed has trained, with the preprocessing of its own tests."""
    algorithm, config, classes, values, task, normalisation = from_checkpoint(path, named, where)
    preprocessing = {}
    for key, value in values.items():
        if key == "image_size" or is_within(key, TESTING):
            preprocessing[key] = value
    return TestedModel(
        module=algorithm,
        predict=algorithm.predict,
        algorithm=algorithms.identifier(config.algorithm),
        seed=config.seed,
        classes=classes,
        outputs=algorithm.setup.num_classes,
        preprocessing=preprocessing,
        task=task,
        normalisation=normalisation,
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
    path = files.named(weights, "weights")
    if path is not None:
        loaded = library.from_file(name, path, files.split(weights).part, mean_std)
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
    """Return the name of the published weights. Raises UsageError if the model has none, or several to choose from."""
    names = library.published_weights(model)  # raises UsageError for an unknown model
    if weights != "none":
        return weights
    if len(names) != 1:
        choice = f"one of {', '.join(names)}, or a file" if names else "<file>"
        raise UsageError(f"model={model} needs weights: weights={choice}")
    return names[0]
