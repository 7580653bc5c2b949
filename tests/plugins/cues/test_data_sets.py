"""Sets that tell which cue a model uses: their layouts, classes and annotations, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from biasbed.data.names import number_photographs, without_condition
from biasbed.datasets.classes import _RANGES, CATEGORIES_16, expand_ranges, imagenet_classes
from biasbed.errors import MissingData
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.cues import cue_profile, data_sets
from biasbed.plugins.cues.classes import FACTORS
from biasbed.plugins.cues.data_sets import ImageNet9, ImageNetW, ImageNetX, LaionC, MixedRand, RefinedShape
from biasbed.plugins.cues.derivations import derive
from helpers.commands import ROOT
from helpers.data_trees import refusal
from helpers.shortcut_trees import (
    IN9,
    make_annotations,
    make_font,
    make_imagenet,
    make_in9,
    make_laion_c,
    make_refined,
)

VECTORS = json.loads((ROOT / "tests/vectors/imagenet_x.json").read_text())


# --- ImageNet-9 -------------------------------------------------------------------------------------------------------


def test_imagenet_9(tmp_path: Path) -> None:
    make_in9(tmp_path)
    source = MixedRand().open(tmp_path)
    assert source.root == tmp_path / "bg_challenge/mixed_rand/val"
    assert source.classes[2] == "02_wheeled vehicle"
    assert np.bincount(source.y).tolist() == [2] * 9
    outputs = ImageNet9().outputs(tmp_path)
    assert {position: label for label, group in enumerate(outputs) for position in group} == IN9
    assert MixedRand().contents(tmp_path).differences == ("18 images; the release has 4,050",)


def test_imagenet_9_needs_the_map_of_its_release(tmp_path: Path) -> None:
    folder = make_in9(tmp_path)
    (folder / data_sets.IN9_MAP).unlink()
    assert ImageNet9().find(tmp_path) is None
    with pytest.raises(MissingData, match=r"needs in_to_in9.json.*put it into .*bg_challenge; where to get it: https:"):
        ImageNet9().open(tmp_path)
    shutil.rmtree(folder)
    assert "'imagenet_9' is not in" in ImageNet9().describe_missing(tmp_path)


# --- ImageNet-W -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's validation images, one of each class. Not to be changed but for what is beside them."""
    root = tmp_path_factory.mktemp("data")
    make_imagenet(root)
    return root


def test_imagenet_w_is_imagenet_with_a_font(imagenet: Path) -> None:
    with pytest.raises(
        MissingData, match=rf"'imagenet_w' draws a watermark in a font that is not in .*{data_sets.FONT}"
    ):
        ImageNetW().open(imagenet)
    font = make_font(imagenet / "imagenet_w" / data_sets.FONT)
    source = ImageNetW().open(imagenet)
    assert (source.name, len(source), source.font) == ("imagenet_w", 1000, font)
    assert source.bias is not None
    assert {source.classes[label] for label in source.bias} == {"n02971356"}
    before = source.fingerprint()
    make_font(font, "\u6377\u5f84a")  # another file of the name
    assert ImageNetW().open(imagenet).fingerprint() != before
    font.unlink()


# --- ImageNet-X -------------------------------------------------------------------------------------------------------


def rows_of(names: list[str]) -> list[dict[str, object]]:
    """Return annotations of one image of each class; the last two images have none."""
    rows: list[dict[str, object]] = []
    for label, name in enumerate(names[:-2]):
        rows.append({"file_name": name, "class": label, "factor": FACTORS[label % 16] if label % 50 else ""})
    return rows


def test_imagenet_x_groups_images_by_their_factor(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_sets, "PACKAGE", "no_such_package")
    assert "pip install imagenet-x, or put" in ImageNetX().describe_missing(imagenet)
    names = [f"ILSVRC2012_val_{label + 1:08}.JPEG" for label in range(1000)]
    folder = make_annotations(imagenet / "imagenet_x", rows_of(names), prototypes=[names[3], names[4]])
    source = ImageNetX().open(imagenet)
    assert len(source) == 1000 - 2 - 2
    assert source.group is not None
    for row in (0, 1, 17, 400):
        label = int(source.y[row])
        assert source.group[row] == (FACTORS[label % 16] if label % 50 else "none")
    assert 3 not in source.y
    make_annotations(folder, [{"file_name": names[0], "class": 7, "factor": "pose"}])
    data_sets.read_factors.cache_clear()
    assert f"{names[0]} is in class 0, and {folder / data_sets.ANNOTATIONS} says 7" in refusal(ImageNetX(), imagenet)
    shutil.rmtree(folder)
    data_sets.read_factors.cache_clear()


