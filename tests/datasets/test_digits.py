"""The images of the suite `demo`: what makes them a fair instrument, without training anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import biasbed
from biasbed.data.source import MemorySource
from biasbed.datasets.digits import CLASSES, EVALUATION, PARTS, SPLITS, _bitmaps, digits
from biasbed.datasets.textures import FAMILIES, UNSEEN
from biasbed.record import slug
from helpers.commands import command_environment

SIZE = {"train": 2200, "val": 560, "stylized_train": 2200, "texture_train": 2200}  # the others have 360


@pytest.fixture(scope="module")
def sources() -> dict[str, MemorySource]:
    return {split: digits(split) for split in SPLITS}


def bitmaps(source: MemorySource) -> set[int]:
    """Numbers of the handwritten digits behind a split's images."""
    return {int(match[1]) for match in (re.match(r"\w+/(\d+)-", name) for name in source.ids) if match}


def texture(source: MemorySource) -> list[str]:
    return [name.split("/")[1].split("-")[-2] for name in source.ids]


def linear_accuracy(train: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray) -> float:
    """Accuracy of a logistic regression on standardized features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return float(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, y).score(test, test_y))


@pytest.mark.parametrize("split", SPLITS)
def test_contract(sources: dict[str, MemorySource], split: str) -> None:
    source = sources[split]
    n = SIZE.get(split, 360)
    assert source.name == split
    assert source.classes == CLASSES == tuple(slug(name) for name in CLASSES)
    assert source.images.shape == (n, 3, 40, 40)
    assert source.images.dtype == np.uint8
    assert source.y.shape == (n,)
    assert source.y.dtype == np.int64
    assert source.bias is None or (source.bias.shape == (n,) and source.bias.dtype == np.int64)
    assert len(set(source.ids)) == n
    assert len(np.unique(source.images.reshape(n, -1), axis=0)) == n, "no image twice"
    assert source.images.max() > 250
    assert source.images.min() < 5
    assert tuple(source.load(3).shape) == (3, 40, 40)


@pytest.mark.parametrize("split", SPLITS)
def test_classes_are_balanced(sources: dict[str, MemorySource], split: str) -> None:
    assert len(set(np.bincount(sources[split].y, minlength=10))) == 1


def test_same_seed_same_bytes(sources: dict[str, MemorySource]) -> None:
    """Two parts, made in another order by another process."""
    code = "from biasbed.datasets.digits import digits; print(*(digits(p).fingerprint() for p in ('edge', 'val')))"
    environment = os.environ | {"PYTHONPATH": str(Path(biasbed.__file__).parents[1]), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert other == [sources[split].fingerprint() for split in ("edge", "val")]


@pytest.mark.parametrize("seed", [0, pytest.param(7, marks=pytest.mark.slow)])
def test_no_handwritten_digit_is_in_two_parts(seed: int) -> None:
    train, val = bitmaps(digits("train", seed)), bitmaps(digits("val", seed))
    test = [bitmaps(digits(split, seed)) for split in EVALUATION]
    assert [len(part) for part in (train, val, test[0])] == [10 * count for count in PARTS.values()]
    assert not train & val
    assert not (train | val) & test[0]
    assert all(part == test[0] for part in test), "all evaluation sets show the same digits"
    assert bitmaps(digits("stylized_train", seed)) == train
    assert not bitmaps(digits("texture_train", seed))


def test_ids_name_the_right_bitmap(sources: dict[str, MemorySource]) -> None:
    from sklearn.datasets import load_digits

    target = load_digits().target
    for split in set(SPLITS) - {"texture_train"}:
        source = sources[split]
        numbers = [int(name.split("/")[1][:4]) for name in source.ids]
        np.testing.assert_array_equal(target[numbers], source.y)


@pytest.mark.parametrize("split", ["train", "val", "in_domain", "texture_train"])
def test_texture_tells_the_class_in_the_training_distribution(sources: dict[str, MemorySource], split: str) -> None:
    source = sources[split]
    np.testing.assert_array_equal(source.bias, source.y)
    assert texture(source) == [list(FAMILIES)[c] for c in source.y]


def test_cue_conflict_has_every_conflicting_pair_equally_often(sources: dict[str, MemorySource]) -> None:
    source = sources["cue_conflict"]
    assert source.bias is not None
    pairs = Counter(zip(source.y.tolist(), source.bias.tolist(), strict=True))
    assert pairs == {(shape, other): 4 for shape in range(10) for other in range(10) if shape != other}
    assert texture(source) == [list(FAMILIES)[c] for c in source.bias]


def test_stylized_textures_are_new_and_tell_nothing(sources: dict[str, MemorySource]) -> None:
    source = sources["stylized"]
    assert source.bias is None
    assert sources["stylized_train"].bias is None
    pairs = Counter(zip(source.y.tolist(), texture(source), strict=True))
    assert pairs == {(shape, family): 6 for shape in range(10) for family in UNSEEN}
    trained = {name for split in ("train", "stylized_train", "texture_train") for name in texture(sources[split])}
    assert not trained & set(UNSEEN)
    assert not set(texture(sources["stylized_train"])) & set(FAMILIES)


@pytest.mark.parametrize("split", ["silhouette", "edge", "sketch"])
def test_drawings_are_dark_on_white(sources: dict[str, MemorySource], split: str) -> None:
    source = sources[split]
    assert source.bias is None
    assert (source.images == source.images[:, :1]).all(), "grey"
    assert (source.images[:, :, [0, 0, -1, -1], [0, -1, 0, -1]] == 255).all(), "white corners"
    assert (source.images.min((1, 2, 3)) < 128).all(), "no image is empty"


@pytest.mark.parametrize("split", ["train", "stylized_train", "texture_train"])
def test_colour_does_not_tell_the_class(sources: dict[str, MemorySource], split: str) -> None:
    """A linear model of the mean colour is near chance (0.1) on another seed's images and on its own."""
    source, other = sources[split], digits(split, seed=1)
    features, others = (s.images.mean((2, 3)) for s in (source, other))
    assert linear_accuracy(features, source.y, others, other.y) < 0.13
    assert linear_accuracy(features, source.y, features, source.y) < 0.15


def test_texture_tells_the_class_without_any_shape(sources: dict[str, MemorySource]) -> None:
    """The spectrum of `texture_train` does what colour can't, so the families do differ in their local statistics."""

    def spectrum(source: MemorySource) -> np.ndarray:
        grey = source.images.mean(1)
        grey = grey - grey.mean((1, 2), keepdims=True)
        return np.log1p(np.abs(np.fft.rfft2(grey))).reshape(len(grey), -1)

    source, other = sources["texture_train"], digits("texture_train", seed=1)
    assert linear_accuracy(spectrum(source), source.y, spectrum(other), other.y) > 0.9


def test_the_bitmaps_are_scikit_learns() -> None:
    """They are read from its file, without an import of its data sets."""
    from sklearn.datasets import load_digits

    images, classes = _bitmaps()
    assert (images == load_digits().images / 16).all()
    assert (classes == load_digits().target).all()
    code = "import sys; from biasbed.datasets.digits import _bitmaps; _bitmaps(); print('sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=command_environment(), check=True
    )
    assert done.stdout.strip() == "False"


def test_fingerprint_notices_one_pixel_and_one_label(sources: dict[str, MemorySource]) -> None:
    source = digits("edge")
    before = source.fingerprint()
    source.images[5, 0, 7, 7] ^= 1
    assert source.fingerprint() != before
    source.images[5, 0, 7, 7] ^= 1
    source.y[5] += 1
    assert source.fingerprint() != before
