"""The suite `robustness`: sets of many conditions, what is derived of them, what is refused and why."""

from __future__ import annotations

import csv
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import cli
from biasbed.datasets import base, imagenet_c
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import ALEXNET, ALEXNET_CLEAN, BENCHMARK, GROUPS, conditions
from biasbed.datasets.releases import read_releases
from biasbed.errors import UsageError
from biasbed.record import BY_CONDITION
from biasbed.suites import derived, open_suite
from biasbed.suites.corruption_errors import derivations
from biasbed.suites.suite import OpenSuite
from biasbed.training.resolve import resolve
from helpers.cifar_files import make_arrays, make_batches
from helpers.commands import ROOT
from helpers.corrupted_tree import CLASSES, images_of, jpeg, make_corrupted

PRINTED = ROOT.parent / "shared" / "published" / "imagenet_c_corruption_errors.csv"

VECTORS = ROOT.parent / "shared" / "vectors" / "robustness" / "mce.csv"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet-C with four images under each of its 75 conditions, and the extra ones. Not to be changed."""
    root = tmp_path_factory.mktemp("data")
    make_corrupted(root / "ImageNet-C", imagenet_c.ImageNetC())
    make_corrupted(root / "ImageNet-C", imagenet_c.ImageNetCExtra())
    return root


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Path:
    """The same, to be changed: images are links."""
    shutil.copytree(tree, tmp_path / "data", copy_function=os.link)
    return tmp_path / "data"


@pytest.fixture
def as_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if four images of two classes were all that ImageNet-C had."""
    small = {name: replace(row, images=4 * row.conditions, classes=2) for name, row in read_releases().items()}
    monkeypatch.setattr(base, "read_releases", lambda: small)


def opened(root: Path, **values: Any) -> OpenSuite:
    return open_suite(resolve({"suite": "robustness", "train": "none", "data_dir": str(root), **values}))


