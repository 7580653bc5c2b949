"""Geirhos et al.: both releases, labels of shape and texture, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from biasbed.datasets import geirhos
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import CATEGORIES_16
from helpers.data_trees import fill, refusal

PAIRS = [(shape, texture) for shape, texture in itertools.product(CATEGORIES_16, CATEGORIES_16)]
STIMULI = [f"{category}{number}" for category in CATEGORIES_16 for number in (1, 2, 10)]


def category(stimulus: str) -> str:
    return stimulus.split("-")[0].rstrip("0123456789")


def trial(number: int, stimulus: str, code: str = "edg") -> str:
    return f"{number:04}_{code}_dnn_0_{category(stimulus)}_00_{stimulus}.png"


@pytest.mark.parametrize(
    ("data_set", "ours", "theirs"),
    [
        (geirhos.Edge(), "edges", "edge"),
        (geirhos.Silhouette(), "filled-silhouettes", "silhouette"),
        (geirhos.Sketch(), "sketch", "sketch"),
    ],
)
def test_both_releases_give_the_same_labels(data_set: DataSet, ours: str, theirs: str, tmp_path: Path) -> None:
    folders, names = tmp_path / "texture-vs-shape" / "stimuli", tmp_path / "model-vs-human" / "datasets"
    fill(folders / ours, *(f"{category(stimulus)}/{stimulus}.png" for stimulus in STIMULI))
    fill(names / theirs / "dnn" / "session-1", *(trial(n, stimulus) for n, stimulus in enumerate(STIMULI, 1)))
    found = {}
    for root in (folders, names):
        source = data_set.open(root)
        assert source.classes == CATEGORIES_16
        found[root] = {id.rpartition("/")[2].split("_")[-1]: int(y) for id, y in zip(source.ids, source.y, strict=True)}
    assert found[folders] == found[names]
    assert found[names]["truck10.png"] == 15
    assert data_set.layout(folders / ours) == "class folders"
    assert data_set.layout(names / theirs) == "class in the file name (model-vs-human)"
    assert data_set.find(tmp_path) == folders / ours or ours == theirs


def test_cue_conflict_knows_shape_and_texture_in_both_releases(tmp_path: Path) -> None:
    """Every pair once, in other orders."""
    stimuli = [f"{shape}{n % 10 + 1}-{texture}{n % 3 + 1}" for n, (shape, texture) in enumerate(PAIRS)]
    fill(tmp_path / "a" / "style-transfer-preprocessed-512", *(f"{category(name)}/{name}.png" for name in stimuli))
    trials = [trial(n, stimulus, "cue") for n, stimulus in enumerate(reversed(stimuli), 1)]
    fill(tmp_path / "b" / "cue-conflict" / "dnn" / "session-1", *trials)
    for root in (tmp_path / "a", tmp_path / "b"):
        source = geirhos.CueConflict().open(root)
        assert source.bias is not None
        assert source.bias.dtype == np.int64
        pairs = [(CATEGORIES_16[y], CATEGORIES_16[bias]) for y, bias in zip(source.y, source.bias, strict=True)]
        assert sorted(pairs) == sorted(PAIRS)
        for id, (shape, texture) in zip(source.ids, pairs, strict=True):
            name = id.rpartition("/")[2].split("_")[-1]
            assert name.startswith(shape)
            assert name.split("-")[1].startswith(texture)


@pytest.mark.parametrize("name", ["dog1-wolf2.png", "dog1-cat2-bear3.png"])
def test_cue_conflict_refuses_names_without_two_categories(tmp_path: Path, name: str) -> None:
    fill(tmp_path, *(f"cue-conflict/{c}/{c}1-bear1.png" for c in CATEGORIES_16), f"cue-conflict/dog/{name}")
    assert f"'dog/{name}' is not named <shape><number>-<texture><number>" in refusal(geirhos.CueConflict(), tmp_path)


@pytest.mark.real_data
def test_real_stimuli(shared: Path) -> None:
    data = shared / "data"
    for data_set in (geirhos.Edge(), geirhos.Silhouette()):
        source = data_set.open(data)
        assert len(source) == data_set.release.images == 160
        assert np.bincount(source.y).tolist() == [10] * 16
        assert source.load(0).shape == (3, 224, 224)
    source = geirhos.CueConflict().open(data)
    assert len(source) == 320
    assert source.bias is not None
    assert set(source.bias.tolist()) == set(range(16))
    row = source.ids.index("airplane/airplane10-elephant1.png")
    assert (CATEGORIES_16[source.y[row]], CATEGORIES_16[source.bias[row]]) == ("airplane", "elephant")
