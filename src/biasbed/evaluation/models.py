"""Trained models: from a checkpoint, a tracked run or a library; and as an MLflow model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed import algorithms, networks, record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.presets import TESTING, is_within
from biasbed.errors import UsageError, first_line
from biasbed.networks import MeanStd, Normalisation, library
from biasbed.networks.lineage import content_hash
from biasbed.networks.weights import is_run_id
from biasbed.system import files
from biasbed.tasks import Task
from biasbed.tracking import notes

# What an exported network needs. Said, since MLflow would find it out in a process of its own, for ten seconds.
TO_SERVE = ("mlflow", "torch", "numpy", "pandas")


class Predict(nn.Module):
    """`predict` as a module, for export."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


def log_model(best: Path, run_id: str, uri: str, named: str = "auto", register: str = "none") -> None:
    """Log a checkpoint's weights to its run as an MLflow model with signature, input example and card.

    named: the method, where it is the user's own. register: a name for MLflow's registry.

    Exported by torch.export: no pickled code is needed to load it, and any batch size can be served.
    """
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    algorithm, config, classes, *_ = from_checkpoint(best, named)
    algorithm.to(memory_format=torch.contiguous_format)  # torch.export packs no other order without warning
    outputs, image = algorithm.setup.num_classes, (config.network.channels, config.image_size, config.image_size)
    example = np.random.default_rng(0).random((2, *image), dtype=np.float32)
    signature = ModelSignature(
        Schema([TensorSpec(np.dtype(np.float32), (-1, *image))]),
        Schema([TensorSpec(np.dtype(np.float32), (-1, outputs))]),
    )
    mlflow.set_tracking_uri(uri)
    was_active = mlflow.active_run()
    with mlflow.start_run(run_id=run_id, nested=was_active is not None) as run:
        info = mlflow.pytorch.log_model(
            Predict(algorithm).eval(),
            name=model_name(run.data.tags),
            signature=signature,
            input_example=example,
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in TO_SERVE],
            registered_model_name=None if register == "none" else register,
        )
        note = run.data.tags.get(notes.NOTE, "")
        mlflow.set_logged_model_tags(info.model_id, {notes.NOTE: card(info.model_uri, image, classes, outputs, note)})


def model_name(tags: Mapping[str, str]) -> str:
    """`<suite>-<algorithm>-s<seed>` of a training's run, with what it trains on where that is told apart."""
    words = [tags.get(name, "") for name in (record.SUITE, record.ROW, record.CELL)]
    return "-".join([*filter(None, words), f"s{tags.get(record.SEED, '')}"])


def card(uri: str, image: Sequence[int], classes: Sequence[str] | None, outputs: int, note: str) -> str:
    """What people must know to use a model, in Markdown. note: of the run that trained it."""
    named = ", ".join(classes) if classes else f"{outputs} classes"
    named = named if len(named) <= 1000 else f"{named[:1000]}, ..."
    pixels = "RGB in [0, 1]" if image[0] == 3 else "in [0, 1]"
    return notes.joined(
        f"Takes images as float32 [N, {', '.join(map(str, image))}], {pixels} (it normalises them itself), and gives "
        f"logits [N, {outputs}]: {named}.",
        f'```python\nimport mlflow.pytorch\n\nmodel = mlflow.pytorch.load_model("{uri}")\n'
        "del model.eval, model.train  # PyTorch's stand-ins, which refuse to be called\n```",
        "It is exported (torch.export) as it computes in evaluation, in any mode: `eval()` and `train()` "
        "change nothing. The second line lets programs call them.",
        note,
    )


