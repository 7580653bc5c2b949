"""Measures: meaning, unit and direction of each, and formulas on counts. Standard library only.

`evaluation/decisions.py` computes every measure from decisions on images; analysis reads logged values.
The Align-Conflict score is derived from several sets, in `suites/debiasing.py`.

Answers: What does a measure mean, and which unit and direction has it?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from biasbed.plugin_loader import Joined

LARGEST_SCORE = 1e100  # in a stranger's table, of either sign: its square is still finite
CALIBRATION_BINS = 15  # Guo et al. 2017, section 4
RMS_BIN = 100  # images of a bin of RMS calibration error (Hendrycks et al., Natural Adversarial Examples, 2021)
FRACTION = "%"  # unit of values that are stored as fractions and shown in percent
OF_TWO = "of 2"  # unit of numbers from 0 to 2
PLAIN = "score units"  # unit of a table's scores that are shown as they are printed
HEADLINE = "as the headline"  # unit of values about a set's headline, such as its spread


@dataclass(frozen=True)
class Measure:
    """Meaning, unit and direction of a measure. The phase of a metric's name says on which images it was taken."""

    meaning: str
    unit: str = FRACTION  # of a shown value
    higher_is_better: bool = True
    of_biases: bool = False  # whether it takes the images' bias labels
    has_direction: bool = True  # False: neither more nor less of it is better, whatever `higher_is_better` says
    of_scores: bool = False  # it is logged only if the scores of all classes are kept, whatever the protocol
    is_calibrated: bool = False  # it needs images to calibrate with


_MEASURES = {
    "loss": Measure(
        "mean loss per image (the task's loss for val and test, the method's total for train)", "nats", False
    ),
    "accuracy": Measure("fraction of images whose decision is the label; of several labels, of which none is wrong"),
    "map": Measure("mean of the average precisions of the labels that some image has"),
    "map_reference": Measure(
        "the same by trapezoids, labels weighted by how many images have them (Hendrycks et al. 2021, their program)"
    ),
    "ap": Measure("average precision of the label after the colon, over all images of the set"),
    "accuracy_by_condition": Measure("the same among the images that are shown under a condition"),
    "map_by_condition": Measure("mean average precision over the images that are shown under a condition"),
    "mean_error": Measure("mean of the errors under all conditions of a set", higher_is_better=False),
    "mce": Measure(
        "mean over corruptions of the error summed over severities, by AlexNet's (CE); of released ImageNet-C alone",
        higher_is_better=False,
    ),
    "relative_mce": Measure(
        "the same of what is lost against the images as they are, by what AlexNet loses", higher_is_better=False
    ),
    "gap_r": Measure("accuracy on ImageNet's images of ImageNet-R's classes less that on ImageNet-R", FRACTION, False),
    "mrr": Measure("mean reciprocal rank of the label's class among all the model's outputs"),
    "accuracy_full": Measure("fraction of images for which the best of all the model's outputs belongs to the label"),
    "ece": Measure(
        "expected calibration error of the decision's confidence among the set's classes, 15 equal bins",
        higher_is_better=False,
    ),
    "rms": Measure(
        "RMS calibration error of the same confidence, in bins of 100 images by rising confidence",
        higher_is_better=False,
    ),
    "rms_reference": Measure(
        "the same without the bin of the most confident images, as its authors' program has it", higher_is_better=False
    ),
    "aurra": Measure("mean over k of the accuracy among the k images of most confidence"),
    "aligned_accuracy": Measure("accuracy among the images whose bias is that of their class", of_biases=True),
    "conflicting_accuracy": Measure("accuracy among the images whose bias is that of another class", of_biases=True),
    "bias_decisions": Measure(
        "fraction of the images of other classes that are decided for the class of their bias",
        higher_is_better=False,
        of_biases=True,
    ),
    "worst_group_accuracy": Measure("least accuracy among groups of images of one class and one bias", of_biases=True),
    "worst_class_accuracy": Measure("least accuracy among the images of one class"),
    "mean_group_accuracy": Measure("mean of the accuracies of these groups, whatever their images", of_biases=True),
    "images": Measure("number of images, here of the group after the colon", "images", has_direction=False),
    "aligned_images": Measure(
        "number of images whose bias is that of their class", "images", of_biases=True, has_direction=False
    ),
    "conflicting_images": Measure(
        "number of images whose bias is that of another class", "images", of_biases=True, has_direction=False
    ),
    "shape_bias": Measure("shape decisions / (shape + texture decisions), images with shape = texture left out"),
    "shape_accuracy": Measure("fraction of conflicting images decided for the shape's class"),
    "texture_accuracy": Measure("fraction of conflicting images decided for the texture's class", has_direction=False),
    "cue_coverage": Measure("fraction of conflicting images decided for either cue's class"),
    "shape_mrr": Measure("mean reciprocal rank of the shape's class among all outputs, conflicting images"),
    "texture_mrr": Measure(
        "mean reciprocal rank of the texture's class among all outputs, conflicting images", has_direction=False
    ),
    "std_over_epochs": Measure(
        "published runs: standard deviation of the set's headline over the epochs that were averaged",
        higher_is_better=False,
    ),
    "std_over_runs": Measure(
        "published means: standard deviation (n - 1) of the set's headline over the runs", HEADLINE, False
    ),
    "num_runs": Measure("published means: of how many runs", "runs", has_direction=False),
    "rounding": Measure("published means: half a unit of the last printed digit", HEADLINE, False),
    "lr": Measure("learning rate of the main optimizer after the epoch's last step", "per step", has_direction=False),
    "epoch_seconds": Measure("wall-clock seconds of the epoch's training", "s", False),
    "late_seconds": Measure("wall-clock seconds of testing the sets that are tested at the end alone", "s", False),
    "stages_seconds": Measure("wall-clock seconds of the stages before the one that is tested", "s", False),
    "waiting_seconds": Measure("of those, seconds in which the main process waited for images", "s", False),
    "compilation_seconds": Measure("of those, seconds in which torch.compile compiled the networks", "s", False),
    "evaluation_seconds": Measure("wall-clock seconds of the epoch's evaluation", "s", False),
    "images_per_second": Measure("training images per second over all processes", "1/s"),
    "peak_mb": Measure(
        "peak memory: CUDA allocator on a GPU, else resident size of the main process", "MiB", higher_is_better=False
    ),
}
MEASURES: Joined[Measure] = Joined("measures", _MEASURES)
SUMMARY = ("std_over_runs", "num_runs", "rounding")  # what stands beside a published mean in place of its runs
RATIOS = ("mce", "relative_mce")  # of two models' errors: shown in percent, and may be more than 100
UNKNOWN = Measure("a measure of somebody else's, taken for a fraction of which more is better")


