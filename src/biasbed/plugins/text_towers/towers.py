"""Image and text towers, whose features of images and texts are compared (Radford et al., ICML 2021, CLIP).

An image tower is a backbone like any other: a linear head on its features. `open_clip:ViT-B-32` names towers of
open_clip, `transformers:<hub id or folder>` those of transformers, `small_clip` small ones of biasbed.

Answers: How is a text classifier computed, and which libraries have text towers?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.batch import at_least_fp32
from biasbed.errors import Failure, UsageError, first_line
from biasbed.networks.model_libraries import ModelLibrary

if TYPE_CHECKING:
    from biasbed.networks.form import Form

PART = 256  # texts whose features are computed together


class ImageTower(nn.Module):
    """Image tower with a linear head: images [N,C,H,W] -> logits [N,K]. Features are the inputs of `head`."""

    is_part_of_file: ClassVar[bool] = True  # files hold the text tower, too, which is loaded by itself

    def __init__(self, num_features: int, outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(num_features, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Return features [N,D] that are comparable with those of the text tower, of any length."""
        raise NotImplementedError

    def get_classifier(self) -> nn.Module:
        """Return the head, as timm's networks do."""
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


class TextTower(nn.Module):
    """Text tower: tokens [N,L] -> features [N,D], of any length. `model` is the library's own module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens [N,L] of texts, on the CPU."""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def scale(self) -> Tensor:
        """Return the factor of cosine similarities in logits."""
        return cast(Tensor, self.model.logit_scale).exp().squeeze()

    def bias(self) -> Tensor:
        """Return the summand of logits (SigLIP); 0 for models without one."""
        bias = getattr(self.model, "logit_bias", None)
        return torch.zeros_like(self.scale()) if bias is None else bias.squeeze()


def text_classifier(tower: TextTower, tokens: Tensor) -> Tensor:
    """Return the features [K,D] of classes, of length 1, from the tokens [K,T,L] of T texts for each class.

    A class's features are the mean of the normalised features of its texts, normalised again (Radford et al., ICML
    2021, section 3.1.4).
    """
    parts = [at_least_fp32(tower(part)) for part in tokens.flatten(0, 1).split(PART)]
    features = functional.normalize(torch.cat(parts), dim=1).unflatten(0, tokens.shape[:2])
    return functional.normalize(features.mean(1), dim=1)


class TowerLibrary(ModelLibrary):
    """Library whose models have text towers."""

    def create_text(self, name: str, tag: str) -> TextTower:
        """Return a fresh text tower. Raises UsageError if the model has none."""
        raise NotImplementedError


def refuse_other_channels(model: str, channels: int, form: Form) -> None:
    """Raise UsageError if a model takes images of other channels than it is asked for."""
    if form.channels != channels:
        raise UsageError(f"{model} takes images of {channels} channels, not {form.channels}")


def open_tokenizer(model: str, make: Callable[[], Any]) -> Any:
    """Return a library's tokenizer. Raises Failure if it lacks a file or package, or the hub can't be reached."""
    try:
        return make()
    except Exception as error:  # each library raises its own
        raise Failure(f"the tokenizer of {model} can't be opened: {first_line(error)}") from None


def no_text_tower_error(name: str) -> UsageError:
    """Return the error for a model of images alone."""
    return UsageError(
        f"{name} has no text tower: take open_clip:<model>, or transformers:<a CLIP or SigLIP model>; probe and knn "
        "use images alone"
    )
