"""Methods that train another method on other images: only `training_data` changes.

Validation and the choice of the best epoch use the suite's unchanged images. (BiasBed's code chooses the epoch of its
Stylized ERM on stylized images, by another measure than for every other method.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from biasbed.algorithms.augmix import AugMix
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.noise2net import Noise2Net
from biasbed.algorithms.presets import (
    BIASBED_CODE,
    BIASBED_PAPER,
    DEEPAUGMENT_AUTHORS,
    IMAGENET,
    IMAGENET_WEIGHTS,
    epochs,
)

# Both models of Geirhos et al. except for the length: appendix A.5, and the page of their released models.
GEIRHOS: Mapping[str, Any] = {**IMAGENET, "init": IMAGENET_WEIGHTS, "optim.milestones": (1 / 3, 2 / 3)}


class StylizedERM(ERM):
    """ERM on stylized images alone (Geirhos et al., ICLR 2019, table 1: "SIN")."""

    training_data: ClassVar[Mapping[str, float]] = {"stylized": 1.0}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        "biasbed_code": BIASBED_CODE,
        "geirhos_a": {**GEIRHOS, **epochs(60)},
    }


class CleanAndStylized(ERM):
    """ERM with half of each batch stylized (Geirhos et al., ICLR 2019, table 2: "SIN+IN").

    This is "+ Style Transfer" of Hendrycks et al., ICCV 2021. Clean and stylized images are drawn independently.
    """

    training_data: ClassVar[Mapping[str, float]] = {"train": 0.5, "stylized": 0.5}
    # An epoch is a pass over the clean images, so it reads as many images as one of theirs.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"geirhos_b": {**GEIRHOS, **epochs(45)}}


# Methods with one kind of copies, as BiasBed has them; its code has no mixture of both.
ONE_KIND: Mapping[str, Mapping[str, Any]] = {
    "paper": BIASBED_PAPER,
    "biasbed_code": BIASBED_CODE,
    "authors": DEEPAUGMENT_AUTHORS,
}


class DeepAugCAE(ERM):
    """ERM with half of each batch distorted by an autoencoder (Hendrycks et al., ICCV 2021, section 4)."""

    training_data: ClassVar[Mapping[str, float]] = {"train": 0.5, "deepaug_cae": 0.5}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = ONE_KIND


class DeepAugEDSR(ERM):
    """ERM with half of each batch distorted by a super-resolution network (Hendrycks et al., ICCV 2021)."""

    training_data: ClassVar[Mapping[str, float]] = {"train": 0.5, "deepaug_edsr": 0.5}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = ONE_KIND


# The authors shuffle the clean images and both kinds of copies together, which makes each a third.
CLEAN_CAE_EDSR: Mapping[str, float] = {"train": 1 / 3, "deepaug_cae": 1 / 3, "deepaug_edsr": 1 / 3}


class DeepAug(ERM):
    """ERM on images and both kinds of distorted copies, a third each: DeepAugment (Hendrycks et al., ICCV 2021)."""

    training_data: ClassVar[Mapping[str, float]] = CLEAN_CAE_EDSR
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": BIASBED_PAPER, "authors": DEEPAUGMENT_AUTHORS}


class DeepAugAll(Noise2Net):
    """DeepAugment with Noise2Net: half of each mixed batch also passes through a random network."""

    training_data: ClassVar[Mapping[str, float]] = CLEAN_CAE_EDSR


class DeepAugAugMix(AugMix):
    """AugMix on images and both kinds of distorted copies, a third each: "DeepAugment + AugMix".

    Hendrycks et al. (ICCV 2021) print results for it but published neither code nor a recipe. Here the images of
    DeepAugment take the place of AugMix's images: the "clean" view of a distorted copy is that copy, its mixtures are
    made of it, and the cross-entropy covers all three kinds.
    """

    training_data: ClassVar[Mapping[str, float]] = CLEAN_CAE_EDSR
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
