"""ImageNet and its subsets in the layouts in which people have them: found, labelled, refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from biasbed.data.folders import open_flat, open_folder
from biasbed.datasets import imagenet
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import UsageError
from helpers.commands import ROOT
from helpers.data_trees import JPEG, fill, refusal


@pytest.fixture(scope="session")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `val`: one image of each of ImageNet's classes. Not to be changed."""
    root = tmp_path_factory.mktemp("imagenet")
    return fill(root, *(f"val/{wnid}/{wnid}_1.JPEG" for wnid in imagenet_classes()), content=JPEG)


def test_class_lists_are_timm_s_and_those_of_the_vectors() -> None:
    from timm.data.imagenet_info import ImageNetInfo

    assert list(imagenet_classes()) == ImageNetInfo().label_names()
    vectors = np.load(ROOT / "tests" / "vectors" / "class_maps.npz")
    for subset in ("a", "r"):
        found = imagenet_classes(subset)
        assert list(found) == vectors[f"imagenet_{subset}_wnids"].tolist()
        indices = [imagenet_classes().index(wnid) for wnid in found]
        assert indices == sorted(vectors[f"imagenet_{subset}_indices"].tolist())


def test_imagenet_is_found_as_data_dir_itself_and_below_it(thousand: Path, tmp_path: Path) -> None:
    for place in ("ImageNet", "imagenet-1k", "ILSVRC2012", "ImageNet_1k", "ILSVRC/Data/CLS-LOC"):
        (tmp_path / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / place).symlink_to(thousand)
        source = imagenet.ImageNet().open(tmp_path / "data")
        assert source.root == tmp_path / "data" / place / "val"
        shutil.rmtree(tmp_path / "data")
    source = imagenet.ImageNet().open(thousand)
    assert source.classes == imagenet_classes()
    assert source.y.tolist() == list(range(1000))
    assert source.ids[999] == "n15075141/n15075141_1.JPEG"
    assert source.bias is None
    assert len(source.fingerprint()) == 16
    assert imagenet.ImageNet().layout(source.root) == "class folders by WordNet id"


@pytest.mark.parametrize(("data_set", "subset"), [(imagenet.ImageNetA(), "a"), (imagenet.ImageNetR(), "r")])
def test_subsets_are_labelled_by_place_in_their_own_list(data_set: DataSet, subset: str, tmp_path: Path) -> None:
    """With the README.txt that their archives hold, hidden files and what macOS leaves behind."""
    wnids = imagenet_classes(subset)
    folder = tmp_path / f"ImageNet-{subset.upper()}"
    fill(folder, *(f"{wnid}/{number}.jpg" for wnid in wnids for number in "21"), content=JPEG)
    fill(folder, "README.txt", ".DS_Store", f"{wnids[3]}/._1.jpg", f"{wnids[3]}/README.txt", "__MACOSX/1.jpg")
    source = data_set.open(tmp_path)
    assert source.y.tolist() == [label for label in range(200) for _ in range(2)]
    assert source.ids[:2] == [f"{wnids[0]}/1.jpg", f"{wnids[0]}/2.jpg"]


def test_unknown_and_missing_classes_are_named(thousand: Path, tmp_path: Path) -> None:
    shutil.copytree(thousand / "val", tmp_path / "val")
    shutil.rmtree(tmp_path / "val" / "n01440764")
    assert "1 of 1000 class folders missing: n01440764; was it unpacked to the end?" in refusal(
        imagenet.ImageNet(), tmp_path
    )
    fill(tmp_path, "val/n00000001/1.JPEG")
    message = refusal(imagenet.ImageNet(), tmp_path)
    assert "unknown class folders n00000001; 1 of 1000 class folders missing: n01440764" in message
    assert "unpacked" not in message


def test_images_in_nested_folders_and_broken_links_count(thousand: Path, tmp_path: Path) -> None:
    """The doctor reports unreadable files; the listing does not hide them."""
    shutil.copytree(thousand / "val", tmp_path / "val")
    fill(tmp_path, "val/n01440764/more/2.JPEG", content=JPEG)
    (tmp_path / "val" / "n01440764" / "gone.JPEG").symlink_to(tmp_path / "nowhere.JPEG")
    source = imagenet.ImageNet().open(tmp_path)
    expected = ["n01440764/gone.JPEG", "n01440764/more/2.JPEG", "n01440764/n01440764_1.JPEG"]
    assert source.ids[:3] == expected
    assert source.y[:4].tolist() == [0, 0, 0, 1]


