"""Biased data sets: the embedded one, Colored MNIST of ten classes, and those with a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed.data.source import Source
from biasbed.datasets import biased, metadata_csv
from biasbed.datasets.biased import Division, DivisionRequest
from biasbed.datasets.colored_mnist import MEANS, ColoredMNIST10, _draw_parts, color_digits
from biasbed.datasets.figures import Figures
from biasbed.datasets.mnist import Digits
from biasbed.errors import UsageError
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve
from helpers.commands import SHARED
from helpers.mnist_files import make_mnist
from replays import debiasing_data, load

VECTOR = SHARED / "vectors" / "debiasing" / "colored_mnist.npz"


def conflicts(parts: Division) -> list[int]:
    """Conflicting images of each part."""
    return [int((s.bias != s.y).sum()) for s in (parts.train, parts.validation, parts.test) if s.bias is not None]


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures() -> None:
    parts = Figures().parts(Path(), DivisionRequest(2, 0, 16))
    assert [len(source) for source in (parts.train, parts.validation, parts.test)] == [2200, 560, 720]
    assert conflicts(parts) == [50, 20, 640]  # 5 of 220 and 2 of 56 of each class
    numbers = [{identifier.split("/")[1][:4] for identifier in s.ids} for s in (parts.train, parts.test)]
    assert not numbers[0] & numbers[1]
    assert Figures().parts(Path(), DivisionRequest(20, 0, 16)).test is parts.test


# --- Colored MNIST ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not VECTOR.is_file(), reason="it has digits of MNIST, which are not passed on")
def test_colours_are_those_of_the_authors() -> None:
    debiasing_data.replay_colored_mnist(load(VECTOR))


# The Align-Conflict paper's table 8, but for 44,500 that should be 44,550.
PUBLISHED = {0.5: (44770, 230, 4970, 30), 1: (44550, 450, 4950, 50), 2: (44100, 900, 4900, 100)}
PUBLISHED |= {5: (42750, 2250, 4750, 250), 20: (36000, 9000, 4000, 1000)}


@pytest.mark.parametrize("severity", PUBLISHED)
def test_images_of_each_part_are_as_many_as_published(severity: float) -> None:
    labels = np.concatenate([np.arange(60_000) % 10, np.arange(10_000) % 10])
    own = _draw_parts(Digits(np.zeros((0, 28, 28), np.uint8), labels, (60_000, 10_000), ""), 0)
    assert not set(own["train"]) & set(own["val"])
    counts: list[int] = []
    for part in ("train", "val"):
        y = labels[own[part]]
        conflicting = int((biased.draw_biases(y, severity, 10, np.random.default_rng(0)) != y).sum())
        counts += [len(y) - conflicting, conflicting]
    assert tuple(counts) == PUBLISHED[severity]
    assert len(own["test"]) == 10_000


def test_colored_mnist_of_files(tmp_path: Path) -> None:
    make_mnist(tmp_path / "MNIST" / "raw", train=400, test=100)
    flags = {"suite": "debiasing", "train": "ColoredMNIST", "data_dir": str(tmp_path)}
    config = resolve(flags)
    assert (config.backbone, config.image_size, config.batch_size, config.epochs) == ("mlp", 28, 256, 200)
    suite = open_suite(config)
    assert suite.cell == "colored_mnist_10-5"
    train, test = suite.source("colored_mnist_10"), suite.sets[0].source
    assert len(test) == 100
    assert set(np.bincount(train.y)) == {len(train) // 10}
    assert train.bias is not None
    assert (train.bias != train.y).sum() == 10 * biased.number_of_conflicting(5, len(train) // 10)
    assert train.shape == (3, 28, 28)  # read at a stroke
    other = open_suite(resolve({**flags, "data.seed": "1"}))
    assert other.fingerprint != suite.fingerprint
    quiet = open_suite(resolve({**flags, "data.colour_noise": "0"}))
    assert quiet.cell == "colored_mnist_10-5-noise-0"
    blue = np.flatnonzero(train.bias == 4)
    brightest = [int(own.source("colored_mnist_10").load_all(blue)[:, 0].max()) for own in (quiet, suite)]
    assert brightest[0] <= 255 * MEANS[4, 0] < brightest[1]
    with pytest.raises(UsageError, match=r"data.colour_noise=0: the images of 'figures' are not coloured here"):
        open_suite(resolve({"suite": "debiasing", "data.colour_noise": "0"}))
    make_mnist(tmp_path / "few", train=50)
    with pytest.raises(UsageError, match="at least 10 are needed"):
        ColoredMNIST10().parts(tmp_path / "few", DivisionRequest(None, 0, 28))


def test_a_colour_is_never_brighter_than_can_be_shown() -> None:
    white = np.full((2, 28, 28), 255, np.uint8)
    found = color_digits(white, np.array([0, 0]), np.array([[5.0, -5, 0], [0, 0, 0]]))
    assert found[0, :, 0, 0].tolist() == [255, 0, int(255 * 0.16857534646987915)]
    assert found[1, :, 0, 0].tolist() == [250, 79, 42]


# --- tables -----------------------------------------------------------------------------------------------------------

ROWS = [
    f"{split}/{label}_{bias}_{number}.png,{label},{split},{bias}"
    for split, count in (("train", 3), ("val", 1), ("test", 1))
    for label in ("cat", "dog")
    for bias in ("cat", "dog")
    for number in range(count if label == bias else 1)
]
HEAD = "image,class,split,bias"


def make_table(folder: Path, rows: list[str], head: str = HEAD, file: str = "metadata.csv") -> Path:
    """A folder with the table and its images."""
    for row in rows:
        path = folder / row.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 10), (len(row), 0, 0)).save(path)
    (folder / file).write_text("\n".join([head, *rows]) + "\n")
    return folder


def opened(data_dir: Path, train: str, **flags: Any) -> Any:
    return open_suite(resolve({"suite": "debiasing", "train": train, "data_dir": str(data_dir), **flags}))


def test_a_table_of_one_s_own(tmp_path: Path) -> None:
    folder = make_table(tmp_path / "My pets", ROWS)
    suite = opened(tmp_path, "My pets")
    train = suite.source("my_pets")
    assert (suite.classes, len(train), suite.cell) == (("cat", "dog"), 8, "my_pets-25")
    assert list(train.ids) == sorted(train.ids)
    for identifier, y, bias in zip(train.ids, train.y, train.bias, strict=True):
        assert identifier.startswith(f"train/{suite.classes[y]}_{suite.classes[bias]}")
    (folder / "metadata.csv").write_text("\n".join([HEAD, *reversed(ROWS)]))
    assert opened(tmp_path, "My pets").fingerprint == suite.fingerprint
    (folder / "metadata.csv").write_text(
        "\n".join([HEAD, *ROWS]).replace("cat_cat_1.png,cat,train,cat", "cat_cat_1.png,cat,train,dog")
    )
    assert opened(tmp_path, "My pets").fingerprint != suite.fingerprint
    with pytest.raises(
        UsageError, match=r"data.severity=5: of the training images of .*, 37.5 % conflict; leave it out"
    ):
        opened(tmp_path, "My pets", **{"data.severity": "5"})


WRONG: Mapping[str, tuple[str, str, str]] = {
    "split": ("train,cat", "trian,cat", r"line \d+: unknown split 'trian'; did you mean 'train'\?"),
    "file": ("train/cat_cat_0.png", "train/gone.png", "lacks 1 of the 16 images of its table: train/gone.png"),
    "twice": ("train/cat_cat_0.png", "train/cat_cat_1.png", "has the image 'train/cat_cat_1.png' twice"),
    "twice, in two spellings": ("test/cat_cat_0.png", "train//cat_cat_0.png", "the image 'train/cat_cat_0.png' twice"),
    "outside": ("train/cat_cat_0.png", "../x.png", "the path of an image below that folder, not 'cat' and '../x.png'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_table_that_is_wrong_is_refused_in_a_line(what: str, tmp_path: Path) -> None:
    folder = make_table(tmp_path / "pets", ROWS)
    old, new, message = WRONG[what]
    path = folder / "metadata.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as error:
        opened(tmp_path, "pets")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("is_hard", [False, True])
def test_a_link_to_an_image_of_another_part_is_refused(is_hard: bool, tmp_path: Path) -> None:
    folder = make_table(tmp_path / "pets", ROWS)
    for place in ("test/linked.png", "train/linked.png"):
        if is_hard:
            (folder / place).hardlink_to(folder / "train/cat_cat_0.png")
        else:
            (folder / place).symlink_to(folder / "train/cat_cat_0.png")
    table, rows = folder / "metadata.csv", (folder / "metadata.csv").read_text()
    table.write_text(f"{rows}train/linked.png,cat,train,cat\n")
    assert len(opened(tmp_path, "pets").source("pets")) == 9  # within a part one may be there more often
    table.write_text(f"{rows}test/linked.png,cat,test,cat\n")
    told = (
        r"metadata.csv: '(test/linked|train/cat_cat_0).png' and '.*' are one file, in (test|train) and in (test|train)"
    )
    with pytest.raises(UsageError, match=told):
        opened(tmp_path, "pets")


def test_validation_images_are_halved_by_group() -> None:
    """One more selects; the seed of the data draws, and nothing else changes."""
    wanted = DivisionRequest(20.0, 0, 16)
    whole = biased.DATA_SETS.make("figures", Path).parts(Path(), wanted)
    one, again, other = (biased.halve_validation(whole, seed) for seed in (0, 0, 1))
    assert one.validation_half is not None
    assert (one.train, one.test) == (whole.train, whole.test)
    assert list(one.validation.ids) == list(again.validation.ids) != list(other.validation.ids)
    assert sorted([*one.validation.ids, *one.validation_half.ids]) == sorted(whole.validation.ids)

    def sizes(source: Source) -> np.ndarray:
        assert source.bias is not None
        return np.bincount(source.y * len(source.classes) + source.bias, minlength=len(source.classes) ** 2)

    assert (sizes(one.validation) - sizes(one.validation_half)).tolist() == (sizes(whole.validation) % 2).tolist()
    assert one.listing().count(",validation_half,") == len(one.validation_half)
    unknown = biased.halve_validation(replace(whole, validation=replace(whole.validation, bias=None)), 0)
    assert unknown.validation_half is not None
    assert len(unknown.validation_half) == len(whole.validation) // 2


def test_waterbirds_as_released(tmp_path: Path) -> None:
    rows = [
        f"{number:03d}.Bird/{number}_{y}{place}{split}.jpg,{number},{y},{split},{place},/o/ocean.jpg"
        for number, (y, place, split) in enumerate(np.ndindex(2, 2, 3))
    ]
    head = "img_filename,img_id,y,split,place,place_filename"
    make_table(tmp_path / "waterbird_complete95_forest2water2", rows, head)
    suite = opened(tmp_path, "waterbirds")
    train = suite.source("waterbirds")
    assert (suite.classes, train.y.tolist(), train.bias.tolist()) == (
        ("landbird", "waterbird"),
        [0, 0, 1, 1],
        [0, 1, 0, 1],
    )
    assert suite.sets[0].source.roles["waterbird-conflicting"]["alignment"] == "conflicting"
    (difference,) = metadata_csv.Waterbirds().contents(tmp_path).differences
    assert difference == "12 images; the release has 11,788"


def test_celeba_as_released(tmp_path: Path) -> None:
    cases = list(np.ndindex(2, 2, 3))
    rows = [f"{number:06d}.jpg,{2 * blond - 1},{2 * male - 1}" for number, (blond, male, _) in enumerate(cases)]
    make_table(tmp_path / "celeba" / "img_align_celeba", rows)
    (tmp_path / "celeba" / "list_attr_celeba.csv").write_text("\n".join(["image_id,Blond_Hair,Male", *rows]))
    splits = [f"{number:06d}.jpg,{split}" for number, (_, _, split) in enumerate(cases)]
    partition = tmp_path / "celeba" / "list_eval_partition.csv"
    partition.write_text("\n".join(["image_id,partition", *splits]))
    suite = opened(tmp_path, "celeba")
    train = suite.source("celeba")
    assert (suite.classes, train.y.tolist()) == (("not_blond", "blond"), [0, 0, 1, 1])
    assert train.bias.tolist() == [1, 0, 1, 0]  # women's is blond
    partition.write_text("\n".join(["image_id,partition", *splits[1:]]))
    with pytest.raises(UsageError, match=r"has no line for '000000\.jpg'"):
        opened(tmp_path, "celeba")
