"""Recipes that several methods share, and the pieces that recipes are made of; docs/presets.md cites each line.

Momentum 0.9 without Nesterov, crops of 224 pixels and full precision are what these authors' programs have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed.algorithms.recipes import OPEN

Recipe = Mapping[str, Any]

# --- pieces -----------------------------------------------------------------------------------------------------------

# Settings that the optimizer or the schedule does not read are open.
SGD: Recipe = {
    "optim.name": "sgd",
    "optim.momentum": 0.9,
    "optim.nesterov": False,
    "optim.beta1": OPEN,
    "optim.beta2": OPEN,
}
STEPS: Recipe = {"optim.schedule": "step", "optim.gamma": 0.1, "optim.warmup": 0.0, "optim.restarts": ()}
COSINE: Recipe = {
    "optim.schedule": "cosine",
    "optim.milestones": OPEN,
    "optim.gamma": OPEN,
    "optim.warmup": 0.0,
    "optim.restarts": (),
}
# torchvision's RandomResizedCrop(224) and RandomHorizontalFlip().
IMAGENET_CROPS: Recipe = {
    "image_size": 224,
    "augment.crop": True,
    "augment.crop_scale": 0.08,
    "augment.crop_ratio": (3 / 4, 4 / 3),
    "augment.flip": True,
}
# What programs for ResNet-50 on ImageNet have in common, but for its first weights, its length and the steps' places.
IMAGENET: Recipe = {
    "backbone": "resnet50",
    **IMAGENET_CROPS,
    "batch_size": 256,
    **SGD,
    "optim.lr": 0.1,
    "optim.lr_batch": 256,
    "optim.weight_decay": 1e-4,
    **STEPS,
    "precision": "fp32",
}
# torch's Adam at its usual rate, as programs for Biased-MNIST have it.
ADAM: Recipe = {
    "optim.name": "adam",
    "optim.lr": 1e-3,
    "optim.lr_batch": None,
    "optim.momentum": OPEN,
    "optim.nesterov": OPEN,
    "optim.beta1": 0.9,
    "optim.beta2": 0.999,
    "optim.weight_decay": 1e-4,
}
# Images of 28 pixels as they are, and the network of ReBias.
BIASED_MNIST: Recipe = {
    "backbone": "simple_conv",
    "init": "scratch",
    "image_size": 28,
    "augment.crop": False,
    "augment.crop_scale": OPEN,
    "augment.crop_ratio": OPEN,
    "augment.flip": False,
    "precision": "fp32",
}
IMAGENET_WEIGHTS = "named:IMAGENET1K_V1"


def epochs(number: int) -> Recipe:
    """A duration in passes over the training data."""
    return {"epochs": number, "steps": None}


# What programs for Waterbirds have in common: ResNet-50 from ImageNet weights, SGD at a constant rate.
WATERBIRDS: Recipe = {
    "backbone": "resnet50",
    "init": IMAGENET_WEIGHTS,
    "image_size": 224,
    **SGD,
    "optim.lr_batch": None,
    "optim.schedule": "constant",
    "optim.milestones": OPEN,
    "optim.gamma": OPEN,
    "optim.warmup": 0.0,
    "optim.restarts": (),
    "precision": "fp32",
}
# Their images: the middle, or crops of 0.7 to 1 of the area.
WHOLE_IMAGES: Recipe = {
    "augment.crop": False,
    "augment.crop_scale": OPEN,
    "augment.crop_ratio": OPEN,
    "augment.flip": False,
}
CROPPED: Recipe = {
    "augment.crop": True,
    "augment.crop_scale": 0.7,
    "augment.crop_ratio": (3 / 4, 4 / 3),
    "augment.flip": True,
}

# --- recipes ----------------------------------------------------------------------------------------------------------

# BiasBed (Kalischek et al. 2023), appendix A: one protocol for every method. Batch size, images and initial weights are
# not given there. A rate of 1e-4 from scratch does not reach the accuracies of that paper; the preset says what is
# printed.
BIASBED_PAPER: Recipe = {
    "backbone": "resnet50",
    "init": OPEN,
    "image_size": OPEN,
    "augment": OPEN,
    **epochs(100),
    "batch_size": OPEN,
    **SGD,
    "optim.lr": 1e-4,
    "optim.lr_batch": None,
    "optim.weight_decay": 1e-4,
    **STEPS,
    "optim.milestones": (0.3, 0.6, 0.9),
    "precision": "fp16",
    "hparams": OPEN,
}

# The code of BiasBed: what its methods have in common, with ERM's rate. Its batch is that of all processes.
BIASBED_CODE: Recipe = {
    "backbone": "resnet50",
    "init": "scratch",
    "image_size": 256,
    "augment.crop": True,
    "augment.crop_scale": 0.5,
    "augment.crop_ratio": (0.8, 1.0),
    "augment.flip": True,
    **epochs(100),
    "batch_size": 128,
    **SGD,
    "optim.lr": 1e-4,
    "optim.lr_batch": None,
    "optim.weight_decay": 1e-4,
    **STEPS,
    "optim.milestones": (0.3, 0.6, 0.9),
    "precision": "fp16",
}

# DeepAugment and Noise2Net (Hendrycks et al. 2021, and their code): from ImageNet weights.
DEEPAUGMENT_AUTHORS: Recipe = {
    "backbone": "resnet50",
    "init": IMAGENET_WEIGHTS,
    **IMAGENET_CROPS,
    **epochs(30),
    "batch_size": 1024,
    **SGD,
    "optim.nesterov": True,
    "optim.lr": 0.1,
    "optim.lr_batch": None,
    "optim.weight_decay": 1e-4,
    **COSINE,
    "precision": "fp32",
}
