"""Recorded decisions: shape bias, intervals and error consistency, the same from a live model, parquet and CSV."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import all_runs

from biasbed import evaluation_report, measures, recorded
from biasbed.cues import cue_classes, image_name
from biasbed.decisions import Answers, calibration, consistency, identified, image_keys, matching_set, pooled
from biasbed.errors import UsageError
from biasbed.evaluation_report import ratio_interval
from biasbed.recorded import read
from replays import load
from replays.shape_bias import answers as replayed

VECTORS = Path(__file__).parent / "vectors"
HEADER = ("subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename")
CATEGORIES = ("bear", "car", "dog")

Trial = tuple[str, str, str]  # response, category, image


def write_csv(path: Path, subject: str, trials: Sequence[Trial], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore")
        writer.writeheader()
        for number, (response, category, image) in enumerate(trials, 1):
            name = f"{number:04d}_s5n_dnn_0_{category}_00_{image}"
            words = (subject, "1", str(number), "NaN", response, category, "0", name)
            writer.writerow(dict(zip(HEADER, words, strict=True)))
    return path


def conflicts(responses: Sequence[str]) -> list[Trial]:
    """One trial per pair of different categories and one per category with itself."""
    pairs = [(shape, texture) for shape in CATEGORIES for texture in CATEGORIES]
    return [(r, s, f"{s}1-{t}2.png") for r, (s, t) in zip(responses, pairs, strict=True)]


MIXED = ("bear", "bear", "dog", "bear", "car", "na", "bear", "dog", "dog")


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
    (one,) = read([write_csv(tmp_path / "a.csv", "net", conflicts(MIXED))])
    counts = one.cue_counts()
    assert counts is not None
    # shape/texture: decision. bear/car: bear, bear/dog: dog, car/bear: bear, car/dog: na, dog/bear: bear, dog/car: dog
    assert (counts.decisions, counts.shape, counts.texture) == (6, 2, 3)
    assert counts.shape_bias == 2 / 5
    assert counts.coverage == 5 / 6
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
    (one,) = read([path])
    counts = one.cue_counts()
    assert counts is not None
    assert (counts.decisions, counts.shape, counts.texture) == (1200, 162, 572)
    assert counts.shape_bias == pytest.approx(0.220708, abs=5e-7)
    assert one.right.mean() == 224 / 1280
    whole = evaluation_report.cue_rows(one)[0]
    low, high = whole["shape_bias_low"], whole["shape_bias_high"]
    # The normal approximation to a ratio of 734 decisions: 1.96 standard errors of 0.0153.
    assert low == pytest.approx(0.1907, abs=0.004)
    assert high == pytest.approx(0.2507, abs=0.004)


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


def people(number: int, images: int, seed: int = 0) -> list[Answers]:
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
        found.append(Answers(name, "cue_conflict", shown, label, decision, ("cat", "dog"), texture, kind="people"))
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


def test_ten_answers_to_one_image_are_ten_trials_and_one_image() -> None:
    group = people(10, 200)
    whole = pooled(group)
    row, scores = evaluation_report.cue_rows(whole)[0], evaluation_report.set_row(whole)
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
    text = evaluation_report.text([*group, whole], [], "observer")
    assert "all people: 2000 trials on 200 images whose cues conflict (0 others left out here)" in text
    assert "over the 10 observers" in text


def test_copies_of_an_observer_say_no_more_than_the_one() -> None:
    """The interval over images of ten equal observers is that of one of them."""
    (one,) = identified(people(1, 300))
    whole = pooled([Answers(**{**vars(one), "observer": f"subject-{k}"}) for k in range(10)])
    single, ten = evaluation_report.cue_rows(one)[0], evaluation_report.cue_rows(whole)[0]
    for key in ("images", "shape_bias", "shape_bias_low", "shape_bias_high"):
        assert single[key] == ten[key]
    assert ten["shape_bias_observers_low"] == ten["shape_bias_observers_high"] == ten["shape_bias"]


def test_accuracy_without_a_wrong_answer_has_an_interval_of_its_images() -> None:
    group = [Answers(**{**vars(one), "decision": one.label}) for one in people(6, 50)]
    row = evaluation_report.set_row(pooled(group))
    assert (row["accuracy_low"], row["accuracy_high"]) == measures.wilson(50, 50)


def test_few_observers_have_no_interval_over_observers() -> None:
    whole = pooled(people(4, 50))
    assert np.isnan(evaluation_report.cue_rows(whole)[0]["shape_bias_observers_low"])
    assert "for these 4 observers alone" in evaluation_report.text([whole], [], "observer")


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


@settings(deadline=None)  # the first call imports scipy
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
    assert calibration(confidence, right) == pytest.approx((abs(1 - 1.8) + abs(2 - 1.0)) / 4)
    assert calibration(np.array([1.0, 1.0]), np.array([True, True])) == 0
    assert calibration(np.array([0.0]), np.array([True])) == 1


def test_confidence_that_is_drawn_as_stated_is_calibrated() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(200_000)
    assert calibration(confidence, generator.random(200_000) < confidence) < 0.01


def test_bins_are_closed_above() -> None:
    """1/15 is in the first bin and its successor in the second: the two are not averaged."""
    edge = np.array([1 / 15, np.nextafter(1 / 15, 1)])
    assert calibration(edge, np.array([True, False])) == pytest.approx((1 - 1 / 15 + 1 / 15) / 2)


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


def answers(observer: str, images: Sequence[str], right: Sequence[bool], condition: str | None = None) -> Answers:
    label = np.array(["dog"] * len(images), dtype=object)
    decision = np.where(right, label, "cat").astype(object)
    conditions = None if condition is None else [condition] * len(images)
    return Answers(observer, "edge", images, label, decision, ("cat", "dog"), condition=conditions)


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
    with_conditions = [Answers(**{**vars(one), "condition": ["0", "5"]}) for one in both]
    assert image_keys(with_conditions) == [["0/dog1.png", "5/dog1.png"]] * 2
    folders = [answers(name, ["cat/art_0.jpg", "dog/art_0.jpg"], [True, True]) for name in "ab"]
    assert image_keys(folders) == [["cat/art_0.jpg", "dog/art_0.jpg"]] * 2
    with pytest.raises(UsageError, match="the same image more than once"):
        image_keys([answers("a", ["dog1.png", "dog1.png"], [True, True])])


def test_different_labels_are_different_images() -> None:
    other = answers("b", ["dog1.png"], [True])
    with pytest.raises(UsageError, match=r"dog1\.png is a dog for a and cat for b"):
        consistency([answers("a", ["dog1.png"], [True]), Answers(**{**vars(other), "label": np.array(["cat"])})])


def test_decisions_find_the_set_that_they_are_on() -> None:
    sets = {"edge": ["dog/dog1.png"], "silhouette": ["dog/dog1.png"], "val": ["n01/x.JPEG"]}
    one = answers("a", ["0001_e_d_0_dog_00_dog1.png"], [True])
    assert matching_set(one, sets) == "edge"  # its own set's name is among them
    nameless = Answers(**{**vars(one), "set": "decisions"})
    with pytest.raises(UsageError, match=r"several sets \(edge, silhouette"):
        matching_set(nameless, sets)
    assert matching_set(nameless, {"silhouette": ["dog1.png"], "val": ["x.png"]}) == "silhouette"
    with pytest.raises(UsageError, match="no image of any set"):
        matching_set(nameless, {"val": ["x.png"]})


# --- files ------------------------------------------------------------------------------------------------------------


def test_subjects_over_several_files_are_put_together(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    files = [
        write_csv(tmp_path / "s1.csv", "subject-01", trials[:4]),
        write_csv(tmp_path / "s2.csv", "subject-01", trials[4:]),
        write_csv(tmp_path / "s3.csv", "subject-02", trials),
    ]
    one, two = read(files)
    assert (one.observer, two.observer) == ("subject-01", "subject-02")
    found = [counts for counts in (one.cue_counts(), two.cue_counts()) if counts is not None]
    assert [(counts.decisions, counts.shape, counts.texture) for counts in found] == [(6, 2, 3)] * 2
    whole = pooled([one, two]).cue_counts()
    assert whole is not None
    assert (whole.decisions, whole.shape, whole.texture) == (12, 4, 6)
    assert consistency([one, two])[0].kappa == 1


def test_people_are_told_from_models_by_name_or_by_reaction_time(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    files = [write_csv(tmp_path / f"{name}.csv", name, trials) for name in ("subject-01", "resnet50", "anna")]
    files[2].write_text(files[2].read_text().replace("NaN", "0.51"))
    assert {one.observer: one.kind for one in read(files)} == {
        "subject-01": "people",
        "resnet50": "models",
        "anna": "people",
    }


def in_sessions(path: Path, subject: str, *sessions: Sequence[Trial]) -> Path:
    """One file in which the images of each session are those of the one before, in another order."""
    lines = []
    for number, trials in enumerate(sessions, 1):
        part = write_csv(path, subject, trials).read_text().splitlines()
        lines += [line.replace(",1,", f",{number},", 1) for line in part[bool(lines) :]]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_image_in_several_sessions_is_one_image(tmp_path: Path) -> None:
    trials, other = conflicts(MIXED), conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3)
    (one,) = identified(read([in_sessions(tmp_path / "a.csv", "subject-01", trials, other[::-1])]))
    row, scores = evaluation_report.cue_rows(one)[0], evaluation_report.set_row(one)
    assert (row["images"], row["trials"], row["shape"], row["texture"]) == (6, 12, 2 + 6, 3)
    assert (scores["images"], scores["trials"], scores["correct"]) == (9, 18, 5 + 9)
    assert evaluation_report.consistency_row(consistency([one, one])[0])["trials"] == 18


def test_sessions_are_compared_with_their_own_and_a_model_with_all(tmp_path: Path) -> None:
    trials, other = conflicts(MIXED), conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3)
    first = in_sessions(tmp_path / "a.csv", "subject-01", trials, other)
    second = in_sessions(tmp_path / "b.csv", "subject-02", trials, other[::-1])
    people_only = consistency(read([first, second]))[0]
    assert (people_only.images, people_only.trials, people_only.kappa) == (9, 18, 1)
    found = consistency(read([first, write_csv(tmp_path / "net.csv", "net", trials)]))[0]
    # The net is right on 5 of 9: as the subject in session 1; in session 2 the subject is right on all.
    assert (found.images, found.trials) == (9, 18)
    assert (found.both_right, found.only_a, found.only_b, found.both_wrong) == (10, 4, 0, 4)


def test_trials_without_conflicts_are_a_set_of_their_own(tmp_path: Path) -> None:
    trials = [*conflicts(MIXED), ("dog", "dog", "dog7.png")]
    found = read([write_csv(tmp_path / "a.csv", "net", trials)])
    assert {one.set: len(one.label) for one in found} == {"cue_conflict": 9, "decisions": 1}
    assert next(one for one in found if one.set == "decisions").cue_counts() is None


def test_files_are_told_from_other_models() -> None:
    assert [path.name for path in recorded.files("a.csv, /tmp/b.parquet")] == ["a.csv", "b.parquet"]
    assert recorded.files("timm:resnet50.a1_in1k") == ()
    assert recorded.files("a.csv,model.ckpt") == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "lacks the column object_response, category, imagename; it has no lines"),
        ("subj,trial\na,1\n", "lacks the column object_response, category, imagename"),
        ("object_response,category,imagename\n", "holds no trials"),
        ("object_response,category,imagename\ndog,cat,dog1-cat2.png\n", "shows the shape dog, but its category is cat"),
    ],
)
def test_files_that_hold_something_else(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UsageError, match=message):
        read([tmp_path / "a.csv"])


ROW = "dog,dog,dog1-cat2.png\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("dog", "has fewer fields than the first line has names, 1 and 3"),
        ("dog,dog", "has fewer fields than the first line has names, 2 and 3"),
        ("dog,dog,dog1-cat2.png,0.5", "has more fields than the first line has names, 4 and 3"),
        (",dog,dog1-cat2.png", "has an empty object_response (a trial without a response has 'na' there)"),
        ("dog,,dog1-cat2.png", "has an empty category"),
        ("dog,dog,", "has an empty imagename"),
        ("dog,dog, ", "has an empty imagename"),
        ("dog,dog,dog1-cat2", "'dog1-cat2' is called unlike the other images: was the file cut off?"),
        ("dog,dog,dog1-cat2.p", "was the file cut off?"),
        ('dog,dog,"dog1-cat2.png', "unexpected end of data"),
        ("\0\0\0", "has a NUL character"),
        ("dog,dog,dog1-cat2.png\0", "has a NUL character"),
        ("dog,dog,\udcff", "it is no UTF-8"),
        ("dog,dog," + 140_000 * "x", "field larger than field limit"),
    ],
)
def test_a_row_that_is_not_whole_is_refused_by_its_line(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"object_response,category,imagename\n{ROW}{ROW}{row}", errors="surrogateescape")
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read([path])
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_gives_its_whole_rows_or_is_refused(tmp_path: Path) -> None:
    """A cut within a row is noticed, but for those that leave the image's name whole."""
    whole = write_csv(tmp_path / "a.csv", "net", conflicts(MIXED)).read_text()
    for end in range(whole.index("\n") + 2, len(whole)):
        (tmp_path / "a.csv").write_text(whole[:end])
        rows = whole[:end].splitlines()
        if rows[-1].endswith(".png"):
            assert len(read([tmp_path / "a.csv"])[0].label) == len(rows) - 1
        elif len(rows) > 2:
            with pytest.raises(UsageError, match="cut off"):
                read([tmp_path / "a.csv"])


