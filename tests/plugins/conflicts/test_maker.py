"""Cue conflicts from own folders: balanced, tested with their shape bias, and refused where nothing is recognised."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch.nn import functional

import biasbed
from biasbed.data.source import MemorySource
from biasbed.errors import UsageError
from biasbed.networks import frozen
from biasbed.networks.style import StyleTransfer
from biasbed.plugins.conflicts.pairing import images_per_class, pair_images
from biasbed.prepare.run import prepare
from biasbed.prepare.style import initialise
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve

CLASSES, SIDE = ("blue", "green", "red"), 32
COLOURS = np.array([(30, 60, 220), (40, 200, 50), (220, 40, 30)])


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return flags for photographs of three colours, with a style network that keeps colours, and a classifier."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        for folder, count in (("photo", 6), ("other", 1)):
            (tmp_path / "data" / folder / name).mkdir(parents=True)
            for number in range(count):
                pixels = COLOURS[label] + generator.integers(-30, 30, (SIDE, SIDE, 3))
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(tmp_path / "data" / folder / name / f"{number}.png")
    common = {"suite": "folders", "data_dir": str(tmp_path / "data"), "train": "photo", "sets": "other"}
    suite = open_suite(resolve({**common, "device": "cpu"}))
    assert suite.store is not None
    torch.manual_seed(0)
    network = StyleTransfer(width=8, size=SIDE)
    initialise(network)
    frozen.save(suite.store.network(suite.material(), "style"), "style", network, {})
    torch.save(classifier().state_dict(), tmp_path / "colours.pth")
    outputs = {"outputs": len(CLASSES), "maps": [{"classes": {name: label for label, name in enumerate(CLASSES)}}]}
    model = {"model": "timm:test_resnet", "weights": str(tmp_path / "colours.pth"), "label_map": json.dumps(outputs)}
    tested = {**common, "train": "none", "sets": "photo", "split": "photo"}
    return {**tested, **model, "what": "conflicts", "device": "cpu", "processes": 1, "per_class": 18}


def classifier() -> torch.nn.Module:
    """Return a network that has learnt the colours."""
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", num_classes=len(CLASSES))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    mean, std = (torch.tensor(network.pretrained_cfg[name])[:, None, None] for name in ("mean", "std"))
    for _ in range(60):
        y = torch.randint(len(CLASSES), (16,))
        x = torch.from_numpy(COLOURS)[y][:, :, None, None] / 255 + 0.2 * torch.randn(16, 3, 64, 64)
        loss = functional.cross_entropy(network((x - mean) / std), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def test_every_class_is_as_often_shape_as_texture() -> None:
    y = np.repeat(np.arange(5), [2, 3, 4, 5, 6])
    source = MemorySource(
        name="t", classes=tuple("abcde"), y=y, ids=[str(n) for n in range(20)], images=np.zeros((20, 3, 8, 8), np.uint8)
    )
    pairs = pair_images(source, 7, seed=0)
    assert Counter(y[pair.shape] for pair in pairs) == Counter(y[pair.texture] for pair in pairs)
    assert set(Counter((y[pair.shape], y[pair.texture]) for pair in pairs).values()) == {1, 2}
    assert all(pair.shape != pair.texture for pair in pairs)
    assert len({pair.name for pair in pairs}) == len(pairs)
    assert pairs == pair_images(source, 7, seed=0) != pair_images(source, 7, seed=1)


def test_the_default_number_covers_every_pair_equally() -> None:
    assert [images_per_class(classes) for classes in (2, 7, 12, 40, 80, 1000)] == [40, 42, 48, 40, 80, 80]


def test_a_class_with_one_image_is_refused() -> None:
    source = MemorySource(
        name="t", classes=("a", "b"), y=np.array([0, 0, 1]), ids=list("abc"), images=np.zeros((3, 3, 8, 8), np.uint8)
    )
    with pytest.raises(UsageError, match="class 'b' of t has one image"):
        pair_images(source, 4, seed=0)


def test_the_images_are_tested_as_cue_conflicts(flags: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder = prepare(flags)
    assert folder == Path(flags["data_dir"]) / "photo_conflicts"
    assert (folder / "examples.png").is_file()
    assert "on 18 of their originals" in capsys.readouterr().err
    network = classifier()
    card = biasbed.evaluate(
        network, suite="folders", data_dir=flags["data_dir"], sets=["photo_conflicts"], classes=CLASSES, quiet=True
    )
    assert card.shape_bias is not None
    assert card.shape_bias.n == 36  # and 18 images whose shape and texture agree
    assert card.shape_bias.high < 0.5  # what knows only colours decides for the texture
    prepare(flags)
    assert "is complete already" in capsys.readouterr().err


def test_what_is_at_chance_on_stylized_images_is_refused(flags: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "untrained.pth")
    with pytest.raises(UsageError, match=r"is right on 6 of 18 images .*: chance is 33 %"):
        prepare({**flags, "weights": str(tmp_path / "untrained.pth")})
    assert not (Path(flags["data_dir"]) / "photo_conflicts").exists()


def test_a_folder_of_the_users_own_stays(flags: dict[str, Any]) -> None:
    image = Path(flags["data_dir"]) / "photo_conflicts" / "red" / "mine.png"
    image.parent.mkdir(parents=True)
    image.touch()
    with pytest.raises(UsageError, match="nothing in it says how it was made"):
        prepare(flags)
    assert image.exists()


def test_a_classifier_must_be_named(flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="say which classifier"):
        prepare({**flags, "model": "none"})
