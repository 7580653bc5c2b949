"""Parts of a ResNet of torchvision's or timm's.

Both libraries use the names conv1, bn1, maxpool, layer1..4 and, in blocks, conv1..3, bn1..3 and downsample.
"""

from __future__ import annotations

import itertools
from typing import Any

from torch import nn

from biasbed.errors import UsageError

STAGES = ("layer1", "layer2", "layer3", "layer4")
STEM = ("conv1", "bn1", "maxpool")
GATES = ("se", "cbam")  # kinds of gates that blocks may have (`attention`)


def stages(resnet: nn.Module) -> list[nn.Sequential]:
    """Return layer1 to layer4. Raises UsageError if the network is no ResNet of basic or bottleneck blocks."""
    layers: list[nn.Sequential] = []
    for name in STAGES:
        layer = getattr(resnet, name, None)
        if isinstance(layer, nn.Sequential):
            layers.append(layer)
    has_stem = all(isinstance(getattr(resnet, name, None), nn.Module) for name in STEM)
    are_residual = [_is_residual(block) for block in itertools.chain(*layers)]
    if len(layers) != len(STAGES) or not has_stem or not all(are_residual):
        raise UsageError(f"{type(resnet).__name__} is no ResNet of basic or bottleneck blocks: this method needs one")
    return layers


def residual_blocks(resnet: nn.Module) -> list[nn.Module]:
    """Return the blocks of all stages in the order of the forward pass. Raises UsageError as `stages` does."""
    return list(itertools.chain(*stages(resnet)))


def block_convs(block: Any) -> list[nn.Conv2d]:
    """Return conv1, conv2 and, in a bottleneck, conv3."""
    return [getattr(block, name) for name in ("conv1", "conv2", "conv3") if hasattr(block, name)]


def gate_kind(key: str) -> str:
    """Return the kind of gate that a state dict's key belongs to; empty for all other keys."""
    return next((kind for kind in GATES if kind in key.split(".")), "")


def _is_residual(block: nn.Module) -> bool:
    convs = block_convs(block)
    norms = [name for name in ("bn1", "bn2", "bn3") if hasattr(block, name)]
    is_plain = all(isinstance(conv, nn.Conv2d) for conv in convs) and hasattr(block, "downsample")
    return is_plain and len(convs) in (2, 3) and len(norms) == len(convs)
