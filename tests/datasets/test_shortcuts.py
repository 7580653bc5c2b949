"""Sets that tell which cue a model uses: their layouts, classes and annotations, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from biasbed import measures
from biasbed.data.names import photographs, without_condition
from biasbed.datasets import shortcuts
from biasbed.datasets.classes import _RANGES, CATEGORIES_16, expand_ranges, imagenet_classes
from biasbed.datasets.corruption_benchmarks import conditions
from biasbed.datasets.known_sets import FACTORS, UNKNOWN, known_sets
from biasbed.datasets.shortcuts import ImageNet9, ImageNetW, ImageNetX, LaionC, MixedRand, RefinedShape
from biasbed.errors import MissingData, UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.suites import cue_values, robustness
from biasbed.suites.biasbed import TEST_SETS
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
    (folder / shortcuts.IN9_MAP).unlink()
    assert ImageNet9().find(tmp_path) is None
    with pytest.raises(MissingData, match=r"needs in_to_in9.json.*put it into .*bg_challenge; where to get it: https:"):
        ImageNet9().open(tmp_path)
    shutil.rmtree(folder)
    assert "'imagenet_9' is not in" in ImageNet9().missing(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is no JSON; get it again"),
        ("[0, 1]", "expected a class, -1 to 8"),
        ('{"0": 9}', "expected a class, -1 to 8"),
        ('{"0": true}', "expected a class, -1 to 8"),
        ('{"0": 0}', "gives no ImageNet class to 01_bird"),
    ],
)
def test_damaged_map_of_imagenet_9(tmp_path: Path, content: str, message: str) -> None:
    (make_in9(tmp_path) / shortcuts.IN9_MAP).write_text(content)
    with pytest.raises(UsageError, match=message):
        ImageNet9().outputs(tmp_path)


def test_imagenet_9_refuses_other_folders(tmp_path: Path) -> None:
    folder = make_in9(tmp_path) / "original/val"
    (folder / "00_dog").rename(folder / "dog")
    assert "unknown class folders dog; 1 of 9 class folders missing: 00_dog" in refusal(ImageNet9(), tmp_path)


# --- ImageNet-W -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's validation images, one of each class. Not to be changed but for what is beside them."""
    root = tmp_path_factory.mktemp("data")
    make_imagenet(root)
    return root


def test_imagenet_w_is_imagenet_with_a_font(imagenet: Path) -> None:
    with pytest.raises(
        MissingData, match=rf"'imagenet_w' draws a watermark in a font that is not in .*{shortcuts.FONT}"
    ):
        ImageNetW().open(imagenet)
    font = make_font(imagenet / "imagenet_w" / shortcuts.FONT)
    source = ImageNetW().open(imagenet)
    assert (source.name, len(source), source.font) == ("imagenet_w", 1000, font)
    assert source.bias is not None
    assert {source.classes[label] for label in source.bias} == {"n02971356"}
    before = source.fingerprint()
    make_font(font, "\u6377\u5f84a")  # another file of the name
    assert ImageNetW().open(imagenet).fingerprint() != before
    font.unlink()


def test_imagenet_w_and_x_need_imagenet(tmp_path: Path) -> None:
    for data in (ImageNetW(), ImageNetX()):
        assert data.missing(tmp_path).startswith(f"'{data.name}' is not in {tmp_path}: expected imagenet/val")


# --- ImageNet-X -------------------------------------------------------------------------------------------------------


def rows_of(names: list[str]) -> list[dict[str, object]]:
    """Return annotations of one image of each class; the last two images have none."""
    rows: list[dict[str, object]] = []
    for label, name in enumerate(names[:-2]):
        rows.append({"file_name": name, "class": label, "factor": FACTORS[label % 16] if label % 50 else ""})
    return rows


