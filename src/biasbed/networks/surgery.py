"""Places in a network where methods insert modules, norms with auxiliary twins, and other changes of a network.

`hooks` attaches callbacks to these modules; `resnet_parts` and `stages` find them. Activations have no common name,
and torchvision calls one ReLU module several times per block. So a mask that belongs after an activation is applied
after the norm before it, which is the same for a mask of zeros and ones and an activation with f(0) = 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import heads
from biasbed.networks.resnet_parts import block_convs, residual_blocks, stages
from biasbed.networks.stages import CHANNELS_LAST, MAPS, MapLayout, Place, Stages, family_of, find

BATCH_NORMS = nn.modules.batchnorm._BatchNorm
NORMS = (BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
TIMM_NORMS = ("RmsNorm", "RmsNorm2d", "SimpleNorm", "SimpleNorm2d")  # without a common base class


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


def main_path(backbone: nn.Module) -> list[Place]:
    """Return the places of the maps that the layers of a network's main path compute, in the order of the forward pass.

    ResNet: after every convolution of `main_path_convs`. ViT and ConvNeXt: after every layer that mixes positions
    (patch embedding, downsampling, depth-wise convolution, attention) and after every MLP, before what they compute is
    scaled and added to the shortcut. EfficientNet: after every convolution but those of squeeze-and-excitation. Raises
    UsageError for a network or a block of another kind.
    """
    family = family_of(backbone)
    parts = find(backbone)
    if family is None:
        return [Place(conv) for conv in main_path_convs(backbone)]
    if family.kind == "convnext":
        return _convnext_path(parts)
    if family.kind == "efficientnet":
        return [Place(conv) for conv in _efficientnet_convs(backbone)]
    places = [Place(backbone.get_submodule("patch_embed.proj"))]
    for modules in parts.stages:
        for block in modules:
            places += [Place(_require_layer(block, name), parts.layout) for name in ("attn", "mlp")]
    return places


def _convnext_path(parts: Stages) -> list[Place]:
    places = [Place(conv) for conv in nn.ModuleList(parts.stem).modules() if isinstance(conv, nn.Conv2d)]
    for (stage,) in parts.stages:
        downsample = stage.get_submodule("downsample")
        places += [Place(conv) for conv in downsample.modules() if isinstance(conv, nn.Conv2d)]
        for block in stage.get_submodule("blocks").children():
            places += [
                Place(block.get_submodule("conv_dw")),
                Place(block.get_submodule("mlp"), _convnext_layout(block)),
            ]
    return places


def _efficientnet_convs(backbone: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions of an EfficientNet without those of squeeze-and-excitation."""
    return [
        module
        for name, module in backbone.named_modules()
        if isinstance(module, nn.Conv2d) and "se" not in name.split(".")
    ]


def _convnext_layout(block: nn.Module) -> MapLayout:
    """Return the layout of the map in the MLP of a ConvNeXt's block, and after its norm."""
    return MAPS if getattr(block, "use_conv_mlp", False) else CHANNELS_LAST


def _require_layer(block: nn.Module, name: str) -> nn.Module:
    child = getattr(block, name, None)
    if not isinstance(child, nn.Module):
        raise UsageError(f"{type(block).__name__} has no layer '{name}', whose map the method would change")
    return child