WORDS = st.sampled_from(["dog", "na", "", " ", '"', "\0", "dog1-cat2.png", "0001_a_b_0_c_0_x.png", "é", "1", "nan"])
NOISE = st.binary(max_size=60) | st.lists(st.lists(WORDS, max_size=9).map(",".join)).map(
    lambda x: "\n".join(x).encode()
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.sampled_from([b"", ",".join(HEADER).encode() + b"\n", b"object_response,category,imagename\r\n"]), NOISE)
def test_any_bytes_are_decisions_or_refused(header: bytes, noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(header + noise)
        with contextlib.suppress(UsageError):
            assert all(len(one.label) == len(one.images) > 0 and all(one.decision) for one in read([path]))


def test_parquet_that_holds_something_else(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "junk.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match="can't be read as parquet"):
        read([tmp_path / "junk.parquet"])
    parquet.write_table(pa.table({"image": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="no column label"):
        read([tmp_path / "other.parquet"])
    parquet.write_table(pa.table({"image": ["x"], "label": [None], "decision": ["x"]}), tmp_path / "null.parquet")
    with pytest.raises(UsageError, match="the column label has the type null"):
        read([tmp_path / "null.parquet"])
    parquet.write_table(
        pa.table({"image": ["x", "y"], "label": ["x", None], "decision": ["x"] * 2}), tmp_path / "hole.parquet"
    )
    with pytest.raises(UsageError, match="the column label has missing values"):
        read([tmp_path / "hole.parquet"])
    parquet.write_table(pa.table({"decision": ["x"], "label": ["x"], "image": ["x"]}), tmp_path / "name.parquet")
    content = (tmp_path / "name.parquet").read_bytes()
    (tmp_path / "name.parquet").write_bytes(content.replace(b"decision", b"\xffecision"))
    with pytest.raises(UsageError, match="can't be read as parquet"):
        read([tmp_path / "name.parquet"])
    with pytest.raises(UsageError, match="no such file"):
        read([tmp_path / "nowhere.csv"])


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_scores_tracks_and_compares(biasbed: Command, tracking: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "net.csv", "net", conflicts(MIXED))
    write_csv(tmp_path / "human.csv", "subject-01", conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3))
    shown = biasbed("evaluate", "--model", "net.csv,human.csv").stdout
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.info.status == "FINISHED"
    # One model and one person: neither number is of both.
    assert "test/shape_bias/cue_conflict" not in run.data.metrics
    assert run.data.metrics["test/shape_bias/cue_conflict:models"] == 2 / 5
    assert run.data.metrics["test/shape_bias/cue_conflict:people"] == 1
    assert run.data.metrics["test/accuracy/cue_conflict:models"] == 5 / 9
    assert "shape bias 0.4000" in shown
    assert "shape bias 1.0000" in shown
    import mlflow

    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path / "got")))
    with (folder / "evaluation.csv").open() as file:
        scores = {row["observer"]: row for row in csv.DictReader(file)}
    assert {name: int(row["correct"]) for name, row in scores.items()} == {"net": 5, "subject-01": 9}
    assert scores["net"]["ece"] == ""
    with (folder / "shape_bias.csv").open() as file:
        rows = [(row["observer"], row["class"], row["shape"], row["texture"]) for row in csv.DictReader(file)]
    assert ("net", "all", "2", "3") in rows
    assert ("subject-01", "dog", "2", "0") in rows
    with (folder / "error_consistency.csv").open() as file:
        (pair,) = csv.DictReader(file)
    assert (pair["a"], pair["b"], pair["only_b"], pair["kappa"]) == ("net", "subject-01", "4", "0.0")