def test_imagenet_x_groups_images_by_their_factor(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "PACKAGE", "no_such_package")
    assert "pip install imagenet-x, or put" in ImageNetX().missing(imagenet)
    names = [f"ILSVRC2012_val_{label + 1:08}.JPEG" for label in range(1000)]
    folder = make_annotations(imagenet / "imagenet_x", rows_of(names), prototypes=[names[3], names[4]])
    source = ImageNetX().open(imagenet)
    assert len(source) == 1000 - 2 - 2
    assert source.group is not None
    for row in (0, 1, 17, 400):
        label = int(source.y[row])
        assert source.group[row] == (FACTORS[label % 16] if label % 50 else "none")
    assert 3 not in source.y
    # A factor of another class's image, and an annotation that is cut off, are refused.
    make_annotations(folder, [{"file_name": names[0], "class": 7, "factor": "pose"}])
    shortcuts.read_factors.cache_clear()
    assert f"{names[0]} is in class 0, and {folder / shortcuts.ANNOTATIONS} says 7" in refusal(ImageNetX(), imagenet)
    path = folder / shortcuts.ANNOTATIONS
    path.write_text(path.read_text()[:80] + "\n")
    shortcuts.read_factors.cache_clear()
    assert f"{path}, line 1: no annotation with the 16 factors" in refusal(ImageNetX(), imagenet)
    values = {"file_name": names[0], "class": 0, **dict.fromkeys(FACTORS, 0), "pose": 1, "style": 1}
    path.write_text(json.dumps(values) + "\n")
    shortcuts.read_factors.cache_clear()
    assert "has 2 top factors: is this the file of all?" in refusal(ImageNetX(), imagenet)
    make_annotations(folder, [{"file_name": "elsewhere.JPEG", "class": 0, "factor": "pose"}])
    shortcuts.read_factors.cache_clear()
    assert "none of its images is annotated" in refusal(ImageNetX(), imagenet)
    shutil.rmtree(folder)
    shortcuts.read_factors.cache_clear()


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
    cue_profile = pytest.importorskip("biasbed.plugins.cues.cue_profile")
    decisions = factor_decisions(VECTORS["label"], VECTORS["decision"], VECTORS["factor"])
    rows = cue_profile.profile([decisions], list(cue_values.derivations({"imagenet_x": FACTORS})))
    ratios = {row.measure.removeprefix("error_ratio_"): row.value for row in rows}
    assert ratios == pytest.approx(VECTORS["error_ratio"], abs=1e-12)
    assert decisions.right.mean() == pytest.approx(VECTORS["average"])


def test_vectors_are_those_of_the_package() -> None:
    package = pytest.importorskip("imagenet_x", reason="imagenet-x is not installed")
    import pandas as pd

    frame = pd.DataFrame({"model": "made", "class": VECTORS["label"], "predicted_class": VECTORS["decision"]})
    frame["is_correct"] = frame["class"] == frame["predicted_class"]
    for factor in FACTORS:
        frame[factor] = [int(name == factor) for name in VECTORS["factor"]]
    assert list(FACTORS) == list(package.FACTORS)
    accuracies = package.compute_factor_accuracies(frame, package.FACTORS)
    ratios = package.error_ratio(accuracies).iloc[0].to_dict()
    assert ratios == pytest.approx(VECTORS["error_ratio"], abs=1e-12)


def test_annotations_of_the_package() -> None:
    package = pytest.importorskip("imagenet_x", reason="imagenet-x is not installed")
    theirs = package.load_annotations()
    ours = shortcuts.read_factors(Path(package.__file__).parent / "annotations")
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
    assert source.shown is not None
    # The views of one photograph are known, although distortion and intensity are in each one's name.
    numbers = photographs(source.ids, source.shown.tolist())
    assert np.bincount(numbers).tolist() == [30] * 16
    outputs = dict(zip(source.classes, LaionC().outputs(tmp_path), strict=True))
    for name in ("bird", "bottle", "cat", "dog"):  # as Geirhos et al. have them
        assert outputs[name] == tuple(sorted(expand_ranges(_RANGES[name])))
    assert set(outputs) - set(CATEGORIES_16) >= {"primate", "tools"}
    everything = [position for group in outputs.values() for position in group]
    assert len(everything) == len(set(everything)) == 285


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ("`refined_bias_shape`", shortcuts.SHAPES),
        ("`refined_bias_texture`", shortcuts.TEXTURES),
        ("`laion_c`, distortions", shortcuts.DISTORTIONS),
        ("`laion_c`, classes", shortcuts.SUPERCLASSES),
    ],
)
def test_the_docs_list_the_folders(row: str, names: Iterable[str]) -> None:
    text = (ROOT / "docs/data.md").read_text()
    assert f"| {row} | {', '.join(f'`{name}`' for name in names)} |" in text


