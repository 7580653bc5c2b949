"""BAR as released, and the Align-Conflict paper's division of it."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed.datasets.bar import CLASSES
from biasbed.suites import debiasing, open_suite
from biasbed.training.resolve import resolve
from helpers.commands import SHARED

SAMPLE = SHARED / "data" / "BAR"
OFFICIAL = {"train": (326, 520, 163, 279, 336, 317), "test": (105, 159, 42, 131, 132, 85)}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree at the official counts: one image under 2,595 names."""
    root = tmp_path_factory.mktemp("data")
    image = root / "image.jpg"
    Image.new("RGB", (8, 8), (90, 120, 60)).save(image)
    for part, counts in OFFICIAL.items():
        (root / "BAR" / part).mkdir(parents=True)
        for name, count in zip(CLASSES, counts, strict=True):
            for number in range(count):
                os.link(image, root / "BAR" / part / f"{name}_{number}.jpg")
    return root


def opened(data_dir: Path, train: str, **flags: Any) -> Any:
    return open_suite(resolve({"suite": "debiasing", "train": train, "data_dir": str(data_dir), **flags}))


@pytest.mark.parametrize(("severity", "train", "valid", "test"), [(1, 13, 6, 280), (5, 76, 7, 280), (20, 370, 41, 198)])
def test_the_paper_s_counts(data_dir: Path, severity: int, train: int, valid: int, test: int) -> None:
    suite = opened(data_dir, "bar_ac", **{"data.severity": str(severity)})
    assert suite.cell == f"bar_ac-{severity}"
    training, validation, testing = suite.source("bar_ac"), suite.validation[0].source, suite.sets[0].source
    assert training.bias is None
    folders = [Counter(i.split("/")[0] for i in source.ids) for source in (training, validation, testing)]
    assert folders == [{"train": 1493, "test": train}, {"train": 168, "test": valid}, {"train": test, "test": test}]
    for source in (validation, testing):
        assert [i.startswith("train/") for i in source.ids] == (source.bias == source.y).tolist()
        is_conflicting = source.bias != source.y
        assert set(source.y[is_conflicting]) == set(source.y[~is_conflicting]) == set(range(6))
    ids = [i for source in (training, validation, testing) for i in source.ids]
    assert len(set(ids)) == len(ids)
    share = np.bincount(testing.y[testing.bias == testing.y]) / test
    assert np.abs(share - np.array(OFFICIAL["train"]) / 1941).max() < 1 / test


def test_the_division_follows_from_the_data_s_seed(data_dir: Path) -> None:
    first, again, other = (opened(data_dir, "bar_ac", **flags) for flags in ({}, {"seed": 1}, {"data.seed": 1}))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    tests = [opened(data_dir, "bar_ac", **{"data.severity": s}).sets[0].source for s in ("1", "5", "20")]
    assert list(tests[0].ids) == list(tests[1].ids)
    assert set(tests[2].ids) < set(tests[0].ids)
    rows = list(csv.DictReader(first.files[debiasing.IMAGES_FILE].splitlines()))
    assert Counter((row["split"], row["alignment"]) for row in rows) == {
        **{("train", ""): 1569, ("val", "aligned"): 168, ("val", "conflicting"): 7},
        **{("test", "aligned"): 280, ("test", "conflicting"): 280},
    }


def test_as_released(data_dir: Path) -> None:
    suite = opened(data_dir, "BAR")
    training, validation, test = suite.source("bar"), suite.validation[0].source, suite.sets[0].source
    assert [len(source) for source in (training, validation, test)] == [1746, 195, 654]
    assert tuple(np.bincount(test.y)) == OFFICIAL["test"]
    assert suite.protocol(resolve({"suite": "debiasing", "train": "bar"})).monitor == "val/accuracy/bar_val"
    assert suite.remarks == (
        "'bar' is trained and validated on aligned images and tested on conflicting ones: no AC score",
    )
    assert suite.provides(["bar"]) == {"bias_type"}
    assert opened(data_dir, "bar_ac").provides(["bar_ac"]) == {"bias_type", "validation_bias"}
    split = opened(data_dir, "bar_ac").sets[0]
    assert not {suite.sets[0].name, suite.sets[0].block} & {split.name, split.block}  # never one column of a table


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="a sample of BAR that is not passed on")
def test_the_sample_is_read() -> None:
    suite = opened(SAMPLE.parent, "bar")
    assert [len(s) for s in (suite.source("bar"), suite.validation[0].source, suite.sets[0].source)] == [
        132,
        12,
        48,
    ]  # 22 and 2 of each class
    assert suite.source("bar").load(0).ndim == 3
