"""Models with their libraries' weights: by the libraries' own caches, which the tests fill; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models._registry import _model_to_module
from torch import nn
from torchvision import models as torchvision_models

from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import models
from biasbed.networks import library as published


@pytest.fixture
def torchvision_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which torchvision looks for its downloads."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints"


def cached(cache: Path, name: str, weights: str) -> nn.Module:
    """A random network whose tensors are in the cache under the published file's name."""
    torch.manual_seed(0)
    network: nn.Module = torchvision_models.get_model(name, weights=None)
    url = torchvision_models.get_model_weights(name)[weights].url
    torch.save(network.state_dict(), cache / url.rpartition("/")[2])
    return network.eval()


def test_torchvision_s_weights_bring_their_preprocessing(torchvision_cache: Path) -> None:
    network = cached(torchvision_cache, "shufflenet_v2_x0_5", "IMAGENET1K_V1")
    found = models.find("torchvision:shufflenet_v2_x0_5")  # its only weights
    assert found.outputs == 1000
    assert found.classes == imagenet_classes()
    assert found.algorithm == "torchvision_shufflenet_v2_x0_5_imagenet1k_v1"
    assert found.preprocessing == {
        "image_size": 224,
        "preprocess.size": 224,
        "preprocess.resize": 256,
        "preprocess.interpolation": "bilinear",
        "stimuli.interpolation": "bilinear",
    }
    from torchvision.transforms.v2.functional import normalize

    x = torch.rand(2, 3, 64, 64)
    expected = network(normalize(x, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    torch.testing.assert_close(found.predict(x), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def timm_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, with no hub behind it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_timm_s_tag_brings_weights_and_preprocessing(timm_cache: Path) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = timm.create_model("test_resnet", pretrained=False).eval()
    repository = timm_cache / "models--timm--test_resnet.r160_in1k"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(network.state_dict(), repository / "snapshots" / ("0" * 40) / "model.safetensors")
    found = models.find("timm:test_resnet.r160_in1k")
    config: Any = timm.models.get_pretrained_cfg("test_resnet.r160_in1k")
    assert found.preprocessing["image_size"] == config.input_size[-1] == 160
    assert found.preprocessing["preprocess.resize"] == int(160 / config.crop_pct)
    assert found.preprocessing["preprocess.interpolation"] == config.interpolation
    assert found.classes == imagenet_classes()
    assert found.algorithm == "timm_test_resnet_r160_in1k"
    x = torch.rand(2, 3, 160, 160)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (config.mean, config.std))
    torch.testing.assert_close(found.predict(x), network((x - mean) / std), rtol=1e-4, atol=1e-4)


def test_a_hub_that_is_away_is_said_in_one_line(timm_cache: Path) -> None:
    with pytest.raises(Failure, match="can't be fetched") as caught:
        models.find("timm:test_resnet.r160_in1k")
    assert "\n" not in str(caught.value)
    assert "weights=<file>" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "weights", "message"),
    [
        ("torchvision:resnet50", "none", "one of IMAGENET1K_V1, IMAGENET1K_V2"),
        ("torchvision:resnet18:IMAGENET1K_V1", "IMAGENET1K_V1", "both name weights"),
        ("timm:resnet50.a1_in1k", "a2_in1k", "no such file, and .* no such published weights"),
        ("nonsense", "none", "neither a checkpoint file"),
    ],
)
def test_wrong_names(model: str, weights: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        models.find(model, weights)


def test_inception_from_a_file_gets_the_same_input_as_published(tmp_path: Path) -> None:
    """torchvision turns the shift of its input on with weights of its own, and those may come from a file."""
    from torchvision.models import googlenet

    torch.manual_seed(0)
    theirs = googlenet(weights=None, transform_input=True, init_weights=False)
    torch.save(theirs.state_dict(), tmp_path / "googlenet.pth")
    found = published.from_file("torchvision:googlenet", tmp_path / "googlenet.pth").network.eval()
    x = torch.rand(1, 3, 224, 224)
    expected = theirs.eval()(found.normalise(x))
    torch.testing.assert_close(found(x), expected, rtol=1e-3, atol=1e-4)


# --- every family with random weights: the library saves, we load -----------------------------------------------------

FEW = ("timm:test_convnext", "timm:volo_d1_224", "torchvision:regnet_y_400mf")


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
