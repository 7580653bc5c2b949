"""The one place where methods reach into a ResNet: where they attach, and to what.

How is said in `hooks`, by what names in `anatomy`. Activations have no common name, and torchvision calls one ReLU
module several times per block; so a mask that belongs after an activation is applied after the norm before it, which is
the same for a mask of zeros and ones and an activation with f(0) = 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import anatomy

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Window:
    """The square of pixels that a convolution or pooling sees: side, stride and padding."""

    kernel: int = 1
    stride: int = 1
    padding: int = 0

    def then(self, after: Window) -> Window:
        """The window of two layers in a row, seen from the input of the first."""
        return Window(
            self.kernel + (after.kernel - 1) * self.stride,
            self.stride * after.stride,
            self.padding + after.padding * self.stride,
        )


@dataclass(frozen=True, eq=False)
class Site:
    """A feature map and what it was computed from.

    The input of `source` is the older feature u [N,C,H,W]; the output of `target` is the map z [N,C',h,w]. `window` is
    what one position before pooling sees of u; `pool` is the pooling in between, if there is one.
    """

    source: nn.Module
    target: nn.Module
    window: Window
    pool: Window | None = None


def main_path_convs(resnet: nn.Module) -> list[nn.Conv2d]:
    """Every convolution of the stem and of the blocks' main paths, in the order of the forward pass.

    17 in a ResNet-18, 49 in a ResNet-50. Shortcut (`downsample`) and attention convolutions are not among them; those
    of deep stems, and of a stem that has a convolution in place of its max-pooling, are.
    """
    layers = anatomy.stages(resnet)
    stem_parts = [resnet.get_submodule(name) for name in ("conv1", "maxpool")]
    stem = [layer for part in stem_parts for layer in part.modules() if isinstance(layer, nn.Conv2d)]
    return stem + [conv for layer in layers for block in layer for conv in anatomy.convs(block)]


def stem_site(resnet: nn.Module) -> Site:
    """The stem: from the network's input to the output of its max-pooling."""
    anatomy.stages(resnet)
    conv, pool = resnet.get_submodule("conv1"), resnet.get_submodule("maxpool")
    return Site(conv, pool, _window(conv), _window(pool))


def first_block_sites(resnet: nn.Module, stage: int) -> list[Site]:
    """Inside the first block of a stage (1 to 4), in the order of the forward pass.

    Basic block: after the first activation, and the block's output if its shortcut is the identity. Bottleneck: after
    the first two activations.
    """
    block: Any = anatomy.stages(resnet)[stage - 1][0]
    convs = anatomy.convs(block)
    sites = [Site(convs[0], block.bn1, _window(convs[0]))]
    if len(convs) == 3:
        sites.append(Site(convs[1], block.bn2, _window(convs[1])))
    elif block.downsample is None:
        sites.append(Site(convs[1], block, _window(convs[1])))
    return sites


class Tail(nn.Module):
    """The last stages of a ResNet, its pooling and its classifier `fc`: feature maps [N,C,H,W] -> logits [N,K]."""

    def __init__(self, layers: list[nn.Sequential], pool: nn.Module, fc: nn.Linear) -> None:
        super().__init__()
        self.layers, self.pool, self.fc = nn.Sequential(*layers), pool, fc

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.layers(x)).flatten(1))
        return logits


def tail(resnet: nn.Module, stage: int) -> Tail:
    """Stage `stage` (1 to 4) to the end, as a module of its own made of the ResNet's very modules."""
    pool = "avgpool" if hasattr(resnet, "avgpool") else "global_pool"  # torchvision's name, timm's name
    fc = resnet.get_submodule("fc")
    assert isinstance(fc, nn.Linear)
    return Tail(anatomy.stages(resnet)[stage - 1 :], resnet.get_submodule(pool), fc)


