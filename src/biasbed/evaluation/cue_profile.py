"""Cue profile of a model: numbers on shape, texture, background, watermark and other factors, with intervals.

A profile has a row for each measure of a cue that the tested sets give. It is computed from the decisions on images, so
recorded decisions have one, too. No torch.

Answers: What does this model look at?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed import measures, record
from biasbed.evaluation.decisions import CUES, MEASURES, NAN, PEOPLE, Decisions
from biasbed.evaluation.intervals import LEVEL, Interval, shape_bias_interval, sums_interval
from biasbed.published import observers

FACTOR_MEASURE = "error_ratio_"


class CueMeasure(NamedTuple):
    """Measure of a cue, in words."""

    cue: str
    measure: str
    meaning: str
    set: str = ""  # that it is taken on; empty for any


CUE_MEASURES = (
    CueMeasure("shape", "shape_bias", "for the shape, of decisions for either cue"),
    CueMeasure("shape", "shape_accuracy", "decided for the shape"),
    CueMeasure("shape", "shape_mrr", "reciprocal rank of the shape"),
    CueMeasure("shape", "mrr", "reciprocal rank, shapes alone", "refined_bias_shape"),
    CueMeasure("shape", "shape_preference", "share of the shapes in both such ranks"),
    CueMeasure("texture", "texture_accuracy", "decided for the texture"),
    CueMeasure("texture", "texture_mrr", "reciprocal rank of the texture"),
    CueMeasure("texture", "mrr", "reciprocal rank, textures alone", "refined_bias_texture"),
    CueMeasure("background", "background_gap", "accuracy lost on a random background"),
    CueMeasure("background", "accuracy_full", "accuracy on the object alone", "imagenet_9_only_fg"),
    CueMeasure("background", "accuracy_full", "accuracy without the object", "imagenet_9_only_bg_t"),
    CueMeasure("watermark", "watermark_gap", "accuracy lost under a watermark"),
    CueMeasure("watermark", "bias_decisions", "other images decided for carton", "imagenet_w"),
    CueMeasure("distortions", "mean_error", "mean error, all distortions", "laion_c"),
)
LAION_C_PEOPLE = 0.552  # accuracy of the best of its 19 people (Li et al., ICML 2025)


@dataclass(frozen=True)
class CueValue:
    """Row of a profile. low, high: 95 % interval over images. people_low, people_high: lowest and highest person."""

    cue: str
    meaning: str
    measure: str
    set: str
    unit: str
    images: int
    value: float
    low: float
    high: float
    people: float = NAN
    people_low: float = NAN
    people_high: float = NAN
    people_from: str = ""


class People(NamedTuple):
    """People's number beside a model's."""

    value: float = NAN
    low: float = NAN
    high: float = NAN
    source: str = ""


NOBODY = People()


def find_cue(measure: str, set_name: str) -> CueMeasure | None:
    """Return the cue that a measure on a set tells about; None if it tells about none."""
    if measure.startswith(FACTOR_MEASURE):
        factor = measure.removeprefix(FACTOR_MEASURE).replace("_", " ")
        return CueMeasure("factors", measure, f"error ratio: {factor}")
    for cue_measure in CUE_MEASURES:
        if cue_measure.measure == measure and cue_measure.set in ("", set_name):
            return cue_measure
    return None


def cue_order(measure: str, set_name: str) -> tuple[int, str]:
    """Return the key that sorts measures of cues: as in `CUE_MEASURES`, then factors by name."""
    cue = find_cue(measure, set_name)
    if cue in CUE_MEASURES:
        return CUE_MEASURES.index(cue), ""
    return len(CUE_MEASURES), measure


def profile(
    decided: Sequence[Decisions], derived: Sequence[record.Derived] = (), answers: Sequence[Decisions] = ()
) -> list[CueValue]:
    """Return what a model's decisions on all sets say about its cues, in the order of `CUE_MEASURES`.

    derived: the declared values that follow from several of them. answers: of other observers, of whom people stand
    beside the model.
    """
    by_set = {decisions.set: decisions for decisions in decided}
    people: dict[str, list[Decisions]] = {}
    for observer in answers:
        if observer.kind == PEOPLE:
            people.setdefault(observer.set, []).append(observer)
    rows: list[CueValue] = []
    for decisions in decided:
        for measure in ("shape_bias", *MEASURES):
            cue = find_cue(measure, decisions.set)
            if cue is None or any(row.measure == measure and row.set == decisions.set for row in rows):
                continue
            value = _own_value(decisions, measure)
            if not math.isnan(value):
                interval = _own_interval(decisions, measure)
                beside = _people(decisions, measure, people.get(decisions.set, ()))
                rows.append(_make_row(cue, decisions, measures.FRACTION, value, interval, beside))
    for declaration in derived:
        cue = find_cue(declaration.measure, declaration.name)
        if cue is not None and declaration.phase == "test":
            rows += _derived_row(cue, declaration, by_set)
    return sorted(rows, key=lambda row: cue_order(row.measure, row.set))


def _own_value(decisions: Decisions, measure: str) -> float:
    """Return a measure of one set; NaN if the decisions lack what it needs."""
    if measure in OF_CONFLICTS and decisions.cues != CUES:
        return NAN
    if measure == "accuracy_full" and decisions.label_map == "identity":
        return MEASURES["accuracy"](decisions)
    return MEASURES[measure](decisions)


def _own_interval(decisions: Decisions, measure: str) -> Interval:
    """Return Wilson's interval of a share of images that are answered once, else a bootstrap interval."""
    if measure == "shape_bias":
        return shape_bias_interval(decisions, _conflicts(decisions))
    values, counted = _columns(decisions, _Mean(0, measure))
    is_once = decisions.num_images == len(decisions.label) and decisions.condition is None
    if measure in SHARES and is_once and counted.any():
        return measures.wilson(int(values.sum()), int(counted.sum()), LEVEL)
    return _interval([decisions], [_Mean(0, measure)], lambda means: means[0])


