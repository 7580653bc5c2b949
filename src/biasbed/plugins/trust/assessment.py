"""Trust measures of sets of images, given what calibration images determine, with bootstrap intervals over images.

Temperature, thresholds and Gaussians are fitted once. Resamples draw the images that are measured, and so describe
their sampling alone. Sets of equally many images draw the same rows, so that differences of two models on the same
images are paired.

Answers: How are calibration, conformal sets and the detection of shifted images measured?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed.plugins.trust import conformal, proper_scores, temperature
from biasbed.plugins.trust.conformal import Conformal
from biasbed.plugins.trust.detection import Detection, FeatureGaussians
from biasbed.plugins.trust.measures import OF_SCORES
from biasbed.plugins.trust.scored_images import ScoredImages, is_calibrating

ALPHA = 0.1  # share of labels that prediction sets may miss
SCALED = "_scaled"  # ends the name of a measure after temperature scaling
DETECTORS = ("msp", "energy", "mahalanobis")
ORDER = ("accuracy", "loss", "ece", *OF_SCORES)
SEED, INSIDE_SEED = 0, 1
RESAMPLES_AT_ONCE = 50


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Calibration of a model, and the images of the training distribution for detection."""

    temperature: float
    conformal: Mapping[str, Conformal]  # by name of the nonconformity score
    gaussians: FeatureGaussians | None  # None without features, or with too few images
    inside: ScoredImages  # images of the training distribution, which did not calibrate
    num_images: int  # images that calibrated

    @classmethod
    def fit(cls, calibration: ScoredImages, inside: ScoredImages) -> Calibrated:
        """Fit the temperature, the thresholds and, if features are kept, the Gaussians."""
        predictors = {}
        for name, score in conformal.SCORES.items():
            nonconformity = score(calibration.probabilities)
            predictors[name] = Conformal.fit(nonconformity, calibration.labels, calibration.groups)
        gaussians = None
        if calibration.features is not None and len(calibration) > len(np.unique(calibration.labels)):
            gaussians = FeatureGaussians.fit(calibration.features, calibration.labels)
        fitted = temperature.fit_temperature(calibration.log_probabilities, calibration.labels)
        return cls(fitted, predictors, gaussians, inside, len(calibration))

    @classmethod
    def from_halves(cls, validation: ScoredImages) -> Calibrated:
        """Calibrate with one half of the images; the other half stands for the training distribution."""
        half = is_calibrating(validation.images)
        return cls.fit(validation.select(half), validation.select(~half))

    @property
    def is_at_limit(self) -> bool:
        """True if the temperature is a bound, because the likelihood has no maximum within the limits."""
        return self.temperature in temperature.LIMITS

    def outlier_scores(self, images: ScoredImages) -> dict[str, np.ndarray]:
        """Return outlier scores [N] by detector.

        msp: maximum softmax (Hendrycks and Gimpel 2017). energy: at temperature 1 (Liu et al. 2020, equation 3).
        """
        scores = {"msp": -images.max_softmax, "energy": -images.energy}
        if self.gaussians is not None and images.features is not None:
            scores["mahalanobis"] = self.gaussians.outlier_scores(images.features)
        return scores


class ResampledValue(NamedTuple):
    """Value of a measure, and its values on resamples [R]."""

    value: float
    resampled: np.ndarray


