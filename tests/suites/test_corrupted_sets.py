"""Evaluation sets in corrupted form, of any suite: what is added, what stands for it, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed.data import corruptions
from biasbed.data.corruptions import BENCHMARK, EXTRAS, frost
from biasbed.data.transforms import Exact
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import conditions
from biasbed.errors import UsageError
from biasbed.evaluation.recorded import read
from biasbed.prepare.run import prepare
from biasbed.suites import derived, open_suite
from biasbed.suites.corrupted_sets import SUFFIX
from biasbed.suites.suite import OpenSuite
from biasbed.training.resolve import resolve
from helpers import children
from helpers.cifar_files import make_arrays, make_batches
from helpers.commands import ROOT
from helpers.corrupted_tree import jpeg
from helpers.domain_tree import make_domains
from helpers.runs import run_folders

SHARED = ROOT.parent / "shared" / "data"
SAMPLE, FROST = SHARED / "imagenet-sample", SHARED / "frost"
STAND_INS = Path("/stand-ins/frost")  # for the photographs of frost, where no pixel matters


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    made = tuple(np.zeros((*shape, 3), np.uint8) for shape in frost.SHAPES)
    real = corruptions.photographs
    monkeypatch.setattr(corruptions, "photographs", lambda folder: made if folder == STAND_INS else real(folder))


def opened(**values: Any) -> OpenSuite:
    return open_suite(resolve({"corrupted.frost": str(STAND_INS), **values}))


def refusal(**values: Any) -> str:
    with pytest.raises(UsageError) as caught:
        opened(**values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def photos(tmp_path: Path) -> dict[str, Any]:
    """A user's own folders: `ink` trains, `photo` and `paint` test."""
    make_domains(tmp_path / "data", ("ink", "paint", "photo"), images=3)
    return {"suite": "folders", "train": "ink", "data_dir": str(tmp_path / "data"), "image_size": 224}


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two training images and one validation image of each class, and one of each class of ImageNet-A: links of one."""
    root = tmp_path_factory.mktemp("data")
    (root / "one.jpg").write_bytes(jpeg(0, 240))
    names = [f"imagenet/train/{wnid}/{wnid}_{number}.JPEG" for wnid in imagenet_classes() for number in range(2)]
    names += [f"imagenet/val/{wnid}/val_{wnid}.JPEG" for wnid in imagenet_classes()]
    for name in (*names, *(f"imagenet-a/{wnid}/{wnid}.jpg" for wnid in imagenet_classes("a"))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(root / "one.jpg", root / name)
    return {"suite": "robustness", "data_dir": str(root), "train": "none"}


# --- any set ----------------------------------------------------------------------------------------------------------


def test_own_photographs_are_tested_under_75_conditions_by_their_mean_error(photos: dict[str, Any]) -> None:
    config = resolve({**photos, "corrupted.sets": "photo", "corrupted.frost": str(STAND_INS)})
    suite = open_suite(config)
    protocol = suite.protocol(config)
    assert [column.name for column in protocol.columns] == ["paint", "photo", "photo_c_generated"]
    made = protocol.columns[-1]
    assert (made.headline, made.higher_is_better, made.images) == ("mean_error", False, 75 * 6)
    assert list(made.conditions) == list(conditions(BENCHMARK))
    assert suite.sets[-1].cadence == "end"
    assert suite.with_cadences(["photo_c_generated:2"]).sets[-1].cadence == 2
    # The same photographs, so no independent blocks.
    assert [column.source_images for column in protocol.columns] == [None, "photo", "photo"]
    accuracies = {f"test/accuracy_by_condition/{made.name}:{c}": 0.25 for c in made.conditions}
    found = derived.values(protocol.derived, accuracies)
    assert set(found) == {
        f"test/{name}/{made.name}"
        for name in ("mean_error", *(f"error_{own}" for own in ("noise", "blur", "weather", "digital", *BENCHMARK)))
    }
    assert set(found.values()) == {0.75}
    plain = open_suite(resolve(photos))
    assert plain.fingerprint != suite.fingerprint != opened(**photos, **_seeded(1)).fingerprint
    assert suite.tested_hash(protocol) == _tested(**photos, seed=3, **_seeded(0))
    assert suite.tested_hash(protocol) != _tested(**photos, **_seeded(1))


def _seeded(seed: int) -> dict[str, Any]:
    return {"corrupted.sets": "photo", "corrupted.seed": seed}


def _tested(**values: Any) -> str:
    config = resolve({**values, "corrupted.frost": str(STAND_INS)})
    suite = open_suite(config)
    return suite.tested_hash(suite.protocol(config))


def test_what_was_prepared_is_read_and_tested_alike(photos: dict[str, Any], tmp_path: Path) -> None:
    words = {**photos, "corrupted.sets": "photo"}
    before = _tested(**words)
    folder = prepare({**photos, "what": "corruptions", "split": "photo", "corruptions": "fog", "processes": 1})
    source = opened(**words).sets[-1].source
    assert getattr(source, "files", None) == folder
    assert _tested(**words) == before


def test_domains_in_corrupted_form_are_tested_where_they_are_held_out(tmp_path: Path) -> None:
    make_domains(tmp_path / "data" / "own", images=5)
    words = {"train": "own", "data_dir": str(tmp_path / "data"), "image_size": 224, "init": "scratch"}
    for suite in ("domainbed", "domains"):
        config = resolve(
            {"suite": suite, **words, "test_domains": "art", "corrupted.sets": "own-art,own-photo"}
            | {"corrupted.frost": str(STAND_INS)}
        )
        found = open_suite(config)
        assert [e.name for e in found.testing if e.name.endswith(SUFFIX)] == [f"own-art{SUFFIX}"]
        assert {c.block for c in found.protocol(config).columns if c.name.endswith(SUFFIX)} == {f"own{SUFFIX}"}


@pytest.mark.parametrize("suite", ["biasbed", "robustness"])
def test_natural_adversarial_examples_can_be_corrupted_in_either_suite(imagenet: dict[str, Any], suite: str) -> None:
    found = opened(**{**imagenet, "suite": suite, "sets": "imagenet,imagenet_a", "corrupted.sets": "imagenet_a"})
    assert [entry.name for entry in found.sets] == ["imagenet", "imagenet_a", "imagenet_a_c_generated"]
    assert found.sets[-1].label_map.restricts
    assert len(found.sets[-1].source) == 75 * 200


def test_sets_that_can_t_be_corrupted_are_refused_in_a_line(photos: dict[str, Any], tmp_path: Path) -> None:
    said = refusal(**photos, **{"corrupted.sets": "phto"})
    assert said == "corrupted.sets=phto: there is no evaluation set 'phto'; did you mean 'photo'?"
    said = refusal(**{**photos, "image_size": 112, "corrupted.sets": "photo"})
    assert "defined for images of 224 x 224 pixels, and it has images of 112 x 112; image_size=224" in said
    said = refusal(**photos, **{"corrupted.sets": "photo", "corrupted.frost": str(tmp_path)})
    assert said.startswith(f"frost: No such file or directory: {tmp_path}/frost1.png")
    assert f"{photos['data_dir']}/frost/frost1.png" in refusal(
        **{**photos, "corrupted.sets": "photo", "corrupted.frost": "auto"}
    )
    assert "images of 24 x 24" in refusal(suite="demo", image_size=24, **{"corrupted.sets": "in_domain"})
    make_batches(tmp_path, "cifar10")
    make_arrays(tmp_path, "cifar10")
    cifar = {"suite": "robustness", "train": "none", "sets": "cifar10,cifar10_c", "data_dir": str(tmp_path)}
    assert "images of 32 x 32" in refusal(**cifar, **{"corrupted.sets": "cifar10"})
    assert "images of 32 x 32" in refusal(**cifar, image_size=224, **{"corrupted.sets": "cifar10"})
    assert "shown under 75 conditions already" in refusal(**cifar, **{"corrupted.sets": "cifar10_c"})
    make_domains(tmp_path / "data", ("photo_c_generated",))
    assert "a set 'photo_c_generated' already" in refusal(**photos, **{"corrupted.sets": "photo"})


# --- robustness -------------------------------------------------------------------------------------------------------


def test_imagenet_c_made_here_is_a_column_of_its_own_without_mce(imagenet: dict[str, Any]) -> None:
    assert {entry.name for entry in opened(**imagenet).sets} == {"imagenet", "imagenet_200", "imagenet_a"}
    words = {**imagenet, "sets": "imagenet,imagenet_c_generated", "corrupted.frost": str(STAND_INS)}
    suite = open_suite(resolve(words))
    protocol = suite.protocol(resolve(words))
    made = protocol.columns[-1]
    assert (made.name, made.block, made.headline) == ("imagenet_c_generated", "", "mean_error")
    assert made.source_images == protocol.columns[0].source_images == "imagenet_val"
    assert not {own.measure for own in suite.derivations} & {"mce", "relative_mce"}
    source = suite.sets[-1].source
    assert source.ids[0] == "gaussian_noise/1/n01440764/val_n01440764.JPEG"
    assert suite.sets[-1].transform(source.open(0)).shape == (3, 224, 224)
    said = refusal(**words, corruption_error="mce")
    assert "AlexNet's errors are those on all of the released ImageNet-C, and 'imagenet_c_generated' is made" in said
    assert "already" in refusal(**words, **{"corrupted.sets": "imagenet"})
    assert "for the test alone" in refusal(**{**words, "train": "imagenet"}, validation="imagenet_c_generated")


def test_extra_corruptions_of_held_out_training_images_may_validate(imagenet: dict[str, Any]) -> None:
    pytest.importorskip("cv2")
    words = {**imagenet, "train": "imagenet", "sets": "imagenet", "validation": "train_extra", "val_fraction": 0.5}
    config = resolve(words)
    suite = open_suite(config)
    protocol = suite.protocol(config)
    assert protocol.monitor == "val/accuracy/train_extra"
    assert [column.name for column in protocol.columns] == ["imagenet"]
    (held_out,) = suite.validating
    assert held_out.cadence == 1
    assert held_out.source.conditions == conditions(EXTRAS)
    assert len(held_out.source) == 1000 * 20
    trained = set(suite.source("imagenet").ids)
    assert len(trained) == 1000
    assert not trained & {name.split("/", 2)[2] for name in held_out.source.ids}
    assert isinstance(held_out.transform, Exact)
    said = refusal(**{**words, "train": "cifar10", "sets": "cifar10"})
    assert "224 x 224 pixels, and those of cifar10 have 32 x 32" in said


# --- end to end -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample photographs are not in ../shared")
@pytest.mark.skipif(not FROST.exists(), reason="the photographs of frost are not in ../shared")
def test_files_and_what_is_made_give_the_same_decisions_with_one_and_two_processes(tmp_path: Path) -> None:
    """All 120 photographs under 75 conditions, by the commands."""
    import torch
    import torchvision

    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=1000).state_dict(), tmp_path / "net.pth")
    shared = {"suite": "folders", "train": "none", "data_dir": SAMPLE}
    words = {"model": "torchvision:shufflenet_v2_x0_5", "weights": tmp_path / "net.pth", "device": "cpu"}
    words |= {"corrupted.sets": "val", "corrupted.frost": FROST, "tracking": "offline", **shared}
    found = []
    for name, processes, workers, is_prepared in (("made", 1, 0, 0), ("two", 2, 1, 0), ("files", 1, 0, 1)):
        home = {"BIASBED_HOME": str(tmp_path / name)}
        if is_prepared:
            flags = {"what": "corruptions", "split": "val", "frost": FROST, "processes": 2, **shared}
            done = children.run(["prepare", *(f"--{n}={v}" for n, v in flags.items())], home)
            assert done.returncode == 0, done.stderr
        flags = {**words, "workers": workers}
        done = children.run(
            ["evaluate", *(f"--{n}={v}" for n, v in flags.items())], home, processes=processes, timeout=600
        )
        assert done.returncode == 0, done.stderr
        (folder,) = run_folders(tmp_path / name)
        found += read([folder / f"predictions/val{SUFFIX}/last.parquet"])
    assert len(found[0].images) == 75 * 120
    for other in found[1:]:
        assert list(other.images) == list(found[0].images)
        assert np.array_equal(other.decision, found[0].decision)
        assert np.allclose(other.loss, found[0].loss, atol=1e-5)