def test_a_group_of_people_and_one_of_models_are_two(biasbed: Command, tracking: str, tmp_path: Path) -> None:
    names = ("net", "subject-01", "subject-02")
    for name in names:
        write_csv(tmp_path / f"{name}.csv", name, conflicts(MIXED if name == "net" else ["dog"] * 9))
    shown = biasbed("evaluate", "--model", ",".join(f"{name}.csv" for name in names)).stdout
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.data.metrics["test/accuracy/cue_conflict:people"] == 6 / 18
    assert run.data.metrics["test/accuracy/cue_conflict:models"] == 5 / 9
    assert "all people: 12 trials on 6 images whose cues conflict (3 others left out here)" in shown
    assert "all models" not in shown
    import mlflow

    path = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="protocol.json")
    (entry,) = json.loads(Path(path).read_text())["sets"]
    assert entry["images"] == 9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "nowhere.csv"), "no such file"),
        (("--model", "a.csv", "--compare", "a.csv"), "compare= is for a model that is tested here"),
        (("--model", "a.csv", "--label_map", "x.yaml"), "label_map= is for a model"),
    ],
)
def test_wrong_commands(words: Sequence[str], message: str, biasbed: Command, tracking: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "net", conflicts(MIXED))
    done = biasbed("evaluate", *words, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert not all_runs(tracking)


def test_recorded_decisions_need_no_torch(tmp_path: Path) -> None:
    import subprocess

    from conftest import command_environment

    write_csv(tmp_path / "a.csv", "net", conflicts(MIXED))
    code = (
        "import sys; from biasbed.cli import main; "
        "assert main(['evaluate', '--model', 'a.csv', '--tracking', 'offline']) == 0; assert 'torch' not in sys.modules"
    )
    environment = command_environment({"BIASBED_HOME": str(tmp_path / "home")})
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)


def test_vectors_of_shape_bias_by_class_add_up() -> None:
    one = replayed(load(VECTORS / "shape_bias_synthetic.npz"))
    whole, *classes = evaluation_report.cue_rows(one)
    for column in ("images", "shape", "texture"):
        assert sum(row[column] for row in classes) == whole[column]


def test_two_answers_to_one_image_are_refused(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    (once,) = read([write_csv(tmp_path / "a.csv", "s1", [*trials, trials[0]])])
    with pytest.raises(UsageError, match="same image more than once"):
        image_keys([once])