class Assessment:
    """Trust measures of one model on one set."""

    def __init__(self, images: ScoredImages, calibrated: Calibrated, alpha: float = ALPHA, detect: bool = True) -> None:
        """alpha: share of labels that prediction sets may miss. detect: False for the training distribution itself."""
        self.images = images
        self._means: dict[str, np.ndarray] = {}
        self._group_means: dict[str, np.ndarray] = {}
        self._confidences: dict[str, np.ndarray] = {}
        self._detections: dict[str, Detection] = {}
        if images.is_labelled:
            self._keep_image_values(calibrated, alpha)
        if detect:
            inside = calibrated.outlier_scores(calibrated.inside)
            outside = calibrated.outlier_scores(images)
            for name in inside.keys() & outside.keys():
                self._detections[name] = Detection.rank(inside[name], outside[name])

    def _keep_image_values(self, calibrated: Calibrated, alpha: float) -> None:
        """Keep the values of each image for measures that are means, before and after temperature scaling."""
        images = self.images
        scaled = temperature.scale(images.log_probabilities, calibrated.temperature)
        labels = images.labels
        self._means |= {
            "accuracy": images.right.astype(np.float64),
            "loss": proper_scores.nll(images.log_probabilities, labels),
            "brier": proper_scores.brier(images.log_probabilities, labels),
            f"loss{SCALED}": proper_scores.nll(scaled, labels),
            f"brier{SCALED}": proper_scores.brier(scaled, labels),
        }
        for name, score in conformal.SCORES.items():
            nonconformity, predictor = score(images.probabilities), calibrated.conformal[name]
            self._means |= _coverage_and_size(name, predictor.p_values(nonconformity), labels, alpha)
            if images.groups is not None and predictor.by_group:
                p_values = predictor.group_p_values(nonconformity, images.groups)
                self._group_means |= _coverage_and_size(name, p_values, labels, alpha)
        self._confidences |= {"ece": images.confidence, f"ece{SCALED}": np.exp(scaled.max(axis=1))}

    def values(self) -> dict[str, float]:
        """Return every measure by name, in the order of `ORDER`."""
        computed = self._compute_measures(np.ones((1, len(self.images))), np.ones((1, self._num_inside)))
        return {name: float(value[0]) for name, value in computed.items()}

    def values_by_group(self) -> dict[str, dict[str, float]]:
        """Return coverage and size of each group's prediction sets; empty without groups.

        Names with `own_` are those of thresholds that the group's own calibration images determine.
        """
        if self.images.groups is None or not self.images.is_labelled:
            return {}
        by_group = {}
        for group in np.unique(self.images.groups).tolist():
            rows = self.images.groups == group
            values = {"images": float(rows.sum())}
            for name, column in self._means.items():
                if name.endswith(("_coverage", "_size")):
                    values[name] = float(column[rows].mean())
            for name, column in self._group_means.items():
                values[f"own_{name}"] = float(column[rows].mean())
            by_group[group] = values
        return by_group

    def estimates(self, number: int) -> dict[str, ResampledValue]:
        """Return every measure with `number` resamples."""
        parts: dict[str, list[np.ndarray]] = {}
        inside_draws = _draw_counts(self._num_inside, number, INSIDE_SEED)
        for weights, inside_weights in zip(_draw_counts(len(self.images), number, SEED), inside_draws, strict=True):
            for name, drawn in self._compute_measures(weights, inside_weights).items():
                parts.setdefault(name, []).append(drawn)
        estimates = {}
        for name, value in self.values().items():
            resampled = np.concatenate(parts[name])
            if name in self._confidences:
                # A resample's error is larger by construction, as fewer images differ: move it to the value.
                resampled = np.maximum(resampled - resampled.mean() + value, 0)
            estimates[name] = ResampledValue(value, resampled)
        return estimates

    @property
    def _num_inside(self) -> int:
        """Number of images of the training distribution; 1 if nothing is detected, so that a draw is cheap."""
        return max((len(ranks.inside) for ranks in self._detections.values()), default=1)

    def _compute_measures(self, weights: np.ndarray, inside_weights: np.ndarray) -> dict[str, np.ndarray]:
        """Return every measure [R] on resamples. Weights [R,N], [R,M]: how often each image, inside image was drawn."""
        totals = weights.sum(axis=1)
        values = {name: weights @ column / totals for name, column in self._means.items()}
        for name, confidence in self._confidences.items():
            values[name] = proper_scores.resampled_ece(confidence, self.images.right, weights)
        for name, ranks in self._detections.items():
            rates = ranks.rates(inside_weights, weights)
            values |= {f"auroc_{name}": rates.auroc, f"fpr95_{name}": rates.false_positives}
        return {name: values[name] for name in ORDER if name in values}


def _coverage_and_size(name: str, p_values: np.ndarray, labels: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """Return two columns [N]: 1 if an image's prediction set has its label, else 0; and the size of the set."""
    sets = conformal.prediction_sets(p_values, alpha)
    covered = sets[np.arange(len(labels)), labels]
    return {f"{name}_coverage": covered.astype(np.float64), f"{name}_size": sets.sum(axis=1).astype(np.float64)}


def _draw_counts(images: int, number: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each image is drawn, [R,images], in parts of all resamples (Efron 1979)."""
    generator = np.random.default_rng(seed)
    shares = np.full(images, 1 / images)
    for start in range(0, number, RESAMPLES_AT_ONCE):
        yield generator.multinomial(images, shares, size=min(RESAMPLES_AT_ONCE, number - start)).astype(np.float64)
