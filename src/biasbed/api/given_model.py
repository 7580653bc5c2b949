"""Users' models in memory, as evaluation takes them: transforms of their images, and checks of their outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from biasbed import record
from biasbed.api.model_state import CHANGED, Model, fingerprint
from biasbed.data.decoding import as_pillow_decodes
from biasbed.data.source import Decoded, Picture
from biasbed.datasets.loading import to_image
from biasbed.errors import UnfitImage, UsageError, first_line, listed
from biasbed.evaluation.calibration import are_probabilities
from biasbed.evaluation.models import TestedModel
from biasbed.networks import MeanStd, Normalisation, Normalise, as_input
from biasbed.networks.library import timm_settings, torchvision_settings
from biasbed.networks.normalisation import one_per_channel
from biasbed.suites.sets import EvaluationSet

TransformImage = Callable[[Image.Image], Any]
TRIED_IMAGES = 2  # of the first call of a model
CHANNELS = (3, 1, 2)  # numbers of channels that are tried in this order


# --- transforms -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenTransform:
    """User's transform of a PIL image to the model's input [C,H,W], in place of the sets' own."""

    function: TransformImage

    def __call__(self, picture: Picture) -> Tensor:
        """Return the image as input. Raises UnfitImage if the function fails or returns something else."""
        image = to_image(as_pillow_decodes(picture))
        try:
            x = self.function(image)
        except Exception as error:  # a user's function may raise anything
            name = getattr(picture, "path", "an image")
            raise UnfitImage(f"transform= raises {type(error).__name__} on {name} ({first_line(error)})") from None
        if not isinstance(x, Tensor) or x.ndim != 3:
            raise UnfitImage(
                f"transform= returns {describe_output(x)} and should return one image as a tensor [C,H,W]: let it end "
                "with torchvision's v2.ToImage() and v2.ToDtype(torch.float32, scale=True)"
            )
        return x

    def use_for(self, evaluation_set: EvaluationSet) -> EvaluationSet:
        """Return the set with this transform in place of its own. Raises UsageError if the set draws on its images."""
        addition = getattr(evaluation_set.transform, "addition", "")
        if addition:
            raise UsageError(
                f"transform= makes the images, and '{evaluation_set.name}' draws {addition}: leave one of them out"
            )
        return replace(evaluation_set, transform=self, preprocessing=f"given: {self.description}", plain="")

    @property
    def description(self) -> str:
        """Name of a function, else its `repr` in a line, without addresses in memory."""
        text = getattr(self.function, "__qualname__", repr(self.function))
        return re.sub(r"\s+", " ", re.sub(r" at 0x[0-9a-f]+", "", text))[:300]


class Preparation(NamedTuple):
    """Preparation of images as the input of a model."""

    settings: Mapping[str, Any]  # size, resize and crop, as settings by dotted name
    mean_std: MeanStd | None  # by which images in [0,1] are normalised
    transform: GivenTransform | None  # the user's function, which does everything itself
    why: str  # clause about the source of mean and std


def prepare_images(model: Model, transform: TransformImage | None, mean_std: MeanStd | None) -> Preparation:
    """Return the preparation of a model's images: by `transform`, by the model's timm config, or by the suite.

    transform: an `ImageClassification` of torchvision's weights is read as settings; any other function is called.
    mean_std: given by the user, used in place of any other. Raises UsageError for a function and `mean_std` together.
    """
    config = getattr(model, "pretrained_cfg", None)
    if _is_torchvision_preset(transform):
        preset: Any = transform
        usual = MeanStd(tuple(preset.mean), tuple(preset.std))
        return Preparation(torchvision_settings(preset), mean_std or usual, None, "of torchvision's transforms")
    if transform is not None:
        if mean_std is not None:
            raise UsageError("mean= and std= are for images that biasbed prepares: normalise inside transform= instead")
        return Preparation({}, None, GivenTransform(transform), "")
    if isinstance(config, Mapping) and "mean" in config and isinstance(model, nn.Module):
        usual = MeanStd(tuple(config["mean"]), tuple(config["std"]))
        settings = timm_settings(config, type(model).__name__)
        return Preparation(settings, mean_std or usual, None, "of the model's pretrained_cfg")
    return Preparation({}, mean_std, None, "given")


def _is_torchvision_preset(transform: Any) -> bool:
    return type(transform).__module__ == "torchvision.transforms._presets" and hasattr(transform, "crop_size")


# --- the model --------------------------------------------------------------------------------------------------------


class _FunctionModule(nn.Module):
    """Function as a module without weights."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class GivenNetwork(nn.Module):
    """User's model as a module for images [N,C,H,W] in [0,1], normalised if there are a mean and std.

    The weights are named as in `networks.Network`, so that the same weights have the same hash. A function without
    weights is hashed by its logits for two grey images.
    """

    def __init__(self, model: Model, mean_std: MeanStd | None, device: torch.device, channels: int) -> None:
        """Raises UsageError if mean and std don't have one number, or one per channel."""
        super().__init__()
        self.device = device
        self.backbone = model if isinstance(model, nn.Module) else _FunctionModule(model)
        self.mean_std = None if mean_std is None else one_per_channel(mean_std, channels)
        self.normalise = None if self.mean_std is None else Normalise(*self.mean_std).to(device)
        self.width: int | None = None  # number of outputs; None until `watch` is called
        self.state: object = None  # fingerprint of the model at that time

    def watch(self, width: int) -> None:
        """Make every later call raise UsageError if the model, or its number of outputs (`width`), has changed."""
        self.width, self.state = width, fingerprint(self.backbone)

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's logits [N,K]. Raises UsageError if it returns something else, or has changed."""
        x = x.to(self.device)
        if self.normalise is not None:
            x = self.normalise(x)
        logits = self.backbone(x)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
            raise UsageError(
                f"the model returns {describe_output(logits)} for {len(x)} images, and should return logits "
                f"[{len(x)},classes]: {_advise_logits(logits)}"
            )
        if self.width not in (None, logits.shape[1]):
            raise UsageError(f"the model returns {logits.shape[1]} outputs, and before it returned {self.width}")
        if self.state not in (None, fingerprint(self.backbone)):
            raise UsageError(CHANGED)
        return logits