def find_measure(name: str) -> Measure:
    """Return a measure by its name (`loss`), or by that of a metric (`test/loss/sketch`)."""
    parts = name.split("/")
    measure = parts[1] if len(parts) > 1 else name
    return MEASURES.get(measure, UNKNOWN)


class Described(Protocol):
    """Unit and direction of values."""

    @property
    def unit(self) -> str: ...

    @property
    def higher_is_better(self) -> bool: ...


class Derives(Protocol):
    """Derivations of metrics, by name: a `record.Protocol`."""

    def derivation(self, metric: str) -> Described | None: ...


def describe_metric(protocol: Derives, metric: str) -> Described:
    """Return unit and direction of a metric: those of its derivation if it is derived, else those of its measure."""
    return protocol.derivation(metric) or find_measure(metric)


def scale(unit: str) -> float:
    """Return the factor from a stored value to the one that is shown: fractions become percent."""
    return 100.0 if unit == FRACTION else 1.0


def shown(value: float | None, unit: str) -> str:
    """Return a stored value as people read it: fractions in percent, a dash for None."""
    if value is None:
        return "-"
    return f"{100 * value:.2f}" if unit == FRACTION else f"{value:.4f}"


def rounded(value: float) -> float:
    """Return a stored value with the digits that `shown` prints. NaN and infinity stay."""
    return round(value, 4)


def is_better(value: float, than: float, higher_is_better: bool) -> bool:
    """Return True if a value is strictly better than `than`. NaN is never better; any number is better than NaN."""
    if math.isnan(than):
        return not math.isnan(value)
    return value > than if higher_is_better else value < than


def best(values: Iterable[float], higher_is_better: bool = True) -> float | None:
    """Return the best of the values; None without any."""
    return (max if higher_is_better else min)(values, default=None)


# --- of counts --------------------------------------------------------------------------------------------------------


def accuracy(correct: float, images: int) -> float:
    """Return the fraction of images decided rightly. Raises ValueError without images."""
    if images <= 0:
        raise ValueError("accuracy of no images")
    return correct / images


def wilson(correct: float, images: int, level: float = 0.95) -> tuple[float, float]:
    """Compute Wilson's interval of a fraction of independent images (Wilson 1927, equation 4).

    It stays within [0, 1] and is not empty if all or no images are right, as the normal approximation's is.
    correct: number of images that are right; may be fractional if images have several answers each. Raises ValueError
    without images.
    """
    share = accuracy(correct, images)
    z = NormalDist().inv_cdf((1 + level) / 2)
    shrink = 1 + z**2 / images
    centre = (share + z**2 / (2 * images)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / images + z**2 / (4 * images**2))
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def shape_bias(shape: int, texture: int) -> float:
    """Compute the shape bias, shape decisions / (shape + texture decisions) (Geirhos et al. 2019, section 3).

    Decisions for any other class do not count. NaN if no decision is for either cue.
    """
    if shape + texture == 0:
        return float("nan")
    return shape / (shape + texture)


def expected_calibration_error(counts: Sequence[int], corrects: Sequence[int], confidences: Sequence[float]) -> float:
    """Compute the mean gap between confidence and accuracy (Guo et al. 2017, equation 3).

    Arguments hold a number per bin of confidence: its images, the right decisions among them, and the sum of their
    confidences. Raises ValueError without images.
    """
    images = sum(counts)
    if images <= 0:
        raise ValueError("calibration of no images")
    gaps = (abs(correct - confidence) for correct, confidence in zip(corrects, confidences, strict=True))
    return sum(gaps) / images


def error_consistency(both_right: int, only_a: int, only_b: int, both_wrong: int) -> float:
    """Compute Cohen's kappa of being right on the same images (Geirhos, Meding and Wichmann 2020, equations 1 to 3).

    0: two observers agree as often as independent ones of their accuracies would; 1: always. NaN if chance alone makes
    them agree always, as two observers that are never wrong. Raises ValueError without images.
    """
    images = both_right + only_a + only_b + both_wrong
    if images <= 0:
        raise ValueError("error consistency on no images")
    a, b = (both_right + only_a) / images, (both_right + only_b) / images
    expected = a * b + (1 - a) * (1 - b)
    observed = (both_right + both_wrong) / images
    return float("nan") if expected == 1 else (observed - expected) / (1 - expected)
