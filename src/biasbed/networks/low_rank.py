"""Low-rank updates of linear layers (Hu et al., ICLR 2022), by the package peft."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

from torch import nn

from biasbed.errors import UsageError
from biasbed.networks import heads
from biasbed.settings import setting


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of the updates: an update adds alpha / rank * B A to a frozen weight."""

    rank: int = setting(8, "rank of each update (peft's default)", ge=1)
    alpha: float = setting(8.0, "strength of an update: it counts alpha / rank times (peft's default)", gt=0)
    dropout: float = setting(0.0, "probability to drop each input of an update (peft's default)", ge=0, lt=1)
    layers: Literal["attention", "all"] = setting(
        "attention", "linear layers that get an update: those of attention (paper, section 4.2), or all but the last"
    )


def list_layers(model: nn.Module, layers: str) -> list[str]:
    """Return the names of a model's linear layers that get an update; the last layer is not among them.

    Leaves out torch's own attention, which does not call its layers.
    """
    names: list[str] = []
    fused = [f"{name}." for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)]
    head = heads.find(model)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or name == head or name.startswith(tuple(fused)):
            continue
        if layers == "all" or "att" in name.rpartition(".")[0].lower():
            names.append(name)
    return names


def check_layers(model: nn.Module, layers: str) -> None:
    """Raise UsageError if no layer of the model would get an update, or if peft is not installed."""
    if not list_layers(model, layers):
        which = "linear layers of attention" if layers == "attention" else "linear layers before the last"
        raise UsageError(f"{type(model).__name__} has no {which}; timm's and transformers' ViTs have them")
    if importlib.util.find_spec("peft") is None:
        raise UsageError("LoRA needs a package: pip install peft")


def add_updates(model: nn.Module, settings: UpdateSettings) -> None:
    """Add trainable updates to layers of a model, in place, and freeze all else. Each begins as zero."""
    check_layers(model, settings.layers)
    import peft

    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list_layers(model, settings.layers),
    )
    peft.inject_adapter_in_model(config, model)


def merge_updates(model: nn.Module) -> None:
    """Replace each layer with an update by the library's plain layer whose weight contains it, in place."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in list(model.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            model.set_submodule(name, module.get_base_layer())
