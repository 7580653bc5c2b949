"""Cues that a model uses: values, intervals and people of each cue, from decisions alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from biasbed import measures, record
from biasbed.evaluation import intervals, report
from biasbed.evaluation.decisions import IMAGE_VALUES, MEASURES, PEOPLE, Decisions
from biasbed.evaluation.intervals import ratio_interval
from biasbed.plugins.cues import cue_profile, error_ratios
from biasbed.plugins.cues.cue_profile import CueValue
from biasbed.plugins.cues.derivations import derive
from biasbed.plugins.recorded_answers.observers import pool
from biasbed.published import observers

CLASSES = ("a", "b", "c", "d")


def decide(set_name: str, right: np.ndarray, **columns: object) -> Decisions:
    """Return decisions on images of class a, decided for a where `right` holds and for b elsewhere."""
    number = len(right)
    values = {"classes": CLASSES, "label_map": "identity", **columns}
    names = [f"{index}.png" for index in range(number)]
    return Decisions("model", set_name, names, ["a"] * number, np.where(right, "a", "b").tolist(), **values)


def only(rows: list[CueValue], measure: str) -> CueValue:
    (row,) = (row for row in rows if row.measure == measure)
    return row


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(3)


def test_a_gap_is_the_difference_of_the_accuracies_and_pairs_images_that_are_the_same(
    random: np.random.Generator,
) -> None:
    clean = random.random(400) < 0.8
    marked = clean & (random.random(400) < 0.9)
    decided = [decide("imagenet", clean), decide("imagenet_w", marked)]
    derived = list(derive({"imagenet": (), "imagenet_w": ()}))
    row = only(cue_profile.profile(decided, derived), "watermark_gap")
    assert row.value == pytest.approx(clean.mean() - marked.mean())
    assert (row.cue, row.set, row.decisions) == ("watermark", "imagenet_w", 400)
    # The paired interval is that of the mean difference of an image, about 1.96 standard errors to either side.
    difference = clean.astype(float) - marked
    half = 1.96 * difference.std() / math.sqrt(400)
    assert row.low == pytest.approx(row.value - half, abs=0.008)
    assert row.high == pytest.approx(row.value + half, abs=0.008)
    # Other images of the second set are drawn apart: the interval is that of independent means.
    apart = decide("imagenet_w", marked)
    apart = Decisions(**{**vars(apart), "images": [f"other{index}.png" for index in range(400)]})
    wider = only(cue_profile.profile([decided[0], apart], derived), "watermark_gap")
    half = 1.96 * math.sqrt(clean.var() / 400 + marked.var() / 400)
    assert wider.high - wider.low == pytest.approx(2 * half, rel=0.12)
    assert wider.high - wider.low > row.high - row.low


def test_background_gap_takes_the_best_of_all_outputs() -> None:
    ranks = {"imagenet_9_mixed_same": [1, 1, 1, 3], "imagenet_9_mixed_rand": [1, 2, 9, 1]}
    decided = []
    for name, values in ranks.items():
        decided.append(decide(name, np.ones(4, bool), rank=np.array(values), label_map="imagenet_9-prob_max"))
    derived = list(derive(dict.fromkeys(ranks, ())))
    row = only(cue_profile.profile(decided, derived), "background_gap")
    assert row.value == 0.75 - 0.5
    # Answers without ranks, as of people, count by what they say.
    without = [decide(name, np.array(values) == 1) for name, values in ranks.items()]
    assert only(cue_profile.profile(without, derived), "background_gap").value == 0.25


def test_error_ratios_by_factor() -> None:
    right = np.array([1, 0, 1, 1, 0, 0, 1, 1, 1, 1], bool)
    groups = ["pose"] * 5 + ["style"] * 3 + ["none"] * 2
    decisions = decide("imagenet_x", right, group=groups)
    derived = list(derive({"imagenet_x": ("none", "pose", "style")}))
    assert [declaration.measure for declaration in derived] == ["error_ratio_pose", "error_ratio_style"]
    rows = cue_profile.profile([decisions], derived)
    assert only(rows, "error_ratio_pose").value == pytest.approx((2 / 5) / (3 / 10))
    assert only(rows, "error_ratio_style").value == pytest.approx((1 / 3) / (3 / 10))
    # The numerator is the error on the images of the factor alone.
    assert [row.decisions for row in rows] == [5, 3]
    assert {row.unit for row in rows} == {"ratio"}
    assert all(row.low < row.value < row.high for row in rows)


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_image_of_a_factor_leaves_its_error_ratio_open(wrong: int) -> None:
    right = np.arange(1000) < 250
    right[0] = not wrong
    decisions = decide("imagenet_x", right, group=["brighter"] + ["none"] * 999)
    derived = list(derive({"imagenet_x": ("brighter", "none")}))
    row = only(cue_profile.profile([decisions], derived), "error_ratio_brighter")
    low, high = measures.wilson(wrong, 1)  # of the numerator; the divisor is about 0.75
    assert row.value == pytest.approx(wrong / (1 - right.mean()))
    assert (row.low, row.high) == pytest.approx((low / 0.75, high / 0.75), abs=0.05)
    assert (row.low == 0) == (wrong == 0)


def test_error_ratio_of_a_whole_set_has_no_interval() -> None:
    decisions = decide("imagenet_x", np.arange(9) < 4, group=["pose"] * 9)
    derived = list(derive({"imagenet_x": ("pose",)}))
    row = only(cue_profile.profile([decisions], derived), "error_ratio_pose")
    assert row.value == 1
    assert math.isnan(row.low)


def suppressed(clean: np.ndarray, without: np.ndarray, chance: float = 0.25) -> list[CueValue]:
    """Return the profile of decisions on images as they are, and of the same images in grey."""
    number = len(clean)
    names = [f"{condition}/{index}.png" for condition in ("none", "grey") for index in range(number)]
    conditions = ["none"] * number + ["grey"] * number
    decisions = decide("photo_reliance", np.concatenate([clean, without]), condition=conditions)
    decisions = replace(decisions, images=names)
    inputs = tuple(f"test/accuracy_by_condition/photo_reliance:{name}" for name in ("none", "grey"))
    derived = record.Derived("test", "reliance_colour", "photo_reliance", "lost_share", inputs, (chance,))
    return cue_profile.profile([decisions], [derived])


def test_reliance_has_the_interval_of_a_ratio_over_images_that_are_drawn_with_and_without_the_cue(
    random: np.random.Generator,
) -> None:
    clean = random.random(600) < 0.8
    grey = clean & (random.random(600) < 0.7)
    (row,) = suppressed(clean, grey)
    kept = (grey.mean() - 0.25) / (clean.mean() - 0.25)
    assert (row.cue, row.value) == ("colour", pytest.approx(1 - kept))
    # The delta method for a ratio of means over the same images (Cochran 1977, section 6.4).
    residual = (grey - 0.25) - kept * (clean - 0.25)
    half = 1.96 * residual.std() / math.sqrt(600) / (clean.mean() - 0.25)
    assert (row.low, row.high) == pytest.approx((row.value - half, row.value + half), abs=0.015)
    # Drawn apart, the same accuracies would leave more open.
    spread = math.sqrt((grey.var() + kept**2 * clean.var()) / 600) / (clean.mean() - 0.25)
    assert row.high - row.low < 0.9 * 2 * 1.96 * spread


def test_reliance_without_loss_is_zero_and_at_chance_its_interval_is_open(random: np.random.Generator) -> None:
    clean = np.arange(200) < 140
    (row,) = suppressed(clean, clean)
    assert row.value == 0
    assert math.isnan(row.low), "the images don't differ: nothing is known of others that do"
    two_classes = np.arange(200) < 108
    (row,) = suppressed(two_classes, random.random(200) < 0.5, chance=0.5)
    assert math.isnan(row.low)
    assert not math.isnan(row.value)
    assert suppressed(np.arange(200) < 99, clean, chance=0.5) == [], "below chance there is nothing to lose"


def binomial(hits: int, number: int, share: float) -> float:
    return math.comb(number, hits) * share**hits * (1 - share) ** (number - hits)


@pytest.mark.parametrize("images", [1, 3, 12])
def test_the_interval_of_an_error_ratio_covers_it(images: int) -> None:
    # Exact coverage: every number of errors in the part and in the rest, with its probability.
    rest = 60
    part = np.arange(images + rest) < images
    bounds = {}
    for wrong in range(images + 1):
        for wrong_rest in range(rest + 1):
            right = np.concatenate([np.arange(images) >= wrong, np.arange(rest) >= wrong_rest])
            bounds[wrong, wrong_rest] = error_ratios.error_ratio_interval(decide("imagenet_x", right), part)
    coverages = []
    for error in np.linspace(0.05, 0.95, 19):
        for error_rest in (0.15, 0.3, 0.5, 0.8):
            ratio = error / np.average([error, error_rest], weights=[images, rest])
            coverage = 0.0
            for (wrong, wrong_rest), (low, high) in bounds.items():
                if low <= ratio <= high:
                    coverage += binomial(wrong, images, error) * binomial(wrong_rest, rest, error_rest)
            coverages.append(coverage)
    assert np.mean(coverages) > 0.94
    assert min(coverages) > 0.8  # Wilson's own least coverage of one image


def test_a_ratio_s_interval_is_fieller_s_if_both_intervals_are_symmetric() -> None:
    # Donner and Zou 2012: MOVER's limits solve (a - q b)^2 = half_a^2 + q^2 half_b^2.
    numerator, divisor = error_ratios.IntervalEstimate(0.4, 0.3, 0.5), error_ratios.IntervalEstimate(0.7, 0.65, 0.75)
    for ratio in error_ratios.mover_ratio(numerator, divisor):
        assert (0.4 - ratio * 0.7) ** 2 == pytest.approx(0.1**2 + ratio**2 * 0.05**2)
    assert error_ratios.mover_ratio(
        error_ratios.IntervalEstimate(0.0, 0.0, 0.2), error_ratios.IntervalEstimate(0.0, 0.0, 0.1)
    ) == (0, math.inf)
    # With a divisor of 0 the lower limit solves a^2 - (a - low_a)^2 = q^2 high_b^2.
    low, high = error_ratios.mover_ratio(
        error_ratios.IntervalEstimate(0.5, 0.3, 0.7), error_ratios.IntervalEstimate(0.0, 0.0, 0.1)
    )
    assert (low, high) == (pytest.approx(math.sqrt(0.5**2 - 0.2**2) / 0.1), math.inf)


def test_sensitivity_over_all_labels() -> None:
    shape = decide("refined_bias_shape", np.ones(4, bool), rank=np.array([1, 2, 4, 1000]))
    texture = decide("refined_bias_texture", np.ones(2, bool), rank=np.array([1, 10]))
    derived = list(derive({"refined_bias_shape": (), "refined_bias_texture": ()}))
    rows = cue_profile.profile([shape, texture], derived)
    sensitivity = (1 + 0.5 + 0.25 + 0.001) / 4
    assert {row.measure: row.decisions for row in rows if row.cue == "shape"} == {"mrr": 4, "shape_preference": 2}
    values = {(row.cue, row.measure): row.value for row in rows}
    assert values["shape", "mrr"] == pytest.approx(sensitivity)
    assert values["texture", "mrr"] == pytest.approx(0.55)
    assert values["shape", "shape_preference"] == pytest.approx(sensitivity / (sensitivity + 0.55))
    assert MEASURES["mrr"](shape) == pytest.approx(sensitivity)
    # Without ranks there is neither.
    answers = [decide("refined_bias_shape", np.ones(4, bool)), decide("refined_bias_texture", np.ones(2, bool))]
    assert cue_profile.profile(answers, derived) == []


def test_people_stand_beside_the_model() -> None:
    categories = sorted(observers.categories())
    shapes = [*categories, *["cat"] * 4]
    textures = ["dog" if shape != "dog" else "cat" for shape in shapes]
    others = ["bear" if shape != "bear" else "bird" for shape in shapes]
    names = [f"{index}.png" for index in range(20)]

    def conflicting(observer: str, shape: int, texture: int, **more: object) -> Decisions:
        chosen = [*shapes[:shape], *textures[shape : shape + texture], *others[shape + texture :]]
        return Decisions(observer, "cue_conflict", names, shapes, chosen, tuple(categories), bias=textures, **more)

    model = conflicting("model", 4, 12)
    published = only(cue_profile.profile([model]), "shape_bias")
    people = observers.pooled("people", observers.people())
    assert (published.value, published.people) == (0.25, people.shape_bias)
    assert published.people_low <= published.people <= published.people_high
    given = [conflicting("subject-1", 15, 5, kind=PEOPLE), conflicting("subject-2", 9, 9, kind=PEOPLE)]
    rows = cue_profile.profile([model], (), [*given, conflicting("other model", 1, 1)])
    row = only(rows, "shape_bias")
    assert (row.people, row.people_low, row.people_high) == pytest.approx((0.625, 0.5, 0.75))
    assert only(rows, "texture_accuracy").people == pytest.approx((5 + 9) / 40)
    # A share of images that are answered once has Wilson's interval.
    assert only(rows, "texture_accuracy").low == pytest.approx(measures.wilson(12, 20)[0])


def decide_conflicts(*choices: str) -> Decisions:
    """Return decisions on images with the shape of a and the texture of b."""
    number = len(choices)
    names = [f"a{index}-b{index}.png" for index in range(number)]
    return Decisions("model", "cue_conflict", names, ["a"] * number, list(choices), CLASSES, bias=["b"] * number)


@pytest.mark.parametrize(
    ("shape", "texture", "low", "high"),
    [
        # Wilson's score interval as Newcombe (1998, Statistics in Medicine 17, table I, method 3) prints it.
        (81, 182, 0.2553, 0.3662),
        (15, 133, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 28, 0.0061, 0.1718),
        # Of x = n = 2 decisions the limits are n / (n + z^2) and 1, z = 1.959964.
        (2, 0, 2 / (2 + 1.959964**2), 1.0),
        (1, 1, 0.5 - 1.959964 / 2 / math.sqrt(2 + 1.959964**2), 0.5 + 1.959964 / 2 / math.sqrt(2 + 1.959964**2)),
    ],
)
def test_the_interval_of_the_shape_bias_is_wilson_s_everywhere(
    shape: int, texture: int, low: float, high: float
) -> None:
    decisions = decide_conflicts(*["a"] * shape, *["b"] * texture, *["c"] * 7)
    row = only(cue_profile.profile([decisions]), "shape_bias")
    assert (row.low, row.high) == pytest.approx((low, high), abs=5e-5)
    assert row.decisions == shape + texture  # seven of the decisions are for neither cue
    assert only(cue_profile.profile([decisions]), "shape_accuracy").decisions == shape + texture + 7
    whole, by_class = report.cue_rows(decisions)
    for printed in (whole, by_class):
        assert (printed["shape_bias_low"], printed["shape_bias_high"]) == (row.low, row.high)


def test_answers_of_several_observers_to_one_image_are_drawn_together() -> None:
    answers = [["a", "a", "b", "b"] * 30, ["a", "a", "b", "c"] * 30]
    pooled = pool([decide_conflicts(*choices) for choices in answers])
    low, high = intervals.shape_bias_interval(pooled)
    hit, either = pooled.right, pooled.decision != "c"
    assert (low, high) == ratio_interval(hit, either, pooled.image_of_trial)
    # Both answer alike: that many answers of their own would be a narrower interval.
    alone = measures.wilson(int(hit.sum()), int(either.sum()))
    assert high - low > 1.2 * (alone[1] - alone[0])
    # If every image has the same share, resamples do not differ: the sample size is the number of images.
    same = pool([decide_conflicts("a", "a"), decide_conflicts("b", "b")])
    assert intervals.shape_bias_interval(same) == pytest.approx(measures.wilson(1, 2))
    nobody = decide_conflicts("c", "c")
    assert all(map(math.isnan, intervals.shape_bias_interval(nobody)))


def test_a_measure_is_the_mean_of_its_values_of_images(random: np.random.Generator) -> None:
    number = 60
    columns = {name: random.integers(1, 9, number) for name in ("rank", "bias_rank")}
    label, decision, bias = (random.choice(CLASSES, number).tolist() for _ in range(3))
    names = [f"{index}.png" for index in range(number)]
    decisions = Decisions("model", "imagenet_w", names, label, decision, CLASSES, bias=bias, **columns)
    counts = decisions.cue_counts()
    assert counts is not None
    assert MEASURES["mrr"](decisions) == pytest.approx(sum(1 / rank for rank in columns["rank"]) / number)
    trials = zip(label, decision, bias, columns["bias_rank"].tolist(), strict=True)
    conflicts = [(y, d, b, rank) for y, d, b, rank in trials if y != b]
    assert MEASURES["bias_decisions"](decisions) == sum(d == b for _, d, b, _ in conflicts) / len(conflicts)
    for_either = sum(d in (y, b) for y, d, b, _ in conflicts)
    assert MEASURES["cue_coverage"](decisions) == pytest.approx(for_either / len(conflicts))
    assert MEASURES["shape_bias"](decisions) == pytest.approx(counts.shape_bias)
    assert counts.shape_bias == pytest.approx(sum(d == y for y, d, _, _ in conflicts) / for_either)
    assert MEASURES["texture_mrr"](decisions) == pytest.approx(sum(1 / rank for *_, rank in conflicts) / len(conflicts))
    without = Decisions("model", "imagenet_w", names, label, decision, CLASSES)
    for measure in set(IMAGE_VALUES) - {"accuracy"}:
        assert math.isnan(MEASURES[measure](without))


def test_no_interval_claims_certainty() -> None:
    decided = [decide("imagenet", np.zeros(30, bool)), decide("imagenet_w", np.zeros(30, bool))]
    derived = list(derive({"imagenet": (), "imagenet_w": ()}))
    row = only(cue_profile.profile(decided, derived), "watermark_gap")
    assert row.value == 0
    assert math.isnan(row.low)
    assert math.isnan(row.high)
    # Resamples of the first set alone do not differ.
    pair = {"imagenet_9_mixed_same": np.ones(30, bool), "imagenet_9_mixed_rand": np.arange(30) < 12}
    decided = [decide(name, right, rank=np.where(right, 1, 2)) for name, right in pair.items()]
    decided[1] = Decisions(**{**vars(decided[1]), "images": [f"other{index}.png" for index in range(30)]})
    row = only(cue_profile.profile(decided, list(derive(dict.fromkeys(pair, ())))), "background_gap")
    assert row.value == pytest.approx(18 / 30)
    assert math.isnan(row.low)


def test_conditions_of_a_photograph_are_drawn_together(random: np.random.Generator) -> None:
    right = np.repeat(random.random(40) < 0.5, 3)  # a photograph is right under all three conditions, or under none
    order = np.arange(120).reshape(40, 3).T.reshape(-1)
    conditions = np.repeat(["mosaic-1", "mosaic-2", "mosaic-3"], 40)
    names = [f"{condition}/{index}.png" for condition in conditions[::40] for index in range(40)]
    decisions = Decisions(
        *("model", "laion_c", names, ["a"] * 120, np.where(right[order], "a", "b").tolist(), CLASSES),
        condition=conditions.tolist(),
        label_map="laion_c-prob_mean",
    )
    inputs = tuple(f"test/{record.BY_CONDITION}/laion_c:{condition}" for condition in conditions[::40])
    mean_error = record.Derived("test", "mean_error", "laion_c", "error_ratio", inputs, (1.0,) * 3)
    row = only(cue_profile.profile([decisions], [mean_error]), "mean_error")
    assert row.value == pytest.approx(1 - right.mean())
    assert row.people == pytest.approx(1 - 0.552)
    assert row.decisions == 120
    low, high = ratio_interval(~right, np.ones(120, bool), np.repeat(np.arange(40), 3))
    assert row.high - row.low == pytest.approx(high - low, rel=0.1)
