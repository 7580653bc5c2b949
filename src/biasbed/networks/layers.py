"""Layers of a backbone: the layer that each parameter is in, and stochastic depth."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from biasbed.errors import UsageError
from biasbed.networks.network import Network

# Layers of torchvision's ResNets and ours, and of its ViTs, in the form of timm's `group_matcher`. The last number puts
# a norm into the layer before it.
RESNET: Mapping[str, Any] = {"stem": r"^conv1|^bn1", "blocks": r"^layer(\d+)\.(\d+)"}
VIT: Mapping[str, Any] = {
    "stem": r"^conv_proj|^class_token|^encoder\.pos_embedding",
    "blocks": [(r"^encoder\.layers\.encoder_layer_(\d+)", None), (r"^encoder\.ln", (99999,))],
}
# Embeddings of torchvision's transformers; timm's networks name theirs themselves.
EMBEDDINGS = ("class_token", "*pos_embedding", "*relative_position_bias_table")


def find_depths(backbone: nn.Module, head: str | None = None) -> dict[str, int]:
    """Return the number of layers after each parameter's own by name, counted as timm's layer decay does.

    head: name of a last linear layer that was removed; it counts as a layer that comes last. Raises UsageError if the
    backbone does not say which layers it has.
    """
    from timm.models._manipulate import group_with_matcher
    from timm.optim._param_groups import auto_group_layers

    matcher = _find_matcher(backbone)
    names = [name for name, _ in backbone.named_parameters()]
    if matcher is not None:
        named = [(name, None) for name in (*names, *([f"{head}.weight"] if head else []))]
        numbers: dict[str, int] = group_with_matcher(iter(named), matcher, reverse=True)
    elif hasattr(backbone, "pretrained_cfg"):
        numbers = auto_group_layers(backbone)
    else:
        numbers = {}
    last = max(numbers.values(), default=0)
    if last == 0:
        raise UsageError(
            f"optim.layer_decay: {type(backbone).__name__} does not say which layers it has; take a network of timm, a "
            "ResNet or a ViT of torchvision, or leave it out"
        )
    return {name: last - numbers.get(name, last) for name in names}


def _find_matcher(backbone: nn.Module) -> Any:
    """Return the patterns of layers that timm's networks have, or ours for torchvision's; None if there are none."""
    from torchvision.models import ResNet, VisionTransformer

    group_matcher = getattr(backbone, "group_matcher", None)
    if group_matcher is not None:
        return group_matcher(coarse=False)
    if isinstance(backbone, ResNet):
        return RESNET
    return VIT if isinstance(backbone, VisionTransformer) else None


def parameter_depths(module: nn.Module) -> dict[int, int]:
    """Return the number of layers after each parameter's own, by `id`, for every network in a module that has layers.

    Parameters outside networks, such as classifiers of a method's own, are missing: they are in the last layer.
    """
    depths: dict[int, int] = {}
    for network in networks_in(module):
        try:
            by_name = find_depths(network.backbone, network.removed_head)
        except UsageError:  # a method's small second network; the configured backbone was checked before
            continue
        depths |= {id(parameter): by_name[name] for name, parameter in network.backbone.named_parameters()}
    return depths


def embedding_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the position embeddings, class tokens and relative position tables of every network in a module.

    They are those that timm's networks name in `no_weight_decay`.
    """
    for network in networks_in(module):
        names_spared = getattr(network.backbone, "no_weight_decay", None)
        patterns = EMBEDDINGS if names_spared is None else tuple(names_spared())
        for name, parameter in network.backbone.named_parameters():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                yield parameter


def networks_in(module: nn.Module) -> Iterator[Network]:
    """Yield every network in a module."""
    for part in module.modules():
        if isinstance(part, Network):
            yield part


# --- stochastic depth -------------------------------------------------------------------------------------------------


def set_drop_path(backbone: nn.Module, rate: float) -> None:
    """Set the odds at which torchvision's blocks are skipped, from 0 in the first one linearly to `rate` in the last.

    Raises UsageError if there is a rate and the backbone has no such blocks.
    """
    from torchvision.ops import StochasticDepth

    drops = [module for module in backbone.modules() if isinstance(module, StochasticDepth)]
    if rate and not drops:
        raise no_drop_path_error(type(backbone).__name__, rate)
    for number, drop in enumerate(drops):
        drop.p = rate * number / max(1, len(drops) - 1)


def has_drop_path(backbone: nn.Module) -> bool:
    """Return True if some block of a timm backbone is skipped in training."""
    return any(getattr(module, "drop_prob", 0) and type(module).__name__ == "DropPath" for module in backbone.modules())


def no_drop_path_error(name: str, rate: float) -> UsageError:
    """Return the error for stochastic depth in a network without any."""
    return UsageError(
        f"network.drop_path={rate:g}: {name} has no stochastic depth; leave it out, or take a network that has it, as "
        "timm:vit_base_patch16_224, timm:convnext_base or timm:resnet50"
    )
