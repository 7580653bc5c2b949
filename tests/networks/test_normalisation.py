"""Mean and standard deviation follow the weights, are given, or are the architecture's; the run says which."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from torchvision import models as torchvision_models

from biasbed import networks
from biasbed.config import Config, NetworkSettings, Preprocess
from biasbed.data import transforms
from biasbed.data.source import Decoded
from biasbed.errors import UsageError
from biasbed.networks import library
from biasbed.networks.backbones import Architecture, tag_mean_std
from biasbed.networks.normalisation import choose_normalisation
from biasbed.settings import build


@functools.cache
def weight_sets() -> tuple[tuple[str, str], ...]:
    """Name and tag of each of timm's sets of weights."""
    names = (name.partition(".") for name in timm.list_models(pretrained=True))
    return tuple((name, tag) for name, _, tag in names)


def timms_own(name: str) -> Any:
    config: Any = timm.models.get_pretrained_cfg(name)
    return resolve_data_config(pretrained_cfg=config.to_dict())


def test_every_tag_of_timm_has_its_own_mean_and_std() -> None:
    """59 of 1,800 sets of weights differ from the usual set of their architecture; no weights are read."""
    sets = weight_sets()
    differ = 0
    for name, tag in sets:
        how = timms_own(f"{name}.{tag}")
        plain, tagged = Architecture("timm", name), Architecture("timm", name, tag)
        found = choose_normalisation(tagged, tag_mean_std(tagged))
        assert (found.mean, found.std) == (tuple(how["mean"]), tuple(how["std"])), f"{name}.{tag}"
        assert found.why == f"of the weights' tag, {tag}"
        differ += tag_mean_std(plain) != (found.mean, found.std)
    assert len(sets) > 1500
    assert differ > 30


def test_every_tag_of_timm_has_its_own_preprocessing_or_is_refused() -> None:
    """Images that are not square are refused; every other set is tested as timm says."""
    refused = 0
    crops: dict[str, int] = {}
    for name, tag in weight_sets():
        how, architecture = timms_own(f"{name}.{tag}"), Architecture("timm", name, tag)
        height, size = how["input_size"][-2:]
        if height != size:
            refused += 1
            with pytest.raises(UsageError, match=f"its images are {height} x {size} pixels"):
                library._timm_preprocessing(architecture)
            continue
        found = library._timm_preprocessing(architecture)
        assert found["preprocess.size"] == found["image_size"] == size
        assert found["preprocess.resize"] == int(size / how["crop_pct"])
        assert found["preprocess.interpolation"] == how["interpolation"]
        assert found["stimuli.interpolation"] == how["interpolation"]
        assert found["preprocess.crop"] == {"center": "centre"}.get(how["crop_mode"], how["crop_mode"])
        crops[how["crop_mode"]] = crops.get(how["crop_mode"], 0) + 1
    assert refused < 10
    assert min(crops[mode] for mode in ("center", "squash", "border")) >= 5


@pytest.mark.parametrize(
    ("mode", "share", "interpolation"),
    [
        ("center", 0.875, "bilinear"),
        ("squash", 0.9, "bicubic"),
        ("squash", 1.0, "bilinear"),
        ("border", 0.8, "bilinear"),
    ],
)
def test_images_are_prepared_as_timm_s_own_transform_does(mode: str, share: float, interpolation: str) -> None:
    """Pixels are equal within the rounding of torch and Pillow, which round after each of two passes."""
    cfg = {"input_size": (3, 64, 64), "crop_pct": share, "crop_mode": mode, "interpolation": interpolation}
    cfg |= {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    settings = library.timm_settings(cfg, "timm:any")
    how = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("preprocess.")}
    ours, _ = transforms.make_photo_transform(settings["image_size"], Preprocess(**how))
    theirs = create_transform(**resolve_data_config(pretrained_cfg=cfg), normalize=False)
    generator = np.random.default_rng(0)
    for height, width in ((100, 151), (333, 200), (64, 64), (40, 90), (300, 20)):
        coarse = generator.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        difference = (ours(Decoded(pixels)).int() - theirs(image).int()).abs()
        assert difference.shape == (3, 64, 64)
        assert difference.max() <= 3, (height, width)
        assert (difference > 1).float().mean() < 0.002
        assert difference.float().mean() < 0.2


