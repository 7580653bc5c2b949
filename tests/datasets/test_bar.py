"""BAR as released, and the Align-Conflict paper's division of it."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed import cli, record
from biasbed.datasets.bar import CLASSES, BarSplit
from biasbed.errors import UsageError
from biasbed.suites import debiasing, name_conflicts, open_suite
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


def test_severities_stand_in_one_table_though_one_tests_fewer_images(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As cells of one data set, where it is the severity that leaves fewer."""
    words = ["benchmark", "--suite", "debiasing", "--data_dir", str(data_dir), "--algorithms", "erm"]
    words += ["--train", "bar_ac", "--data.severity", "1,20", "--dry_run", "true"]
    assert cli.main(words) == 0
    assert "  erm-bar_ac-20 seeds 0, 1, 2\n" in capsys.readouterr().out
    assert cli.main([*words, "--train", "bar,bar_ac", "--data.severity", "auto"]) == 2
    assert "'bar' and 'bar_ac' are versions of the same images (runs " in capsys.readouterr().err
    few, many = (opened(data_dir, "bar_ac", **{"data.severity": s}).sets[0].record() for s in ("1", "20"))
    tests = [
        name_conflicts.TestedCell(cell, cell, record.Protocol("debiasing", (own,), ("bar_ac",), (), "val/loss/x"), "")
        for cell, own in (("1", few), ("20", many), ("renamed", replace(many, groups={"other": 1})))
    ]
    assert not name_conflicts.find_name_conflict(tests[:2])
    assert name_conflicts.find_name_conflict(tests).startswith(
        "two data sets of one table are called 'bar_ac' (runs 1 and renamed)"
    )


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


@pytest.mark.parametrize(
    ("train", "severity", "message"),
    [
        ("bar", "5", "data.severity=5: the training images of 'bar' have none that conflict; leave it out"),
        ("bar_ac", "2", "data.severity=2: 'bar_ac' is divided at 1, 5, 20 % only"),
    ],
)
def test_severities_that_there_are_not(data_dir: Path, train: str, severity: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        opened(data_dir, train, **{"data.severity": severity})


def test_a_method_with_bias_labels_is_refused(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--suite", "debiasing", "--train", "bar_ac", "--data_dir", str(data_dir), "--algorithm", "end"]
    assert cli.main(["train", *flags]) == 2
    assert "bias labels of the training images" in capsys.readouterr().err.splitlines()[-1]


def test_what_is_not_bar_is_refused(tmp_path: Path, data_dir: Path) -> None:
    for part in OFFICIAL:
        (tmp_path / "BAR" / part).mkdir(parents=True)
    with pytest.raises(UsageError, match="expected images in train/ itself"):
        opened(tmp_path, "bar")
    for part in OFFICIAL:
        for name in CLASSES:
            os.link(data_dir / "image.jpg", tmp_path / "BAR" / part / f"{name}_1.jpg")
    with pytest.raises(UsageError, match=r"too few images for 'bar_ac': 6 aligned images where 1,941 are needed, 1,9"):
        opened(tmp_path, "bar_ac")
    os.link(data_dir / "image.jpg", tmp_path / "BAR" / "test" / "swimming_1.jpg")
    with pytest.raises(UsageError, match=r"swimming_1.jpg: expected <class>_<number>.jpg with one of climbing, "):
        opened(tmp_path, "bar")
    (tmp_path / "BAR" / "test" / "swimming_1.jpg").unlink()
    (tmp_path / "BAR" / "test" / "diving_1.jpg").unlink()
    with pytest.raises(UsageError, match="test has no images of diving"):
        opened(tmp_path, "bar")


def test_the_doctor_counts_by_cell(data_dir: Path) -> None:
    contents = BarSplit().contents(data_dir)
    assert contents.differences == ()
    assert contents.remarks[1] == (
        "conflicting images in test: climbing 105, diving 159, fishing 42, pole vaulting 131, racing 132, throwing 85"
    )


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="a sample of BAR that is not passed on")
def test_the_sample_is_read() -> None:
    suite = opened(SAMPLE.parent, "bar")
    assert [len(s) for s in (suite.source("bar"), suite.validation[0].source, suite.sets[0].source)] == [
        132,
        12,
        48,
    ]  # 22 and 2 of each class
    assert suite.source("bar").load(0).ndim == 3