def _make_row(
    cue: CueMeasure, decisions: Decisions, unit: str, value: float, interval: Interval, people: People = NOBODY
) -> CueValue:
    low, high = interval
    return CueValue(
        cue=cue.cue,
        meaning=cue.meaning,
        measure=cue.measure,
        set=decisions.set,
        unit=unit,
        images=decisions.num_images,
        value=value,
        low=low,
        high=high,
        people=people.value,
        people_low=people.low,
        people_high=people.high,
        people_from=people.source,
    )


# --- values of images -------------------------------------------------------------------------------------------------


class _Mean(NamedTuple):
    """Mean of a value of each image, over those that count."""

    set: int  # position of its set
    measure: str
    group: str = ""  # group or condition of the images


def _conflicts(decisions: Decisions) -> np.ndarray:
    assert decisions.bias is not None
    conflict: np.ndarray = decisions.label != decisions.bias
    return conflict


def _for_bias(decisions: Decisions) -> np.ndarray:
    assert decisions.bias is not None
    chosen: np.ndarray = decisions.decision == decisions.bias
    return chosen


def _reciprocal(ranks: np.ndarray | None) -> np.ndarray:
    assert ranks is not None
    return 1 / ranks


# Measure -> value of each image, and which images count (None: all).
OF_IMAGES: Mapping[str, tuple[Callable[[Decisions], np.ndarray], Callable[[Decisions], np.ndarray] | None]] = {
    "accuracy": (lambda decisions: decisions.right, None),
    "accuracy_full": (lambda decisions: decisions.right if decisions.rank is None else decisions.rank == 1, None),
    "mrr": (lambda decisions: _reciprocal(decisions.rank), None),
    "shape_bias": (
        lambda decisions: decisions.right,
        lambda decisions: _conflicts(decisions) & (decisions.right | _for_bias(decisions)),
    ),
    "shape_accuracy": (lambda decisions: decisions.right, _conflicts),
    "texture_accuracy": (_for_bias, _conflicts),
    "shape_mrr": (lambda decisions: _reciprocal(decisions.rank), _conflicts),
    "texture_mrr": (lambda decisions: _reciprocal(decisions.bias_rank), _conflicts),
    "bias_decisions": (_for_bias, _conflicts),
}
SHARES = ("accuracy", "accuracy_full", "shape_accuracy", "texture_accuracy", "bias_decisions")
OF_CONFLICTS = ("shape_bias", "shape_accuracy", "texture_accuracy", "cue_coverage", "shape_mrr", "texture_mrr")


def _columns(decisions: Decisions, mean: _Mean) -> tuple[np.ndarray, np.ndarray]:
    """Return each image's value, 0 if it does not count, and whether it counts."""
    value_of, counts_of = OF_IMAGES["accuracy" if mean.measure == record.BY_CONDITION else mean.measure]
    counted = np.ones(len(decisions.label), bool) if counts_of is None else counts_of(decisions)
    if mean.group:
        names = decisions.condition if mean.measure == record.BY_CONDITION else decisions.group
        assert names is not None
        counted = counted & (names == mean.group)
    return np.where(counted, value_of(decisions), 0.0), counted


