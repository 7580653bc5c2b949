"""Decisions on images, whoever made them: a model tested here, one tested elsewhere, people in an experiment.

`evaluation/recorded.py` reads those that are in files. No torch.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import measures
from biasbed.data.names import Coded, Names, photographs
from biasbed.datasets.classes import image_name
from biasbed.errors import UsageError
from biasbed.evaluation import average_precision, shape_bias
from biasbed.evaluation.calibration import aurra, rms, rms_reference
from biasbed.system.files import whole

PEOPLE, MODELS = "people", "models"
NAN = float("nan")
CUES, SHORTCUT = ("shape", "texture"), ("class", "bias")  # what label and bias of an image stand for, in words


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions on images of one set, one per trial, of one observer or of several; classes and groups are names.

    Of images with several labels, an image's label, and the decision on it, are all of them: their names, joined by +.

    A model that is tested here sees every image once. In an experiment an observer may see one in several sessions, and
    several observers see the same ones: their trials are not as many images (`identified`, `pooled`).
    """

    observer: str
    set: str
    images: Names  # of each of N trials
    label: Coded  # [N]; under cue conflict the shape's class
    decision: Coded  # [N]
    classes: tuple[str, ...]
    bias: Coded | None = None  # [N] class that a shortcut suggests; under cue conflict the texture's
    group: Coded | None = None  # [N] name of each image's group
    condition: Coded | None = None  # [N] under which each trial's image was shown
    session: Coded | None = None  # [N] the same
    confidence: np.ndarray | None = None  # [N] probability of the decision among the set's classes
    loss: np.ndarray | None = None  # [N] NaN where the label map gives no logits
    top: Coded | None = None  # [N, up to 5] classes, best first
    top_score: np.ndarray | None = None  # [N, up to 5] their probabilities among the set's classes
    rank: np.ndarray | None = None  # [N] place of the label among all the model's outputs, 1 for the best
    bias_rank: np.ndarray | None = None  # [N] the same of `bias`
    targets: np.ndarray | None = None  # [N,K] bool: which of K labels an image has, where it may have several
    scores: np.ndarray | None = None  # [N,K] probability of each of them
    label_map: str = "recorded"
    preprocessing: str = ""
    kind: str = MODELS  # what the observer is one of
    image: np.ndarray | None = None  # [N] equal numbers are one image; None: every trial has an image of its own
    member: np.ndarray | None = None  # [N] which of several observers answered; None: there is one
    cues: tuple[str, str] = CUES  # or SHORTCUT

    def __post_init__(self) -> None:
        """Names may be given in any form."""
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
        """[N] number of the photograph that each trial's image is a view of, where a model saw it under conditions.

        Of experiments that others recorded only what each image is called is known: an image is a photograph there.
        """
        if self.condition is None or self.label_map == "recorded":
            return self.image_of_trial
        return photographs(self.images, self.condition)

    @property
    def right(self) -> np.ndarray:
        return self.decision == self.label

    def cue_counts(self, shape_class: str | None = None) -> shape_bias.CueCounts | None:
        """Decisions for either cue, of all images or of one shape class; None without images whose cues conflict."""
        if self.bias is None:
            return None
        rows = slice(None) if shape_class is None else self.label == shape_class
        ranks = (None if of is None else of[rows] for of in (self.rank, self.bias_rank))
        counts = shape_bias.count(self.label[rows], self.bias[rows], self.decision[rows], *ranks)
        return counts if counts.decisions else None


def calibration(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error of N decisions, in bins (0, 1/15], (1/15, 2/15], ... of their confidence."""
    number = measures.CALIBRATION_BINS
    confidence = confidence.astype(np.float64)
    bins = np.clip(np.ceil(confidence * number).astype(np.int8) - 1, 0, number - 1)
    of_bin = [np.bincount(bins, weights).tolist() for weights in (None, right, confidence)]
    return measures.expected_calibration_error(*of_bin)


# --- measures ---------------------------------------------------------------------------------------------------------


def accuracy(one: Decisions) -> float:
    return measures.accuracy(int(one.right.sum()), len(one.label))


def _loss(one: Decisions) -> float:
    return NAN if one.loss is None else float(one.loss.astype(np.float64).mean())


def _calibration(one: Decisions) -> float:
    return NAN if one.confidence is None else calibration(one.confidence, one.right)


def _of_confidence(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Decisions], float]:
    """Of confidences and of what is right, ties in the order of the images' ids; NaN where there are too few."""

    def measure(one: Decisions) -> float:
        if one.confidence is None:
            return NAN
        order = np.argsort(np.array(list(one.images), dtype=object), kind="stable")
        try:
            return function(one.confidence[order], one.right[order])
        except ValueError:
            return NAN

    return measure


def average_precisions(one: Decisions) -> list[float]:
    """Of each label (area under precision by recall, in steps); NaN for one that no image has."""
    return [] if one.targets is None or one.scores is None else average_precision.averages(one.targets, one.scores)


def _of_scores(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Decisions], float]:
    """Of which labels images have, and of their scores."""

    def measure(one: Decisions) -> float:
        return NAN if one.targets is None or one.scores is None else function(one.targets, one.scores)

    return measure


