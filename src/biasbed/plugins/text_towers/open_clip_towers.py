"""Image and text towers of open_clip: its models by name, hub ids (`hf-hub:<org>/<name>`) and local folders."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from torch import Tensor, nn

from biasbed.config import Crop
from biasbed.errors import UsageError, first_line
from biasbed.networks.model_libraries import SOURCES, Preprocessing, folder_of, out_of_reach_error
from biasbed.plugins.text_towers.towers import (
    ImageTower,
    TextTower,
    TowerLibrary,
    open_tokenizer,
    refuse_other_channels,
)
from biasbed.settings import refuse_unknown

if TYPE_CHECKING:
    from biasbed.networks.form import Backbone, Form


CROPS: Mapping[str, Crop] = {"shortest": "centre", "squash": "squash"}  # open_clip's names -> `preprocess.crop`


class OpenCLIPImage(ImageTower):
    """Image tower `visual` of an open_clip model, with its projection, and a head."""

    def __init__(self, model: Any, num_features: int, outputs: int) -> None:
        super().__init__(num_features, outputs)
        self.visual: nn.Module = model.visual

    def embed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.visual(x))

    def translate_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with position embeddings of this tower's image size."""
        from open_clip.model import resize_pos_embed

        resize_pos_embed(tensors, self)
        return tensors


class OpenCLIPText(TextTower):
    """Open_clip model without its image tower."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        model.visual = None
        super().__init__(model)
        self._tokenizer = tokenizer

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        return cast(Tensor, self._tokenizer(list(texts)))

    def forward(self, tokens: Tensor) -> Tensor:
        model: Any = self.model
        return cast(Tensor, model.encode_text(tokens))


class OpenCLIP(TowerLibrary):
    """Models of open_clip, each with an image and a text tower."""

    package: ClassVar[str] = "open_clip_torch"
    module: ClassVar[str] = "open_clip"
    example: ClassVar[str] = "ViT-B-32"

    def check(self, name: str) -> None:
        import open_clip

        if name.startswith(SOURCES):
            _read_config(name)
        else:
            refuse_unknown(name, open_clip.list_models(), f"unknown backbone 'open_clip:{name}'")

    def create(self, name: str, tag: str, form: Form) -> Backbone:
        from biasbed.networks.form import Backbone, MeanStd

        refuse_other_channels(f"open_clip:{name}", 3, form)
        model = self._create_model(name, tag, form.image_size)
        preprocessing = self.preprocessing(name, tag)
        size = getattr(model.visual, "image_size", None)
        side = None if size is None else _side_of(size)
        module = OpenCLIPImage(model, int(self._read_sizes(name)["embed_dim"]), form.outputs)
        return Backbone(module, MeanStd(preprocessing.mean, preprocessing.std), side)

    def create_text(self, name: str, tag: str) -> TextTower:
        import open_clip

        with _without_warnings():
            tokenizer = open_tokenizer(f"open_clip:{name}", functools.partial(open_clip.get_tokenizer, name))
        return OpenCLIPText(self._create_model(name, tag), tokenizer)

    def weights(self, name: str) -> list[str]:
        import open_clip

        return ["default"] if name.startswith(SOURCES) else list(open_clip.list_pretrained_tags_by_model(name))

    def fetch(self, name: str, tag: str) -> dict[str, Tensor]:
        import open_clip

        with _without_warnings():
            model = open_clip.create_model(name, pretrained=tag or None, require_pretrained=True)
        return dict(model.state_dict())

    def preprocessing(self, name: str, tag: str) -> Preprocessing:
        import open_clip
        from open_clip.transform import PreprocessCfg

        if name.startswith(SOURCES):
            values = _read_config(name).get("preprocess_cfg", {})
        else:
            values = open_clip.get_pretrained_cfg(name, tag) if tag else {}
        usual = PreprocessCfg()
        size = values.get("size", self._read_sizes(name)["vision_cfg"].get("image_size", usual.size))
        side = _side_of(size)
        return Preprocessing(
            mean=tuple(values.get("mean", usual.mean)),
            std=tuple(values.get("std", usual.std)),
            size=side,
            interpolation=values.get("interpolation", usual.interpolation),
            resize=side,
            crop=CROPS.get(values.get("resize_mode", usual.resize_mode)),
        )

    def classes(self, name: str) -> list[str] | None:
        return None

    def file_hint(self, name: str) -> str:
        import open_clip

        quick = f"{name}-quickgelu"
        if name.startswith(SOURCES) or quick not in open_clip.list_models():
            return ""
        return f"open_clip:{name} has GELU; weights of OpenAI and others with QuickGELU need open_clip:{quick}"

    def _create_model(self, name: str, tag: str, image_size: int | None = None) -> Any:
        """Return a fresh model. The weights `tag` decide its activation (OpenAI's: QuickGELU)."""
        import open_clip

        config = open_clip.get_pretrained_cfg(name, tag) if tag else {}
        with _without_warnings():
            return open_clip.create_model(
                name,
                load_weights=False,
                pretrained_text=False,
                force_quick_gelu=bool(config.get("quick_gelu", False)),
                force_image_size=image_size,
            )

    def _read_sizes(self, name: str) -> dict[str, Any]:
        """Return the sizes of a model's towers."""
        import open_clip

        config: dict[str, Any] = (
            _read_config(name)["model_cfg"] if name.startswith(SOURCES) else open_clip.get_model_config(name)
        )
        return config


def _side_of(size: Any) -> int:
    """Return the side of square images: open_clip names their size by one number, or by height and width."""
    return size if isinstance(size, int) else int(size[0])


@functools.cache
def _read_config(name: str) -> dict[str, Any]:
    """Return the configuration of a model in a folder or on a hub. Raises UsageError or Failure if there is none."""
    if name.startswith("local-dir:"):
        path = folder_of(name) / "open_clip_config.json"
    else:
        from open_clip.pretrained import download_pretrained_from_hf

        try:
            path = download_pretrained_from_hf(name.partition(":")[2], filename="open_clip_config.json")
        except Exception as error:
            raise out_of_reach_error(f"open_clip:{name}", error, "open_clip:local-dir:<folder>") from None
    try:
        with open(path, encoding="utf-8") as file:
            config: dict[str, Any] = json.load(file)
        config["model_cfg"]["embed_dim"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"backbone=open_clip:{name}: open_clip_config.json describes no model ({first_line(error)})"
        ) from None
    return config


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence open_clip's warning that a model has random weights, which are loaded later."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