def _interval(
    decided: Sequence[Decisions], means: Sequence[_Mean], combine: Callable[[Sequence[float]], float]
) -> Interval:
    """Return the bootstrap interval of a function of means, over photographs.

    Sets of the same images are drawn together; other sets independently. NaN if every resample has one value, as if no
    image is right: such an interval would claim that nothing is left open.
    """
    samples: list[np.ndarray] = []  # of each drawn sample, sums of its photographs
    positions: dict[int, int] = {}  # of each mean, the column of its sum among all samples' columns
    for numbers in _joined(decided):
        tables: list[np.ndarray] = []
        for number in numbers:
            decisions = decided[number]
            photograph = np.unique(decisions.photograph_of_trial, return_inverse=True)[1]
            for position, mean in enumerate(means):
                if mean.set != number:
                    continue
                width = sum(sample.shape[1] for sample in samples) + len(tables)
                positions[position] = width
                tables += [np.bincount(photograph, column) for column in _columns(decisions, mean)]
        samples.append(np.stack(tables, axis=1))

    def statistic(sums: np.ndarray) -> np.ndarray:
        drawn = []
        for row in sums:
            counted = [row[positions[position] + 1] for position in range(len(means))]
            if all(counted):
                values = [float(row[positions[number]] / counted[number]) for number in range(len(means))]
                drawn.append(combine(values))
        return np.array(drawn)

    low, high = sums_interval(samples, statistic)
    return (low, high) if low < high else (NAN, NAN)


def _joined(decided: Sequence[Decisions]) -> list[list[int]]:
    """Return groups of sets, by position, whose images are the same ones in the same order."""
    groups: list[list[int]] = []
    for number, decisions in enumerate(decided):
        for group in groups:
            first = decided[group[0]]
            if decisions.num_images == first.num_images and list(decisions.images) == list(first.images):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


# --- derived values ---------------------------------------------------------------------------------------------------


def _derived_row(cue: CueMeasure, declaration: record.Derived, by_set: Mapping[str, Decisions]) -> Iterator[CueValue]:
    """Yield the row of a derived value, unless an input is missing."""
    names = [record.parse_metric(name) for name in declaration.inputs]
    sets = list(dict.fromkeys(name.set for name in names if name is not None and name.set))
    if any(name is None or name.measure not in (*OF_IMAGES, record.BY_CONDITION) for name in names):
        return
    if not all(name in by_set for name in sets):
        return
    decided = [by_set[name] for name in sets]
    if any(name is not None and name.measure == "mrr" and by_set[str(name.set)].rank is None for name in names):
        return
    means = [_Mean(sets.index(str(name.set)), name.measure, name.group or "") for name in names if name is not None]
    inputs = []
    for mean in means:
        values, counted = _columns(decided[mean.set], mean)
        inputs.append(float(values.sum() / counted.sum()) if counted.any() else NAN)

    def combine(values: Sequence[float]) -> float:
        function, references = declaration.function, declaration.references
        value = measures.derive(function, values, references, declaration.higher_is_better)
        return NAN if value is None else value

    value = combine(inputs)
    if not math.isnan(value):
        people = NOBODY
        if declaration.name == "laion_c":
            people = People(1 - LAION_C_PEOPLE, source="Li et al. 2025, the best of 19")
        yield _make_row(
            cue, by_set[declaration.name], declaration.unit, value, _interval(decided, means, combine), people
        )


# --- people -----------------------------------------------------------------------------------------------------------


def _people(decisions: Decisions, measure: str, answers: Sequence[Decisions]) -> People:
    """Return people's value of a measure: of the given people, else of the published ones on cue conflicts."""
    values = [value for value in (_own_value(person, measure) for person in answers) if not math.isnan(value)]
    if values:
        return People(math.fsum(values) / len(values), min(values), max(values), f"{len(values)} given here")
    if measure != "shape_bias" or set(decisions.classes) != observers.categories():
        return NOBODY
    people = observers.people()
    biases = [person.shape_bias for person in people]
    pooled = observers.pooled("people", people).shape_bias
    return People(pooled, min(biases), max(biases), f"{observers.CITATION}, {len(people)} people")