@dataclass(frozen=True)
class Window:
    """Square of pixels that a convolution or pooling sees: side, stride and padding.

    is_same: the padding is as little as leaves a position per stride, one pixel more at the end than at the start if it
    is odd (TensorFlow's networks).
    """

    kernel: int = 1
    stride: int = 1
    padding: int = 0
    is_same: bool = False

    def pads(self, size: int) -> tuple[int, int]:
        """Return the pixels before and after `size` pixels of one axis."""
        if not self.is_same:
            return self.padding, self.padding
        positions = math.ceil(size / self.stride)
        total = max((positions - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2

    def then(self, after: Window) -> Window:
        """Return the window of this layer followed by another one, on the input of this layer."""
        assert not self.is_same
        assert not after.is_same
        return Window(
            self.kernel + (after.kernel - 1) * self.stride,
            self.stride * after.stride,
            self.padding + after.padding * self.stride,
        )


@dataclass(frozen=True, eq=False)
class Site:
    """Insertion point: a feature map and the older feature that it was computed from.

    The input of `source` is the older feature u [N,C,H,W]; the output of `target` is the map z [N,C',h,w]. `window` is
    the part of u that one position sees before pooling; `pool` is the pooling in between, if there is one. The layouts
    say where u and z are in these tensors.
    """

    source: nn.Module
    target: nn.Module
    window: Window
    pool: Window | None = None
    source_layout: MapLayout = MAPS
    target_layout: MapLayout = MAPS

    @property
    def older(self) -> Place:
        """Place of u."""
        return Place(self.source, self.source_layout, is_input=True)

    @property
    def computed(self) -> Place:
        """Place of z."""
        return Place(self.target, self.target_layout)


def mask_sites(backbone: nn.Module, num_stages: int) -> list[Site]:
    """Return the sites of the stem and of the first block of each of the first `num_stages` stages.

    ResNet: `stem_site` and `first_block_sites`. Others: from the image to the patches' embedding, and in a block from
    its input to the map of its attention (window: one position) or to the norm after its depth-wise convolution. In an
    EfficientNet from a block's convolution that sees more than one position to the norm after it.
    Raises UsageError for a network or a block of another kind.
    """
    family = family_of(backbone)
    parts = find(backbone)
    if family is None:
        sites = [stem_site(backbone)]
        for stage in range(1, num_stages + 1):
            sites += first_block_sites(backbone, stage)
        return sites
    if family.kind == "efficientnet":
        conv, norm = parts.stem
        sites = [Site(conv, norm, window_of(conv))]
        return sites + [_efficientnet_site(modules[0]) for modules in parts.stages[:num_stages]]
    if family.kind == "convnext":
        (stem,) = parts.stem
        first = next(module for module in stem.modules() if isinstance(module, nn.Conv2d))
        sites = [Site(first, stem, window_of(stem))]
    else:
        embedding = backbone.get_submodule("patch_embed")
        projection = _require_layer(embedding, "proj")
        is_dynamic = getattr(backbone, "dynamic_img_size", False)  # positions are put in a row later
        layout = CHANNELS_LAST if is_dynamic else replace(parts.layout, prefix=0)
        sites = [Site(projection, embedding, window_of(projection), target_layout=layout)]
    return sites + [_block_site(modules[0], parts) for modules in parts.stages[:num_stages]]


def _efficientnet_site(blocks: nn.Module) -> Site:
    """Return the site in the first of some blocks, at its first convolution that sees more than one position."""
    block = next(blocks.children())
    layers = list(block.children())
    convs = [number for number, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    number = next(number for number in convs if window_of(layers[number]).kernel > 1)
    return Site(layers[number], layers[number + 1], window_of(layers[number]))


def _block_site(stage: nn.Module, parts: Stages) -> Site:
    """Return the site in the first block of a ConvNeXt's stage, or in a ViT's block."""
    if parts.layout == MAPS:
        block: Any = next(stage.get_submodule("blocks").children())
        norm = _require_layer(block, "norm")
        return Site(block, norm, window_of(block.conv_dw), target_layout=_convnext_layout(block))
    return Site(stage, _require_layer(stage, "attn"), Window(), source_layout=parts.layout, target_layout=parts.layout)


def stem_site(resnet: nn.Module) -> Site:
    """Return the site of the stem, from the network's input to the output of its max-pooling."""
    stages(resnet)  # raises UsageError for any other network
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

    def __init__(self, layers: Sequence[nn.Module], pool: nn.Module, fc: nn.Linear) -> None:
        super().__init__()
        self.layers, self.pool, self.fc = nn.Sequential(*layers), pool, fc

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.layers(x)).flatten(1))
        return logits


class TimmTail(nn.Module):
    """Last stages of a ViT, ConvNeXt or EfficientNet of timm, with its norm, pooling and classifier.

    Maps what enters the first of these stages to logits [N,K]. `backbone` has the network's names and modules without
    those before that stage.
    """

    def __init__(self, backbone: nn.Module, stage: int) -> None:
        super().__init__()
        family = family_of(backbone)
        assert family is not None
        shared = [
            name for name in ("rope", "rel_pos_bias", "shared_rel_pos") if getattr(backbone, name, None) is not None
        ]
        if shared:
            raise UsageError(
                f"the last stages of {type(backbone).__name__} can't run alone, because all of its blocks share a "
                f"position embedding ({shared[0]})"
            )
        self._in_order = (family.sequence, *family.end)
        kept: list[nn.Module] = []
        for modules in find(backbone).stages[stage - 1 :]:
            kept += modules
        part = copy.copy(backbone)
        part._modules = dict(backbone._modules)
        part._parameters = dict.fromkeys(backbone._parameters)
        for name in family.stem:
            part._modules.pop(name, None)
        part._modules[family.sequence] = nn.Sequential(*kept)
        self.backbone = part

    def get_classifier(self) -> nn.Module:
        """Return the last linear layer, as timm's networks do."""
        backbone: Any = self.backbone
        return cast(nn.Module, backbone.get_classifier())

    def forward(self, x: Tensor) -> Tensor:
        backbone: Any = self.backbone
        for name in self._in_order:
            x = backbone.get_submodule(name)(x)
        return cast(Tensor, backbone.forward_head(x))


def make_tail(backbone: nn.Module, stage: int) -> Tail | TimmTail:
    """Return stage `stage` (1 to 4) to the end as one module, which shares the network's modules.

    Raises UsageError for a network of another kind, or one whose last stages need more than the map before them.
    """
    if family_of(backbone) is not None:
        return TimmTail(backbone, stage)
    layers = [layer for (layer,) in find(backbone).stages[stage - 1 :]]
    pool = "avgpool" if hasattr(backbone, "avgpool") else "global_pool"  # torchvision's name, timm's name
    fc = backbone.get_submodule("fc")
    assert isinstance(fc, nn.Linear)
    return Tail(layers, backbone.get_submodule(pool), fc)


def classifier_name(network: nn.Module) -> str:
    """Return the name of the last linear layer of a backbone or tail. Raises UsageError if there is none."""
    name = heads.find(network)
    if name is None:
        raise heads.no_head_error(network)
    return name


def norm_parameters(backbone: nn.Module, groups: int) -> list[nn.Parameter]:
    """Return weights and biases of the norms in the first `groups` (1 to 5) of the stem and the four stages.

    Includes shortcuts: 48 parameters in a ResNet-50 up to layer2. A deep stem has several norms, all in the first
    group.
    """
    parts = find(backbone)
    modules = [parts.stem, *parts.stages][:groups]
    parameters: list[nn.Parameter] = []
    for module in nn.ModuleList(nn.ModuleList(group) for group in modules).modules():
        if is_norm(module):
            parameters += module.parameters(recurse=False)
    return parameters


def is_norm(module: nn.Module) -> bool:
    """Return True for the norms of torch and timm."""
    return isinstance(module, NORMS) or type(module).__name__ in TIMM_NORMS


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


def norms_to_split(backbone: nn.Module) -> list[nn.Module]:
    """Return the batch norms of a network, or all norms of a network without batch norms.

    Raises UsageError for networks of unknown stages, whose norms may see an image in pieces.
    """
    find(backbone)
    return _find_norms(backbone)


def _find_norms(backbone: nn.Module) -> list[nn.Module]:
    """Return the batch norms of a network, or all norms of a network without batch norms."""
    norms: list[nn.Module] = [module for module in backbone.modules() if isinstance(module, BATCH_NORMS)]
    return norms or [module for module in backbone.modules() if is_norm(module)]


def split_norms(backbone: nn.Module) -> tuple[nn.ModuleList, list[SplitNorm]]:
    """Return an auxiliary twin of every norm (Xie et al., CVPR 2020, section 4), and the norms' new `forward`s.

    Twins are those of the norms of `norms_to_split`, whose checks come before a training, and start with copies of the
    norms' parameters and statistics. The caller must register them: the network's modules and their names remain
    unchanged. A hook could not keep a whole batch away from the main norm, so each norm's `forward` is replaced by an
    object, like the callbacks of `hooks`.
    """
    norms = _find_norms(backbone)
    twins = nn.ModuleList(copy.deepcopy(norm) for norm in norms)
    split = [SplitNorm(norm, twin) for norm, twin in zip(norms, twins, strict=True)]
    for norm, forward in zip(norms, split, strict=True):
        norm.forward = forward
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

    before: the modules up to there. tokens: parameters of the network itself that act there. after: the place of the
    map [N,C,H,W] or of the features [N,C]. channels: C.
    """

    before: list[nn.Module]
    after: Place
    channels: int
    tokens: list[nn.Parameter] = field(default_factory=list)


def find_middle(backbone: nn.Module) -> Middle:
    """Return the middle of a network: after the second of four stages, or after half of a small network's ReLUs.

    An odd number of ReLUs is rounded up. Raises UsageError for a network whose stages are unknown.
    """
    layers = getattr(backbone, "layers", None)
    sequence = layers if isinstance(layers, nn.Sequential) else nn.Sequential()
    activations = [number for number, layer in enumerate(sequence) if isinstance(layer, nn.ReLU)]
    if activations:
        cut = activations[(len(activations) + 1) // 2 - 1] + 1
        before = list(sequence[:cut])
        return Middle(before, Place(sequence[cut], is_input=True), _last_channels(before))
    parts = find(backbone)
    first, second = parts.stages[:2]
    before = [*parts.stem, *first, *second]
    feature_info: Any = getattr(backbone, "feature_info", None)
    family = family_of(backbone)
    says_channels = family is not None and family.kind != "efficientnet"
    channels = int(feature_info[1]["num_chs"]) if says_channels else _last_channels(before)
    return Middle(before, parts.input_of(3), channels, parts.tokens)


def _last_channels(modules: list[nn.Module]) -> int:
    """Return the channels of the last of some layers, which have a bias or a norm at their end."""
    return len(list(nn.ModuleList(modules).parameters())[-1])


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
    span = _first_number(getattr(module, "dilation", 1)) * (_first_number(kernel) - 1) + 1
    if module.padding == "same" or type(module).__name__ == "Conv2dSame":
        return Window(span, _first_number(module.stride), is_same=True)
    return Window(span, _first_number(module.stride), _first_number(module.padding))


def _first_number(value: Any) -> int:
    """Return the first value of a size given once or per axis. ResNets have square windows."""
    return int(value if isinstance(value, int) else value[0])
