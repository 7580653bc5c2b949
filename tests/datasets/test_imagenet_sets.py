"""Sets of ImageNet's classes beside ImageNet: numbered folders, several right labels, a part of the classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.imagenet import ImageNet200, ImageNetReaL, ImageNetV2, RealBlurry, RealBlurry100
from biasbed.errors import UsageError


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def refusal(data: DataSet, root: Path) -> str:
    with pytest.raises(UsageError) as caught:
        data.open(root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's validation images, one of each class, numbered by class from the last. Not to be changed."""
    root = tmp_path_factory.mktemp("imagenet")
    wnids = imagenet_classes()
    return fill(root, *(f"val/{wnid}/ILSVRC2012_val_{1000 - n:08}.JPEG" for n, wnid in enumerate(wnids)))


def test_v2_s_folders_are_numbers_and_no_words(tmp_path: Path) -> None:
    place = "ImageNetV2/imagenetv2-matched-frequency-format-val"
    fill(tmp_path, *(f"{place}/{number}/x{number}.jpeg" for number in range(1000)))
    source = ImageNetV2().open(tmp_path)
    assert source.classes == imagenet_classes()
    assert [int(name.split("/")[0]) for name in source.ids] == source.y.tolist() == list(range(1000))


def test_200_classes_are_told_from_these_alone(val: Path) -> None:
    source = ImageNet200().open(val)
    assert source.classes == imagenet_classes("r")
    assert [name.split("/")[0] for name in source.ids] == list(source.classes)
    assert source.y.tolist() == list(range(200))


def test_real_labels_are_by_the_number_in_the_image_s_name(val: Path, tmp_path: Path) -> None:
    (tmp_path / "val").symlink_to(val / "val")
    labels: list[list[int]] = [[999 - number] for number in range(1000)]  # by number of the image: its own class
    labels[0], labels[1] = [], [5, 998]  # images of the last class and of the one before
    (tmp_path / "real.json").write_text(json.dumps(labels))
    source = ImageNetReaL().open(tmp_path)
    assert [name.split("/")[0] for name in source.ids] == list(imagenet_classes()[:999])
    assert source.accepted is not None
    assert np.flatnonzero(source.accepted[-1]).tolist() == [5, 998]
    assert np.array_equal(source.accepted[:-1].argmax(axis=1), np.arange(998))
    labels[3] = [7]
    (tmp_path / "real.json").write_text(json.dumps(labels))
    other = ImageNetReaL().open(tmp_path)
    assert other.fingerprint() != source.fingerprint()
    (tmp_path / "real.json").write_text(json.dumps(labels[:10]))
    assert "is none of the 10 images" in refusal(ImageNetReaL(), tmp_path)
    (tmp_path / "real.json").write_text(json.dumps([[1000]]))
    assert "expected a list with the labels, 0 to 999" in refusal(ImageNetReaL(), tmp_path)
    (tmp_path / "real.json").write_text("[[1")
    assert "real.json: it is no JSON" in refusal(ImageNetReaL(), tmp_path)
    (tmp_path / "real.json").unlink()
    assert "'imagenet_real' is not in" in refusal(ImageNetReaL(), tmp_path)
    assert "real.json is missing" in refusal(ImageNetReaL(), tmp_path)


def test_blurry_images_are_told_from_all_classes_and_from_those_that_there_are(tmp_path: Path) -> None:
    wnids = imagenet_classes()[7::10]
    fill(tmp_path, *(f"blurry_images/{wnid}/{n}.jpg" for wnid in wnids for n in range(2)))
    whole, part = RealBlurry().open(tmp_path), RealBlurry100().open(tmp_path)
    assert (len(whole.classes), len(part.classes)) == (1000, 100)
    assert whole.ids == part.ids
    assert [whole.classes[y] for y in whole.y] == [part.classes[y] for y in part.y] == sorted(wnids * 2)
    fill(tmp_path, "blurry_images/zebra/1.jpg")
    assert "unknown class folders zebra" in refusal(RealBlurry(), tmp_path)
