"""Decisions: shape bias, intervals, calibration and error consistency, whoever decided."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbed import measures, record
from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import image_name, parse_cue_classes
from biasbed.evaluation import report
from biasbed.evaluation.calibration import ece
from biasbed.evaluation.decisions import SHORTCUT, Decisions
from biasbed.evaluation.intervals import ratio_interval

# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("airplane/airplane10-bicycle2.png", ("airplane", "bicycle")),
        ("0001_s5n_dnn_0_airplane_00_airplane1-bicycle2.png", ("airplane", "bicycle")),
        ("airplane1.png", None),
        ("n01440764/ILSVRC2012_val_00000293.JPEG", None),
        ("self-portrait.png", None),
    ],
)
def test_cues_are_read_from_names(name: str, expected: tuple[str, str] | None) -> None:
    assert parse_cue_classes(name) == expected


def test_an_experiment_s_prefix_and_folders_are_no_part_of_an_image_s_name() -> None:
    assert image_name("0004_edg_dnn_0_dog_00_dog3.png") == image_name("edge/dog/dog3.png") == "dog3.png"
    assert image_name("0004_ske_dnn_0_dog_00_my_old_dog.png") == "my_old_dog.png"


@pytest.mark.real_data
def test_the_folder_of_every_real_stimulus_is_its_shape(shared: Path) -> None:
    images = list((shared / "data" / "cue-conflict").glob("*/*.png"))
    assert len(images) > 100
    for image in images:
        found = parse_cue_classes(image.name)
        assert found is not None
        assert found[0] == image.parent.name


# --- shape bias -------------------------------------------------------------------------------------------------------


def test_the_interval_is_the_bootstrap_over_images() -> None:
    """Sums that are drawn anew are images that are drawn anew: the same quantiles, by another route."""
    shape, either = np.arange(300) < 60, np.arange(300) < 180
    drawn = np.random.default_rng(1).integers(0, 300, (4000, 300))
    expected = np.quantile(shape[drawn].sum(1) / either[drawn].sum(1), [0.025, 0.975])
    images = np.arange(300)
    assert ratio_interval(shape, either, images) == pytest.approx(tuple(expected), abs=0.012)
    assert ratio_interval(shape, either, images) == ratio_interval(shape[::-1], either[::-1], images[::-1])
    assert all(np.isnan(ratio_interval(shape, np.zeros(300, bool), images)))


# --- several observers ------------------------------------------------------------------------------------------------


def _words(*numbers: int) -> Coded:
    return Coded(np.array(numbers), ("zero", "one"))


def test_a_bias_that_is_no_texture_is_called_a_bias(tmp_path: Path) -> None:
    answers = Decisions(
        *("model", "digits", Names("abcd"), _words(0, 0, 1, 1), _words(0, 1, 1, 0), ("zero", "one")),
        bias=_words(0, 1, 0, 0),
        cues=SHORTCUT,
    )
    text = report.format_report([answers])
    assert "digits: 3 images whose class and bias conflict (1 others left out here)" in text
    assert "share of the class 0.3333" in text
    assert "1 class and 2 bias decisions, 100.00 % of the conflicts" in text
    assert "shape" not in text
    assert "texture" not in text
    report.write_tables(tmp_path, [answers])
    assert not (tmp_path / record.SHAPE_BIAS_FILE).exists()


@pytest.mark.real_data
def test_the_interval_over_the_published_observers(shared: Path) -> None:
    """Geirhos et al. 2019: ten people, 1200 conflicts each; shape bias 0.9587, over observers 0.948 to 0.969."""
    counts: dict[str, list[int]] = {}
    with (shared / "published" / "shape_bias_observers.csv").open() as file:
        for row in csv.DictReader(file):
            if row["observer"].startswith("subject"):
                found = counts.setdefault(row["observer"], [0, 0, 0])
                for at, key in enumerate(("shape", "texture", "other")):
                    found[at] += int(row[key])
    assert len(counts) == 10
    outcome = np.concatenate([np.repeat([0, 1, 2], found) for found in counts.values()])
    member = np.repeat(np.arange(10), [sum(found) for found in counts.values()])
    low, high = ratio_interval(outcome == 0, outcome < 2, member)
    assert (outcome == 0).sum() / (outcome < 2).sum() == pytest.approx(0.9587, abs=5e-5)
    assert (low, high) == pytest.approx((0.948, 0.969), abs=0.0015)


# --- accuracy, calibration, consistency -------------------------------------------------------------------------------


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.99))
def test_the_interval_of_an_accuracy_is_scipy_s(counts: tuple[int, int], level: float) -> None:
    from scipy.stats import binomtest

    expected = binomtest(*counts).proportion_ci(level, "wilson")
    low, high = measures.wilson(*counts, level)
    assert low == pytest.approx(expected.low, abs=1e-9)
    assert high == pytest.approx(expected.high, abs=1e-9)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def test_calibration_is_the_gap_within_bins() -> None:
    """By hand: two images at 0.9 of which one is right, two at 0.5 that are both right."""
    confidence, right = np.array([0.9, 0.9, 0.5, 0.5]), np.array([True, False, True, True])
    assert ece(confidence, right) == pytest.approx((abs(1 - 1.8) + abs(2 - 1.0)) / 4)
    assert ece(np.array([1.0, 1.0]), np.array([True, True])) == 0
    assert ece(np.array([0.0]), np.array([True])) == 1


def test_bins_are_closed_above() -> None:
    """1/15 is in the first bin and its successor in the second: the two are not averaged."""
    edge = np.array([1 / 15, np.nextafter(1 / 15, 1)])
    assert ece(edge, np.array([True, False])) == pytest.approx((1 - 1 / 15 + 1 / 15) / 2)


def test_kappa_is_cohen_s() -> None:
    from sklearn.metrics import cohen_kappa_score

    generator = np.random.default_rng(3)
    a, b = generator.random(500) < 0.7, generator.random(500) < 0.4
    cells = [int((x & y).sum()) for x, y in ((a, b), (a, ~b), (~a, b), (~a, ~b))]
    assert measures.error_consistency(*cells) == pytest.approx(cohen_kappa_score(a, b))
    assert measures.error_consistency(5, 0, 0, 5) == 1
    assert measures.error_consistency(25, 25, 25, 25) == 0
    assert np.isnan(measures.error_consistency(7, 0, 0, 0))
    with pytest.raises(ValueError, match="no images"):
        measures.error_consistency(0, 0, 0, 0)
