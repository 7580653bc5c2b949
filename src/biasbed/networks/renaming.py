"""Translation of state dicts to a backbone's own keys and image size, by the backbone's library.

Older names become today's; position embeddings (DINOv2) and relative tables are resized.

Answers: How do weights of another image size, or of an older program, fit a backbone?
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

# Parts of the names of tables that may be resampled to another image size.
BY_POSITION = ("pos_embed", "rel_pos", "relative_position", "rel_embed")


def translate(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the backbone's own keys and sizes, as far as its library translates them.

    timm: its checkpoint_filter_fn, which renames keys and resamples position embeddings. torchvision: what its loaders
    and modules do with files of older versions. Tensors that fit already are returned unchanged.
    """
    state = backbone.state_dict()
    if tensors.keys() == state.keys() and all(state[key].shape == value.shape for key, value in tensors.items()):
        return dict(tensors)
    library = type(backbone).__module__
    try:
        translate = getattr(backbone, "translate_tensors", None)  # of a plug-in's network
        if translate is not None:
            return dict(translate(dict(tensors)))
        if library.startswith("timm."):
            return _translate_by_timm(backbone, tensors)
        if library.startswith("torchvision."):
            return _by_torchvision(backbone, tensors)
    except Exception:  # the library's translation may fail in any way on tensors that are not its own
        return dict(tensors)
    return dict(tensors)


def load(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors that have the backbone's own keys, marked with the backbone's own version."""
    state: Any = OrderedDict(tensors)
    state._metadata = getattr(backbone.state_dict(), "_metadata", None)
    backbone.load_state_dict(state)


def _translate_by_timm(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as timm's own loader renames and resizes them.

    Only tables of positions may change shape; if others would, all tensors are returned as they are.
    """
    translation = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    if translation is None:
        return dict(tensors)
    result: dict[str, Tensor] = dict(translation(dict(tensors), backbone))
    for key, value in result.items():
        is_resized = key in tensors and tensors[key].shape != value.shape
        if is_resized and not any(word in key for word in BY_POSITION):
            return dict(tensors)
    return result


class _Receiver:
    """Stand-in for the weights and the network in a torchvision loader, to capture the state dict it makes."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    def get_state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:
        return dict(self.tensors)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)


def _by_torchvision(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename as the loader of the network's file does (DenseNet), then as its modules do (ViT)."""
    receiver = _Receiver(tensors)
    loader = getattr(sys.modules[type(backbone).__module__], "_load_state_dict", None)
    if loader is not None:
        loader(model=receiver, weights=receiver, progress=False)
    state = backbone.state_dict()
    if receiver.tensors.keys() <= state.keys():
        return receiver.tensors
    twin = copy.deepcopy(backbone).to("meta")
    others = {k: v for k, v in receiver.tensors.items() if k in state and state[k].shape != v.shape}
    result = twin.load_state_dict(
        {key: value for key, value in receiver.tensors.items() if key not in others}, strict=False, assign=True
    )
    unknown = {key: receiver.tensors[key] for key in result.unexpected_keys}
    return {key: value for key, value in twin.state_dict().items() if not value.is_meta} | others | unknown
