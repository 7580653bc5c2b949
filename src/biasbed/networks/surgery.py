"""Places in a ResNet where methods insert modules, norms with auxiliary twins, and other changes of a network.

`hooks` attaches callbacks to these modules, `resnet_parts` finds them. Activations have no common name, and torchvision
calls one ReLU module several times per block. So a mask that belongs after an activation is applied after the norm
before it, which is the same for a mask of zeros and ones and an activation with f(0) = 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks.resnet_parts import STEM, block_convs, residual_blocks, stages

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


# --- insertion points -------------------------------------------------------------------------------------------------


def main_path_convs(resnet: nn.Module) -> list[nn.Conv2d]:
    """Return every convolution of the stem and of the blocks' main paths, in the order of the forward pass.

    17 in a ResNet-18, 49 in a ResNet-50. Includes those of deep stems, and of a stem with a convolution in place of its
    max-pooling; excludes shortcuts (`downsample`) and attention.
    """
    blocks = residual_blocks(resnet)
    stem = [*resnet.get_submodule("conv1").modules(), *resnet.get_submodule("maxpool").modules()]
    convs = [layer for layer in stem if isinstance(layer, nn.Conv2d)]
    for block in blocks:
        convs += block_convs(block)
    return convs


@dataclass(frozen=True)
class Window:
    """Square of pixels that a convolution or pooling sees: side, stride and padding."""

    kernel: int = 1
    stride: int = 1
    padding: int = 0

    def then(self, after: Window) -> Window:
        """Return the window of this layer followed by another one, on the input of this layer."""
        return Window(
            self.kernel + (after.kernel - 1) * self.stride,
            self.stride * after.stride,
            self.padding + after.padding * self.stride,
        )


@dataclass(frozen=True, eq=False)
class Site:
    """Insertion point: a feature map and the older feature that it was computed from.

    The input of `source` is the older feature u [N,C,H,W]; the output of `target` is the map z [N,C',h,w]. `window` is
    the part of u that one position sees before pooling; `pool` is the pooling in between, if there is one.
    """

    source: nn.Module
    target: nn.Module
    window: Window
    pool: Window | None = None


def stem_site(resnet: nn.Module) -> Site:
    """Return the site of the stem, from the network's input to the output of its max-pooling."""
    stages(resnet)
    conv, pool = resnet.get_submodule("conv1"), resnet.get_submodule("maxpool")
    return Site(conv, pool, window_of(conv), window_of(pool))


def first_block_sites(resnet: nn.Module, stage: int) -> list[Site]:
    """Return the sites inside the first block of a stage (1 to 4), in the order of the forward pass.

    Basic block: after the first activation, and the block's output if its shortcut is the identity. Bottleneck: after
    the first two activations.
    """
    block: Any = stages(resnet)[stage - 1][0]
    convs = block_convs(block)
    sites = [Site(convs[0], block.bn1, window_of(convs[0]))]
    if len(convs) == 3:
        sites.append(Site(convs[1], block.bn2, window_of(convs[1])))
    elif block.downsample is None:
        sites.append(Site(convs[1], block, window_of(convs[1])))
    return sites


class Tail(nn.Module):
    """Last stages of a ResNet, its pooling and its classifier `fc`: feature maps [N,C,H,W] -> logits [N,K]."""

    def __init__(self, layers: list[nn.Sequential], pool: nn.Module, fc: nn.Linear) -> None:
        super().__init__()
        self.layers, self.pool, self.fc = nn.Sequential(*layers), pool, fc

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.layers(x)).flatten(1))
        return logits


def tail(resnet: nn.Module, stage: int) -> Tail:
    """Return stage `stage` (1 to 4) to the end as one module, which shares the ResNet's modules."""
    pool = "avgpool" if hasattr(resnet, "avgpool") else "global_pool"  # torchvision's name, timm's name
    fc = resnet.get_submodule("fc")
    assert isinstance(fc, nn.Linear)
    return Tail(stages(resnet)[stage - 1 :], resnet.get_submodule(pool), fc)


def norm_parameters(resnet: nn.Module, groups: int) -> list[nn.Parameter]:
    """Return weights and biases of the norms in the first `groups` (1 to 5) of [stem, layer1, .., layer4].

    Includes shortcuts: 48 parameters in a ResNet-50 up to layer2. A deep stem has several norms, all in the first
    group.
    """
    stem = nn.ModuleList(resnet.get_submodule(name) for name in STEM)
    parts = nn.ModuleList([stem, *stages(resnet)][:groups])
    parameters: list[nn.Parameter] = []
    for module in parts.modules():
        if isinstance(module, NORMS):
            parameters += module.parameters(recurse=False)
    return parameters


