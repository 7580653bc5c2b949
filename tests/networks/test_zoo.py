"""Every family of torchvision and timm with random weights: saved by the library, loaded by us, equal outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models._registry import _model_to_module
from torchvision import models as torchvision_models

from biasbed.evaluation import models

FEW = (
    "timm:test_vit",
    "timm:test_convnext",
    "timm:volo_d1_224",
    "torchvision:regnet_y_400mf",
    "torchvision:mnasnet0_5",
)


def smallest_of_families() -> list[str]:
    """Return the first model of each file of both libraries by length of name, which the small ones have short."""
    families: dict[str, list[str]] = {}
    for name in torchvision_models.list_models(module=torchvision_models):
        family = torchvision_models.get_model_builder(name).__module__
        families.setdefault(family, []).append(f"torchvision:{name}")
    for name in timm.list_models():
        families.setdefault(f"timm.{_model_to_module[name]}", []).append(f"timm:{name}")
    return [min(names, key=lambda name: ("test_" not in name, len(name))) for names in families.values()]


def check(name: str, folder: Path) -> None:
    """Save a wrapped state dict of a new network, load it, and compare the outputs."""
    library, _, plain = name.partition(":")
    torch.manual_seed(0)
    if library == "timm":
        network: Any = timm.create_model(plain, num_classes=5).eval()
    else:
        network = torchvision_models.get_model(plain, weights=None, num_classes=5).eval()
    torch.save({"state_dict": {f"module.{key}": v for key, v in network.state_dict().items()}}, folder / "w.pth")
    found = models.find(name, str(folder / "w.pth"))
    backbone: Any = found.module.get_submodule("backbone")
    if hasattr(backbone, "transform_input"):
        network.transform_input = backbone.transform_input
    size = network.pretrained_cfg["input_size"][-1] if library == "timm" else 299 if "inception" in name else 224
    x = torch.rand(1, 3, size, size)
    normalise: Any = found.module.get_submodule("normalise")
    with torch.no_grad():
        torch.testing.assert_close(found.predict(x), network(normalise(x)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FEW)
def test_a_file_gives_the_library_s_outputs(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
def test_a_file_of_every_family_gives_the_library_s_outputs(tmp_path: Path) -> None:
    names = smallest_of_families()
    assert len(names) > 90
    for name in names:
        check(name, tmp_path)
