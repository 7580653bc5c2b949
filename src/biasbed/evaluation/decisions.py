"""Decisions on images, made by a model tested here, a model tested elsewhere or people in an experiment.

`prediction_files.py` writes and reads them. This module loads no torch.

Answers: Where is an accuracy computed?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from biasbed import measures
from biasbed.data.names import Coded, Names, number_photographs
from biasbed.evaluation import average_precision
from biasbed.evaluation.calibration import aurra, ece, rms, rms_reference

PEOPLE, MODELS = "people", "models"  # kinds of observers
NAN = float("nan")
CUES, SHORTCUT = ("shape", "texture"), ("class", "bias")  # meanings of an image's label and bias
OF_CONFLICTS = ("shape_bias", "shape_accuracy", "texture_accuracy", "cue_coverage", "shape_mrr", "texture_mrr")


@dataclass(frozen=True)
class CueCounts:
    """Numbers of decisions on images whose shape and texture are of different classes."""

    decisions: int
    shape: int  # decisions for the class of the shape
    texture: int  # decisions for the class of the texture

    @property
    def shape_bias(self) -> float:
        return measures.shape_bias(self.shape, self.texture)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions on the images of one set, one per trial. Classes and groups are names.

    If images have several labels, an image's label is all of their names, joined by +, and so is the decision on it.

    A model that is tested here sees every image once. In an experiment an observer may see an image in several
    sessions, and several observers may see the same images, so that there are more trials than images.
    """

    observer: str
    set: str
    images: Names  # of each of N trials
    label: Coded  # [N]; under cue conflict the shape's class
    decision: Coded  # [N]
    classes: tuple[str, ...]  # possible decisions
    bias: Coded | None = None  # [N] class that a shortcut suggests; under cue conflict the texture's
    group: Coded | None = None  # [N] name of each image's group
    condition: Coded | None = None  # [N] condition under which each trial's image was shown
    session: Coded | None = None  # [N] session in which it was shown
    confidence: np.ndarray | None = None  # [N] probability of the decision among the set's classes
    loss: np.ndarray | None = None  # [N] NaN where the label map gives no logits
    top: Coded | None = None  # [N, up to 5] classes, best first
    top_score: np.ndarray | None = None  # [N, up to 5] their probabilities among the set's classes
    rank: np.ndarray | None = None  # [N] rank of the label among all the model's outputs, 1 for the best
    bias_rank: np.ndarray | None = None  # [N] the same for `bias`
    targets: np.ndarray | None = None  # [N,K] bool: which of K labels an image has, where it may have several
    scores: np.ndarray | None = None  # [N,K] probability of each of them
    log_probability: np.ndarray | None = None  # [N,K] of each class, where scores are kept
    energy: np.ndarray | None = None  # [N] there: log sum exp of all the model's outputs
    max_softmax: np.ndarray | None = None  # [N] there: largest probability among all the model's outputs
    label_map: str = "recorded"
    preprocessing: str = ""
    kind: str = MODELS  # or PEOPLE
    image: np.ndarray | None = None  # [N] equal numbers are one image; None: every trial has an image of its own
    member: np.ndarray | None = None  # [N] number of the observer who answered; None: there is one
    cues: tuple[str, str] = CUES  # or SHORTCUT
    has_all_classes: bool = True  # False: `classes` are those that occur, and others may have been possible
    epoch: int | None = None  # number of the evaluation, if a file of predictions has it

    def __post_init__(self) -> None:
        """Convert lists and arrays of names to `Names` and `Coded`."""
        images: Any = self.images
        object.__setattr__(self, "images", images if isinstance(images, Names) else Names(images))
        for name in ("label", "decision", "bias", "group", "condition", "session", "top"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Coded.from_names(getattr(self, name)))

    @property
    def num_images(self) -> int:
        return len(self.label) if self.image is None else len(np.unique(self.image))

    @property
    def image_of_trial(self) -> np.ndarray:
        """[N] number of each trial's image."""
        return np.arange(len(self.label)) if self.image is None else self.image

    @property
    def photograph_of_trial(self) -> np.ndarray:
        """[N] number of the photograph that each trial's image is a view of.

        A model that is tested here may see several views of a photograph, each under a condition. In recorded
        experiments each image counts as a photograph, as only its name is known.
        """
        if self.condition is None or self.label_map == "recorded":
            return self.image_of_trial
        return number_photographs(self.images, self.condition)

    @property
    def num_bytes(self) -> int:
        """Memory of all columns."""
        return sum(getattr(column, "nbytes", 0) for column in vars(self).values())

    @property
    def right(self) -> np.ndarray:
        """[N] True for a decision that is the label."""
        return self.decision == self.label

    @property
    def for_bias(self) -> np.ndarray:
        """[N] True for a decision for the class that the shortcut suggests. The set must have a shortcut."""
        assert self.bias is not None
        chosen: np.ndarray = self.decision == self.bias
        return chosen

    @property
    def conflicting(self) -> np.ndarray:
        """[N] True for an image whose shortcut suggests another class. The set must have a shortcut."""
        assert self.bias is not None
        conflicting: np.ndarray = self.label != self.bias
        return conflicting

    def cue_counts(self, shape_class: str | None = None) -> CueCounts | None:
        """Count decisions for either cue, on all images or on one shape class; None if no image's cues conflict."""
        if self.bias is None:
            return None
        rows = self.conflicting
        if shape_class is not None:
            rows = rows & (self.label == shape_class)
        if not rows.any():
            return None
        return CueCounts(int(rows.sum()), int(self.right[rows].sum()), int(self.for_bias[rows].sum()))


