"""Views: ways to make the copies of a cropped training image, each with its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torchvision.transforms import v2

from biasbed.errors import UsageError
from biasbed.registry import Registry
from biasbed.settings import build, setting

REGISTRY = Registry(
    "view",
    {
        "plain": "biasbed.data.views:Plain",
        "jitter": "biasbed.data.views:Jitter",
        "augmix": "biasbed.data.augmix:MixedChains",
        "trivialaugment": "biasbed.data.views:RandomOperation",
    },
    base="biasbed.data.views:ViewTransform",
    kind="view",
)


class ViewTransform:
    """Random change of an image uint8 [C,H,W] that keeps its size; returns uint8, or floats in [0,1].

    Views draw from the global generators of torch and Python, which are seeded by seed, epoch, image and view.
    channels: numbers of channels that the view accepts; None for any.
    """

    channels: tuple[int, ...] | None = None

    @dataclass(frozen=True)
    class Settings:
        """Settings of the view."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def __call__(self, image: Tensor) -> Tensor:
        raise NotImplementedError


class Plain(ViewTransform):
    """The cropped image, unchanged."""

    def __call__(self, image: Tensor) -> Tensor:
        return image


class Jitter(ViewTransform):
    """Random changes of colour in random order, or conversion to grey (torchvision's ColorJitter)."""

    channels = (1, 3)

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        """Settings of the colour changes."""

        brightness: float = setting(0.4, "largest relative change of brightness", ge=0)
        contrast: float = setting(0.4, "largest relative change of contrast", ge=0)
        saturation: float = setting(0.4, "largest relative change of saturation", ge=0)
        hue: float = setting(0.1, "largest change of hue, as a fraction of the colour circle", ge=0, le=0.5)
        p: float = setting(1.0, "probability of changing the colours", ge=0, le=1)
        grey: float = setting(0.0, "probability of converting to grey", ge=0, le=1)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        s = settings
        self.change = v2.Compose(
            [
                v2.RandomApply([v2.ColorJitter(s.brightness, s.contrast, s.saturation, s.hue)], s.p),
                v2.RandomGrayscale(s.grey),
            ]
        )

    def __call__(self, image: Tensor) -> Tensor:
        changed: Tensor = self.change(image)
        return changed


class RandomOperation(ViewTransform):
    """TrivialAugment: one operation at one strength, both drawn uniformly (Müller and Hutter, ICCV 2021; "wide")."""

    channels = (1, 3)

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        """Settings of TrivialAugment."""

        bins: int = setting(31, "number of strengths of each operation", ge=2)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.change = v2.TrivialAugmentWide(num_magnitude_bins=settings.bins)

    def __call__(self, image: Tensor) -> Tensor:
        changed: Tensor = self.change(image)
        return changed


def make(name: str, settings: Any, channels: int = 3) -> ViewTransform:
    """Make a view from its name and settings.

    Raises UsageError for an unknown name or setting, and if the view does not accept images of `channels` channels.
    """
    cls = REGISTRY.load(name)
    if cls.channels is not None and channels not in cls.channels:
        accepted = " or ".join(map(str, cls.channels))
        raise UsageError(
            f"the view '{name}' takes images of {accepted} channels, and the training images have {channels}"
        )
    view: ViewTransform = cls(build(cls.Settings, dict(settings), f"{name}."))
    return view
