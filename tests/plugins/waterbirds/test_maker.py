"""Waterbirds, composed: counts, what follows from the seed, resumption, and what is refused."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed.data.decoding import open_file
from biasbed.datasets.metadata_csv import Waterbirds
from biasbed.errors import UsageError
from biasbed.plugins.waterbirds.birds import count_images, label_of
from biasbed.prepare import images
from biasbed.prepare.run import prepare
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve

# An eightieth of CUB's images of each class that train, and that test.
TRAINING, TEST = (58, 17), (56, 16)
SPECIES = ("001.Cardinal", "002.Eastern_Towhee")  # the latter counts as a waterbird
PLACES = ("b/bamboo_forest", "f/forest/broadleaf", "o/ocean", "l/lake/natural")


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)


def make_cub(folder: Path) -> None:
    """Red birds in the left half of 12 x 10 pixels; images as JPEG, masks as PNG."""
    lists: dict[str, list[str]] = {"images.txt": [], "train_test_split.txt": [], "image_class_labels.txt": []}
    number = 0
    mask = np.zeros((10, 12), np.uint8)
    mask[:, :6] = 255
    for is_training, counts in ((1, TRAINING), (0, TEST)):
        for label, count in enumerate(counts):
            for _ in range(count):
                number += 1
                name = f"{SPECIES[label]}/{number:04d}"
                write(folder / "images" / f"{name}.jpg", np.full((10, 12, 3), (200, number % 200, 0), np.uint8))
                write(folder / "segmentations" / f"{name}.png", mask)
                lists["images.txt"].append(f"{number} {name}.jpg")
                lists["train_test_split.txt"].append(f"{number} {is_training}")
                lists["image_class_labels.txt"].append(f"{number} {label + 1}")
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")


def make_places(folder: Path, each: int = 55) -> None:
    """Land is green, water blue; no two are alike."""
    for at, place in enumerate(PLACES):
        for number in range(each):
            colour = (0, 250, number) if at < 2 else (0, number, 250)
            write(folder / place / f"{number:08d}.jpg", np.full((9 + number % 7, 16, 3), colour, np.uint8))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    root = tmp_path_factory.mktemp("released")
    make_cub(root / "CUB_200_2011")
    make_places(root / "places365")
    return root


@pytest.fixture
def data_dir(released: Path, tmp_path: Path) -> Path:
    root = tmp_path / "data"
    shutil.copytree(released, root)
    return root


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)


Compose = Callable[..., Path]


@pytest.fixture
def compose(data_dir: Path) -> Compose:
    def composed(severity: float = 20, **flags: Any) -> Path:
        words = {"what": "waterbirds", "suite": "debiasing", "data_dir": str(data_dir), "processes": 1, **flags}
        made = prepare({"data.severity": str(severity), **words})
        assert made is not None
        return made

    return composed


def opened(data_dir: Path, severity: float = 20, **flags: Any) -> Any:
    given = {"suite": "debiasing", "train": "waterbirds_ac", "data_dir": str(data_dir), **flags}
    return open_suite(resolve({"data.severity": str(severity), **given}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.[jcp][psn][gv]"))}


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metadata.csv").read_text().splitlines()))


# Of training and of validation images, how many are aligned and how many conflict: Lim et al.'s table 8.
PUBLISHED = {0.5: (4771, 24, 1193, 6), 1: (4747, 48, 1187, 12), 2: (4699, 96, 1175, 24)}
PUBLISHED |= {5: (4555, 240, 1139, 60), 20: (3836, 959, 959, 240)}


@pytest.mark.parametrize("severity", PUBLISHED)
def test_the_published_counts(severity: float) -> None:
    train, validation, test = count_images((4615, 1379), (4510, 1284), severity).values()
    assert (*np.sum(train, axis=0), *np.sum(validation, axis=0)) == PUBLISHED[severity]
    assert [sum(images) for images in (*train, *validation)] == [3682, 1113, 933, 266]
    assert test == [(2255, 2255), (642, 642)]
    if severity == 5:  # the authors' own training images
        assert [*train[0], *train[1]] == [3498, 184, 1057, 56]


def test_species_by_their_names() -> None:
    water = ("146.Forsters_Tern", "086.Pacific_Loon", "021.Eastern_Towhee", "088.Western_Meadowlark")
    land = ("017.Cardinal", "029.American_Crow", "183.Northern_Waterthrush")
    assert [label_of(f"{name}/1.jpg") for name in (*water, "102.Western_Wood_Pewee", *land)] == [1] * 5 + [0] * 3


def test_a_composition_is_read(compose: Compose, data_dir: Path) -> None:
    folder = compose()
    assert folder == data_dir / "waterbirds_ac" / "20pct-seed-0"
    suite = opened(data_dir)
    assert (suite.cell, suite.classes) == ("waterbirds_ac-20", ("landbird", "waterbird"))
    found = [suite.source("waterbirds_ac"), suite.validation[0].source, suite.sets[0].source]
    cells = [np.bincount(2 * source.y + source.bias, minlength=4).tolist() for source in found]
    assert cells == [[37, 9, 3, 11], [10, 2, 1, 2], [28, 28, 8, 8]]
    assert suite.bias_type == Waterbirds.bias_type
    assert suite.provides(["waterbirds_ac"]) == {"bias", "bias_type", "validation_bias"}
    rows = table(folder)
    assert len({row["place_filename"] for row in rows}) == len(rows) == 147
    assert list(rows[0]) == ["img_id", "img_filename", "y", "split", "place", "place_filename"]
    assert suite.files["images.csv"].count("\n") == 148


def test_birds_stand_before_their_places(compose: Compose, data_dir: Path) -> None:
    folder = compose(format="png")
    for row in table(folder)[::20]:
        pixels = np.asarray(Image.open(folder / row["img_filename"]))
        bird = data_dir / "CUB_200_2011" / "images" / row["img_filename"].replace(".png", ".jpg")
        assert pixels.shape == (10, 12, 3)
        assert np.array_equal(pixels[:, :6], open_file(bird).pixels().permute(1, 2, 0)[:, :6])
        place = open_file(data_dir / "places365" / row["place_filename"][1:]).pixels()
        assert np.abs(pixels[:, 6:] - place[:, 0, 0].numpy().astype(int)).max() <= 1
        assert (row["place_filename"].split("/")[1] in "bf") == (row["place"] == "0")


def test_all_follows_from_the_data_s_seed(compose: Compose, tmp_path: Path, data_dir: Path) -> None:
    folder = compose()
    shutil.copytree(folder, tmp_path / "first")
    shutil.rmtree(folder)
    assert contents(compose(seed=5)) == contents(tmp_path / "first")
    rows, other, more = table(folder), table(compose(**{"data.seed": 1})), table(compose(40))
    counts = [Counter((row["y"], row["split"], row["place"]) for row in of) for of in (rows, other)]
    assert counts[0] == counts[1]
    for column in ("split", "place", "place_filename"):
        assert [row[column] for row in rows] != [row[column] for row in other]
    assert [row["split"] for row in rows] == [row["split"] for row in more]
    assert [row for row in rows if row["split"] == "2"] == [row for row in more if row["split"] == "2"]
    conflicting = [{row["img_id"] for row in of if row["y"] != row["place"]} for of in (rows, more)]
    assert conflicting[0] < conflicting[1]
    assert opened(data_dir).fingerprint != opened(data_dir, **{"data.seed": "1"}).fingerprint


def test_a_composition_that_was_cut_off_goes_on(
    compose: Compose, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    whole = contents(shutil.copytree(compose(), tmp_path / "whole"))
    folder = data_dir / "waterbirds_ac" / "20pct-seed-0"
    shutil.rmtree(folder)
    real, made = images.save_image, []

    def interrupted(path: Path, image: Any) -> None:
        if len(made) == 60:
            raise KeyboardInterrupt
        made.append(path)
        real(path, image)

    with monkeypatch.context() as patch:
        patch.setattr(images, "save_image", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compose()
    with pytest.raises(UsageError, match=r"data.seed=0 is begun, but not complete: biasbed prepare --what waterbirds"):
        opened(data_dir)
    times = {path: path.stat().st_mtime_ns for path in made}
    compose()
    assert contents(folder) == whole
    assert {path: path.stat().st_mtime_ns for path in made} == times
    compose()
    assert "is complete already: 147 images" in capsys.readouterr().err


def test_other_settings_are_not_mixed(compose: Compose, data_dir: Path) -> None:
    folder = compose()
    with pytest.raises(UsageError, match=r"was made with format=jpg: overwrite=true makes it anew$"):
        compose(format="png")
    make_places(data_dir / "places365", 56)
    with pytest.raises(UsageError, match="was made with places="):
        compose()
    compose(format="png", overwrite=True)
    assert not list(folder.rglob("*.jpg"))
    (folder / "manifest.json").unlink()
    with pytest.raises(UsageError, match="nothing in it says how it was made: move it away"):
        compose()
    assert len(list(folder.rglob("*.png"))) == 147


def test_a_renamed_composition_is_not_believed(compose: Compose, data_dir: Path) -> None:
    folder = compose()
    other = folder.rename(folder.with_name("5pct-seed-0"))
    with pytest.raises(UsageError, match=r"says that it was composed for data\.severity=20\.0 and data\.seed=0"):
        opened(data_dir, severity=5)
    (other / "manifest.json").unlink()  # somebody else's, of which the name is all there is
    assert opened(data_dir, severity=5).cell == "waterbirds_ac-5"
