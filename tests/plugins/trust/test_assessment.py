"""Trust measures: equal to torchmetrics, pytorch-ood and crepes on made scores, and the properties they must have."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax

from biasbed.errors import UsageError
from biasbed.evaluation.calibration import confidence_bins, ece
from biasbed.plugins.trust import conformal, detection, proper_scores, temperature
from biasbed.plugins.trust.assessment import Assessment, Calibrated
from biasbed.plugins.trust.scored_images import ScoredImages, from_logits, is_calibrating
from helpers import trust_references

CONTENT = json.loads(trust_references.VECTORS.read_text())
WITHIN = 1e-8


def scores_of(name: str) -> ScoredImages:
    columns = CONTENT["scores"]
    parts = {part: columns.get(f"{name}_{part}") for part in ("labels", "features", "groups")}
    return from_logits(columns[name], **parts)


def made(images: int, sharpness: float = 1.0, seed: int = 0, classes: int = 5) -> ScoredImages:
    """Return scores whose probabilities at temperature `sharpness` are those of the labels."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(images, classes))
    odds = softmax(logits, axis=1)
    labels = (generator.random((images, 1)) < odds.cumsum(axis=1)).argmax(axis=1)
    return from_logits(sharpness * logits, labels)


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    return float(rates_once(inside, outside).auroc[0])


def false_positives(inside: np.ndarray, outside: np.ndarray) -> float:
    return float(rates_once(inside, outside).false_positives[0])


def rates_once(inside: np.ndarray, outside: np.ndarray) -> detection.DetectionRates:
    """Return the rates if every image is drawn once."""
    return detection.Detection.rank(inside, outside).rates(np.ones((1, len(inside))), np.ones((1, len(outside))))


def compute_values() -> dict[str, Any]:
    """Compute what `trust_references.compute_references` computes."""
    calibration, test, ood = (scores_of(name) for name in ("calibration", "test", "ood"))
    values: dict[str, Any] = {
        "ece": ece(test.confidence, test.right),
        "nll": proper_scores.nll(test.log_probabilities, test.labels).mean(),
        "brier": proper_scores.brier(test.log_probabilities, test.labels).mean(),
    }
    calibrated = Calibrated.fit(calibration, test)
    inside, outside = calibrated.outlier_scores(test), calibrated.outlier_scores(ood)
    for name in inside:
        values[f"{name}_scores"] = [*inside[name], *outside[name]]
        values[f"auroc_{name}"] = auroc(inside[name], outside[name])
        values[f"fpr95_{name}"] = false_positives(inside[name], outside[name])
    for name, score in conformal.SCORES.items():
        predictor, nonconformity = calibrated.conformal[name], score(test.probabilities)
        values[f"p_{name}"] = predictor.p_values(nonconformity)[:3]
        for alpha in trust_references.ALPHAS:
            rows = {"all": np.ones(len(test), bool), **{group: test.groups == group for group in "abc"}}
            sets = conformal.prediction_sets(predictor.p_values(nonconformity), alpha)
            for part, chosen in rows.items():
                values[f"{name}_{alpha}_{part}"] = size_of(sets[chosen], test.labels[chosen])
            own = predictor.group_p_values(nonconformity, test.groups)
            values[f"{name}_{alpha}_mondrian"] = size_of(conformal.prediction_sets(own, alpha), test.labels)
    return values


def size_of(sets: np.ndarray, labels: np.ndarray) -> list[float]:
    return [sets[np.arange(len(labels)), labels].mean(), sets.sum(axis=1).mean()]


def test_every_measure_is_the_reference_package_s() -> None:
    values = compute_values()
    assert set(values) == set(CONTENT["values"])
    for name, expected in CONTENT["values"].items():
        assert np.asarray(values[name]) == pytest.approx(np.asarray(expected), abs=WITHIN, rel=0), name


def test_the_packages_still_give_these_values() -> None:
    for package in ("torchmetrics", "pytorch_ood", "crepes"):
        pytest.importorskip(package, reason="the reference package is not installed")
    assert trust_references.make_scores() == CONTENT["scores"]
    again = trust_references.compute_references(CONTENT["scores"])
    for name, value in again.items():
        assert np.asarray(value) == pytest.approx(np.asarray(CONTENT["values"][name]), abs=WITHIN, rel=0), name


