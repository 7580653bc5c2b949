"""The makers of DeepAugment's images: Hendrycks et al., The Many Faces of Robustness, ICCV 2021, section 4."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from biasbed.config import Auto
from biasbed.data.source import Source
from biasbed.networks import frozen
from biasbed.plugins.deepaug.cae_distortion import CAEDistortion
from biasbed.plugins.deepaug.edsr_distortion import EDSRDistortion
from biasbed.prepare.copies import ImagesMaker, ImagesOptions
from biasbed.prepare.images import Distortion
from biasbed.prepare.networks import WeightsOptions
from biasbed.settings import setting


@dataclass(frozen=True)
class DeepAugOptions(WeightsOptions, ImagesOptions):
    """Settings of makers of DeepAugment's images, and of their network if it has to be made first."""

    redraw: float = setting(0.05, "chance per image that the network is distorted anew (authors)", ge=0, le=1)
    weight_option: int | Auto = setting("auto", "always this distortion of the weights (auto: drawn)")
    signal_option: int | Auto = setting("auto", "always this distortion of the features (auto: drawn)")


class _DeepAugImages(ImagesMaker[DeepAugOptions]):
    """Maker of every image's output of a network whose weights and features are distorted."""

    Settings = DeepAugOptions
    Distortion: ClassVar[Any]

    @classmethod
    def distortion(cls, options: DeepAugOptions, network: Path | None, material: Source, device: str) -> Distortion:
        assert network is not None
        fixed = {}
        for name in ("weight_option", "signal_option"):
            option = getattr(options, name)
            fixed[name] = None if option == "auto" else int(option)
        distortion: Distortion = cls.Distortion(frozen.load(network, cls.network).to(torch.device(device)), **fixed)
        return distortion

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("redraw", "weight_option", "signal_option")}

    @property
    def redraw_probability(self) -> float:
        return self.options.redraw


class CAEImages(_DeepAugImages):
    """Maker of images by the compressive autoencoder."""

    network = "cae"
    Distortion = CAEDistortion


class EDSRImages(_DeepAugImages):
    """Maker of images by the super-resolution network."""

    network = "edsr"
    Distortion = EDSRDistortion
