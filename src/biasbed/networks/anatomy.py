"""What a ResNet of torchvision's or timm's consists of.

The two share the names conv1, bn1, maxpool, layer1..4 and, in blocks, conv1..3, bn1..3 and downsample.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from biasbed.errors import UsageError


def stages(resnet: nn.Module) -> list[nn.Sequential]:
    """layer1 to layer4; UsageError when the network is no ResNet of basic or bottleneck blocks."""
    names = ("layer1", "layer2", "layer3", "layer4")
    found = [getattr(resnet, name, None) for name in names]
    layers = [layer for layer in found if isinstance(layer, nn.Sequential)]
    blocks = [block for layer in layers for block in layer]
    stem = all(isinstance(getattr(resnet, name, None), nn.Module) for name in ("conv1", "bn1", "maxpool"))
    if len(layers) != len(names) or not stem or not all(_is_residual(block) for block in blocks):
        raise UsageError(f"{type(resnet).__name__} is no ResNet of basic or bottleneck blocks: this method needs one")
    return layers


def convs(block: Any) -> list[nn.Conv2d]:
    """conv1, conv2 and, in a bottleneck, conv3."""
    return [getattr(block, name) for name in ("conv1", "conv2", "conv3") if hasattr(block, name)]


def _is_residual(block: nn.Module) -> bool:
    found, norms = convs(block), [name for name in ("bn1", "bn2", "bn3") if hasattr(block, name)]
    plain = all(isinstance(conv, nn.Conv2d) for conv in found) and hasattr(block, "downsample")
    return plain and len(found) in (2, 3) and len(norms) == len(found)
