"""Cue sets of the suite `robustness`: classes, headlines, derived values, and a model that is tested on them."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed import cli
from biasbed.data.source import Decoded
from biasbed.plugins.cues import classes, data_sets
from biasbed.plugins.cues.watermark import Watermark, draw_watermark
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.tracking.folder import RunFolder
from biasbed.training.resolve import resolve
from helpers.runs import run_folders
from helpers.shortcut_trees import (
    IN9,
    VERSIONS,
    make_annotations,
    make_font,
    make_imagenet,
    make_in9,
    make_laion_c,
    make_refined,
)

BACKGROUNDS = ("imagenet_9", *(f"imagenet_9_{version}" for version in VERSIONS[1:]))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the sets, with one or two images of each class. Not to be changed."""
    root = tmp_path_factory.mktemp("data")
    names = make_imagenet(root)
    make_in9(root)
    make_refined(root)
    make_laion_c(root)
    rows = []
    for label, name in enumerate(names):
        factor = classes.FACTORS[label % 16]
        rows.append({"file_name": name, "class": label, "factor": "" if factor == "style" else factor})
    make_annotations(root / "imagenet_x", rows)
    make_font(root / data_sets.FONT)
    return root


def opened(root: Path, sets: str, **values: Any) -> OpenSuite:
    settings = {"suite": "robustness", "train": "none", "data_dir": str(root), "sets": sets}
    return open_suite(resolve({**settings, **values}))


def test_sets_of_copies_of_imagenet_are_tested_only_if_they_are_named(tree: Path) -> None:
    names = {member.name for member in opened(tree, "auto").sets}
    assert names == {"imagenet", "imagenet_200", *BACKGROUNDS, "refined_bias_shape", "refined_bias_texture", "laion_c"}


def test_background(tree: Path) -> None:
    suite = opened(tree, ",".join(BACKGROUNDS))
    for member in suite.sets:
        entry = member.record()
        assert (entry.headline, entry.block, entry.source_images) == ("accuracy_full", "imagenet_9", "imagenet_9")
        assert entry.counts == (member.name != "imagenet_9_only_bg_t")  # more of it is not better
        assert entry.preprocessing.startswith("as it is")
    gaps = {declaration.measure: declaration for declaration in suite.derivations}
    assert gaps["background_gap"].inputs == (
        "test/accuracy_full/imagenet_9_mixed_same",
        "test/accuracy_full/imagenet_9_mixed_rand",
    )
    # The best output of all decides, also one of no class: then none of the nine is right.
    label_map = suite.sets[0].label_map
    logits = torch.zeros(2, 1000)
    logits[0, 151], logits[1, 999], logits[1, 152] = 2.0, 3.0, 2.0
    assert IN9[151] == IN9[152] == 0
    assert label_map(logits).argmax(dim=1).tolist() == [0, 0]
    assert label_map.best_outputs(logits, torch.tensor([0, 0])).tolist() == [151, 152]


def test_watermark(tree: Path) -> None:
    suite = opened(tree, "imagenet,imagenet_w")
    plain, marked = suite.sets
    assert isinstance(marked.transform, Watermark)
    font = tree / data_sets.FONT
    assert marked.preprocessing == (
        f"{plain.preprocessing}, watermark in {font.name}, SHA-256 {hashlib.sha256(font.read_bytes()).hexdigest()}"
    )
    picture = Decoded(torch.full((3, 300, 400), 60, dtype=torch.uint8))
    expected = draw_watermark(plain.transform(picture), font)
    assert torch.equal(marked.transform(picture), expected)
    assert "bias_decisions" in marked.record().measures
    (gap,) = (declaration for declaration in suite.derivations if declaration.measure == "watermark_gap")
    assert gap.inputs == ("test/accuracy/imagenet", "test/accuracy/imagenet_w")
    assert not any(declaration.measure == "watermark_gap" for declaration in opened(tree, "imagenet_w").derivations)


def test_factors(tree: Path) -> None:
    suite = opened(tree, "imagenet,imagenet_x")
    entry = suite.sets[1].record()
    assert entry.block == "imagenet"  # the same images, which count once
    assert set(entry.groups) == {*classes.FACTORS, "none"} - {"style"}
    ratios = [declaration for declaration in suite.derivations if declaration.measure.startswith("error_ratio_")]
    assert len(ratios) == 15
    assert {declaration.unit for declaration in ratios} == {"ratio"}
    suite.protocol(resolve({"suite": "robustness", "train": "none", "data_dir": str(tree)}))


def test_sensitivity(tree: Path) -> None:
    suite = opened(tree, "refined_bias_shape,refined_bias_texture")
    shape, texture = (member.record() for member in suite.sets)
    assert (shape.headline, shape.chance, shape.counts, texture.counts) == ("mrr", 0.0, True, False)
    assert [declaration.measure for declaration in suite.derivations] == ["shape_preference"]


def test_distortions(tree: Path) -> None:
    (member,) = opened(tree, "laion_c").sets
    entry = member.record()
    assert (entry.headline, len(entry.conditions), entry.classes) == ("mean_error", 30, 16)
    assert member.label_map.name == "laion_c-prob_mean"


def test_a_model_is_tested_and_what_it_looks_at_is_printed_and_kept(
    tree: Path, tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import torchvision

    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=1000).state_dict(), tmp_path / "net.pth")
    sets = ("refined_bias_shape", "refined_bias_texture", "imagenet_9_mixed_same", "imagenet_9_mixed_rand")
    words = {"model": "torchvision:shufflenet_v2_x0_5", "weights": tmp_path / "net.pth", "suite": "robustness"}
    words |= {"data_dir": tree, "sets": ",".join(sets), "image_size": 64, "device": "cpu", "workers": 0, "row": "net"}
    assert cli.main(["evaluate", *(f"--{name}={value}" for name, value in words.items())]) == 0
    printed = capsys.readouterr().out
    assert "looks at" in printed
    assert "accuracy lost on a random background" in printed
    (folder,) = run_folders(tmp_path / "home")
    (entry,) = RunFolder(folder).read_journal()
    metrics = entry["metrics"]
    gap = metrics["test/accuracy_full/imagenet_9_mixed_same"] - metrics["test/accuracy_full/imagenet_9_mixed_rand"]
    assert metrics["test/background_gap/imagenet_9_mixed_rand"] == pytest.approx(gap)
    shape, texture = (metrics[f"test/mrr/{name}"] for name in sets[:2])
    assert metrics["test/shape_preference/refined_bias_shape"] == pytest.approx(shape / (shape + texture))
    with (folder / "looks_at.csv").open(newline="") as file:
        rows = {(row["measure"], row["set"]): float(row["value"]) for row in csv.DictReader(file)}
    assert rows["mrr", "refined_bias_shape"] == pytest.approx(shape)
    assert rows["background_gap", "imagenet_9_mixed_rand"] == pytest.approx(gap)
    assert np.isfinite(list(rows.values())).all()