def _accuracy_full(one: Decisions) -> float:
    if one.rank is None or one.label_map == "identity":  # it would be the accuracy once more
        return NAN
    return measures.accuracy(int((one.rank == 1).sum()), len(one.rank))


def _of_alignment(aligned: bool) -> Callable[[Decisions], float]:
    def measure(one: Decisions) -> float:
        if one.bias is None:
            return NAN
        chosen = one.right[(one.bias == one.label) == aligned]
        return measures.accuracy(int(chosen.sum()), len(chosen)) if len(chosen) else NAN

    return measure


def _worst_class(one: Decisions) -> float:
    return min(_accuracies(one.label, one.right).values(), default=NAN)


def _of_pairs(combine: Callable[[list[float]], float]) -> Callable[[Decisions], float]:
    """Of the accuracies of the images of each class and bias that there are."""

    def measure(one: Decisions) -> float:
        if one.bias is None or not len(one.label):
            return NAN
        _, group = np.unique(
            one.label.codes.astype(np.int64) * len(one.bias.names) + one.bias.codes, return_inverse=True
        )
        right, images = np.bincount(group, one.right).tolist(), np.bincount(group).tolist()
        return combine([measures.accuracy(int(r), n) for r, n in zip(right, images, strict=True)])

    return measure


def _of_cues(name: str) -> Callable[[Decisions], float]:
    def measure(one: Decisions) -> float:
        counts = one.cue_counts()
        return NAN if counts is None else float(getattr(counts, name))

    return measure


# NaN where the decisions don't tell.
MEASURES: Mapping[str, Callable[[Decisions], float]] = {
    "accuracy": accuracy,
    "map": _of_scores(average_precision.mean),
    "map_reference": _of_scores(average_precision.mean_by_trapezoids),
    "accuracy_full": _accuracy_full,
    "ece": _calibration,
    "rms": _of_confidence(rms),
    "rms_reference": _of_confidence(rms_reference),
    "aurra": _of_confidence(aurra),
    "aligned_accuracy": _of_alignment(True),
    "conflicting_accuracy": _of_alignment(False),
    "worst_group_accuracy": _of_pairs(min),
    "worst_class_accuracy": _worst_class,
    "mean_group_accuracy": _of_pairs(lambda found: math.fsum(found) / len(found)),
    "shape_bias": _of_cues("shape_bias"),
    "shape_accuracy": _of_cues("shape_accuracy"),
    "texture_accuracy": _of_cues("texture_accuracy"),
    "cue_coverage": _of_cues("coverage"),
    "shape_mrr": _of_cues("shape_mrr"),
    "texture_mrr": _of_cues("texture_mrr"),
    "loss": _loss,
}


def accuracy_of_groups(one: Decisions) -> dict[str, float]:
    """Of each group of images; none where the set has none."""
    return {} if one.group is None else _accuracies(one.group, one.right)


def accuracy_of_conditions(one: Decisions) -> dict[str, float]:
    """Of each condition that images are shown under; none where the set has none."""
    return {} if one.condition is None else _accuracies(one.condition, one.right)


def _accuracies(names: Coded, right: np.ndarray) -> dict[str, float]:
    """Accuracy by name, in the order of names."""
    images, correct = names.counts(), names.counts(right)
    return {name: measures.accuracy(correct[name], images[name]) for name in sorted(images) if images[name]}


# --- several observers ------------------------------------------------------------------------------------------------


def identified(answers: Sequence[Decisions]) -> list[Decisions]:
    """The same observers of one set, with a number for every image, equal for equal images of any of them.

    UsageError as in `image_keys`.
    """
    keys = image_keys(answers)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(key for own in keys for key in own))}
    return [replace(one, image=np.array([numbers[key] for key in own])) for one, own in zip(answers, keys, strict=True)]


def pooled(answers: Sequence[Decisions]) -> Decisions:
    """The trials of several observers of one kind together, each with its image and its observer."""
    kinds = {one.kind for one in answers}
    assert len(kinds) == 1
    numbered = identified(answers)
    biases = [one.bias for one in answers if one.bias is not None]
    return Decisions(
        observer=f"all {answers[0].kind}",
        set=answers[0].set,
        images=Names(image for one in answers for image in one.images),
        label=Coded.from_names(itertools.chain.from_iterable(one.label for one in answers)),
        decision=Coded.from_names(itertools.chain.from_iterable(one.decision for one in answers)),
        classes=tuple(sorted({name for one in answers for name in one.classes})),
        bias=None
        if any(b is None for b in biases)
        else Coded.from_names([name for b in biases if b is not None for name in b]),
        kind=answers[0].kind,
        image=np.concatenate([one.image_of_trial for one in numbered]),
        member=np.repeat(np.arange(len(answers)), [len(one.label) for one in answers]),
    )


