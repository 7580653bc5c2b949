"""The suite `biasbed` on a tree of its shape: what it finds, how it decides, what it leaves out, one training of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.errors import UsageError
from biasbed.published import BIASBED
from biasbed.suites import open_suite
from biasbed.suites.biasbed import COPIES, TEST_SETS, TRAINING
from biasbed.suites.suite import OpenSuite
from biasbed.training.resolve import resolve
from helpers import children
from helpers.children import Command
from helpers.imagenet_tree import make_tree
from helpers.runs import all_runs, run_folders

ON_DISK = ("imagenet", "silhouette", "edge", "sketch", "cue_conflict", "stylized_imagenet", "imagenet_a", "imagenet_r")
WITHOUT_EDSR = (*ON_DISK, "deepaug_cae")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All data sets but `deepaug_edsr`. Not to be changed."""
    return make_tree(tmp_path_factory.mktemp("data"))


def opened(tree: Path, **values: Any) -> OpenSuite:
    return open_suite(resolve({"suite": "biasbed", "data_dir": str(tree), "val_fraction": 0.5, **values}))


def refusal(tree: Path, **values: Any) -> str:
    with pytest.raises(UsageError) as caught:
        opened(tree, **values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_published_runs_say_of_the_sets_what_the_suite_says() -> None:
    """So that published Stylized ERM beside runs of this suite is marked on the set that its images' maker made."""
    for entry in BIASBED.protocol.sets:
        assert entry.made_by == TEST_SETS[entry.name].made_by, entry.name
        assert entry.source_images in (None, TEST_SETS[entry.name].source_images), entry.name
    for shares in BIASBED.training_data.values():
        assert set(shares) <= {*TRAINING, *COPIES}


# --- what is found ----------------------------------------------------------------------------------------------------


def test_all_that_is_there_is_tested_on_and_the_rest_named(tree: Path) -> None:
    suite = opened(tree)
    assert tuple(entry.name for entry in suite.sets) == WITHOUT_EDSR
    assert list(suite.left_out) == ["deepaug_edsr"]
    assert "prepare --what deepaug_edsr --split imagenet" in suite.left_out["deepaug_edsr"]
    assert suite.classes == imagenet_classes()
    counts = {entry.name: (len(entry.source), len(entry.source.classes)) for entry in suite.sets}
    assert counts["imagenet"] == (1000, 1000)
    assert counts["imagenet_a"] == counts["imagenet_r"] == (200, 200)
    assert counts["sketch"] == counts["edge"] == (32, 16)
    assert counts["cue_conflict"] == (256, 16)


def test_sets_that_are_asked_for_must_be_there(tree: Path, tmp_path: Path) -> None:
    assert [entry.name for entry in opened(tree, sets="sketch,imagenet").sets] == ["imagenet", "sketch"]
    assert "'deepaug_edsr' is not in" in refusal(tree, sets="all")
    assert "'deepaug_edsr' is not in" in refusal(tree, sets="edge,deepaug_edsr")
    assert "did you mean 'edge'" in refusal(tree, sets="edgee")
    assert "none of the test sets" in refusal(tmp_path, train="none")
    assert "no such folder" in refusal(tmp_path / "nowhere")


def test_each_set_names_its_label_map_and_preprocessing(tree: Path) -> None:
    records = {entry.name: entry.record() for entry in opened(tree).sets}
    assert records["imagenet"].label_map == records["stylized_imagenet"].label_map == "identity"
    assert records["edge"].label_map == "grouped-prob_mean"
    assert records["imagenet_a"].label_map != records["imagenet_r"].label_map
    assert records["imagenet"].preprocessing == "short side 256, centre 224, bilinear"
    assert all("as it is" in records[name].preprocessing for name in ("edge", "sketch", "stylized_imagenet"))
    assert "accuracy_full" in records["imagenet_a"].measures
    assert "accuracy_full" not in records["imagenet"].measures
    assert records["cue_conflict"].source_images == records["edge"].source_images


def test_biasbed_s_own_choices_are_a_preset(tree: Path) -> None:
    suite = opened(tree, preset="biasbed_code")
    found = {entry.name: (entry.record(), entry) for entry in suite.sets}
    assert found["imagenet"][0].preprocessing == "centre 0.875 of the short side, resized to 256, bilinear"
    assert found["stylized_imagenet"][0].preprocessing == found["imagenet"][0].preprocessing
    assert found["edge"][0].preprocessing == "short side 256, centre 224, bilinear"
    assert found["edge"][0].label_map == "grouped-logit_mean"
    shapes = {name: tuple(entry.transform(entry.source.open(0)).shape) for name, (_, entry) in found.items()}
    assert shapes["imagenet"] == (3, 256, 256)
    assert shapes["cue_conflict"] == (3, 224, 224)
    assert [entry.name for entry in suite.validation] == ["imagenet"]
    assert len(suite.source("imagenet")) == 2000  # all of them: none is held out
    torch.manual_seed(0)
    assert tuple(suite.train_transform(suite.source("imagenet").open(0)).shape) == (3, 256, 256)
    assert "did you mean 'biasbed_code'" in refusal(tree, preset="biasbed")


# --- training and validation ------------------------------------------------------------------------------------------


def ids(source: Any) -> set[str]:
    return set(source.ids)


def test_a_seeded_slice_of_the_training_images_is_held_out(tree: Path) -> None:
    suite, same, other = opened(tree), opened(tree), opened(tree, seed=1)
    train, (validation,) = suite.source("imagenet"), suite.validation
    assert len(train) == len(validation.source) == 1000
    assert not ids(train) & ids(validation.source)
    assert ids(train) == ids(same.source("imagenet")) != ids(other.source("imagenet"))
    assert suite.monitor == "val/accuracy/val"
    assert suite.fingerprint == other.fingerprint
    assert len(suite.material()) == 2000


def test_validating_on_a_test_set_is_said_and_trains_on_all(tree: Path) -> None:
    suite = opened(tree, validation="imagenet")
    assert len(suite.source("imagenet")) == 2000
    assert suite.validation == suite.sets[:1]
    assert suite.tested == suite.sets
    protocol = suite.protocol(resolve({"suite": "biasbed"}))
    assert protocol.validation_sets == ("imagenet",)
    assert protocol.monitor == "val/accuracy/imagenet"
    assert "did you mean 'imagenet'" in refusal(tree, validation="imagnet")


def test_published_copies_of_training_images_leave_the_held_out_ones_alone(tree: Path) -> None:
    suite = opened(tree)
    copies = suite.source("stylized")
    stems = {name.rpartition(".")[0] for name in copies.ids}
    assert stems <= {name.rpartition(".")[0] for name in suite.source("imagenet").ids}
    assert 0 < len(copies) < 1000  # each class has a copy of one of its two images
    with pytest.raises(UsageError, match="what deepaug_edsr"):
        suite.source("deepaug_edsr")


# --- the whole way ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_train_and_test_on_every_set(tree: Path, tracking: str, tmp_path: Path) -> None:
    words = [
        *("train", "--suite", "biasbed", "--data_dir", str(tree), "--image_size", "32", "--backbone", "resnet10"),
        *("--steps", "4", "--evaluate_every", "4", "--batch_size", "64", "--val_fraction", "0.5", "--device", "cpu"),
        *("--workers", "0", "--log_model", "false", "--optim.warmup", "0"),
    ]
    done = children.run(words, processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("left out: 'deepaug_edsr'") == 1
    (run,) = all_runs(tracking, kind="train")
    (folder,) = run_folders(tmp_path / "home")
    protocol = json.loads((folder / "protocol.json").read_text())
    assert [entry["name"] for entry in protocol["sets"]] == list(WITHOUT_EDSR)
    for entry in protocol["sets"]:
        rows = parquet.read_table(folder / f"predictions/{entry['name']}/last.parquet").to_pydict()
        assert len(rows["image"]) == len(set(rows["image"])) == entry["images"]
        logged = run.data.metrics[f"test/accuracy/{entry['name']}"]
        assert logged == pytest.approx(np.mean(rows["correct"]), abs=1e-12)
        assert np.mean([a == b for a, b in zip(rows["label"], rows["decision"], strict=True)]) == pytest.approx(logged)
    conflicts = parquet.read_table(folder / "predictions/cue_conflict/last.parquet").to_pandas()
    conflicts = conflicts[conflicts.label != conflicts.bias]
    assert len(conflicts) == 240
    shape, texture = (conflicts.decision == conflicts.label).sum(), (conflicts.decision == conflicts.bias).sum()
    assert run.data.metrics["test/shape_bias/cue_conflict"] == pytest.approx(shape / (shape + texture))
    assert {"test/accuracy_full/imagenet_a", "test/accuracy_full/imagenet_r"} <= run.data.metrics.keys()
    assert run.data.metrics["test/accuracy_full/imagenet_a"] <= run.data.metrics["test/accuracy/imagenet_a"]


@pytest.mark.slow
@pytest.mark.real_data
def test_real_stimuli_are_tested_end_to_end(shared: Path, biasbed: Command, tracking: str, tmp_path: Path) -> None:
    """Random weights on the real edges, silhouettes and cue conflicts: counts exact, files and metrics agree."""
    import torch
    import torchvision

    for name in ("edge", "silhouette", "cue-conflict"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).symlink_to(shared / "data" / name)
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(num_classes=1000).state_dict(), tmp_path / "resnet18.pth")
    words = ("--weights", str(tmp_path / "resnet18.pth"), "--suite", "biasbed", "--data_dir", str(tmp_path / "data"))
    done = biasbed("evaluate", "--model", "torchvision:resnet18", *words, "--image_size", "32")
    (run,) = all_runs(tracking, kind="evaluate")
    (folder,) = (tmp_path / "home").rglob("predictions")
    for name, count in (("silhouette", 160), ("edge", 160), ("cue_conflict", 320)):
        rows = parquet.read_table(folder / name / "last.parquet").to_pandas()
        assert len(rows) == count
        assert set(rows.label) == set(CATEGORIES_16)
        assert run.data.metrics[f"test/accuracy/{name}"] == pytest.approx(rows.correct.mean())
    assert "shape bias" in done.stdout
