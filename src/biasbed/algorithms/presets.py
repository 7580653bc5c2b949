"""Presets: published recipes of training and testing, and the pieces that several of them share.

A preset covers one part of the settings, training or testing, or both. It names *every* setting of the parts that it
covers: the value that its source gives, or `OPEN` if the source leaves the choice to the reader. An open setting keeps
the value from suite or defaults. A preset that omits a setting is refused, so that no default of a suite slips into a
published recipe unnoticed. A setting marked `optional` may be omitted: it gets its default, with which a training does
without what the setting is about.

    {"optim.lr": 0.1, "optim.warmup": 0.0, "augment": OPEN, ...}        a group's name stands for all its settings

docs/presets.csv cites each setting. These authors' programs share momentum 0.9 without Nesterov, crops of 224 pixels
and full precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from biasbed.errors import UsageError
from biasbed.settings import Spec, refuse_unknown


class _Open:
    """Type of `OPEN`."""

    def __repr__(self) -> str:
        return "open"


OPEN: Final = _Open()

Preset = Mapping[str, Any]
Presets = Mapping[str, Preset]

# The parts of a recipe, as settings and groups of settings. All other settings belong to the protocol (which images are
# held out, how often to evaluate) or to the machine.
TRAINING = (
    *("backbone", "network", "init", "image_size", "augment", "epochs", "steps", "batch_size", "optim", "precision"),
    *("label_smoothing", "average", "average_from", "swad", "ema", "hparams"),
)
TESTING = ("preprocess", "stimuli", "categories")


def is_within(name: str, part: Sequence[str]) -> bool:
    """Return True if a setting, or a group of settings, belongs to a part of a recipe."""
    return name in part or _group(name) in part


def fixed_settings(preset: Preset, valid: Mapping[str, Spec], description: str) -> dict[str, Any]:
    """Return the settings that a preset fixes, by dotted name. Raises UsageError if it omits some of its part.

    valid: all existing settings. description: the preset's name in messages.
    """
    defaults: dict[str, Any] = {}
    for part in (TRAINING, TESTING):
        if any(is_within(name, part) for name in preset):
            names = [name for name in valid if is_within(name, part)]
            omitted = [name for name in names if name not in preset and _group(name) not in preset]
            defaults |= {name: valid[name].default for name in omitted if valid[name].optional}
            missing = [name for name in omitted if name not in defaults]
            if missing:
                raise UsageError(
                    f"{description} says nothing about {', '.join(missing)}: a recipe names every setting of its part, "
                    "with a value or as biasbed.algorithms.presets.OPEN"
                )
    return defaults | {name: value for name, value in preset.items() if value is not OPEN}


def load_presets(
    names: Sequence[str], owners: Sequence[Presets], valid: Mapping[str, Spec], description: str
) -> list[dict[str, Any]]:
    """Return the settings that the named presets fix; later ones override earlier ones.

    owners: those of networks, the suite's, then the method's. A name that two have stands for both. valid: all existing
    settings. description: the owners' name in messages. Raises UsageError for an unknown preset.
    """
    all_names = sorted(set().union(*owners))
    layers = []
    for name in names:
        refuse_unknown(name, all_names, f"{description} has no preset '{name}'")
        matching = [presets[name] for presets in owners if name in presets]
        layers += [fixed_settings(preset, valid, f"the preset '{name}'") for preset in matching]
    return layers


def _group(name: str) -> str:
    return name.partition(".")[0]


Recipe = Mapping[str, Any]

# --- pieces -----------------------------------------------------------------------------------------------------------

# Settings that this optimizer or schedule does not read are open.
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
# Settings that programs for ResNet-50 on ImageNet share, except for initial weights, length and milestones.
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
# torch's Adam at its default rate, as in programs for Biased-MNIST.
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
# Uncropped images of 28 pixels, and the network of ReBias.
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
    """Return the settings of a duration in passes over the training data."""
    return {"epochs": number, "steps": None}


# Settings that programs for Waterbirds share: ResNet-50 from ImageNet weights, SGD at a constant rate.
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
# Their images: the centre, or crops of 0.7 to 1 of the area.
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

# BiasBed (Kalischek et al. 2023), appendix A: one protocol for every method, without batch size, images and initial
# weights. A rate of 1e-4 from scratch does not reach that paper's accuracies; the preset has the printed value.
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

# Settings that all methods share in BiasBed's code, with ERM's rate. Its batch is that of all processes.
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

# --- recipes of networks, for every method ----------------------------------------------------------------------------

# AdamW with a cosine, as programs for ViTs and ConvNeXts share it: decay on weights of layers alone, no clipping.
ADAMW: Recipe = {
    "optim.name": "adamw",
    "optim.momentum": OPEN,
    "optim.nesterov": OPEN,
    "optim.beta1": 0.9,
    "optim.beta2": 0.999,
    "optim.decay_norms": False,
    "optim.decay_embeddings": False,
    "optim.clip": None,
    **COSINE,
}
NETWORK_RECIPE: Recipe = {
    **IMAGENET_CROPS,
    **ADAMW,
    "label_smoothing": 0.1,
    "network.dropout": 0.0,
    "average": "none",
    "hparams": OPEN,
}
# Of the method, these leave everything open.
NETWORK_RECIPES: Presets = {
    # Fine-tuning of MAE's ViT-B (He et al. 2022, table 9, and their code).
    "vit_finetune": {
        **NETWORK_RECIPE,
        "backbone": "timm:vit_base_patch16_224",
        "init": "named:mae",
        **epochs(100),
        "batch_size": 1024,
        "optim.lr": 5e-4,
        "optim.lr_batch": 256,
        "optim.weight_decay": 0.05,
        "optim.warmup": 5.0,
        "optim.layer_decay": 0.65,
        "network.drop_path": 0.1,
        "precision": "fp16",
    },
    # DeiT-B without distillation (Touvron et al. 2021, table 9, and their code).
    "vit_scratch": {
        **NETWORK_RECIPE,
        "backbone": "timm:deit_base_patch16_224",
        "init": "scratch",
        **epochs(300),
        "batch_size": 1024,
        "optim.lr": 5e-4,
        "optim.lr_batch": 512,
        "optim.weight_decay": 0.05,
        "optim.warmup": 5.0,
        "optim.layer_decay": 1.0,
        "network.drop_path": 0.1,
        "precision": "fp16",
    },
    # Fine-tuning of ConvNeXt-B from ImageNet-22K weights at 224 pixels (Liu et al. 2022, table 6, and their code).
    "convnext_finetune": {
        **NETWORK_RECIPE,
        "backbone": "timm:convnext_base",
        "init": "named:fb_in22k",
        **epochs(30),
        "batch_size": 512,
        "optim.lr": 5e-5,
        "optim.lr_batch": None,
        "optim.weight_decay": 1e-8,
        "optim.layer_decay": 0.8,
        "network.drop_path": 0.2,
        "precision": "fp32",
    },
}
