"""Corrupted CIFAR-10, of batches that a formula fills."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed import cli
from biasbed.data import corruptions
from biasbed.data.corruptions import find
from biasbed.data.source import MemorySource
from biasbed.datasets import biased
from biasbed.datasets.biased import Division, DivisionRequest
from biasbed.datasets.corrupted_cifar10 import ORIGINAL, CorruptedCIFAR10, CorruptedCIFAR10Type1, draw_part
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve
from helpers.cifar_files import make_batches

TYPE0, TYPE1 = "corrupted_cifar10", "corrupted_cifar10_type1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data_dir with CIFAR-10 of 80 images in each of its six files."""
    make_batches(tmp_path, "cifar10", 80)
    return tmp_path


@pytest.fixture
def frost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Photographs of frost that are none, in place of the published ones."""
    shapes = ((600, 900), (315, 560), (315, 560), (350, 527), (495, 660))
    made = tuple(np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8) for shape in shapes)
    monkeypatch.setattr(corruptions, "photographs", lambda folder: made)


def parts(root: Path, name: str = TYPE1, severity: float = 20, seed: int = 0, corruption: int = 5) -> Division:
    return biased.DATA_SETS.make(name, Path).parts(root, DivisionRequest(severity, seed, 32, corruption=corruption))


def by_name(source: Any) -> dict[str, tuple[int, np.ndarray]]:
    """Image -> (bias value, pixels)."""
    return {name: (int(bias), own) for name, bias, own in zip(source.ids, source.bias, source.images, strict=True)}


# The shares of Nam et al. 2020: of 4,500 images of each class 23, 45, 90, 225 conflict; of 500, 3, 5, 10, 25.
@pytest.mark.parametrize(("severity", "train", "validation"), [(0.5, 23, 3), (1, 45, 5), (2, 90, 10), (5, 225, 25)])
def test_images_of_each_class_at_the_published_shares(severity: float, train: int, validation: int) -> None:
    source = released()
    rows: dict[str, np.ndarray] = {}
    for part, per_class, expected in (("train", 4500, train), ("val", 500, validation)):
        rows[part], bias = draw_part(source, 0, part, severity)
        y = source.y[rows[part]]
        assert np.bincount(y).tolist() == [per_class] * 10
        assert np.bincount(y[bias != y]).tolist() == [expected] * 10
    rows["test"], bias = draw_part(source, 0, "test", None)
    cells = np.bincount(source.y[rows["test"]] * 10 + bias)
    assert cells.tolist() == [100] * 100  # classes and corruptions are independent
    assert np.array_equal(np.sort(np.concatenate(list(rows.values()))), np.arange(60_000))


@functools.cache
def released() -> MemorySource:
    """As many images as in CIFAR-10, of which each is a point."""
    files = ((name, 10_000) for name in CorruptedCIFAR10().batches)
    ids = [f"{name}/{row:05}" for name, count in files for row in range(count)]
    y = np.arange(60_000) % 10
    pixels = np.zeros((60_000, 3, 1, 1), np.uint8)
    return MemorySource(name="cifar", classes=tuple(map(str, range(10))), y=y, ids=ids, images=pixels)


def test_an_image_is_its_original_under_the_corruption_that_its_bias_says(root: Path) -> None:
    """With draws of its own, which follow from seed, image and corruption; the last class's is as it was."""
    source = CorruptedCIFAR10Type1().open(root)
    originals = dict(zip(source.ids, source.images, strict=True))
    made = parts(root, corruption=3)
    for own in (made.train, made.validation, made.test):
        for name, (bias, pixels) in list(by_name(own).items())[::7]:
            corruption, image = CorruptedCIFAR10Type1.corruptions[bias], originals[name].transpose(1, 2, 0)
            if corruption != ORIGINAL:
                image = corruptions.corrupt(np.ascontiguousarray(image), find(corruption), 3, 0, name)
            assert np.array_equal(pixels, image.transpose(2, 0, 1)), (name, corruption)


def test_what_the_seed_and_the_severity_change(root: Path) -> None:
    first, again = parts(root), parts(root)
    assert first.train.fingerprint() == again.train.fingerprint()
    assert parts(root, corruption=4).train.fingerprint() != first.train.fingerprint()
    fewer, more = by_name(parts(root, severity=5).train), by_name(first.train)
    assert fewer.keys() == more.keys()
    changed = [name for name in more if more[name][0] != fewer[name][0]]
    assert len(changed) == 60  # 8 of 36 images of a class for 2
    assert all(np.array_equal(more[name][1], fewer[name][1]) for name in more.keys() - set(changed))
    assert parts(root, severity=5).test.fingerprint() == first.test.fingerprint()
    other = by_name(parts(root, seed=1).train)
    common = [n for n in more.keys() & other.keys() if more[n][0] == other[n][0] == 0]  # both under Gaussian noise
    assert common
    assert not any(np.array_equal(more[name][1], other[name][1]) for name in common)


@pytest.mark.usefixtures("frost")
def test_the_suite_of_type_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cv2", reason="OpenCV is an extra")
    flags = {"suite": "debiasing", "train": "Corrupted-CIFAR10 (type 0)", "data_dir": str(root), "data.severity": "20"}
    config = resolve(flags)
    assert (config.backbone, config.image_size, config.epochs, config.augment.padding) == ("resnet18", 32, 200, 4)
    suite = open_suite(config)
    assert (suite.cell, suite.bias_type) == ("corrupted_cifar10-20", "corruption")
    assert suite.counts["train/images/corrupted_cifar10:airplane-conflicting"] == 8
    assert suite.counts["test/aligned_images/corrupted_cifar10_test"] == 10  # 8 of a class under 8 of 10 corruptions
    groups = {f"{name}-{word}" for name in suite.classes for word in ("aligned", "conflicting")}
    assert set(suite.sets[0].source.roles) <= groups
    weaker = open_suite(resolve({**flags, "data.corruption_severity": "2"}))
    assert weaker.cell == "corrupted_cifar10-20-corruption-2"
    assert weaker.fingerprint != suite.fingerprint


# --- by the command ---------------------------------------------------------------------------------------------------


def command(name: str, root: Path, *flags: str, train: str = TYPE1) -> int:
    return cli.main([name, "--suite", "debiasing", "--train", train, "--data_dir", str(root), *flags])


def said(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one line of a refused command."""
    assert code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("algorithm", ["erm", "lff"])
def test_a_training(algorithm: str, root: Path, tmp_path: Path) -> None:
    tiny = ("--backbone", "resnet10", "--image_size", "16", "--epochs", "1", "--batch_size", "60", "--device", "cpu")
    where = ("--output_dir", str(tmp_path / "runs"), "--tracking", "offline", "--data.severity", "20")
    assert command("train", root, "--algorithm", algorithm, *tiny, *where) == 0
    (counts,) = (tmp_path / "runs").rglob("counts.json")
    assert json.loads(counts.read_text())["train/images/corrupted_cifar10_type1:truck-aligned"] == 28


REFUSED: Sequence[tuple[str, tuple[str, ...], str]] = (
    (TYPE0, (), "frost1.png; the five photographs of frost are in the public repository hendrycks/robustness"),
    (TYPE1, ("--data.colour_noise", "0"), "the images of 'corrupted_cifar10_type1' are not coloured here"),
)


@pytest.mark.parametrize(("train", "flags", "words"), REFUSED)
def test_bad_input(
    train: str, flags: tuple[str, ...], words: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(capsys, command("train", root, "--tracking", "offline", *flags, train=train))
