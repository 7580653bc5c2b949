"""Stages of a network and the feature maps between its layers: ResNets, and ViTs, ConvNeXts and EfficientNets of timm.

A ResNet and a ConvNeXt have four stages of their own. The blocks of a ViT are shared out to four stages of nearly the
same length. Those of an EfficientNet end where a ResNet's do: at a 4th, 8th, 16th and 32nd of the image.

Answers: Where are a network's stages, and how is a feature map read from tokens?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import hooks, resnet_parts

COUNT = 4
EFFICIENTNET_REDUCTIONS = (4, 8, 16, 32)  # of the image's side, at the end of each stage


# --- feature maps in tensors ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapLayout:
    """Position of a feature map [N,C,H,W] in a tensor of one of three forms.

    maps: the map itself. channels_last: [N,H,W,C]. tokens: [N,P+H*W,C], with `prefix` = P tokens that belong to no
    position (class token, registers), and then the positions of the `grid` = (H, W), row by row.
    """

    form: Literal["maps", "channels_last", "tokens"] = "maps"
    prefix: int = 0
    grid: tuple[int, int] = (0, 0)

    def read(self, x: Tensor) -> Tensor:
        """Return the map in x. Another number of tokens than the grid's, of a larger or smaller image, is a square."""
        if self.form == "maps":
            return x
        if self.form == "channels_last":
            return x.permute(0, 3, 1, 2)
        positions = x[:, self.prefix :]
        return positions.transpose(1, 2).unflatten(2, self._grid_of(positions.shape[1]))

    def write(self, x: Tensor, maps: Tensor) -> Tensor:
        """Return x with its map replaced. Tokens that belong to no position stay as they are."""
        if self.form == "maps":
            return maps
        if self.form == "channels_last":
            return maps.permute(0, 2, 3, 1)
        positions = maps.flatten(2).transpose(1, 2)
        return torch.cat([x[:, : self.prefix], positions], dim=1) if self.prefix else positions

    def _grid_of(self, tokens: int) -> tuple[int, int]:
        if tokens == self.grid[0] * self.grid[1]:
            return self.grid
        side = math.isqrt(tokens)
        return side, side


MAPS, CHANNELS_LAST = MapLayout(), MapLayout("channels_last")


@dataclass(frozen=True, eq=False)
class MapChange:
    """Callback in a network that passes the map in a tensor through `change`."""

    layout: MapLayout
    change: hooks.Change

    def __call__(self, x: Tensor) -> Tensor:
        maps = self.layout.read(x)
        changed = self.change(maps)
        return x if changed is maps else self.layout.write(x, changed)


@dataclass(frozen=True, eq=False)
class MapObserver:
    """Callback in a network that passes the map in a tensor to `observe`."""

    layout: MapLayout
    observe: Callable[[Tensor], None]

    def __call__(self, x: Tensor) -> None:
        self.observe(self.layout.read(x))


@dataclass(frozen=True, eq=False)
class Place:
    """Place where a feature map passes: the output of a module, or its input."""

    module: nn.Module
    layout: MapLayout = MAPS
    is_input: bool = False

    def insert(self, change: hooks.Change) -> None:
        """Pass the map through `change`, an object or a bound method (see `hooks`)."""
        insert = hooks.insert_before if self.is_input else hooks.insert_after
        insert(self.module, change if self.layout == MAPS else MapChange(self.layout, change))

    def observe(self, observe: Callable[[Tensor], None]) -> None:
        """Call `observe` with the map, which must be the module's input."""
        assert self.is_input
        hooks.observe_input(self.module, observe if self.layout == MAPS else MapObserver(self.layout, observe))


# --- families of networks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkFamily:
    """Names of the parts of timm's networks of one kind."""

    kind: Literal["vit", "convnext", "efficientnet"]
    stem: tuple[str, ...]  # modules before the first stage
    sequence: str  # the stages, or in a ViT the blocks
    end: tuple[str, ...]  # modules after the last stage


_VIT = NetworkFamily("vit", ("patch_embed", "pos_drop", "patch_drop", "norm_pre"), "blocks", ("norm",))
# By the name of a class of timm, which a network's class or one of its bases has.
FAMILIES: Mapping[str, NetworkFamily] = {
    "VisionTransformer": _VIT,
    "VisionTransformerRelPos": _VIT,
    "Beit": _VIT,
    "Eva": _VIT,
    "ConvNeXt": NetworkFamily("convnext", ("stem",), "stages", ("norm_pre",)),
    "EfficientNet": NetworkFamily("efficientnet", ("conv_stem", "bn1"), "blocks", ("conv_head", "bn2")),
}


def family_of(backbone: nn.Module) -> NetworkFamily | None:
    """Return the family of a ViT, ConvNeXt or EfficientNet of timm. None for any other network."""
    for base in type(backbone).__mro__:
        if base.__module__.startswith("timm.models.") and base.__name__ in FAMILIES:
            return FAMILIES[base.__name__]
    return None


@dataclass(frozen=True, eq=False)
class Stages:
    """Parts of a network in the order of the forward pass, and the layout of the tensors between its stages.

    stem: modules before the first stage. tokens: parameters of the network itself, which act before the first stage (a
    ViT's class token and position embedding). stages: modules of each of the four stages.
    """

    stem: list[nn.Module]
    tokens: list[nn.Parameter]
    stages: list[list[nn.Module]]
    layout: MapLayout = MAPS

    def input_of(self, stage: int) -> Place:
        """Return the place of the map that enters a stage (1 to 4)."""
        return Place(self.stages[stage - 1][0], self.layout, is_input=True)


def find(backbone: nn.Module) -> Stages:
    """Return a network's stages. Raises UsageError if it is neither a ResNet nor of a family."""
    family = family_of(backbone)
    if family is None:
        try:
            layers = resnet_parts.stages(backbone)
        except UsageError:
            raise UsageError(
                f"{type(backbone).__name__} is no ResNet of basic or bottleneck blocks, and no ViT, ConvNeXt or "
                "EfficientNet of timm: this method needs one"
            ) from None
        return Stages([backbone.get_submodule(name) for name in resnet_parts.STEM], [], [[layer] for layer in layers])
    names = {name for name, _ in backbone.named_modules()}
    stem = [backbone.get_submodule(name) for name in family.stem if name in names]
    modules = list(backbone.get_submodule(family.sequence).children())
    if len(modules) < COUNT:
        raise UsageError(f"{type(backbone).__name__} has {len(modules)} blocks, too few for {COUNT} stages")
    starts = _efficientnet_starts(backbone) if family.kind == "efficientnet" else _even_starts(len(modules))
    stages = [modules[start:end] for start, end in itertools.pairwise(starts)]
    return Stages(stem, list(backbone.parameters(recurse=False)), stages, _layout(backbone, family))


def _even_starts(count: int) -> list[int]:
    """Return the first block of each stage and the number of blocks."""
    return [number * count // COUNT for number in range(COUNT + 1)]


def _efficientnet_starts(backbone: Any) -> list[int]:
    """Return the first group of blocks of each stage and the number of groups, by the resolution that they end at."""
    last = {level["reduction"]: int(level["stage"]) for level in backbone.feature_info}  # counted from 1
    return [0, *(last[reduction] for reduction in EFFICIENTNET_REDUCTIONS)]


def _layout(backbone: Any, family: NetworkFamily) -> MapLayout:
    if family.kind != "vit":
        return MAPS
    return MapLayout("tokens", int(backbone.num_prefix_tokens), tuple(backbone.patch_embed.grid_size))
