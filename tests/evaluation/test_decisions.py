"""Decisions: shape bias, intervals, calibration and error consistency, whoever decided."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbed import measures, record
from biasbed.data.names import Coded, Names
from biasbed.data.source import MemorySource
from biasbed.data.transforms import Exact
from biasbed.datasets.classes import cue_classes, image_name
from biasbed.errors import UsageError
from biasbed.evaluation import report
from biasbed.evaluation.calibration import ece
from biasbed.evaluation.consistency import consistency, matching_set
from biasbed.evaluation.decisions import MEASURES, SHORTCUT, Decisions, image_keys, pooled
from biasbed.evaluation.intervals import ratio_interval
from biasbed.evaluation.observer_files import read_observers
from biasbed.evaluation.pieces import with_first_labels
from biasbed.suites.sets import EvaluationSet
from helpers.decision_files import HEADER, MIXED, conflicts, write_csv
from replays import load

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
    assert cue_classes(name) == expected


def test_an_experiment_s_prefix_and_folders_are_no_part_of_an_image_s_name() -> None:
    assert image_name("0004_edg_dnn_0_dog_00_dog3.png") == image_name("edge/dog/dog3.png") == "dog3.png"
    assert image_name("0004_ske_dnn_0_dog_00_my_old_dog.png") == "my_old_dog.png"


@pytest.mark.real_data
def test_the_folder_of_every_real_stimulus_is_its_shape(shared: Path) -> None:
    images = list((shared / "data" / "cue-conflict").glob("*/*.png"))
    assert len(images) > 100
    for image in images:
        found = cue_classes(image.name)
        assert found is not None
        assert found[0] == image.parent.name


# --- shape bias -------------------------------------------------------------------------------------------------------


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
    assert pooled(answers).bias is None
    assert pooled(answers).cue_counts() is None


def test_ten_answers_to_one_image_are_ten_trials_and_one_image() -> None:
    group = people(10, 200)
    whole = pooled(group)
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
    text = report.text([*group, whole], [], "observer")
    assert "all people: 2000 trials on 200 images whose cues conflict (0 others left out here)" in text
    assert "over the 10 observers" in text


def _words(*numbers: int) -> Coded:
    return Coded(np.array(numbers), ("zero", "one"))


def test_a_bias_that_is_no_texture_is_called_a_bias(tmp_path: Path) -> None:
    answers = Decisions(
        *("model", "digits", Names("abcd"), _words(0, 0, 1, 1), _words(0, 1, 1, 0), ("zero", "one")),
        bias=_words(0, 1, 0, 0),
        cues=SHORTCUT,
    )
    text = report.text([answers], [])
    assert "digits: 3 images whose class and bias conflict (1 others left out here)" in text
    assert "share of the class 0.3333" in text
    assert "1 class and 2 bias decisions, 100.00 % of the conflicts" in text
    assert "shape" not in text
    assert "texture" not in text
    report.write(tmp_path, [answers], [])
    assert not (tmp_path / record.SHAPE_BIAS_FILE).exists()


def test_accuracy_without_a_wrong_answer_has_an_interval_of_its_images() -> None:
    group = [Decisions(**{**vars(one), "decision": one.label}) for one in people(6, 50)]
    row = report.set_row(pooled(group))
    assert (row["accuracy_low"], row["accuracy_high"]) == measures.wilson(50, 50)


def test_few_observers_have_no_interval_over_observers() -> None:
    whole = pooled(people(4, 50))
    assert np.isnan(report.cue_rows(whole)[0]["shape_bias_observers_low"])
    assert "for these 4 observers alone" in report.text([whole], [], "observer")


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


def answers(observer: str, images: Sequence[str], right: Sequence[bool], condition: str | None = None) -> Decisions:
    label = np.array(["dog"] * len(images), dtype=object)
    decision = np.where(right, label, "cat").astype(object)
    conditions = None if condition is None else [condition] * len(images)
    return Decisions(observer, "edge", images, label, decision, ("cat", "dog"), condition=conditions)


def test_consistency_is_over_the_images_that_both_have_seen() -> None:
    a = answers("a", ["dog/dog1.png", "dog/dog2.png", "dog/dog3.png"], [True, False, True])
    b = answers(
        "b", ["0001_e_d_0_dog_00_dog3.png", "0002_e_d_0_dog_00_dog2.png", "0003_e_d_0_dog_00_dog9.png"], [True] * 3
    )
    (pair,) = consistency([a, b])
    assert (pair.images, pair.both_right, pair.only_a, pair.only_b, pair.both_wrong) == (2, 1, 0, 1, 0)
    assert consistency([a, answers("c", ["x.png"], [True])]) == []


def test_names_that_repeat_are_told_apart_by_condition_then_by_folder() -> None:
    both = [answers(name, ["1_e_d_0_dog_00_dog1.png", "2_e_d_5_dog_00_dog1.png"], [True, True]) for name in "ab"]
    with_conditions = [Decisions(**{**vars(one), "condition": ["0", "5"]}) for one in both]
    assert image_keys(with_conditions) == [["0/dog1.png", "5/dog1.png"]] * 2
    folders = [answers(name, ["cat/art_0.jpg", "dog/art_0.jpg"], [True, True]) for name in "ab"]
    assert image_keys(folders) == [["cat/art_0.jpg", "dog/art_0.jpg"]] * 2
    with pytest.raises(UsageError, match="the same image more than once"):
        image_keys([answers("a", ["dog1.png", "dog1.png"], [True, True])])


def test_decisions_find_the_set_that_they_are_on() -> None:
    sets = {"edge": ["dog/dog1.png"], "silhouette": ["dog/dog1.png"], "val": ["n01/x.JPEG"]}
    one = answers("a", ["0001_e_d_0_dog_00_dog1.png"], [True])
    assert matching_set(one, sets) == "edge"  # its own set's name is among them
    nameless = Decisions(**{**vars(one), "set": "decisions"})
    with pytest.raises(UsageError, match=r"several sets \(edge, silhouette"):
        matching_set(nameless, sets)
    assert matching_set(nameless, {"silhouette": ["dog1.png"], "val": ["x.png"]}) == "silhouette"
    with pytest.raises(UsageError, match="no image of any set"):
        matching_set(nameless, {"val": ["x.png"]})


def test_of_several_right_labels_any_is_right_for_both_of_two_observers() -> None:
    """Each is recorded with the label that it hit, and two may hit different ones."""
    ids, classes = ["a/1.png", "a/2.png", "b/3.png"], ("x", "y", "z")
    accepted = np.array([[True, True, False], [True, False, False], [False, True, True]])
    pixels = np.zeros((3, 3, 2, 2), dtype=np.uint8)
    y = accepted.argmax(axis=1)
    source = MemorySource(name="several", classes=classes, y=y, ids=ids, accepted=accepted, images=pixels)
    entry = EvaluationSet("several", source, Exact(2))

    def observer(name: str, label: str, decision: str) -> Decisions:
        return Decisions(name, "several", Names(ids), Coded.from_names(label), Coded.from_names(decision), classes)

    one, two = observer("one", "xxz", "xyz"), observer("two", "yxy", "yxx")
    with pytest.raises(UsageError, match="is a x for one and y for two"):
        consistency([one, two])
    first, second = (with_first_labels(entry, of) for of in (one, two))
    assert (first.label.tolist(), second.label.tolist()) == (["x", "x", "y"],) * 2
    assert (first.right.tolist(), second.right.tolist()) == ([True, False, True], [True, True, False])
    (pair,) = consistency([first, second])
    assert (pair.both_right, pair.only_a, pair.only_b, pair.both_wrong) == (1, 1, 1, 0)
    wrong = with_first_labels(entry, observer("three", "zxy", "zxy"))
    assert wrong.label.tolist() == ["z", "x", "y"], "a label that is none of the image's stays, to be refused"
