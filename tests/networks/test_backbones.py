"""Backbones by name, and where their initial weights come from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import timm
import torch
from torch import nn

from biasbed.errors import Failure, UsageError
from biasbed.networks import Network, build, check_init, resolve, skeleton, stages

# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet81", "did you mean 'resnet18'"),
        ("tim:resnet18", "did you mean 'timm:resnet18'"),
        ("timm:resnet50.a1_in1", "did you mean 'timm:resnet50.a1_in1k'"),
        ("", "valid: resnet10"),
        ("simple_con", "did you mean 'simple_conv'"),
    ],
)
def test_unknown_names_get_the_nearest_valid_one(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="unknown backbone") as caught:
        resolve(name)
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["vgg16", "timm:resnest14d", "mlp"])
def test_every_classifier_is_known_and_no_resnet_where_one_is_needed(name: str) -> None:
    with pytest.raises(UsageError, match="is no ResNet of basic or bottleneck blocks"):
        stages.find(skeleton(resolve(name)))


# --- networks ---------------------------------------------------------------------------------------------------------


# --- weights ----------------------------------------------------------------------------------------------------------


def other(name: str = "resnet10", classes: int = 4) -> Network:
    """A network with weights that no fresh one has, running statistics included."""
    network = build(name, classes)
    with torch.no_grad():
        for value in network.state_dict().values():
            value.copy_(torch.rand(value.shape) + 0.5 if value.is_floating_point() else value + 3)
    return network


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(value, two.state_dict()[key]) for key, value in one.state_dict().items())


WRAPPINGS = {
    "network": lambda net: net.state_dict(),
    "checkpoint": lambda net: {
        "algorithm": {**{f"network.{k}": v for k, v in net.state_dict().items()}, "weights": torch.zeros(3)},
        "config": {"algorithm": "infodrop"},
    },
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_weights_from_a_file_of_ours(tmp_path: Path, wrapping: str) -> None:
    source, path = other(), tmp_path / "weights.pt"
    torch.save(WRAPPINGS[wrapping](source), path)
    assert same(build("resnet10", 4, str(path)), source)


def test_other_number_of_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, path = other(classes=9), tmp_path / "weights.pt"
    torch.save(source.backbone.state_dict(), path)
    with caplog.at_level(logging.WARNING):
        loaded = build("resnet10", 4, str(path))
    assert (
        "has a classifier of 9 classes, not 4, which is not loaded: the last layer begins with random weights for 4"
        in caplog.text
    )
    assert torch.equal(loaded.backbone.layer4[0].conv2.weight, source.backbone.layer4[0].conv2.weight)
    assert loaded.backbone.fc.weight.abs().max() < 0.5


@pytest.mark.parametrize(
    ("name", "init", "message"),
    [
        ("resnet10", "nowhere.pt", "no such file; valid: scratch, named:<weights>, a weights file, a run's id"),
        ("resnet10", "named:IMAGENET1K_V1", "'resnet10' has no named weights"),
        ("resnet18", "named:IMAGENET1K_V9", "did you mean 'IMAGENET1K_V1'"),
        ("timm:resnet50", "named:a1_in1", "did you mean 'a1_in1k'"),
        ("timm:resnet50.a1_in1k", "named:a2_in1k", "name different weights"),
    ],
)
def test_wrong_init_is_refused_before_anything_is_created(name: str, init: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_init(name, init)
    assert message in str(caught.value)
    with pytest.raises(UsageError):
        build(name, 4, init)


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet18"])
def test_unreachable_hub_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = timm.create_model

    def unreachable(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("pretrained", True):
            raise URLError("Name or service not known")
        return real(*args, **kwargs)

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", unreachable)
    monkeypatch.setattr(timm, "create_model", unreachable)
    init = "named:a1_in1k" if name.startswith("timm") else "named:IMAGENET1K_V1"
    with pytest.raises(Failure) as caught:
        build(name, 1000, init)
    message = str(caught.value)
    assert message.startswith(f"init={init}: the weights could not be fetched")
    assert message.endswith("use init=<file>")
    assert "\n" not in message


def test_a_size_that_nothing_is_left_of_is_refused() -> None:
    drawn = torch.get_rng_state()
    with pytest.raises(UsageError, match=r"can't be made for images of 8 x 8 pixels: .*too small"):
        build("alexnet", 10, image_size=8)
    torch.set_rng_state(drawn)
    network = build("resnet10", 10, image_size=8)
    assert all(module.training for module in network.modules()), "the try leaves it as it was"
    after = torch.get_rng_state()
    torch.set_rng_state(drawn)
    build("resnet10", 10)
    assert torch.equal(after, torch.get_rng_state()), "the try draws nothing"
    assert not network.backbone.bn1.num_batches_tracked
