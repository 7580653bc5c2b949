"""Several observers: their files, images that are one, and all of a kind as one observer."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from biasbed import measures
from biasbed.data.names import Coded, Names
from biasbed.errors import UsageError
from biasbed.evaluation import report
from biasbed.evaluation.decisions import MEASURES, Decisions
from biasbed.plugins.recorded_answers.observers import find_image_names, pool, read_observers
from helpers.decision_files import HEADER, MIXED, conflicts, write_csv
from replays import load


def test_csv_gives_what_the_counts_give_by_hand(tmp_path: Path) -> None:
    (one,) = read_observers([write_csv(tmp_path / "a.csv", "net", conflicts(MIXED))])
    counts = one.cue_counts()
    assert counts is not None
    # shape/texture: decision. bear/car: bear, bear/dog: dog, car/bear: bear, car/dog: na, dog/bear: bear, dog/car: dog
    assert (counts.decisions, counts.shape, counts.texture) == (6, 2, 3)
    assert counts.shape_bias == 2 / 5
    assert MEASURES["cue_coverage"](one) == 5 / 6
    assert one.right.sum() == 5
    bear = one.cue_counts("bear")
    assert bear is not None
    assert (bear.decisions, bear.shape, bear.texture) == (2, 1, 1)


@pytest.mark.real_data
def test_the_published_shape_bias_of_resnet50(shared: Path, tmp_path: Path) -> None:
    """Geirhos et al. 2019, raw data: 162 of 734 decisions for a cue are for the shape."""
    case = load(shared / "vectors" / "shape_bias_raw_resnet50_session-1.npz")
    path = tmp_path / "resnet50.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for row in zip(case["object_response"], case["category"], case["imagename"], strict=True):
            writer.writerow(["resnet50", "1", "1", "NaN", row[0], row[1], "0", row[2]])
    (one,) = read_observers([path])
    counts = one.cue_counts()
    assert counts is not None
    assert (counts.decisions, counts.shape, counts.texture) == (1200, 162, 572)
    assert counts.shape_bias == pytest.approx(0.220708, abs=5e-7)
    assert one.right.mean() == 224 / 1280
    whole = report.cue_rows(one)[0]
    low, high = whole["shape_bias_low"], whole["shape_bias_high"]
    # Wilson's: centre (p + z^2/2n) / (1 + z^2/n), 1.96 standard errors of about 0.0153 to either side.
    assert low == pytest.approx(0.1922, abs=5e-5)
    assert high == pytest.approx(0.2521, abs=5e-5)


def answers(observer: str, images: Sequence[str], right: Sequence[bool], condition: str | None = None) -> Decisions:
    label = np.array(["dog"] * len(images), dtype=object)
    decision = np.where(right, label, "cat").astype(object)
    conditions = None if condition is None else [condition] * len(images)
    return Decisions(observer, "edge", images, label, decision, ("cat", "dog"), condition=conditions)


def test_names_that_repeat_are_told_apart_by_condition_then_by_folder() -> None:
    both = [answers(name, ["1_e_d_0_dog_00_dog1.png", "2_e_d_5_dog_00_dog1.png"], [True, True]) for name in "ab"]
    with_conditions = [Decisions(**{**vars(one), "condition": ["0", "5"]}) for one in both]
    assert find_image_names(with_conditions) == [["0/dog1.png", "5/dog1.png"]] * 2
    folders = [answers(name, ["cat/art_0.jpg", "dog/art_0.jpg"], [True, True]) for name in "ab"]
    assert find_image_names(folders) == [["cat/art_0.jpg", "dog/art_0.jpg"]] * 2
    with pytest.raises(UsageError, match="the same image more than once"):
        find_image_names([answers("a", ["dog1.png", "dog1.png"], [True, True])])


def people(number: int, images: int, seed: int = 0) -> list[Decisions]:
    """Observers who find the same images hard, and of whom some are better than others."""
    generator = np.random.default_rng(seed)
    hard, skill = generator.normal(0, 2, images), generator.normal(2, 0.7, number)
    found = []
    for one in range(number):
        shape = generator.random(images) < 1 / (1 + np.exp(hard - skill[one]))
        shown = [f"{k:04d}_e_s{one:02d}_0_dog_00_dog{k}-cat1.png" for k in range(images)]
        decision = np.where(shape, "dog", np.where(generator.random(images) < 0.5, "cat", "na")).astype(object)
        label, texture = (np.array([name] * images, dtype=object) for name in ("dog", "cat"))
        name = f"subject-{one:02d}"
        found.append(Decisions(name, "cue_conflict", shown, label, decision, ("cat", "dog"), texture, kind="people"))
    return found


def redrawn(table: np.ndarray, axis: int) -> tuple[float, float]:
    """Percentile bootstrap of table[0].sum() / table[1].sum() over one axis, [2, observers, images], slowly."""
    generator = np.random.default_rng(7)
    size = table.shape[axis]
    found = []
    for _ in range(1500):
        part = table.take(generator.integers(0, size, size), axis=axis)
        found.append(part[0].sum() / part[1].sum())
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def test_pooled_observers_of_images_without_cues_have_none() -> None:
    names = ("x", "y")
    label = Coded.from_names("xy")
    answers = [Decisions(name, "plain", Names(["a", "b"]), label, label, names) for name in ("one", "two")]
    assert pool(answers).bias is None
    assert pool(answers).cue_counts() is None


def test_ten_answers_to_one_image_are_ten_trials_and_one_image() -> None:
    group = people(10, 200)
    whole = pool(group)
    row, scores = report.cue_rows(whole)[0], report.set_row(whole)
    assert (row["images"], row["trials"]) == (200, 2000) == (scores["images"], scores["trials"])
    shape = np.array([one.right for one in group])
    either = shape | np.array([one.decision == "cat" for one in group])
    table = np.stack([shape, either]).astype(float)
    for name, axis in (("shape_bias", 2), ("shape_bias_observers", 1)):
        expected = redrawn(table, axis)
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx(expected, abs=0.01), name
    table[1] = 1
    for name, axis in (("accuracy", 2), ("accuracy_observers", 1)):
        expected = redrawn(table, axis)
        assert (scores[f"{name}_low"], scores[f"{name}_high"]) == pytest.approx(expected, abs=0.01), name
    trials = measures.wilson(int(shape.sum()), shape.size)
    assert scores["accuracy_high"] - scores["accuracy_low"] > 1.3 * (trials[1] - trials[0])
    text = report.format_report([*group, whole], "observer")
    assert "all people: 2000 trials on 200 images whose cues conflict (0 others left out here)" in text
    assert "over the 10 observers" in text


def test_accuracy_without_a_wrong_answer_has_an_interval_of_its_images() -> None:
    group = [Decisions(**{**vars(one), "decision": one.label}) for one in people(6, 50)]
    row = report.set_row(pool(group))
    assert (row["accuracy_low"], row["accuracy_high"]) == measures.wilson(50, 50)


def test_few_observers_have_no_interval_over_observers() -> None:
    whole = pool(people(4, 50))
    assert np.isnan(report.cue_rows(whole)[0]["shape_bias_observers_low"])
    assert "for these 4 observers alone" in report.format_report([whole], "observer")