def test_laion_c_refuses_what_is_not_whole(tmp_path: Path) -> None:
    folder = make_laion_c(tmp_path)
    image = next((folder / "mosaic/intensity_level_3/cat").iterdir())
    image.rename(image.with_name("other_mosaic_3.JPEG"))
    assert "mosaic/intensity_level_3 has other images than geometric_shapes/intensity_level_1" in refusal(
        LaionC(), tmp_path
    )
    shutil.rmtree(folder / "mosaic/intensity_level_3")
    assert "29 of 30 conditions are there, mosaic/intensity_level_3 missing" in refusal(LaionC(), tmp_path)
    for distortion in ("geometric_shapes", "glitched"):
        shutil.rmtree(folder / distortion)
    text = "19 of 30 conditions are there, geometric_shapes, glitched, mosaic/intensity_level_3 missing"
    assert text in refusal(LaionC(), tmp_path)
    shutil.rmtree(folder)
    folder = make_laion_c(tmp_path)
    for place in folder.glob("*/*/cat"):
        place.rename(place.with_name("cats"))
    assert "unknown class folders cats; 1 of 16 class folders missing: cat" in refusal(LaionC(), tmp_path)


@pytest.mark.parametrize(
    ("name", "condition", "photograph"),
    [
        ("cat/a_mosaic_3.JPEG", "mosaic-3", "cat/a.JPEG"),
        ("cat/a_b_sticker_1.JPEG", "stickers-1", "cat/a_b.JPEG"),
        ("a_vertical_lines_5.jpg", "vertical_lines-5", "a.jpg"),
        ("a_mosaic_3.JPEG", "mosaic-2", "a_mosaic_3.JPEG"),
        ("a_mosaic_3.JPEG", "glitched-3", "a_mosaic_3.JPEG"),
        ("ILSVRC2012_val_00000003.JPEG", "fog-3", "ILSVRC2012_val_00000003.JPEG"),
        ("n01440764_3.JPEG", "fog-3", "n01440764_3.JPEG"),
        ("a.png", "", "a.png"),
    ],
)
def test_name_of_a_photograph(name: str, condition: str, photograph: str) -> None:
    assert without_condition(name, condition) == photograph


# --- functions --------------------------------------------------------------------------------------------------------


def test_derived_functions() -> None:
    assert measures.derive("error_quotient", [0.4, 0.7]) == pytest.approx(2.0)
    assert measures.derive("error_quotient", [0.4, 1.0]) is None  # a model without errors has no ratio
    assert measures.derive("share", [0.3, 0.1]) == pytest.approx(0.75)
    assert measures.derive("share", [0.0, 0.0]) is None


def test_facts_that_answers_are_checked_against_are_those_of_the_sets() -> None:
    """`known_sets` has them without torch."""
    sets = {name: robust_set.data for name, robust_set in robustness.SETS.items() if robust_set.classes == "imagenet"}
    sets |= {name: standard_set.data for name, standard_set in TEST_SETS.items()}
    assert set(sets) == set(known_sets())
    for name, known in known_sets().items():
        if known != UNKNOWN:
            assert known.classes == getattr(sets[name], "classes", imagenet_classes()), name
    assert known_sets()["laion_c"].conditions == conditions(LaionC.corruptions)