def test_the_assessment_has_the_same_values() -> None:
    calibration, test, ood = (scores_of(name) for name in ("calibration", "test", "ood"))
    calibrated, references = Calibrated.fit(calibration, test), CONTENT["values"]
    values = Assessment(test, calibrated, alpha=0.2, detect=False).values()
    assert [values[name] for name in ("loss", "brier", "ece")] == pytest.approx(
        [references[name] for name in ("nll", "brier", "ece")], abs=WITHIN
    )
    assert [values["aps_coverage"], values["aps_size"]] == pytest.approx(references["aps_0.2_all"])
    groups = Assessment(test, calibrated, alpha=0.2, detect=False).values_by_group()
    assert [groups["b"][name] for name in ("lac_coverage", "lac_size")] == pytest.approx(references["lac_0.2_b"])
    assert groups["c"]["own_lac_size"] == trust_references.CLASSES  # no calibration image is in it
    outside = Assessment(ood, calibrated).values()
    for name in ("auroc_msp", "fpr95_energy", "auroc_mahalanobis"):
        assert outside[name] == pytest.approx(references[name], abs=WITHIN)


# --- temperature ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharpness", [0.25, 1.0, 3.0])
def test_the_temperature_undoes_sharpening(sharpness: float) -> None:
    images = made(20_000, sharpness)
    fitted = temperature.fit_temperature(images.log_probabilities, images.labels)
    assert fitted == pytest.approx(sharpness, rel=0.03)

    def loss(log_temperature: float) -> float:
        scaled = temperature.scale(images.log_probabilities, np.exp(log_temperature))
        return float(proper_scores.nll(scaled, images.labels).mean())

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10})
    assert np.log(fitted) == pytest.approx(best.x, abs=1e-5)
    scaled = temperature.scale(images.log_probabilities, fitted)
    assert (scaled.argmax(axis=1) == images.log_probabilities.argmax(axis=1)).all()
    assert ece(np.exp(scaled.max(axis=1)), images.right) < 0.02


def test_temperatures_without_a_best_value_stay_within_their_limits() -> None:
    right, wrong = from_logits([[3.0, 0], [0, 2.0]], [0, 1]), from_logits([[3.0, 0], [0, 2.0]], [1, 0])
    assert temperature.fit_temperature(right.log_probabilities, right.labels) == temperature.LIMITS[0]
    assert temperature.fit_temperature(wrong.log_probabilities, wrong.labels) == temperature.LIMITS[1]
    even = from_logits(np.zeros((4, 3)), [0, 1, 2, 0])
    assert temperature.fit_temperature(even.log_probabilities, even.labels) in temperature.LIMITS


# --- calibration error and detection ----------------------------------------------------------------------------------


def test_resamples_that_draw_every_image_once_have_the_value() -> None:
    images = made(300, 2.0)
    once = proper_scores.resampled_ece(images.confidence, images.right, np.ones((1, 300)))
    assert once == pytest.approx([ece(images.confidence, images.right)], abs=1e-12)
    weights = np.random.default_rng(0).multinomial(300, np.full(300, 1 / 300), size=4).astype(float)
    drawn = proper_scores.resampled_ece(images.confidence, images.right, weights)
    for value, counts in zip(drawn, weights.astype(int), strict=True):
        rows = np.repeat(np.arange(300), counts)
        assert value == pytest.approx(ece(images.confidence[rows], images.right[rows]), abs=1e-12)


def test_detection_of_resamples_is_that_of_repeated_images() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.integers(0, 9, 30).astype(float), generator.integers(4, 14, 40).astype(float)
    weights = [generator.multinomial(n, np.full(n, 1 / n), size=3).astype(float) for n in (30, 40)]
    rates = detection.Detection.rank(inside, outside).rates(*weights)
    for number in range(3):
        drawn = [
            np.repeat(scores, counts[number].astype(int))
            for scores, counts in zip((inside, outside), weights, strict=True)
        ]
        assert rates.auroc[number] == pytest.approx(auroc(*drawn))
        assert rates.false_positives[number] == pytest.approx(false_positives(*drawn))


def test_false_positives_count_from_exactly_95_percent_of_the_outside_images() -> None:
    """19 of 20 outside images are above both inside images, so the first threshold is before these."""
    outside = np.array([*range(19, 0, -1), -1.0])
    assert false_positives(np.zeros(2), outside) == 0
    assert false_positives(np.array([1.5, 0]), outside) == 0.5
    assert false_positives(np.zeros(2), np.array([*range(18, 0, -1), -1.0, -2.0])) == 1