def norm_parameters(resnet: nn.Module, groups: int) -> list[nn.Parameter]:
    """Weights and biases of the norms in the first `groups` (1 to 5) of [stem, layer1, .., layer4], shortcuts included.

    48 in a ResNet-50 up to layer2. A deep stem has several norms, all of them in the first group.
    """
    stem = nn.ModuleList(resnet.get_submodule(name) for name in ("conv1", "bn1", "maxpool"))
    norms = [m for part in [stem, *anatomy.stages(resnet)][:groups] for m in part.modules() if isinstance(m, NORMS)]
    return [parameter for norm in norms for parameter in norm.parameters(recurse=False)]


class SplitNorm:
    """The computation of a norm whose first examples go through it, and the others through an auxiliary twin.

    `draw` is the number of the first ones: None for all of them, 0 for none.
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
    """An auxiliary twin of every batch norm (Xie et al., CVPR 2020, section 4), and where to choose between the two.

    Twins begin with the norms' own parameters and statistics. They are the caller's to register: the ResNet's modules
    and their names stay as they are. Not by a hook, which could not keep a whole batch from the main norm: each norm is
    given another `forward`, an object like the hooks' callables.
    """
    norms = [module for module in resnet.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    twins = nn.ModuleList(copy.deepcopy(norm) for norm in norms)
    places = [SplitNorm(norm, twin) for norm, twin in zip(norms, twins, strict=True)]
    for norm, place in zip(norms, places, strict=True):
        norm.forward = place  # type: ignore[assignment]
    return twins, places


def replace_last_activation(backbone: nn.Module, activation: nn.Module) -> None:
    """Put another activation in place of the ReLU that gives a network's last features.

    That is the last of a small network's layers, or that of a ResNet's last block: torchvision's blocks call one module
    after each of their norms, and it is replaced in all of these. UsageError where there is none.
    """
    layers = getattr(backbone, "layers", None)
    if isinstance(layers, nn.Sequential) and isinstance(layers[-1], nn.ReLU):
        layers[-1] = activation
        return
    block = anatomy.stages(backbone)[-1][-1]
    names = [name for name, module in block.named_children() if isinstance(module, nn.ReLU)]
    if not names:
        raise UsageError(f"{type(backbone).__name__} has no ReLU at its end that could be another activation")
    setattr(block, names[-1], activation)


@dataclass(frozen=True, eq=False)
class Middle:
    """Half-way through a network.

    before: the modules up to there; after: the first one after it, whose input is the map [N,C,H,W] or the features
    [N,C] there; channels: C.
    """

    before: list[nn.Module]
    after: nn.Module
    channels: int


def middle(backbone: nn.Module) -> Middle:
    """The middle of a ResNet, after its second stage, or of a small network, after half of its ReLUs (or one more).

    UsageError for any other network.
    """
    layers = getattr(backbone, "layers", None)
    own = layers if isinstance(layers, nn.Sequential) else nn.Sequential()
    activations = [number for number, layer in enumerate(own) if isinstance(layer, nn.ReLU)]
    if activations:
        cut = activations[(len(activations) + 1) // 2 - 1] + 1
        before, after = list(own[:cut]), own[cut]
    else:  # a deep stem is in conv1
        first, second, after, _ = anatomy.stages(backbone)
        before = [*(backbone.get_submodule(name) for name in ("conv1", "bn1", "maxpool")), first, second]
    *_, last = (parameter for module in before for parameter in module.parameters())
    return Middle(before, after, len(last))


def _window(module: Any) -> Window:
    """The window of a layer, or of layers in a row."""
    if isinstance(module, nn.Sequential):
        window = Window()
        for layer in module:
            window = window.then(_window(layer))
        return window
    kernel = getattr(module, "kernel_size", None) or getattr(module, "filt_size", None)  # the latter: timm's blur
    if kernel is None:  # a norm, an activation
        return Window()
    span = _first(getattr(module, "dilation", 1)) * (_first(kernel) - 1) + 1
    return Window(span, _first(module.stride), _first(module.padding))


def _first(value: Any) -> int:
    """Of a size given once or per axis; ResNets have square windows."""
    return int(value if isinstance(value, int) else value[0])
