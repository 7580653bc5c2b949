"""Tests that decode once: equal decisions, what is kept and for how long, and damage that is never read."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from biasbed.compute.distributed import Group
from biasbed.config import Config, Preprocess
from biasbed.data import transforms
from biasbed.data.folders import open_folder
from biasbed.data.source import Picture
from biasbed.evaluation.evaluator import Evaluator
from biasbed.plugins.test_images import image_cache as test_cache
from biasbed.plugins.test_images.image_cache import STATE
from biasbed.settings import build
from biasbed.suites.sets import EvaluationSet


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tested(tmp_path: Path, home: Path) -> EvaluationSet:
    """A set of 8 photographs and drawings, among them one that can't be decoded."""
    generator = np.random.default_rng(0)
    for label in ("a", "b"):
        (tmp_path / "set" / label).mkdir(parents=True)
        for number in range(4):
            image = Image.fromarray(generator.integers(0, 256, (50 + number, 60, 3), dtype=np.uint8))
            image.save(tmp_path / "set" / label / f"{number}.{'png' if number else 'jpg'}")
    (tmp_path / "set" / "b" / "3.png").write_bytes(b"no image")
    return EvaluationSet("set", open_folder(tmp_path / "set", "set"), transforms.CentreCrop(32))


def evaluator(tested: EvaluationSet, times: int = 3, workers: int = 0, **settings: Any) -> Evaluator:
    config = build(Config, {"cache.gb": 1.0, "workers": workers, "corrupt": "skip", "precision": "fp32", **settings})
    return Evaluator.from_config([tested], config, Group(), times)


def predict(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.mean((1, 2, 3)), x[:, 0].std((1, 2))], dim=1)


def decide(one: Evaluator) -> tuple[list[int], list[float]]:
    decisions = one.decide(predict)
    assert decisions is not None
    return decisions["set"].decision.codes.tolist(), decisions["set"].confidence.tolist()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Picture]:
    """The pictures that are decoded from now on."""
    pictures: list[Picture] = []
    call = transforms.CentreCrop.__call__

    def noting(self: transforms.CentreCrop, picture: Picture) -> torch.Tensor:
        pictures.append(picture)
        return call(self, picture)

    monkeypatch.setattr(transforms.CentreCrop, "__call__", noting)
    return pictures


def test_decisions_are_the_same_and_nothing_is_decoded_again(tested: EvaluationSet, decoded: list[Picture]) -> None:
    without = evaluator(tested, **{"cache.gb": 0})
    expected = decide(without)
    assert not without.cached
    first = evaluator(tested, workers=2)
    assert decide(first) == expected
    first.close()
    decoded.clear()
    again = evaluator(tested)
    decoded.clear()
    assert decide(again) == expected
    assert not decoded  # the broken file is opened, and is no picture


def test_images_have_the_pixels_and_the_layout_of_their_transform(tested: EvaluationSet) -> None:
    decide(evaluator(tested))
    cached = pickle.loads(pickle.dumps(evaluator(tested).cached["set"]))  # as in a loader process that is spawned
    for row in range(7):
        expected = tested.transform(tested.source.open(row))
        image = cached.read(row, tested.source.version(row))
        assert torch.equal(image, expected)
        assert (image.stride(0) == 1) == (expected.stride(0) == 1)
    assert cached.read(7, tested.source.version(7)) is None