def test_images_with_the_same_logits_in_any_order_and_offset_tie() -> None:
    """The maximum softmax of whole logits has as many values as there are sorted differences from the largest."""
    generator = np.random.default_rng(4)
    logits = generator.integers(-3, 4, (400, 5)).astype(float)
    offsets = generator.integers(-4000, 4000, (400, 1))
    differences = np.sort(logits.max(axis=1, keepdims=True) - logits, axis=1).astype(int)
    keys = np.array([str(row) for row in differences])
    scores = from_logits(logits + offsets).max_softmax
    assert len(np.unique(scores)) == len(np.unique(keys))
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys), key=lambda key: -scores[keys == key][0]))}
    outlier = np.array([ranks[key] for key in keys])
    pairs = outlier[200:, None] - outlier[None, :200]
    expected = ((pairs > 0) + (pairs == 0) / 2).mean()
    assert auroc(-scores[:200], -scores[200:]) == expected
    assert (from_logits(300 * logits + 30).max_softmax <= 1).all()


@pytest.mark.parametrize("number", range(1, 16))
def test_a_confidence_of_exactly_k_fifteenths_is_in_the_lower_bin(number: int) -> None:
    """Bins are closed above (Guo et al. 2017, section 2): of k/15 right and k/15 - 1/30 wrong there is one bin."""
    assert confidence_bins(np.array([number / 15])).tolist() == [number - 1]
    both = np.array([number / 15, number / 15 - 1 / 30])
    expected = abs(1 / 2 - both.mean())
    assert ece(both, np.array([True, False])) == pytest.approx(expected)


def test_features_that_shift_along_no_direction_of_the_classes_are_detected() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 600)
    features = 5 * np.eye(3, 8)[labels] + generator.normal(size=(600, 8)) * np.linspace(0.1, 3, 8)
    gaussians = detection.FeatureGaussians.fit(features[:300], labels[:300])
    turn = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    turned = detection.FeatureGaussians.fit(features[:300] @ turn, labels[:300])
    inside = gaussians.outlier_scores(features[300:])
    assert turned.outlier_scores(features[300:] @ turn) == pytest.approx(inside, rel=1e-6)
    shifted = features[300:] + np.eye(8)[0] * 2  # much along the direction that varies least
    assert auroc(inside, gaussians.outlier_scores(shifted)) > 0.99


def test_a_class_without_images_has_no_gaussian() -> None:
    features = np.random.default_rng(0).normal(size=(6, 2))
    gaussians = detection.FeatureGaussians.fit(features, np.array([0, 0, 0, 2, 2, 2]))
    assert len(gaussians.means) == 2


# --- conformal sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", conformal.SCORES)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_sets_cover_what_they_promise_on_exchangeable_images(score: str, alpha: float) -> None:
    """Over 300 draws of 50 calibration and 50 test images; the expectation is at least 1 - alpha, and below + 1/51."""
    images = made(300 * 100, 1.7, seed=3)
    nonconformity = conformal.SCORES[score](images.probabilities)
    covered = []
    for start in range(0, len(images), 100):
        cut = start + 50
        predictor = conformal.Conformal.fit(nonconformity[start:cut], images.labels[start:cut])
        sets = conformal.prediction_sets(predictor.p_values(nonconformity[cut : start + 100]), alpha)
        covered.append(size_of(sets, images.labels[cut : start + 100])[0])
    error = np.std(covered) / np.sqrt(len(covered))
    assert 1 - alpha - 3 * error <= np.mean(covered) <= 1 - alpha + 1 / 51 + 0.03 + 3 * error


