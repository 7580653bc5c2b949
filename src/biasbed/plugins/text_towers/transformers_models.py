"""Models of transformers by hub id or local folder: CLIP's and SigLIP's towers, and image classifiers.

A repository's own code is never run (`trust_remote_code` stays off).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from torch import Tensor, nn

from biasbed.config import Crop
from biasbed.errors import UsageError, first_line
from biasbed.networks.model_libraries import Preprocessing, is_folder, out_of_reach_error
from biasbed.plugins.text_towers.towers import (
    ImageTower,
    TextTower,
    TowerLibrary,
    no_text_tower_error,
    open_tokenizer,
    refuse_other_channels,
)

if TYPE_CHECKING:
    from biasbed.networks.form import Backbone, Form

TOWERS = ("clip", "siglip")
IMAGE_PARTS = ("vision_model", "visual_projection")
RESAMPLINGS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
BYTE = 1 / 255
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
WARPED = 384  # from this size on, processors with `crop_pct` (ConvNeXt's) resize both sides and crop nothing


class CLIPImage(ImageTower):
    """Image tower of a CLIPModel or SiglipModel, with its projection if it has one, and a head."""

    def __init__(self, model: Any, num_features: int, outputs: int, is_resized: bool) -> None:
        super().__init__(num_features, outputs)
        self.vision_model: nn.Module = model.vision_model
        if hasattr(model, "visual_projection"):
            self.visual_projection: nn.Module = model.visual_projection
        self._is_resized = is_resized

    def embed(self, x: Tensor) -> Tensor:
        pooled = self.vision_model(pixel_values=x, interpolate_pos_encoding=self._is_resized).pooler_output
        projection = getattr(self, "visual_projection", None)
        return cast(Tensor, pooled if projection is None else projection(pooled))


class CLIPText(TextTower):
    """CLIPModel or SiglipModel without its image tower."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        for part in IMAGE_PARTS:
            if hasattr(model, part):
                setattr(model, part, None)
        super().__init__(model)
        self._tokenizer = tokenizer
        self._is_canonical = model.config.model_type == "siglip"
        self._length = int(model.config.text_config.max_position_embeddings)

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        if self._is_canonical:
            texts = [canonicalize(text) for text in texts]
        tokens = self._tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=self._length, return_tensors="pt"
        )
        return cast(Tensor, tokens["input_ids"])

    def forward(self, tokens: Tensor) -> Tensor:
        model: Any = self.model
        pooled = model.text_model(input_ids=tokens).pooler_output
        projection = getattr(model, "text_projection", None)
        return cast(Tensor, pooled if projection is None else projection(pooled))


def canonicalize(text: str) -> str:
    """Return a text in lower case, without punctuation, with single blanks: as both versions of SigLIP were trained.

    The tokenizer of SigLIP does so by itself, that of SigLIP 2 (Gemma's) does not.
    """
    return " ".join(text.translate(WITHOUT_PUNCTUATION).lower().split())


class LogitsForward:
    """Replacement for the `forward` of a classifier of transformers: images [N,C,H,W] -> logits [N,K]."""

    def __init__(self, model: nn.Module, is_resized: bool) -> None:
        self.model = model
        self.options = {"interpolate_pos_encoding": True} if is_resized else {}

    def __call__(self, x: Tensor) -> Tensor:
        output: Any = type(self.model).forward(self.model, pixel_values=x, **self.options)
        return cast(Tensor, output.logits)