# --- measures ---------------------------------------------------------------------------------------------------------


def accuracy(decisions: Decisions) -> float:
    return measures.accuracy(int(decisions.right.sum()), len(decisions.label))


def _loss(decisions: Decisions) -> float:
    if decisions.loss is None:
        return NAN
    return float(decisions.loss.astype(np.float64).mean())


def _calibration(decisions: Decisions) -> float:
    if decisions.confidence is None:
        return NAN
    return ece(decisions.confidence, decisions.right)


def _measure_confidence(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Decisions], float]:
    """Make a measure from a function of the confidences [N] and of whether each decision is right [N].

    Equal confidences are in the order of the images' ids. NaN if there are too few images.
    """

    def measure(decisions: Decisions) -> float:
        if decisions.confidence is None:
            return NAN
        order = np.argsort(np.array(list(decisions.images), dtype=object), kind="stable")
        try:
            return function(decisions.confidence[order], decisions.right[order])
        except ValueError:
            return NAN

    return measure


def average_precisions(decisions: Decisions) -> list[float]:
    """Return the average precision of each label, NaN for a label that no image has; empty without several labels."""
    if decisions.targets is None or decisions.scores is None:
        return []
    return average_precision.averages(decisions.targets, decisions.scores)


def _measure_scores(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Decisions], float]:
    """Make a measure from a function of which labels images have [N,K] and of the labels' scores [N,K]."""

    def measure(decisions: Decisions) -> float:
        if decisions.targets is None or decisions.scores is None:
            return NAN
        return function(decisions.targets, decisions.scores)

    return measure


def _accuracy_full(decisions: Decisions) -> float:
    if decisions.label_map == "identity":  # it would equal the accuracy
        return NAN
    return _measure_images("accuracy_full")(decisions)


def _measure_images(name: str) -> Callable[[Decisions], float]:
    """Make the measure that is the mean of an entry of `IMAGE_VALUES` over the images that count."""

    def measure(decisions: Decisions) -> float:
        return IMAGE_VALUES[name].take(decisions).mean

    return measure


def _measure_alignment(aligned: bool) -> Callable[[Decisions], float]:
    """Make the measure that is the accuracy on images whose label agrees with their bias, or on all others."""

    def measure(decisions: Decisions) -> float:
        if decisions.bias is None:
            return NAN
        chosen = decisions.right[decisions.conflicting != aligned]
        if not len(chosen):
            return NAN
        return measures.accuracy(int(chosen.sum()), len(chosen))

    return measure


def _worst_class(decisions: Decisions) -> float:
    return min(_accuracies(decisions.label, decisions.right).values(), default=NAN)


def _measure_pairs(combine: Callable[[list[float]], float]) -> Callable[[Decisions], float]:
    """Make a measure that combines the accuracies of all groups of images with one class and one bias."""

    def measure(decisions: Decisions) -> float:
        if decisions.bias is None or not len(decisions.label):
            return NAN
        pair = decisions.label.codes.astype(np.int64) * len(decisions.bias.names) + decisions.bias.codes
        _, group = np.unique(pair, return_inverse=True)
        accuracies = []
        for right, images in zip(np.bincount(group, decisions.right), np.bincount(group), strict=True):
            accuracies.append(measures.accuracy(int(right), int(images)))
        return combine(accuracies)

    return measure


# --- values of images -------------------------------------------------------------------------------------------------


class CountedValues(NamedTuple):
    """Values of N trials, of which some count."""

    values: np.ndarray  # [N]
    counted: np.ndarray  # [N] bool; the other values are meaningless

    @property
    def mean(self) -> float:
        """Mean of the values that count; NaN if none does."""
        return float(self.values[self.counted].mean()) if self.counted.any() else NAN

    def select(self, rows: np.ndarray) -> CountedValues:
        """Return the values with fewer that count: only those that are also in `rows` [N] bool."""
        return CountedValues(self.values, self.counted & rows)


