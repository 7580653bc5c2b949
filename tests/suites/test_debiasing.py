"""The suite `debiasing`: cells, groups with roles, the measures of aligned and conflicting images, what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed import record
from biasbed.data.source import MemorySource
from biasbed.data.transforms import SquareResize
from biasbed.datasets import biased
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import MEASURES as COMPUTED
from biasbed.evaluation.decisions import Decisions, accuracy_of_groups
from biasbed.record import MetricName
from biasbed.suites import debiasing, derived, open_suite
from biasbed.suites.sets import EvaluationSet
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers.commands import ROOT

VECTORS = sorted((ROOT / "tests" / "vectors" / "debiasing").glob("decisions_*.csv"))
SMALL: Mapping[str, Any] = {"suite": "debiasing", "device": "cpu", "image_size": 16}


def resolved(**flags: Any) -> Any:
    return resolve({**SMALL, **flags})


# --- measures ---------------------------------------------------------------------------------------------------------


def measured(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """All that a test gives on a set whose images are decided like that."""
    classes = tuple(map(str, range(1 + max(int(column.max()) for column in rows.values()))))
    images = np.zeros((len(rows["y"]), 3, 1, 1), np.uint8)
    ids = list(map(str, range(len(images))))
    source = MemorySource(name="a", classes=classes, y=rows["y"], bias=rows["bias"], ids=ids, images=images)
    entry = EvaluationSet("a", biased.with_groups(source), SquareResize(1), measures=debiasing.MEASURES)
    names = {column: [classes[number] for number in rows[column]] for column in ("y", "bias", "decision")}
    one = Decisions(
        *("me", "a", ids, names["y"], names["decision"], classes), bias=names["bias"], group=entry.source.group
    )
    found = {str(MetricName("test", name, "a")): COMPUTED[name](one) for name in entry.measured}
    found |= {str(MetricName("test", "accuracy", "a", g)): value for g, value in accuracy_of_groups(one).items()}
    found |= derived.derive_values(debiasing._derive("test", entry, False), found)
    return {name.split("/")[1]: value for name, value in found.items() if ":" not in name}


def read(path: Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {column: np.array([int(row[column]) for row in rows]) for column in ("y", "bias", "decision")}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_measures_are_those_of_the_vectors(path: Path) -> None:
    rows, expected = read(path), json.loads(path.with_suffix(".json").read_text())
    if not expected["num_conflicting"]:
        with pytest.raises(
            UsageError, match=r"^none of the 60 images of 'a' is conflicting: there is no AC score, which"
        ):
            measured(rows)
        return
    found = measured(rows)
    ours = {"worst_group_accuracy", "mean_group_accuracy", *(name for name in expected if name in found)}
    assert len(ours) == 9
    for name in ours:
        assert found[name] == pytest.approx(expected[name], abs=1e-12), name


def test_all_wrong_is_a_score_of_zero_and_no_equality() -> None:
    y, bias = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    found = measured({"y": y, "bias": bias, "decision": 1 - y})
    assert found["ac_score"] == 0
    assert "equality_of_opportunity" not in found
    assert "equality_of_opportunity_pooled" not in found


def test_a_class_without_aligned_images_is_left_out_of_equality() -> None:
    y, bias = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 0, 2, 1])
    found = measured({"y": y, "bias": bias, "decision": np.array([0, 1, 1, 2, 2])})
    assert found["equality_of_opportunity"] == 0.5  # of the classes 0 and 2
    assert found["equality_of_opportunity_undefined"] == 1
    assert found["conflicting_accuracy"] == pytest.approx(2 / 3)


def test_a_test_without_aligned_images_is_refused() -> None:
    y = np.array([0, 1])
    with pytest.raises(UsageError, match="none of the 2 images of 'a' is aligned"):
        measured({"y": y, "bias": 1 - y, "decision": y})


def test_numbers_of_images_are_kept_and_not_in_the_protocol() -> None:
    few, many = (open_suite(resolved(**{"data.severity": severity})) for severity in ("0.5", "20"))
    for suite, conflicting in ((few, 2), (many, 44)):
        kept = json.loads(suite.text_files[record.COUNTS_FILE])
        assert kept == dict(suite.counts)
        assert sum(n for name, n in kept.items() if name.startswith("train/")) == len(suite.source("figures")) == 2200
        assert kept["train/images/figures:zero-conflicting"] == conflicting
        assert kept["val/aligned_images/figures_val"] + kept["val/conflicting_images/figures_val"] == 560
    assert few.derivations == many.derivations
    assert few.counts["val/conflicting_images/figures_val"] == 10


# --- severities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("severity", "images", "count"),
    [(0.5, 4500, 23), (0.5, 500, 3), (1, 4500, 45), (2, 500, 10), (5, 4500, 225), (20, 4500, 900), (5, 500, 25)],
)
def test_conflicting_images_of_a_class(severity: float, images: int, count: int) -> None:
    assert biased.number_of_conflicting(severity, images) == count


def test_images_that_conflict_do_so_at_every_larger_severity() -> None:
    y = np.repeat(np.arange(4), 50)
    few, many = (biased.draw_biases(y, s, 4, np.random.default_rng(3)) for s in (5, 20))
    assert [int(((b != y) & (y == 2)).sum()) for b in (few, many)] == [3, 10]
    assert np.array_equal(few[few != y], many[few != y])
    others = biased.draw_biases(y, 90, 4, np.random.default_rng(3))
    assert set(others[(y == 1) & (others != y)]) == {0, 2, 3}


# --- the suite --------------------------------------------------------------------------------------------------------


def test_a_severity_is_a_cell_and_the_block_the_data_set() -> None:
    jobs = {s: job.plan(resolved(**{"data.severity": s})) for s in ("0.5", "20")}
    assert [one.name for one in jobs.values()] == ["erm-figures-0_5-seed0", "erm-figures-20-seed0"]
    assert len({one.tested for one in jobs.values()}) == len({one.protocol.hash for one in jobs.values()}) == 1
    assert len({one.config_hash for one in jobs.values()}) == len({one.fingerprint for one in jobs.values()}) == 2
    few, many = (one.suite.source("figures") for one in jobs.values())
    assert few.bias is not None
    assert many.bias is not None
    assert ((few.bias != few.y).sum(), (many.bias != many.y).sum()) == (20, 440)
    (entry,) = jobs["20"].protocol.sets
    assert (entry.name, entry.block, entry.images) == ("figures_test", "figures", 720)
    assert entry.roles["zero-conflicting"] == {"class": "zero", "alignment": "conflicting"}
    assert (entry.groups["zero-aligned"], entry.groups["zero-conflicting"]) == (8, 64)
    assert jobs["20"].protocol.monitor == "val/ac_score/figures_val"
    assert {"bias", "bias_type", "validation_bias"} <= jobs["20"].suite.provides(["figures"])
