"""The makers of DeepAugment's images: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from biasbed.config import Auto
from biasbed.data.source import Source
from biasbed.networks import frozen
from biasbed.prepare.copies import ImagesMaker, ImagesOptions
from biasbed.prepare.deepaug_cae import CAEDistortion
from biasbed.prepare.deepaug_edsr import EDSRDistortion
from biasbed.prepare.distortion import Distortion
from biasbed.prepare.networks import WeightsOptions
from biasbed.settings import setting


@dataclass(frozen=True)
class DeepAugOptions(WeightsOptions, ImagesOptions):
    """What can be told to a maker of distorted images, and to that of its network where it has to be made first."""

    redraw: float = setting(0.05, "chance per image that the network is distorted anew (authors)", ge=0, le=1)
    weight_option: int | Auto = setting("auto", "always this distortion of the weights (auto: drawn)")
    signal_option: int | Auto = setting("auto", "always this distortion of the features (auto: drawn)")


class _DeepAugImages(ImagesMaker[DeepAugOptions]):
    """Every image through a network whose weights and features are tampered with."""

    Settings = DeepAugOptions
    Distortion: ClassVar[Any]

    @classmethod
    def distortion(cls, options: DeepAugOptions, network: Path | None, material: Source, device: str) -> Distortion:
        assert network is not None
        choices = [None if word == "auto" else int(word) for word in (options.weight_option, options.signal_option)]
        made: Distortion = cls.Distortion(frozen.load(network, cls.network).to(torch.device(device)), *choices)
        return made

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("redraw", "weight_option", "signal_option")}

    @property
    def redraw(self) -> float:
        return self.options.redraw


class CAEImages(_DeepAugImages):
    network = "cae"
    Distortion = CAEDistortion


class EDSRImages(_DeepAugImages):
    network = "edsr"
    Distortion = EDSRDistortion
