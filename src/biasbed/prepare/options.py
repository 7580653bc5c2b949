"""What `prepare` can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from biasbed import suites
from biasbed.config import Config
from biasbed.settings import build, setting, specs

What = Literal[
    "none", "check", "style_network", "cae_network", "edsr_network", "stylized", "deepaug_cae", "deepaug_edsr"
]
Auto = Literal["auto"]


@dataclass(frozen=True)
class PrepareOptions:
    """Networks and images that some methods need; the other flags are those of `train`."""

    what: What = setting("none", "a network (style_network, ...), images (stylized, ...), or check: is the data whole?")
    split: str = setting("train", "whose images: train, or the name of a validation or evaluation set")
    overwrite: bool = setting(False, "make it anew where it exists with other settings")
    processes: int | Auto = setting("auto", "processes that make images (auto: one per core, one on a GPU)")
    format: Literal["png", "jpg"] = setting("png", "of the images: png without loss, jpg at quality 95")
    hash: bool = setting(False, "check: read, decode and hash every file, not only its header")
    # networks
    encoder: str = setting("none", "style_network: file with the weights of AdaIN's VGG encoder")
    decoder: str = setting("none", "style_network: file with the weights of AdaIN's decoder")
    weights: str = setting("none", "cae_network, edsr_network: file with the authors' weights")
    width: int | Auto = setting("auto", "channels of the first layer of a network that is trained here")
    size: int | Auto = setting("auto", "pixels of the training crops, and of images made with the network")
    steps: int | Auto = setting("auto", "training steps of a network (style_network: of each of its halves)")
    batch_size: int | Auto = setting("auto", "images per training step of a network")
    # images
    styles: str = setting("auto", "stylized, style_network: folder of style images (auto: the images themselves)")
    alpha: float = setting(1.0, "stylized: strength of the style (AdaIN, eq. 14)", ge=0, le=1)
    redraw: float = setting(0.05, "deepaug: chance per image that the network is distorted anew (authors)", ge=0, le=1)
    weight_option: int | Auto = setting("auto", "deepaug: always this distortion of the weights (auto: drawn)")
    signal_option: int | Auto = setting("auto", "deepaug: always this distortion of the features (auto: drawn)")

    def __post_init__(self) -> None:
        for name, least in (("processes", 1), ("width", 1), ("size", 9), ("steps", 1), ("batch_size", 1)):
            value = getattr(self, name)
            if value != "auto" and value < least:
                raise ValueError(f"{name}={value}: should be at least {least}")


def read_flags(flags: Mapping[str, Any]) -> tuple[PrepareOptions, Config]:
    """What is asked for, and the settings of the suite that is meant; UsageError for an unknown or wrong flag."""
    own = specs(PrepareOptions)
    options = build(PrepareOptions, {name: value for name, value in flags.items() if name in own})
    given = {name: value for name, value in flags.items() if name not in own and value != "auto"}
    return options, build(Config, {**suites.defaults(str(given.get("suite", Config.suite))), **given})