def describe_output(output: Any) -> str:
    """Describe a value that a user's function returned: its type, and the types and shapes in it."""
    if isinstance(output, Tensor):
        return f"a tensor {list(output.shape)}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with {listed(output, 5)}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {listed(map(describe_output, output), 3)}"
    return f"a {type(output).__name__}"


def _advise_logits(output: Any) -> str:
    """Return advice on how to get logits from a model's output."""
    if isinstance(output, Mapping):
        name = "logits" if "logits" in output else next(iter(output), "logits")
        return f"give a function that takes them out, as lambda x: model(x)[{name!r}]"
    if isinstance(output, tuple | list):
        return "give a function that takes them out, as lambda x: model(x)[0]"
    if hasattr(output, "logits"):
        return "give a function that takes them out, as lambda x: model(x).logits"
    return "give a function that returns them"


def wrap_model(
    model: Model,
    preparation: Preparation,
    device: torch.device,
    image_size: int,
    classes: Sequence[str] | None,
) -> TestedModel:
    """Return a model in memory as a `TestedModel`. It must be on `device` and in evaluation mode.

    image_size: pixels per side of images that the model takes. classes: names of its outputs. Raises UsageError if the
    model returns no logits, or not as many as there are classes.
    """
    network, logits = _try_model(model, preparation, device, image_size)
    if are_probabilities(logits.detach().double().cpu().numpy()):
        raise UsageError(
            "the model returns probabilities (between 0 and 1, and each image's sum is 1), and should return logits, "
            "for which loss and calibration would be wrong: leave its softmax out, or give a function that undoes it, "
            "as lambda x: model(x).log()"
        )
    outputs = logits.shape[1]
    names = _name_outputs(classes, outputs)
    if not any(True for _ in network.parameters()):  # a function: its logits are hashed in place of weights
        network.register_buffer("logits", logits.float().cpu())
    network.watch(outputs)
    how = None
    if network.mean_std is not None:
        how = Normalisation(*network.mean_std, "given", preparation.why)
    return TestedModel(
        module=network,
        predict=network,
        algorithm=name_model(model),
        seed=0,
        classes=names,
        outputs=outputs,
        preprocessing=preparation.settings,
        normalisation=how,
        transform=preparation.transform,
    )


def name_model(model: Model) -> str:
    """Return a model's name in timm, else the name of its class or of the function, as an identifier."""
    inner = getattr(model, "_orig_mod", model)  # of torch.compile
    config = getattr(inner, "pretrained_cfg", None)
    if isinstance(config, Mapping) and isinstance(config.get("architecture"), str):
        return record.slug(config["architecture"])
    name = type(inner).__name__ if isinstance(inner, nn.Module) else getattr(inner, "__name__", type(inner).__name__)
    return record.slug(name)


class _TriedModel(NamedTuple):
    """Model as a network for the images that it takes, and its logits for two grey ones."""

    network: GivenNetwork
    logits: Tensor


def _try_model(model: Model, preparation: Preparation, device: torch.device, image_size: int) -> _TriedModel:
    """Call the model on grey images and return its logits. Raises UsageError if it takes no number of `CHANNELS`."""
    if preparation.transform is not None:
        grey = Decoded(torch.full((3, image_size, image_size), 128, dtype=torch.uint8))
        try:
            image = preparation.transform(grey)
        except UnfitImage as error:  # nothing was started
            raise UsageError(str(error)) from None
        inputs = [as_input(torch.stack([image] * TRIED_IMAGES))]
    else:
        inputs = [torch.full((TRIED_IMAGES, channels, image_size, image_size), 0.5) for channels in CHANNELS]
    problems = []
    for x in inputs:
        try:
            network = GivenNetwork(model, preparation.mean_std, device, x.shape[1])
        except UsageError as error:  # mean and std are for other channels
            problems.append(str(error))
            continue
        try:
            with torch.inference_mode():
                return _TriedModel(network, network(x))
        except UsageError:
            raise
        except Exception as error:  # a user's model may raise anything
            problems.append(first_line(error))
    raise UsageError(
        f"the model fails on images {list(inputs[0].shape)} on {device} ({problems[0]}): give image_size=, "
        "transform= or device= as it needs them"
    )


def _name_outputs(classes: Sequence[str] | None, outputs: int) -> tuple[str, ...] | None:
    """Return the names of the outputs. Raises UsageError unless each output has one name of its own."""
    if classes is None:
        return None
    names = tuple(map(str, classes))
    if len(names) != outputs:
        raise UsageError(f"classes= has {len(names)} names ({listed(names, 4)}), and the model {outputs} outputs")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"classes=: two outputs are called '{twice}'")
    return names