def test_thresholds_of_groups_cover_each_group() -> None:
    easy, hard = made(4000, 1.0, seed=0), made(4000, 6.0, seed=1)
    columns = np.concatenate([easy.log_probabilities, hard.log_probabilities])
    groups = np.repeat(["easy", "hard"], 4000)
    images = from_logits(columns, np.concatenate([easy.labels, hard.labels]), groups=groups)
    calibrated = Calibrated.fit(images.select(np.arange(0, 8000, 2)), images)
    by_group = Assessment(images.select(np.arange(1, 8000, 2)), calibrated, 0.1, detect=False).values_by_group()
    assert by_group["hard"]["lac_coverage"] < 0.87
    for group in ("easy", "hard"):
        assert by_group[group]["own_lac_coverage"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(("images", "alpha", "rank"), [(19, 0.05, 19), (99, 0.1, 90), (9, 0.3, 7), (4, 0.5, 3)])
def test_sets_end_at_the_usual_rank_of_the_calibration_scores(images: int, alpha: float, rank: int) -> None:
    """The threshold is the ceil((1 - alpha)(1 + n))-th smallest score (Romano, Sesia and Candes 2020, section 2)."""
    scores = np.arange(1, images + 1) / (images + 1)
    predictor = conformal.Conformal.fit(scores[:, None], np.zeros(images, dtype=int))
    sets = conformal.prediction_sets(predictor.p_values(scores[None, :]), alpha)
    assert sets[0].tolist() == [number < rank for number in range(images)]


# --- what is given ----------------------------------------------------------------------------------------------------

LABELS = np.array([0, 1])


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[0.2, np.nan], [1, 2]], LABELS, "NaN or infinite in 1 of 2 images, first in 0"),
        (softmax(np.arange(8.0).reshape(2, 4), axis=1), LABELS, "these are probabilities"),
        (np.zeros((0, 3)), np.zeros(0, int), "1 image and 2 classes at least"),
        ([[0.2, 3], [1, 2]], np.array([0, 2]), "2 is no class: give numbers from 0 to 1"),
        ([[0.2, 3], [1, 2]], np.array([0.0, 0.5]), "0.5 is no class"),
        ([[0.2, 3], [1, 2]], np.array([0]), r"\[1\] labels for 2 images"),
    ],
)
def test_scores_that_can_t_be_measured_are_refused(logits: Any, labels: np.ndarray, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_logits(logits, labels)


@pytest.mark.parametrize("classes", [2, 5, 100])
def test_probabilities_that_were_rounded_or_scaled_are_refused(classes: int) -> None:
    generator = np.random.default_rng(classes)
    logits = 2 * generator.normal(size=(40, classes))
    odds = softmax(logits, axis=1)
    rounded = [odds.round(digits) for digits in (1, 2, 3)]
    for scores in (odds, *rounded, 0.9 * odds, 100 * odds, (100 * odds).round(1), expit(logits), np.eye(classes)):
        with pytest.raises(UsageError, match="these are probabilities or percentages"):
            from_logits(np.tile(scores, (10, 1)))


@pytest.mark.parametrize("classes", [2, 5, 100])
def test_logits_of_any_offset_are_taken(classes: int) -> None:
    logits = 2 * np.random.default_rng(classes).normal(size=(40, classes))
    for scores in (logits, logits + 1000, np.maximum(logits, 0), np.abs(logits), logits[:1], np.array([[0.2, 0.9]])):
        assert len(from_logits(scores)) == len(scores)


def test_halves_are_those_of_the_names() -> None:
    names = np.array([f"class/{number}.png" for number in range(101)])
    half = is_calibrating(names)
    assert half.sum() == 51
    order = np.random.default_rng(0).permutation(101)
    assert (is_calibrating(names[order]) == half[order]).all()
    assert is_calibrating(np.array(["a", "b"])).sum() == 1


# --- intervals --------------------------------------------------------------------------------------------------------


def test_intervals_hold_the_value_and_shrink_with_the_images() -> None:
    calibrated = Calibrated.fit(made(500, 2.0, seed=1), made(300, 2.0, seed=2))
    widths: dict[str, list[float]] = {}
    for images in (200, 3200):
        estimates = Assessment(made(images, 1.0, seed=4), calibrated).estimates(400)
        for name, estimate in estimates.items():
            low, high = np.quantile(estimate.resampled, [0.025, 0.975])
            assert low - 1e-12 <= estimate.value <= high + 1e-12, name
            widths.setdefault(name, []).append(high - low)
    for name in ("accuracy", "loss", "brier", "ece_scaled", "lac_size"):
        assert widths[name][1] < 0.5 * widths[name][0], name


def test_resamples_of_the_calibration_error_are_moved_to_its_value() -> None:
    images = made(150, 1.3, seed=5)
    estimate = Assessment(images, Calibrated.fit(made(100), images), detect=False).estimates(500)["ece"]
    weights = np.random.default_rng(0).multinomial(150, np.full(150, 1 / 150), size=500).astype(float)
    plain = proper_scores.resampled_ece(images.confidence, images.right, weights)
    assert plain.mean() > 1.2 * estimate.value  # which an interval of them would hardly hold
    assert estimate.resampled.mean() == pytest.approx(estimate.value, rel=0.02)
    assert (estimate.resampled >= 0).all()


def test_differences_on_the_same_images_are_paired() -> None:
    images = made(400, 2.0)
    calibrated = Calibrated.fit(made(100), images)
    estimates = [Assessment(images, calibrated, detect=False).estimates(100)["brier"].resampled for _ in range(2)]
    assert (estimates[0] == estimates[1]).all()