@dataclass(frozen=True)
class TestedModel:
    """A trained model that is to be tested."""

    module: nn.Module
    predict: Callable[[Tensor], Tensor]  # [N,C,H,W] in [0,1] -> logits
    algorithm: str
    seed: int
    classes: tuple[str, ...] | None  # of its outputs, in order; None where the weights don't say
    outputs: int
    preprocessing: Mapping[str, Any]  # how it was tested in training or by its library: settings by dotted name
    task: Task | None = None  # what it has learnt; None where the weights don't say
    normalisation: Normalisation | None = None  # of its images

    @property
    def brought(self) -> dict[str, Any]:
        """The normalisation, for the run's identity, if neither architecture nor published weights say it."""
        how = self.normalisation
        return {"normalisation": list(how.values)} if how is not None and how.kind in ("given", "checkpoint") else {}

    def refuse_shape(self, shape: Sequence[int], name: str) -> None:
        """Raise UsageError if the network doesn't take images [C,H,W] of this shape. name: a set that has them."""
        try:
            with torch.inference_mode():
                self.predict(torch.full((2, *shape), 0.5))
        except (AssertionError, RuntimeError, ValueError, UsageError) as error:
            reason, size = first_line(error), " x ".join(map(str, shape[shape[0] == 3 :]))
            raise UsageError(
                f"the model doesn't take images of {size} pixels, which those of '{name}' come to "
                f"({reason}): choose image_size=, preprocess.size= or stimuli.size="
            ) from None

    @cached_property
    def weights(self) -> str:
        """Hash of their content, whatever their file is called."""
        return content_hash(self.module.state_dict())


def find(model: str, weights: str = "none", named: str = "auto", mean_std: MeanStd | None = None) -> TestedModel:
    """What `model=` names: a checkpoint file, a tracked run's id, `torchvision:<name>` or `timm:<name>`.

    weights: for a library's model, a file or the name of published weights, which may also be part of the model's name
    (`torchvision:<name>:<weights>`, `timm:<name>.<tag>`). named: the method of a checkpoint, where it is the user's
    own. mean_std: of the images of a library's model, in place of what its weights say. Raises UsageError for anything
    else, Failure where published weights can't be fetched.
    """
    path = files.named(model, "model")
    is_library = model.startswith(("torchvision:", "timm:")) and path is None
    if mean_std is not None and not is_library:
        raise UsageError(f"mean= and std= are for a library's model: model={model} has those of its training")
    if path is not None:
        if files.split(model).part:
            raise UsageError(f"model={model}: a checkpoint of biasbed is tested whole; give model={path}")
        return _ours(path, named)
    if is_library:
        if named != "auto":
            raise UsageError(f"algorithm={named}: {model} was trained with no method of yours")
        return _library_model(model, weights, mean_std)
    if is_run_id(model):
        from biasbed.tracking.server import download_checkpoint

        with tempfile.TemporaryDirectory() as folder:
            return _ours(download_checkpoint(model, Path(folder)), named, f"run {model}")
    raise UsageError(
        f"model={model}: neither a checkpoint file, nor a run id (32 hex digits), nor torchvision:<name> or "
        "timm:<name>, nor a file of decisions (.csv, .parquet)"
    )


def _ours(path: Path, named: str, where: str = "") -> TestedModel:
    algorithm, config, classes, values, task, how = from_checkpoint(path, named, where)
    preprocessing = {key: v for key, v in values.items() if key == "image_size" or is_within(key, TESTING)}
    name, outputs = algorithms.identifier(config.algorithm), algorithm.setup.num_classes
    return TestedModel(algorithm, algorithm.predict, name, config.seed, classes, outputs, preprocessing, task, how)


def _library_model(model: str, weights: str, mean_std: MeanStd | None) -> TestedModel:
    source, name, named = (*model.split(":", 2), "none")[:3]
    if "none" not in (named, weights):
        raise UsageError(f"model={model} and weights={weights} both name weights: give one of them")
    model, word = f"{source}:{name}", weights if named == "none" else named
    networks.check_name(model)
    path = files.named(word, "weights")
    if path is not None:
        found = library.from_file(model, path, files.split(word).part, mean_std)
    else:
        word = _weights(model, word)
        found = library.fetch(model, word, mean_std)
        model += "" if model.endswith(f".{word}") else f":{word}"
    network = found.network.eval()
    slug, how = record.slug(model), found.normalisation
    return TestedModel(network, network, slug, 0, found.classes, found.outputs, found.preprocessing, normalisation=how)


def _weights(model: str, word: str) -> str:
    """The published weights that are meant; UsageError where there are none, or several to choose from."""
    known = library.published_weights(model)
    if word != "none":
        return word
    if len(known) != 1:
        choice = f"one of {', '.join(known)}, or a file" if known else "<file>"
        raise UsageError(f"model={model} needs weights: weights={choice}")
    return known[0]