def factor_decisions(label: list[int], decision: list[int], factor: list[str]) -> Decisions:
    classes = imagenet_classes()
    return Decisions(
        *("model", "imagenet_x", [f"{row}.JPEG" for row in range(len(label))]),
        [classes[number] for number in label],
        [classes[number] for number in decision],
        classes,
        group=[name or "none" for name in factor],
        label_map="identity",
    )


def test_factor_ratios_equal_the_package_s_on_made_decisions() -> None:
    decisions = factor_decisions(VECTORS["label"], VECTORS["decision"], VECTORS["factor"])
    rows = cue_profile.profile([decisions], list(derive({"imagenet_x": FACTORS})))
    ratios = {row.measure.removeprefix("error_ratio_"): row.value for row in rows}
    assert ratios == pytest.approx(VECTORS["error_ratio"], abs=1e-12)
    assert decisions.right.mean() == pytest.approx(VECTORS["average"])


def test_annotations_of_the_package() -> None:
    package = pytest.importorskip("imagenet_x", reason="imagenet-x is not installed")
    theirs = package.load_annotations()
    ours = data_sets.read_factors(Path(package.__file__).parent / "annotations")
    assert len(ours) == len(theirs) == 46_110
    for row in theirs.iloc[::97].to_dict("records"):
        chosen = [factor for factor in FACTORS if row[factor]]
        assert ours[row["file_name"]] == (row["class"], chosen[0] if chosen else "none")


# --- REFINED-BIAS -----------------------------------------------------------------------------------------------------


def test_refined_bias(tmp_path: Path) -> None:
    make_refined(tmp_path)
    source = RefinedShape().open(tmp_path)
    assert source.classes == tuple(sorted(source.classes))
    assert np.bincount(source.y).tolist() == [2] * 10
    members = dict(zip(source.classes, RefinedShape().outputs(tmp_path), strict=True))
    assert members["clock"] == (530, 409, 892)
    assert members["soccer_ball"] == (805,)
    shutil.rmtree(tmp_path / "refined_bias_shape/book")
    assert "1 of 10 class folders missing: book; was it unpacked to the end?" in refusal(RefinedShape(), tmp_path)


# --- LAION-C ----------------------------------------------------------------------------------------------------------


def test_laion_c(tmp_path: Path) -> None:
    make_laion_c(tmp_path)
    source = LaionC().open(tmp_path)
    assert len(source.conditions) == 30
    assert (source.conditions[0], source.conditions[-1]) == ("geometric_shapes-1", "vertical_lines-5")
    assert len(source) == 30 * 16
    assert source.condition is not None
    # The views of one photograph are known, although distortion and intensity are in each one's name.
    numbers = number_photographs(source.ids, [source.conditions[condition] for condition in source.condition])
    assert np.bincount(numbers).tolist() == [30] * 16
    outputs = dict(zip(source.classes, LaionC().outputs(tmp_path), strict=True))
    for name in ("bird", "bottle", "cat", "dog"):  # as Geirhos et al. have them
        assert outputs[name] == tuple(sorted(expand_ranges(_RANGES[name])))
    assert set(outputs) - set(CATEGORIES_16) >= {"primate", "tools"}
    everything = [position for group in outputs.values() for position in group]
    assert len(everything) == len(set(everything)) == 285


@pytest.mark.parametrize(
    ("name", "condition", "photograph"),
    [
        ("cat/a_mosaic_3.JPEG", "mosaic-3", "cat/a.JPEG"),
        ("a_vertical_lines_5.jpg", "vertical_lines-5", "a.jpg"),
        ("a_mosaic_3.JPEG", "mosaic-2", "a_mosaic_3.JPEG"),
        ("ILSVRC2012_val_00000003.JPEG", "fog-3", "ILSVRC2012_val_00000003.JPEG"),
    ],
)
def test_name_of_a_photograph(name: str, condition: str, photograph: str) -> None:
    assert without_condition(name, condition) == photograph
