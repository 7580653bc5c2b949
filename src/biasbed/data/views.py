"""How copies of a training image are made once it has been cropped: by name, each with settings of its own."""

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
    """A change of an image uint8 [C,H,W] that keeps its size: uint8 again, or floats in [0,1].

    It draws from the global generators of torch and Python, which are keyed by seed, epoch, image and view. channels:
    of the images that it can change; None: of any.
    """

    channels: tuple[int, ...] | None = None

    @dataclass(frozen=True)
    class Settings:
        """What it is told."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def __call__(self, image: Tensor) -> Tensor:
        raise NotImplementedError


class Plain(ViewTransform):
    """The image as it was cropped."""

    def __call__(self, image: Tensor) -> Tensor:
        return image


class Jitter(ViewTransform):
    """Random changes of colour, in random order, and now and then none is left (torchvision's)."""

    channels = (1, 3)

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        """What it is told."""

        brightness: float = setting(0.4, "largest change of brightness, as a part", ge=0)
        contrast: float = setting(0.4, "the same of contrast", ge=0)
        saturation: float = setting(0.4, "the same of saturation", ge=0)
        hue: float = setting(0.1, "the same of hue, as a part of the circle", ge=0, le=0.5)
        p: float = setting(1.0, "probability of any change", ge=0, le=1)
        grey: float = setting(0.0, "probability of taking all colour away", ge=0, le=1)

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
    """One operation at one strength, both drawn uniformly (Müller and Hutter, ICCV 2021; torchvision's "wide")."""

    channels = (1, 3)

    @dataclass(frozen=True)
    class Settings(ViewTransform.Settings):
        """What it is told."""

        bins: int = setting(31, "strengths of each operation", ge=2)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.change = v2.TrivialAugmentWide(num_magnitude_bins=settings.bins)

    def __call__(self, image: Tensor) -> Tensor:
        changed: Tensor = self.change(image)
        return changed


def make(name: str, settings: Any, channels: int = 3) -> ViewTransform:
    """The view of a name, as told; UsageError for an unknown name or setting, and for images that it can't change."""
    cls = REGISTRY.load(name)
    if cls.channels is not None and channels not in cls.channels:
        takes = " or ".join(map(str, cls.channels))
        raise UsageError(
            f"the view '{name}' changes images of {takes} channels, and the training images have {channels}"
        )
    view: ViewTransform = cls(build(cls.Settings, dict(settings), f"{name}."))
    return view