@pytest.mark.real_data
def test_a_real_sample_of_imagenet_is_no_imagenet(shared: Path) -> None:
    message = refusal(imagenet.ImageNet(), shared / "data" / "imagenet-sample")
    assert "880 of 1000 class folders missing" in message
    assert "unknown" not in message


def test_a_link_that_leads_back_is_refused_in_every_listing(tmp_path: Path) -> None:
    """Followed, it would file every other class's images under the class that it lies in."""
    fill(tmp_path / "set", "a/1.png", "b/1.png")
    (tmp_path / "set" / "a" / "up").symlink_to("..")
    for opened in (lambda: open_folder(tmp_path / "set", "set"), lambda: open_flat(tmp_path / "set", "set")):
        with pytest.raises(UsageError, match="link to a folder above it"):
            opened()


def test_a_stylized_folder_is_not_taken_for_imagenet(thousand: Path, tmp_path: Path) -> None:
    shutil.copytree(thousand, tmp_path / "stylized-imagenet")
    assert imagenet.ImageNet().find(tmp_path / "stylized-imagenet") is None
    assert imagenet.ImageNet().find(thousand) is not None


# --- parts of ImageNet, and other images of its classes ---------------------------------------------------------------


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's validation images, one of each class, numbered by class from the last. Not to be changed."""
    root = tmp_path_factory.mktemp("imagenet")
    wnids = imagenet_classes()
    return fill(root, *(f"val/{wnid}/ILSVRC2012_val_{1000 - n:08}.JPEG" for n, wnid in enumerate(wnids)))


def test_v2_s_folders_are_numbers_and_no_words(tmp_path: Path) -> None:
    place = "ImageNetV2/imagenetv2-matched-frequency-format-val"
    fill(tmp_path, *(f"{place}/{number}/x{number}.jpeg" for number in range(1000)))
    source = imagenet.ImageNetV2().open(tmp_path)
    assert source.classes == imagenet_classes()
    assert [int(name.split("/")[0]) for name in source.ids] == source.y.tolist() == list(range(1000))


def test_200_classes_are_told_from_these_alone(val: Path) -> None:
    source = imagenet.ImageNet200().open(val)
    assert source.classes == imagenet_classes("r")
    assert [name.split("/")[0] for name in source.ids] == list(source.classes)
    assert source.y.tolist() == list(range(200))


def test_real_labels_are_by_the_number_in_the_image_s_name(val: Path, tmp_path: Path) -> None:
    (tmp_path / "val").symlink_to(val / "val")
    labels: list[list[int]] = [[999 - number] for number in range(1000)]  # by number of the image: its own class
    labels[0], labels[1] = [], [5, 998]  # images of the last class and of the one before
    (tmp_path / "real.json").write_text(json.dumps(labels))
    source = imagenet.ImageNetReaL().open(tmp_path)
    assert [name.split("/")[0] for name in source.ids] == list(imagenet_classes()[:999])
    assert source.accepted is not None
    assert np.flatnonzero(source.accepted[-1]).tolist() == [5, 998]
    assert np.array_equal(source.accepted[:-1].argmax(axis=1), np.arange(998))
    labels[3] = [7]
    (tmp_path / "real.json").write_text(json.dumps(labels))
    other = imagenet.ImageNetReaL().open(tmp_path)
    assert other.fingerprint() != source.fingerprint()
    (tmp_path / "real.json").write_text(json.dumps(labels[:10]))
    assert "is none of the 10 images" in refusal(imagenet.ImageNetReaL(), tmp_path)
    (tmp_path / "real.json").unlink()
    assert "'imagenet_real' is not in" in refusal(imagenet.ImageNetReaL(), tmp_path)
    assert "real.json is missing" in refusal(imagenet.ImageNetReaL(), tmp_path)


def test_blurry_images_are_told_from_all_classes_and_from_those_that_there_are(tmp_path: Path) -> None:
    wnids = imagenet_classes()[7::10]
    fill(tmp_path, *(f"blurry_images/{wnid}/{n}.jpg" for wnid in wnids for n in range(2)))
    whole, part = imagenet.RealBlurry().open(tmp_path), imagenet.RealBlurry100().open(tmp_path)
    assert (len(whole.classes), len(part.classes)) == (1000, 100)
    assert whole.ids == part.ids
    assert [whole.classes[y] for y in whole.y] == [part.classes[y] for y in part.y] == sorted(wnids * 2)
    fill(tmp_path, "blurry_images/zebra/1.jpg")
    assert "unknown class folders zebra" in refusal(imagenet.RealBlurry(), tmp_path)