def refusal(root: Path, **values: Any) -> str:
    with pytest.raises(UsageError) as caught:
        opened(root, **values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is derived --------------------------------------------------------------------------------------------------


def accuracies(errors: dict[str, float], clean: float) -> dict[str, float]:
    """The metrics of a model with these mean errors by corruption, which are not alike over severities."""
    found = {"test/accuracy/imagenet": 1 - clean}
    for name, error in errors.items():
        for number, condition in enumerate(conditions([name])):
            found[f"test/{BY_CONDITION}/imagenet_c:{condition}"] = 1 - error + 0.02 * (number - 2)
    return found


def values(errors: dict[str, float], clean: float = ALEXNET_CLEAN) -> dict[str, float]:
    declared = derivations("imagenet_c", BENCHMARK, "imagenet", is_released=True)
    found = derived.derive_values(declared, accuracies(errors, clean))
    return {metric.removeprefix("test/").removesuffix("/imagenet_c"): value for metric, value in found.items()}


def test_alexnet_has_an_mce_and_a_relative_mce_of_one() -> None:
    found = values(dict(ALEXNET))
    assert found["mce"] == pytest.approx(1)
    assert found["relative_mce"] == pytest.approx(1)
    assert [found[f"ce_{name}"] for name in BENCHMARK] == [pytest.approx(1)] * 15
    assert found["mean_error"] == pytest.approx(math.fsum(ALEXNET.values()) / 15)
    assert found["error_noise"] == pytest.approx((0.886428 + 0.894468 + 0.922640) / 3)


def test_mce_is_a_mean_of_ratios_of_sums_and_relative_mce_starts_from_the_clean_error() -> None:
    errors = {name: 0.3 + 0.02 * number for number, name in enumerate(BENCHMARK)}
    found = values(errors, clean=0.2)
    assert found["mce"] == pytest.approx(sum(errors[n] / ALEXNET[n] for n in BENCHMARK) / 15)
    lost = [(errors[n] - 0.2) / (ALEXNET[n] - ALEXNET_CLEAN) for n in BENCHMARK]
    assert found["relative_mce"] == pytest.approx(sum(lost) / 15)


def test_there_is_no_mce_of_74_cells_and_no_relative_mce_without_the_clean_set() -> None:
    metrics = accuracies(dict(ALEXNET), ALEXNET_CLEAN)
    declared = list(derivations("imagenet_c", BENCHMARK, "imagenet", is_released=True))
    del metrics[f"test/{BY_CONDITION}/imagenet_c:frost-3"]
    known = {metric.split("/")[1] for metric in derived.derive_values(declared, metrics)}
    assert not known & {"mce", "relative_mce", "mean_error", "ce_frost", "error_weather"}
    assert "ce_fog" in known
    assert "error_noise" in known
    without_clean = derivations("imagenet_c", BENCHMARK, None, is_released=True)
    assert {own.measure for own in without_clean} & {"mce", "relative_mce"} == {"mce"}


@pytest.mark.skipif(not PRINTED.exists(), reason="the published corruption errors are not in ../shared")
def test_published_corruption_errors_give_the_printed_blur_error_and_nearly_the_printed_mce() -> None:
    """Table 5 prints 61, 73, 61, 64 and a mean of 65 for ResNet-50's errors under the four blurs; Table 7 mCE 76.7."""
    with PRINTED.open() as file:
        rows = {r["corruption"]: float(r["ce"]) for r in csv.DictReader(file) if r["model"] == "ResNet-50"}
    found = values({name: rows[name] / 100 * ALEXNET[name] for name in BENCHMARK})
    assert found["error_blur"] == pytest.approx(0.65, abs=0.005)
    assert found["mce"] == pytest.approx(0.767, abs=0.0033)


@pytest.mark.skipif(not VECTORS.exists(), reason="the reference outputs are not in ../shared")
def test_errors_are_the_reference_s() -> None:
    with VECTORS.open() as file:
        rows = {row["corruption"]: row for row in csv.DictReader(file)}
    metrics = {"test/accuracy/imagenet": 1 - float(rows["clean_error"]["err1"])}
    for name in BENCHMARK:
        for number, condition in enumerate(conditions([name]), start=1):
            metrics[f"test/{BY_CONDITION}/imagenet_c:{condition}"] = 1 - float(rows[name][f"err{number}"])
    found = derived.derive_values(derivations("imagenet_c", BENCHMARK, "imagenet", is_released=True), metrics)
    for name, row in rows.items():
        if name == "clean_error":
            continue
        own, relative = ("mce", "relative_mce") if name == "mCE" else (f"ce_{name}", f"relative_ce_{name}")
        assert 100 * found[f"test/{own}/imagenet_c"] == pytest.approx(float(row["CE_percent"]), abs=1e-5)
        wanted = float(row["relative_CE_percent"])
        assert 100 * found[f"test/{relative}/imagenet_c"] == pytest.approx(wanted, abs=1e-4)


# --- one set ----------------------------------------------------------------------------------------------------------


def test_75_conditions_are_one_set_one_column_and_one_block(tree: Path, as_released: None) -> None:
    suite = opened(tree, sets=["imagenet_c"])
    protocol = suite.protocol(resolve({"suite": "robustness", "train": "none", "data_dir": str(tree)}))
    (column,) = protocol.columns
    assert (column.name, column.headline, column.higher_is_better) == ("imagenet_c", "mce", False)
    assert list(column.conditions) == list(conditions(BENCHMARK))
    assert set(column.conditions.values()) == {4}
    assert column.source_images == "imagenet_val"
    assert len(suite.sets[0].source) == 300
    (entry,) = suite.sets
    assert entry.cadence == "end"
    assert entry.preprocessing == "224 x 224 as released"
    labels = {
        name.split("/")[2]: entry.source.classes[y] for name, y in zip(entry.source.ids, entry.source.y, strict=True)
    }
    assert labels == {wnid: wnid for wnid in CLASSES}
    assert entry.source.condition is not None
    for name, condition in zip(entry.source.ids, entry.source.condition, strict=True):
        assert entry.source.conditions[condition] == "-".join(name.split("/")[:2])


def test_a_part_of_the_images_has_a_mean_error_and_says_why_it_has_no_mce(tree: Path) -> None:
    suite = opened(tree, sets=["imagenet_c"])
    assert suite.sets[0].headline == "mean_error"
    (line,) = suite.remarks
    assert "2 of 1000 classes" in line
    assert "4 images under each condition" in line
    assert line.endswith("no mCE")
    assert "has 2 of 1000 classes" in refusal(tree, sets=["imagenet_c"], corruption_error="mce")


def test_the_benchmark_s_corruptions_never_validate(tree: Path) -> None:
    for name in ("imagenet_c", "imagenet_c_small"):
        assert "for the test alone" in refusal(tree, train="imagenet", validation=name)


def test_the_gap_of_renditions_is_200_ways_against_200_ways(tmp_path: Path) -> None:
    """Table 1: ResNet-50's error is 63.9 on ImageNet-R and 7.9 on ImageNet-200, a gap of 56.0."""
    wnids = {"val": imagenet_classes(), "imagenet-r": imagenet_classes("r")}
    for folder, own in wnids.items():
        for wnid in own:
            (tmp_path / folder / wnid).mkdir(parents=True)
            (tmp_path / folder / wnid / "1.jpg").touch()
    suite = opened(tmp_path, sets=["imagenet_200", "imagenet_r"])
    assert [entry.label_map.name for entry in suite.sets] == ["imagenet_200-200", "imagenet_r-200"]
    columns = [entry.label_map.columns for entry in suite.sets]  # type: ignore[attr-defined]
    assert columns[0] == columns[1]
    assert {len(entry.source) for entry in suite.sets} == {200}
    metrics = {"test/accuracy/imagenet_200": 1 - 0.079, "test/accuracy/imagenet_r": 1 - 0.639}
    assert derived.derive_values(suite.derivations, metrics) == {"test/gap_r/imagenet_r": pytest.approx(0.56)}
    (gap,) = suite.protocol(resolve({"suite": "robustness", "train": "none", "data_dir": str(tmp_path)})).derived
    assert not gap.higher_is_better


def test_cifar_is_trained_and_tested_on_by_itself(tmp_path: Path) -> None:
    make_batches(tmp_path, "cifar10")
    make_arrays(tmp_path, "cifar10")
    config = resolve({"suite": "robustness", "train": "cifar10", "data_dir": str(tmp_path)})
    suite = open_suite(config)
    assert [entry.name for entry in suite.sets] == ["cifar10", "cifar10_c"]
    assert (len(suite.source("cifar10")), len(suite.validating[0].source)) == (90, 10)
    (_, corrupted_set) = suite.protocol(config).sets
    assert (corrupted_set.headline, len(corrupted_set.conditions)) == ("mean_error", 75)
    assert corrupted_set.source_images == suite.sets[0].source_images
    assert (
        config.image_size == resolve({"suite": "robustness", "train": "none", "sets": ["cifar10_c"]}).image_size == 32
    )
    said = refusal(tmp_path, sets=["cifar10", "imagenet_c"])
    assert "'imagenet_c' has the classes of imagenet" in said
    assert "did you mean 'cifar10'" in refusal(tmp_path, train="cifar1")


# --- what is refused --------------------------------------------------------------------------------------------------


def test_images_of_another_size_are_refused_and_never_resized(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a condition before anything runs; any other when it comes, also where corrupt files are skipped."""
    monkeypatch.chdir(tmp_path)
    other = copy / "ImageNet-C/contrast/2" / images_of()[-1]
    other.unlink()
    other.write_bytes(jpeg(0, 256))
    assert cli.main([*evaluate(tmp_path, copy), "--corrupt=skip"]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert str(other) in said
    assert "256 x 256 pixels" in said
    assert "224 x 224" in said
    first = copy / "ImageNet-C/contrast/2" / images_of()[0]
    first.unlink()
    first.write_bytes(jpeg(0, 256))
    assert f"contrast/2/{images_of()[0]} is 256 x 256 pixels, not 224 x 224" in refusal(copy)


# --- a test of a model ------------------------------------------------------------------------------------------------


def evaluate(place: Path, data: Path) -> list[str]:
    import torchvision

    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=1000).state_dict(), place / "net.pth")
    words = {"model": "torchvision:shufflenet_v2_x0_5", "weights": place / "net.pth", "suite": "robustness"}
    words |= {"data_dir": data, "device": "cpu", "workers": 0, "tracking": "offline", "sets": "imagenet_c"}
    return ["evaluate", *(f"--{name}={value}" for name, value in words.items())]


def test_a_model_is_tested_under_75_conditions_by_one_command(
    tree: Path, tmp_path: Path, as_released: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(evaluate(tmp_path, tree)) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    own = {words[1]: float(words[2]) for words in lines if words[:1] == ["imagenet_c"] and words[-1] == "%"}
    assert own["mce"] == pytest.approx(sum(own[f"ce_{name}"] for name in BENCHMARK) / 15, abs=0.01)
    assert own["ce_fog"] == pytest.approx(
        own["mean_error"] / ALEXNET["fog"], abs=0.01
    )  # all conditions look alike here


def test_what_is_not_whole_is_refused_in_a_line(copy: Path) -> None:
    folder = copy / "ImageNet-C"
    (folder / "manifest.json").touch()
    assert "made by `prepare`, and never stand for those that were released" in refusal(copy)
    (folder / "manifest.json").unlink()
    image = images_of()[1]
    (folder / "frost/3" / image).rename(folder / "frost/3" / image.replace("val_", "other_"))
    said = refusal(copy)
    assert "frost/3 has other images than gaussian_noise/1" in said
    assert image in said
    shutil.rmtree(folder / "frost/3")
    assert "74 of 75 conditions are there, frost/3 missing" in refusal(copy)
    for name in GROUPS["weather"]:
        shutil.rmtree(folder / name)
    assert "55 of 75 conditions are there, snow, frost" in refusal(copy)
    assert refusal(copy).endswith(f"unpack the archives so that {folder} has a folder for each corruption")
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "blur.tar").touch()
    assert "blur.tar is there but not unpacked" in refusal(copy, sets=["imagenet_c"])
