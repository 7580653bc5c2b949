"""Checks of recipe settings before a training starts: layer decay, label smoothing and compilation."""

from __future__ import annotations

from biasbed import networks
from biasbed.algorithms.base import Algorithm
from biasbed.compute.device import choose_device
from biasbed.config import Config
from biasbed.errors import NotApplicable, UsageError
from biasbed.networks import layers


def refuse_unmet(config: Config, algorithm: type[Algorithm]) -> None:
    """Raise UsageError for a setting that this method or this backbone can't be trained with."""
    if config.label_smoothing and not algorithm.smooths_labels:
        raise NotApplicable(
            f"label_smoothing={config.label_smoothing:g}: {config.algorithm} weights images by the cross-entropy of "
            "hard labels; leave it out"
        )
    if config.optim.layer_decay != 1:
        _refuse_without_layers(config)
    if config.compile:
        from biasbed.networks import compilation

        compilation.refuse_no_compiler(choose_device(config.device, config.nproc)[0])


def _refuse_without_layers(config: Config) -> None:
    try:
        layers.find_depths(networks.skeleton(networks.resolve(config.backbone)))
    except UsageError as error:
        raise UsageError(
            f"optim.layer_decay={config.optim.layer_decay:g}: {error}; take a network of timm, a ResNet or a ViT of "
            "torchvision, or leave it out"
        ) from None