def test_what_is_damaged_or_cut_off_is_decoded_again(tested: EvaluationSet, home: Path) -> None:
    expected = decide(evaluator(tested))
    (path,) = (home / "cache" / "tests").iterdir()
    content = bytearray(path.read_bytes())
    content[8 * STATE + 100] ^= 1
    path.write_bytes(content)
    assert evaluator(tested).cached["set"].read(0, tested.source.version(0)) is None
    assert decide(evaluator(tested)) == expected
    assert evaluator(tested).cached["set"].read(0, tested.source.version(0)) is not None
    os.truncate(path, path.stat().st_size // 2)
    assert decide(evaluator(tested)) == expected


def test_an_image_that_is_written_anew_at_its_old_size_is_decoded_again(tested: EvaluationSet, home: Path) -> None:
    decide(evaluator(tested))
    path = tested.source.root / tested.source.ids[0]
    before, size = path.stat(), path.stat().st_size
    Image.new("RGB", (60, 60), "red").save(path)
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])  # the fingerprint has sizes, not contents
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    expected = decide(evaluator(tested, **{"cache.gb": 0}))
    assert decide(evaluator(tested)) == expected
    (kept,) = (home / "cache" / "tests").iterdir()
    image = evaluator(tested).cached["set"].read(0, tested.source.version(0))
    assert image is not None
    assert torch.equal(image, tested.transform(tested.source.open(0)))
    assert kept.is_file()


def test_other_images_or_another_transform_have_a_file_of_their_own(tested: EvaluationSet, home: Path) -> None:
    decide(evaluator(tested))
    bicubic = transforms.make_photo_transform(32, Preprocess(interpolation="bicubic"))[0]
    other = EvaluationSet("set", tested.source, bicubic)
    assert decide(evaluator(other)) == decide(evaluator(other, **{"cache.gb": 0}))
    Image.new("RGB", (60, 60), "red").save(tested.source.root / "a" / "1.png")
    changed = EvaluationSet("set", open_folder(tested.source.root, "set"), tested.transform)
    assert decide(evaluator(changed)) == decide(evaluator(changed, **{"cache.gb": 0}))
    assert len(list((home / "cache" / "tests").iterdir())) == 3


def test_the_least_recently_used_goes_unless_it_is_in_use(tested: EvaluationSet, home: Path) -> None:
    sizes = [16, 24, 32]
    sets = [EvaluationSet("set", tested.source, transforms.CentreCrop(size)) for size in sizes]
    opened = [evaluator(one) for one in sets[:2]]
    for number, one in enumerate(opened):
        os.utime(one.cached["set"].path, (number, number))
    small = {"cache.gb": (8 * STATE * 2 + 8 * 3 * (24**2 + 32**2)) / 1e9}
    assert not evaluator(sets[2], **small).cached  # both are in use
    for one in opened:
        one.close()
    assert evaluator(sets[2], **small).cached
    remaining = {path.stat().st_size for path in (home / "cache" / "tests").iterdir()}
    assert remaining == {8 * (STATE + 3 * size**2) for size in (24, 32)}


def test_by_itself_it_is_used_where_it_saves_time_and_says_how_much(
    tested: EvaluationSet, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not evaluator(tested, **{"cache.gb": "auto"}).cached
    monkeypatch.setattr(test_cache, "_seconds_per_image", lambda evaluation_set: 2.0)
    assert not evaluator(tested, times=1, **{"cache.gb": "auto"}).cached
    assert not (home / "cache").exists()
    capsys.readouterr()
    decide(evaluator(tested, times=3, **{"cache.gb": "auto"}))
    line = "8 test images are decoded once and kept in .*tests .0.0 GB.: each later test takes about 16 s less"
    assert re.search(line, capsys.readouterr().err)
    once = evaluator(tested, times=1, **{"cache.gb": "auto"})  # what is there already is read, and nothing is added
    assert not once.cached["set"].is_written


def test_a_full_disk_ends_the_keeping_and_nothing_else(
    tested: EvaluationSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = decide(evaluator(tested, **{"cache.gb": 0}))

    def refuse(*arguments: Any) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", refuse)
    assert decide(evaluator(tested)) == expected
    assert capsys.readouterr().err.count("test images are not kept from now on: No space left on device") == 1


def test_sets_that_are_random_or_in_memory_are_not_kept(tested: EvaluationSet) -> None:
    random = EvaluationSet("set", tested.source, lambda picture: transforms.CentreCrop(32)(picture))
    assert not evaluator(random).cached