class Transformers(TowerLibrary):
    """CLIP and SigLIP towers and image classifiers of transformers."""

    package: ClassVar[str] = "transformers"
    module: ClassVar[str] = "transformers"
    example: ClassVar[str] = "openai/clip-vit-base-patch32"
    has_names: ClassVar[bool] = False

    def check(self, name: str) -> None:
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES

        kind = _read_config(name).model_type
        if kind not in TOWERS and kind not in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES:
            raise UsageError(
                f"transformers:{name} is a model of type '{kind}', neither an image classifier nor towers of "
                f"{' or '.join(TOWERS)}"
            )

    def create(self, name: str, tag: str, form: Form) -> Backbone:
        from transformers import AutoModelForImageClassification

        from biasbed.networks.form import Backbone, MeanStd

        config, preprocessing = copy.deepcopy(_read_config(name)), self.preprocessing(name, tag)
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None)
        is_resized = isinstance(side, int) and form.image_size not in (None, side)
        channels = getattr(vision, "num_channels", 3)
        refuse_other_channels(f"transformers:{name}", channels, form)
        module: nn.Module
        if config.model_type in TOWERS:
            num_features = getattr(config, "projection_dim", None) or config.vision_config.hidden_size
            num_features = config.vision_config.hidden_size if config.model_type == "siglip" else num_features
            module = CLIPImage(_create_towers(config), int(num_features), form.outputs, is_resized)
        else:
            config.num_labels = form.outputs
            module = AutoModelForImageClassification.from_config(config, trust_remote_code=False)
            module.forward = LogitsForward(module, is_resized)
        return Backbone(module, MeanStd(preprocessing.mean, preprocessing.std))

    def create_text(self, name: str, tag: str) -> TextTower:
        from transformers import AutoTokenizer

        config = _read_config(name)
        if config.model_type not in TOWERS:
            raise no_text_tower_error(f"transformers:{name}")
        make = functools.partial(AutoTokenizer.from_pretrained, _name_or_folder(name), trust_remote_code=False)
        with _without_bars():
            tokenizer = open_tokenizer(f"transformers:{name}", make)
        return CLIPText(_create_towers(copy.deepcopy(config)), tokenizer)

    def weights(self, name: str) -> list[str]:
        return ["default"]

    def fetch(self, name: str, tag: str) -> dict[str, Tensor]:
        from transformers import AutoModel, AutoModelForImageClassification

        cls: Any = AutoModel if _read_config(name).model_type in TOWERS else AutoModelForImageClassification
        with _without_bars():
            model, report = cls.from_pretrained(
                _name_or_folder(name), trust_remote_code=False, output_loading_info=True
            )
        fresh = set(report["missing_keys"])  # a classifier that the repository does not have
        return {key: value for key, value in model.state_dict().items() if key not in fresh}

    def preprocessing(self, name: str, tag: str) -> Preprocessing:
        return _read_preprocessing(name)

    def classes(self, name: str) -> list[str] | None:
        config = _read_config(name)
        if not any(word.endswith("ForImageClassification") for word in config.architectures or ()):
            return None
        return [str(config.id2label[number]) for number in range(config.num_labels)]


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers, and the hub's client below it, from drawing progress bars, which would tear through ours."""
    from transformers.utils import logging

    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def _name_or_folder(name: str) -> str:
    return str(Path(name).expanduser()) if is_folder(name) else name


@functools.cache
def _read_config(name: str) -> Any:
    """Return a model's configuration. Raises UsageError for a folder without one, Failure for a hub out of reach."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(_name_or_folder(name), trust_remote_code=False)
    except ValueError as error:  # an unknown type of model, or one with code of its own
        raise UsageError(f"backbone=transformers:{name}: {first_line(error)}") from None
    except Exception as error:  # each version raises its own for a hub that can't be reached
        raise out_of_reach_error(f"transformers:{name}", error, "transformers:<folder>") from None


def _create_towers(config: Any) -> Any:
    from transformers import AutoModel

    return AutoModel.from_config(config, trust_remote_code=False)


@functools.cache
def _read_preprocessing(name: str) -> Preprocessing:
    """Return the preprocessing in a model's preprocessor_config.json. Raises UsageError if it can't be used."""
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        values, _ = ImageProcessingMixin.get_image_processor_dict(_name_or_folder(name))
    except Exception as error:  # no such file, or a hub that can't be reached
        raise UsageError(
            f"backbone=transformers:{name} has no preprocessor_config.json, which says how its images are normalised "
            f"({first_line(error)}): save its image processor beside the weights"
        ) from None
    if abs(values.get("rescale_factor", BYTE) - BYTE) > 1e-6:
        raise UsageError(f"backbone=transformers:{name}: its images are rescaled otherwise than to [0,1]")
    is_normalised = values.get("do_normalize", True)
    crop = _find_crop(values)
    return Preprocessing(
        mean=tuple(values["image_mean"]) if is_normalised else (0.0,),
        std=tuple(values["image_std"]) if is_normalised else (1.0,),
        size=crop.size,
        interpolation=RESAMPLINGS.get(values.get("resample", 2), "bilinear"),
        resize=crop.resize,
        crop=crop.crop,
    )


class _Crop(NamedTuple):
    size: int
    resize: int
    crop: Crop


def _find_crop(values: Mapping[str, Any]) -> _Crop:
    """Return size, resize and crop of an image processor. A width and a height are reached without the aspect ratio."""
    is_cropped, target = values.get("do_center_crop", False), values.get("size", 224)
    if isinstance(target, int):  # of older processors: the short side if a crop follows
        target = {"shortest_edge" if is_cropped else "height": target}
    keeps_ratio = "height" not in target
    resize = int(target.get("height", target.get("shortest_edge", 224)))
    if is_cropped and values.get("crop_size"):
        size = values["crop_size"]
        side = size if isinstance(size, int) else int(size.get("height", 224))
        return _Crop(side, resize, "centre" if keeps_ratio else "squash")
    share = values.get("crop_pct")
    if keeps_ratio and share and resize < WARPED:
        return _Crop(resize, int(resize / share), "centre")
    return _Crop(resize, resize, "centre" if keeps_ratio and not share else "squash")