@pytest.mark.parametrize(
    ("name", "init", "values"),
    [
        ("timm:vit_base_patch16_224", "named:dino", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ("timm:vit_base_patch16_224", "named:augreg_in21k", ((0.5,) * 3, (0.5,) * 3)),
        ("timm:vit_base_patch16_224.dino", "scratch", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ("timm:vit_base_patch16_224", "scratch", ((0.5,) * 3, (0.5,) * 3)),
        ("resnet50", "named:IMAGENET1K_V2", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ("mnist_convnet", "scratch", ((0.0,) * 3, (1.0,) * 3)),
    ],
)
def test_initial_weights_bring_theirs(name: str, init: str, values: Any) -> None:
    assert networks.find_normalisation(name, init).values == values


def test_a_network_is_built_with_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained=False, **how: real(name, pretrained=False, **how))
    network = networks.build("timm:vit_tiny_patch16_224", 3, "named:augreg_in21k", image_size=32)
    assert network.normalise.mean.flatten().tolist() == [0.5] * 3
    network = networks.build("timm:vit_small_patch16_224", 3, "named:dino", image_size=32)
    torch.testing.assert_close(network.normalise.mean.flatten(), torch.tensor([0.485, 0.456, 0.406]))


def test_every_set_of_torchvision_has_its_transforms() -> None:
    for name in torchvision_models.list_models(module=torchvision_models):
        for weights in torchvision_models.get_model_weights(name):
            how: Any = weights.transforms()
            found = networks.find_normalisation(name, f"named:{weights.name}")
            assert found.values == (tuple(how.mean), tuple(how.std))


def test_what_is_given_wins_and_a_scale_is_a_choice_too() -> None:
    given = networks.MeanStd((0.1, 0.2, 0.3), (1.0,) * 3)
    assert networks.find_normalisation("resnet10", "scratch", mean_std=given).values == given
    scaled = networks.find_normalisation("resnet10", "scratch", NetworkSettings(scale="unit_255"))
    assert (scaled.values, scaled.kind) == (((0.0,) * 3, (255.0,) * 3), "scale")
    network = networks.build("resnet10", 2, mean_std=networks.MeanStd((0.5,), (0.25,)))
    assert network.normalise.std.flatten().tolist() == [0.25] * 3


def test_a_file_for_an_architecture_whose_tags_disagree_is_doubted(tmp_path: Path) -> None:
    name = "vit_small_patch16_224"
    torch.save(timm.create_model(name, num_classes=2).state_dict(), tmp_path / "w.pth")
    assumed = networks.find_normalisation(f"timm:{name}", str(tmp_path / "w.pth"))
    assert "is assumed" in assumed.why
    assert f"timm:{name}." in assumed.why
    said = networks.find_normalisation(f"timm:{name}.dino", str(tmp_path / "w.pth"))
    assert said.why == "of the tag in the network's name, dino"
    assert "assumed" not in networks.find_normalisation("resnet10", "scratch").why
    tested = library.from_file(f"timm:{name}.dino", tmp_path / "w.pth")
    assert tested.preprocessing["preprocess.resize"] == int(224 / timms_own(f"{name}.dino")["crop_pct"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mean": "0.5"}, "mean=0.5 std=auto: give both"),
        ({"mean": "0.5,0.5", "std": "1"}, "mean=0.5,0.5: should be 1 number, or 3"),
        ({"mean": "0.5", "std": "0"}, "std=0: .*greater than 0"),
        ({"mean": "nan", "std": "1"}, "mean=nan"),
        ({"mean": "123.7", "std": "58"}, "less than or equal to 2"),
        ({"mean": "0.5", "std": "0.5", "network.scale": "unit"}, "network.scale=unit: give one"),
    ],
)
def test_wrong_numbers_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(Config, values)
