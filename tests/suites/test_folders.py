"""Folders that are links to one another, whose images would train and test, and folders of cue conflicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from biasbed.errors import UsageError
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return two folders of images, and a link to the first."""
    generator = np.random.default_rng(0)
    for folder in ("photo", "sketch"):
        for name in ("cat", "dog"):
            (tmp_path / "data" / folder / name).mkdir(parents=True)
            for number in range(4):
                pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "data" / folder / name / f"{number}.png")
    (tmp_path / "data" / "again").symlink_to("photo")
    return tmp_path / "data"


@pytest.mark.parametrize("sets", ["again", "auto", "sketch,again"])
def test_a_test_folder_that_is_a_link_to_the_training_folder_is_refused(root: Path, sets: str) -> None:
    words = {"suite": "folders", "data_dir": str(root), "train": "photo", "sets": sets}
    with pytest.raises(UsageError, match=r"'again' and the training folder 'photo' of .* are one folder: name others"):
        open_suite(resolve(words))
    open_suite(resolve({**words, "sets": "sketch"}))


def test_two_domains_that_are_one_folder_are_refused(root: Path) -> None:
    words = {"suite": "domains", "data_dir": str(root), "test_domains": "photo"}
    with pytest.raises(UsageError, match=r"the domains 'again' and 'photo' are one folder: remove the link"):
        open_suite(resolve(words))
    (root / "again").unlink()
    open_suite(resolve(words))


def test_folders_that_name_two_classes_are_cue_conflicts(root: Path) -> None:
    for shape in ("cat", "dog"):
        for texture in ("cat", "dog"):
            (root / "mixed" / shape / texture).mkdir(parents=True)
            image = Image.fromarray(np.zeros((12, 12, 3), np.uint8))
            image.save(root / "mixed" / shape / texture / "1.png")
    config = resolve({"suite": "folders", "data_dir": str(root), "train": "photo", "sets": "mixed,sketch"})
    mixed, sketch = open_suite(config).sets
    assert mixed.source.y.tolist() == [0, 0, 1, 1]
    assert mixed.source.bias is not None
    assert mixed.source.bias.tolist() == [0, 1, 0, 1]
    assert "shape_bias" in mixed.measured
    assert sketch.source.bias is None
    Image.new("RGB", (12, 12)).save(root / "mixed" / "cat" / "1.png")
    mixed, sketch = open_suite(config).sets
    assert mixed.source.bias is None