@dataclass(frozen=True)
class ImageValue:
    """Measure that is the mean of a value of each image."""

    value: Callable[[Any], np.ndarray]  # of the decisions: [N] numbers or bools
    counts: Callable[[Any], np.ndarray] | None = None  # of the decisions: [N] images that count; None: all
    needs: tuple[str, ...] = ()  # fields of the decisions; if one is None, no image counts

    def take(self, decisions: Decisions) -> CountedValues:
        """Return the values of all trials."""
        number = len(decisions.label)
        if any(getattr(decisions, name) is None for name in self.needs):
            return CountedValues(np.zeros(number), np.zeros(number, bool))
        counted = np.ones(number, bool) if self.counts is None else self.counts(decisions)
        return CountedValues(self.value(decisions), counted)


def _for_either_cue(decisions: Decisions) -> np.ndarray:
    return decisions.conflicting & (decisions.right | decisions.for_bias)


_right, _for_bias, _conflicting = map(attrgetter, ("right", "for_bias", "conflicting"))
IMAGE_VALUES: Mapping[str, ImageValue] = {
    "accuracy": ImageValue(_right),
    "accuracy_full": ImageValue(lambda decisions: decisions.rank == 1, needs=("rank",)),
    "mrr": ImageValue(lambda decisions: 1 / decisions.rank, needs=("rank",)),
    "bias_decisions": ImageValue(_for_bias, _conflicting, needs=("bias",)),
    "shape_bias": ImageValue(_right, _for_either_cue, needs=("bias",)),
    "shape_accuracy": ImageValue(_right, _conflicting, needs=("bias",)),
    "texture_accuracy": ImageValue(_for_bias, _conflicting, needs=("bias",)),
    "cue_coverage": ImageValue(_for_either_cue, _conflicting, needs=("bias",)),
    "shape_mrr": ImageValue(lambda decisions: 1 / decisions.rank, _conflicting, ("bias", "rank")),
    "texture_mrr": ImageValue(lambda decisions: 1 / decisions.bias_rank, _conflicting, ("bias", "bias_rank")),
}


# A measure is NaN if the decisions lack what it needs.
MEASURES: Mapping[str, Callable[[Decisions], float]] = {
    "accuracy": accuracy,
    "map": _measure_scores(average_precision.mean),
    "map_reference": _measure_scores(average_precision.mean_by_trapezoids),
    "accuracy_full": _accuracy_full,
    "mrr": _measure_images("mrr"),
    "ece": _calibration,
    "rms": _measure_confidence(rms),
    "rms_reference": _measure_confidence(rms_reference),
    "aurra": _measure_confidence(aurra),
    "aligned_accuracy": _measure_alignment(True),
    "conflicting_accuracy": _measure_alignment(False),
    "bias_decisions": _measure_images("bias_decisions"),
    "worst_group_accuracy": _measure_pairs(min),
    "worst_class_accuracy": _worst_class,
    "mean_group_accuracy": _measure_pairs(lambda accuracies: math.fsum(accuracies) / len(accuracies)),
    "shape_bias": _measure_images("shape_bias"),
    "shape_accuracy": _measure_images("shape_accuracy"),
    "texture_accuracy": _measure_images("texture_accuracy"),
    "cue_coverage": _measure_images("cue_coverage"),
    "shape_mrr": _measure_images("shape_mrr"),
    "texture_mrr": _measure_images("texture_mrr"),
    "loss": _loss,
}


def accuracy_of_groups(decisions: Decisions) -> dict[str, float]:
    """Return the accuracy of each group of images; empty if the set has no groups."""
    if decisions.group is None:
        return {}
    return _accuracies(decisions.group, decisions.right)


def accuracy_of_conditions(decisions: Decisions) -> dict[str, float]:
    """Return the accuracy under each condition that images are shown under; empty if the set has no conditions."""
    if decisions.condition is None:
        return {}
    return _accuracies(decisions.condition, decisions.right)


def map_of_conditions(decisions: Decisions) -> dict[str, float]:
    """Return the mean average precision under each condition.

    Empty if the set has no conditions, or its images one label each.
    """
    if decisions.condition is None or decisions.targets is None or decisions.scores is None:
        return {}
    precisions = {}
    for name in sorted(set(decisions.condition)):
        rows = decisions.condition == name
        precisions[name] = average_precision.mean(decisions.targets[rows], decisions.scores[rows])
    return precisions


def _accuracies(names: Coded, right: np.ndarray) -> dict[str, float]:
    """Return the accuracy keyed by name, sorted by name."""
    images, correct = names.counts(), names.counts(right)
    return {name: measures.accuracy(correct[name], images[name]) for name in sorted(images) if images[name]}