# --- norms ------------------------------------------------------------------------------------------------------------


class SplitNorm:
    """Computation of a norm that passes the first examples through it and the others through an auxiliary twin.

    `draw` is the number of first examples: None for all of them, 0 for none.
    """

    draw: int | None = None

    def __init__(self, norm: nn.Module, twin: nn.Module) -> None:
        self.norm, self.twin = norm, twin

    def __call__(self, x: Tensor) -> Tensor:
        if self.draw == 0:
            return cast(Tensor, self.twin(x))
        main: Tensor = type(self.norm).forward(self.norm, x if self.draw is None else x[: self.draw])
        return main if self.draw is None else torch.cat([main, self.twin(x[self.draw :])])

    def forget(self) -> None:
        self.draw = None


def split_norms(resnet: nn.Module) -> tuple[nn.ModuleList, list[SplitNorm]]:
    """Return an auxiliary twin of every batch norm (Xie et al., CVPR 2020, section 4), and the norms' new `forward`s.

    Twins start with copies of the norms' parameters and statistics. The caller must register them: the ResNet's modules
    and their names remain unchanged. A hook could not keep a whole batch away from the main norm, so each norm's
    `forward` is replaced by an object, like the callbacks of `hooks`.
    """
    norms = [module for module in resnet.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    twins = nn.ModuleList(copy.deepcopy(norm) for norm in norms)
    split = [SplitNorm(norm, twin) for norm, twin in zip(norms, twins, strict=True)]
    for norm, forward in zip(norms, split, strict=True):
        norm.forward = forward  # type: ignore[assignment]
    return twins, split


# --- activations and the middle of a network --------------------------------------------------------------------------


def replace_last_activation(backbone: nn.Module, activation: nn.Module) -> None:
    """Replace the ReLU that computes a network's last features by another activation.

    In a small network that is the last of its layers. In a ResNet it is the last block's ReLU, which torchvision's
    blocks call after each of their norms; all of these calls change. Raises UsageError if there is no such ReLU.
    """
    layers = getattr(backbone, "layers", None)
    if isinstance(layers, nn.Sequential) and isinstance(layers[-1], nn.ReLU):
        layers[-1] = activation
        return
    block = stages(backbone)[-1][-1]
    names = [name for name, module in block.named_children() if isinstance(module, nn.ReLU)]
    if not names:
        raise UsageError(f"{type(backbone).__name__} does not end with a ReLU, which would be replaced")
    setattr(block, names[-1], activation)


@dataclass(frozen=True, eq=False)
class Middle:
    """Place half-way through a network.

    before: the modules up to there. after: the next module, whose input is the map [N,C,H,W] or the features [N,C].
    channels: C.
    """

    before: list[nn.Module]
    after: nn.Module
    channels: int


def middle(backbone: nn.Module) -> Middle:
    """Return the middle of a ResNet, after its second stage, or of a small network, after half of its ReLUs.

    An odd number of ReLUs is rounded up. Raises UsageError for any other network.
    """
    layers = getattr(backbone, "layers", None)
    sequence = layers if isinstance(layers, nn.Sequential) else nn.Sequential()
    activations = [number for number, layer in enumerate(sequence) if isinstance(layer, nn.ReLU)]
    if activations:
        cut = activations[(len(activations) + 1) // 2 - 1] + 1
        before, after = list(sequence[:cut]), sequence[cut]
    else:  # conv1 includes a deep stem
        first, second, after, _ = stages(backbone)
        before = [*(backbone.get_submodule(name) for name in STEM), first, second]
    last = list(nn.ModuleList(before).parameters())[-1]
    return Middle(before, after, len(last))


def window_of(module: Any) -> Window:
    """Return the window of a layer, or of layers in a row."""
    if isinstance(module, nn.Sequential):
        window = Window()
        for layer in module:
            window = window.then(window_of(layer))
        return window
    kernel = getattr(module, "kernel_size", None) or getattr(module, "filt_size", None)  # filt_size: timm's blur
    if kernel is None:  # a norm, an activation
        return Window()
    span = _first(getattr(module, "dilation", 1)) * (_first(kernel) - 1) + 1
    return Window(span, _first(module.stride), _first(module.padding))


def _first(value: Any) -> int:
    """Return the first value of a size given once or per axis. ResNets have square windows."""
    return int(value if isinstance(value, int) else value[0])