# --- on disk ----------------------------------------------------------------------------------------------------------


ROWS = 2**15  # that are written together


def write_predictions(path: Path, one: Decisions, epoch: int) -> None:
    """The decisions of a model that is tested here, per image, as parquet (`record.PREDICTIONS` has the columns)."""
    import pyarrow as pa
    from pyarrow import parquet

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own takes 20 MB more than it needs

    def rows(start: int) -> pa.Table:
        return pa.table(_columns(one, epoch, slice(start, start + ROWS)))

    about = {"label_map": one.label_map, **({} if one.targets is None else {"labels": json.dumps(one.classes)})}
    schema = rows(0).schema
    words = [field.name for field in schema if pa.types.is_string(field.type) and field.name != "image"]
    options = {
        "compression": "zstd",
        "compression_level": 9,  # names of images are half of what there is to press
        "data_page_size": 2**17,
        "write_page_checksum": True,
        "use_dictionary": [*words, "top5.list.element", "rank", "bias_rank", "epoch"],
        "column_encoding": {name: "BYTE_STREAM_SPLIT" for name in ("confidence", "loss") if name in schema.names},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary, parquet.ParquetWriter(temporary, schema.with_metadata(about), **options) as writer:
        for start in range(0, len(one.label), ROWS):
            writer.write_table(rows(start).replace_schema_metadata(about))


def _columns(one: Decisions, epoch: int, rows: slice) -> dict[str, Any]:
    """Of the file, those that there are, of these rows."""
    import pyarrow as pa

    def words(column: Coded | None) -> Any:
        return None if column is None else pa.array(column.names, pa.string()).take(pa.array(column.codes[rows]))

    def lists(matrix: np.ndarray | None) -> Any:
        if matrix is None:
            return None
        return pa.FixedSizeListArray.from_arrays(pa.array(matrix[rows].reshape(-1)), matrix.shape[1])

    def whole_numbers(column: np.ndarray | None) -> Any:
        return None if column is None else column[rows].astype(np.int32)

    columns = {
        "image": _strings(one.images, rows),
        "label": words(one.label),
        "decision": words(one.decision),
        "correct": one.decision[rows] == one.label[rows],
        "confidence": None if one.confidence is None else one.confidence[rows],
        "rank": whole_numbers(one.rank),
        "loss": None if one.loss is None else one.loss[rows],
        "top5": None if one.top is None else pa.array(one.top[rows].tolist(), pa.list_(pa.string())),
        "top5_score": None if one.top_score is None else one.top_score[rows].tolist(),
        "epoch": np.full(len(one.label.codes[rows]), epoch, dtype=np.int32),
        "bias": words(one.bias),
        "bias_rank": whole_numbers(one.bias_rank),
        "group": words(one.group),
        "condition": words(one.condition),
        "targets": lists(one.targets),
        "scores": lists(one.scores),
    }
    return {name: column for name, column in columns.items() if column is not None}


def _strings(names: Names, rows: slice) -> Any:
    """Without making every name an object."""
    import pyarrow as pa

    start, stop, _ = rows.indices(len(names))
    content, ends = names.arrays(start, stop)
    return pa.StringArray.from_buffers(stop - start, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content))


# --- error consistency ------------------------------------------------------------------------------------------------


def image_keys(answers: Sequence[Decisions]) -> list[list[str]]:
    """What the image of each trial of each observer is called, so that equal names are equal images.

    The shortest name that no observer answers twice in one session: the bare one; else condition and name, as where an
    experiment shows an image in several; else the whole id.
    """
    tried = [
        [[image_name(image) for image in one.images] for one in answers],
        [[f"{c}/{image_name(i)}" for c, i in zip(_conditions_of(one), one.images, strict=True)] for one in answers],
    ]
    if all(one.condition is None for one in answers):  # a trial's whole name is unique even where its image is not
        tried.append([list(one.images) for one in answers])
    for names in tried:
        if all(_repeated(one, of) is None for one, of in zip(answers, names, strict=True)):
            return names
    named = ((one.observer, _repeated(one, of)) for one, of in zip(answers, tried[-1], strict=True))
    observer, image = next((observer, image) for observer, image in named if image is not None)
    raise UsageError(
        f"{observer} answers the same image more than once in a session ({image}): give the files of one experiment"
    )


def _conditions_of(one: Decisions) -> Sequence[str]:
    return [""] * len(one.images) if one.condition is None else one.condition.tolist()


def _repeated(one: Decisions, names: Sequence[str]) -> str | None:
    """The first name that the observer answers for a second time in one session."""
    seen = set()
    for place in zip(sessions_of(one), names, strict=True):
        if place in seen:
            return place[1]
        seen.add(place)
    return None


def sessions_of(one: Decisions) -> Sequence[str]:
    return [""] * len(one.images) if one.session is None else one.session.tolist()
