"""Waterbirds, composed: counts, what follows from the seed, resumption, and what is refused."""

from __future__ import annotations

import csv
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed import cli
from biasbed.data.decoding import open_file
from biasbed.datasets.metadata_csv import Waterbirds
from biasbed.datasets.waterbirds import ComposedWaterbirds
from biasbed.errors import Failure, UsageError
from biasbed.prepare import images
from biasbed.prepare.birds import label_of, numbers
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
    train, validation, test = numbers((4615, 1379), (4510, 1284), severity).values()
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
    real, made = images.write, []

    def interrupted(path: Path, image: Any) -> None:
        if len(made) == 60:
            raise KeyboardInterrupt
        made.append(path)
        real(path, image)

    with monkeypatch.context() as patch:
        patch.setattr(images, "write", interrupted)
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


@pytest.mark.slow
def test_the_processes_change_nothing(compose: Compose, tmp_path: Path) -> None:
    folder = compose(processes=2)
    shutil.copytree(folder, tmp_path / "two")
    shutil.rmtree(folder)
    assert contents(compose()) == contents(tmp_path / "two")


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


def test_too_few_images(compose: Compose, data_dir: Path) -> None:
    # 37 + 10 + 3 + 1 + 36 before land, 11 + 2 + 9 + 2 + 36 before water
    shutil.rmtree(data_dir / "places365")
    make_places(data_dir / "places365", 40)
    message = (
        "'waterbirds_ac at 20 %': 80 land (bamboo_forest and forest/broadleaf) images where 87 are needed, 7 short"
    )
    with pytest.raises(UsageError, match=re.escape(message) + "$"):
        compose()
    message = "'waterbirds_ac at 5 %': 0 conflicting validation waterbird images where 1 are needed, 1 short"
    with pytest.raises(UsageError, match=re.escape(message) + "$"):
        compose(5)
    assert not (data_dir / "waterbirds_ac").exists()


def test_what_is_missing_is_named(compose: Compose, data_dir: Path) -> None:
    cub, places = data_dir / "CUB_200_2011", data_dir / "places365"
    mask = cub / "segmentations" / SPECIES[0] / "0001.png"
    mask.rename(data_dir / "kept.png")
    with pytest.raises(UsageError, match=r"lacks 1 of the 147 birds' segmentations: 001.Cardinal/0001.png$"):
        compose()
    (data_dir / "kept.png").rename(mask)
    (cub / "segmentations").rename(data_dir / "masks")
    with pytest.raises(UsageError, match=r"there are no segmentations of the birds in .*CUB_200_2011: expected the f"):
        compose()
    (data_dir / "masks").rename(data_dir / "segmentations")  # beside it, as its archive is unpacked
    (places / "l" / "lake" / "natural").rename(data_dir / "lake")
    with pytest.raises(UsageError, match="no folder of the category lake/natural: looked for l/lake/natural, lake-nat"):
        compose()
    (data_dir / "lake").rename(places / "lake-natural")
    compose()
    shutil.rmtree(places)
    with pytest.raises(UsageError, match=r"'places365' is not in .*: expected places365 \(or"):
        compose(40)
    with pytest.raises(UsageError, match=r"places=/no/such: 'places365' is not there"):
        compose(40, places="/no/such")
    cub.rename(data_dir / "birds")
    with pytest.raises(UsageError, match="'cub' is not in"):
        compose(40)


def test_folders_elsewhere(compose: Compose, data_dir: Path, tmp_path: Path) -> None:
    (data_dir / "CUB_200_2011").rename(tmp_path / "mine")
    (data_dir / "places365").rename(tmp_path / "scenes")
    folder = compose(cub=str(tmp_path / "mine"), places=str(tmp_path / "scenes"))
    assert len(table(folder)) == 147


def test_images_that_can_not_be_used(compose: Compose, data_dir: Path) -> None:
    cub = data_dir / "CUB_200_2011"
    bird, mask = cub / "images" / SPECIES[0] / "0003.jpg", cub / "segmentations" / SPECIES[1] / "0060.png"
    write(mask, np.zeros((10, 11), np.uint8))
    with pytest.raises(Failure, match=r"the segmentation .*/0060.png is 11 x 10 pixels large, its bird 12 x 10; corr"):
        compose()
    bird.write_bytes(bird.read_bytes()[:20])
    with pytest.raises(Failure, match=r"can't read the image .*0003.jpg: .* \(and 1 more\); corrupt=skip goes on"):
        compose(overwrite=True)
    folder = compose(corrupt="skip")
    assert len(table(folder)) == 145


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("images.txt", "1 001.Cardinal/1.jpg", "line 148: expected a new image's number and a word, not '1 001.C"),
        ("images.txt", "148", "line 148: expected a new image's number and a word, not '148'"),
        ("images.txt", "148 001.Cardinal/1.jpg", "images.txt and train_test_split.txt don't number the same images"),
        ("train_test_split.txt", "x 1", "line 148: expected a new image's number"),
    ],
)
def test_lists_that_do_not_fit(compose: Compose, data_dir: Path, name: str, line: str, message: str) -> None:
    path = data_dir / "CUB_200_2011" / name
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UsageError, match=re.escape(message)):
        compose()


def test_for_its_suite_alone(compose: Compose, released: Path) -> None:
    with pytest.raises(UsageError, match="composes train=waterbirds_ac of suite=debiasing, no other"):
        compose(train="figures")
    with pytest.raises(UsageError, match="composes train=waterbirds_ac of suite=debiasing, no other"):
        prepare({"what": "waterbirds", "suite": "demo"})
    with pytest.raises(UsageError, match=r"'waterbirds_ac' of data.severity=2 and data.seed=3 is not there: biasbed "):
        opened(released, 2, **{"data.seed": "3"})


def test_the_doctor_counts_by_cell(compose: Compose, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compose()
    compose(40)
    (compose(30) / "metadata.csv").unlink()
    words = ["prepare", "--what", "check", "--suite", "debiasing", "--data_dir", str(data_dir)]
    assert cli.main([*words, "--train", "waterbirds_ac"]) == 1
    printed = capsys.readouterr().out
    assert re.search(
        r"^waterbirds_ac +waterbirds_ac +folders by severity and seed +294 / any +2 / 2 +0 ", printed, re.M
    )
    assert "waterbirds_ac: 20pct-seed-0 has 147 images; CUB-200-2011 has 11,788" in printed
    assert "waterbirds_ac: 30pct-seed-0 is begun, but not complete" in printed
    assert (
        "train of 20pct-seed-0 has 37 landbird aligned, 9 landbird conflicting, 11 waterbird aligned, 3 waterbird con"
    ) in printed
    folder = data_dir / "waterbirds_ac" / "40pct-seed-0"
    rows = (folder / "metadata.csv").read_text().replace(",2,", ",3,")
    (folder / "metadata.csv").write_text(rows)
    with pytest.raises(UsageError, match="unknown split '3'"):
        ComposedWaterbirds().contents(data_dir)


def test_a_training(compose: Compose, data_dir: Path) -> None:
    compose()
    words = ["--suite", "debiasing", "--train", "waterbirds_ac", "--data_dir", str(data_dir), "--data.severity", "20"]
    small = ["--image_size", "16", "--backbone", "resnet10", "--epochs", "1", "--batch_size", "20", "--workers", "0"]
    more = ["--device", "cpu", "--tracking", "offline", "--algorithm", "end", "--augment.padding", "0"]
    assert cli.main(["train", *words, *small, *more]) == 0
