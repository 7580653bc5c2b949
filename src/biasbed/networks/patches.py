"""Image sizes that the patches of a network divide. Otherwise a border of each image is left out without a word.

Networks that pad images, or resize them themselves, take every size: what counts is the input of the layer that cuts
it into patches.

Answers: Which image sizes does a ViT take?
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks.backbones import Architecture, create, resolve, skeleton
from biasbed.networks.form import Form

SMALLEST = 8  # pixels per side, as `image_size` of a training
TRIES = 8  # multiples of the patch that are tried on either side


class BorderLost(UsageError):
    """Patches leave out a border of the images."""


def refuse_size(name: str, size: int, channels: int = 3) -> None:
    """Raise UsageError if a backbone's patches leave out a border of images of this size, with sizes that would do.

    No weights are drawn or read.
    """
    architecture = resolve(name)
    patch = _find_patch(skeleton(architecture))
    if patch is None or size % patch == 0:
        return
    form = Form(2, channels, size)
    if _accepts(architecture, form):
        return
    below = size - size % patch
    smaller = _find_size(architecture, form, range(below, SMALLEST - 1, -patch))
    larger = _find_size(architecture, form, range(below + patch, below + patch * TRIES, patch))
    valid = [valid_size for valid_size in (smaller, larger) if valid_size is not None]
    if valid:  # else the patch is not what keeps the network from images of this size
        raise UsageError(
            f"{name} can't be made for images of {size} x {size} pixels: {_describe_loss(patch, size)}; take "
            f"image_size={' or '.join(map(str, valid))}"
        )


@contextlib.contextmanager
def refuse_lost_border(module: nn.Module, channels: int) -> Iterator[None]:
    """Raise UsageError within the block if a layer that cuts images into patches leaves out a border of its input."""

    def refuse(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        for side, patch in zip(inputs[0].shape[-2:], layer.stride, strict=True):
            if side % patch:
                raise BorderLost(_describe_loss(patch, side))

    layers = [layer for layer in module.modules() if _is_patch_layer(layer, channels)]
    handles = [layer.register_forward_pre_hook(refuse) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _describe_loss(patch: int, size: int) -> str:
    return f"its patches of {patch} x {patch} pixels leave out {size % patch} of {size} pixels per side"


def _is_patch_layer(layer: nn.Module, channels: int) -> bool:
    """Return True for a convolution that cuts images into patches, side by side."""
    return (
        isinstance(layer, nn.Conv2d)
        and layer.in_channels == channels
        and layer.kernel_size == layer.stride
        and max(layer.stride) > 1
        and layer.padding in ((0, 0), "valid")
        and layer.dilation == (1, 1)
    )


def _find_patch(backbone: nn.Module) -> int | None:
    """Return the size of the patches that images in RGB are cut into. None if there are none."""
    for layer in backbone.modules():
        if isinstance(layer, nn.Conv2d) and _is_patch_layer(layer, 3):
            return max(layer.stride)
    return None


def _find_size(architecture: Architecture, form: Form, sizes: Sequence[int]) -> int | None:
    """Return the first of these sizes that the architecture takes. None if it takes none of the first `TRIES`."""
    for size in sizes[:TRIES]:
        if _accepts(architecture, replace(form, image_size=size)):
            return size
    return None


def _accepts(architecture: Architecture, form: Form) -> bool:
    """Return True if the architecture takes images of the form's size and loses none of their border."""
    for device in ("meta", "cpu"):  # some architectures compute with their values while they are made
        try:
            with torch.random.fork_rng([]), torch.device(device), torch.no_grad():
                backbone = create(architecture, form).module.eval()
                with refuse_lost_border(backbone, form.channels):
                    backbone(torch.zeros(1, form.channels, form.image_size or 0, form.image_size or 0))
        except BorderLost:
            return False
        except Exception:  # the type depends on the architecture
            continue
        return True
    return False
