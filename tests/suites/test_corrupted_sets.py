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
from biasbed.prepare.run import prepare
from biasbed.suites import derived, open_suite
from biasbed.suites.corrupted_sets import SUFFIX
from biasbed.suites.suite import OpenSuite
from biasbed.training.resolve import resolve
from helpers.commands import ROOT
from helpers.corrupted_tree import jpeg
from helpers.domain_tree import make_domains

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
    found = derived.derive_values(protocol.derived, accuracies)
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
