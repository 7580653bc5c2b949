"""Cue profile of a model: numbers on shape, texture, background, watermark and other factors, with intervals.

A profile has a row for each measure of a cue that the tested sets give. It is computed from the decisions on images, so
recorded decisions have one, too. No torch.

Answers: What does this model look at?
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from biasbed import derived_values, measures, record
from biasbed.evaluation.decisions import (
    CUES,
    IMAGE_VALUES,
    MEASURES,
    NAN,
    OF_CONFLICTS,
    PEOPLE,
    CountedValues,
    Decisions,
)
from biasbed.evaluation.intervals import LEVEL, Interval, share_interval, sums_interval
from biasbed.plugins.cues.error_ratios import error_ratio_interval
from biasbed.published import observers

FACTOR_MEASURE = "error_ratio_"
SHARES = ("accuracy", "accuracy_full", "shape_bias", "shape_accuracy", "texture_accuracy", "bias_decisions")


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
    CueMeasure("shape", "reliance_shape", "accuracy lost if cells are shuffled"),
    CueMeasure("texture", "texture_accuracy", "decided for the texture"),
    CueMeasure("texture", "texture_mrr", "reciprocal rank of the texture"),
    CueMeasure("texture", "mrr", "reciprocal rank, textures alone", "refined_bias_texture"),
    CueMeasure("texture", "reliance_texture", "accuracy lost if textures are smoothed"),
    CueMeasure("texture", "loss_by_gaussian_smoothing", "accuracy lost under a blur"),
    CueMeasure("colour", "reliance_colour", "accuracy lost in grey"),
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
    """Row of a profile.

    decisions: number of decisions that the value rests on. low, high: 95 % interval over images. people_low,
    people_high: lowest and highest person.
    """

    cue: str
    meaning: str
    measure: str
    set: str
    unit: str
    decisions: int
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


@functools.lru_cache(maxsize=10_000)  # thousands of runs have the same measures
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
    for name, decisions in by_set.items():
        rows += _rows_of_set(decisions, people.get(name, ()))
    for declaration in derived:
        cue = find_cue(declaration.measure, declaration.name)
        if cue is not None and declaration.phase == "test":
            rows += _derived_rows(cue, declaration, by_set)
    return sorted(rows, key=lambda row: cue_order(row.measure, row.set))


def _rows_of_set(decisions: Decisions, people: Sequence[Decisions]) -> Iterator[CueValue]:
    """Yield the measures that a model's decisions on one set give. people: decisions of people on that set."""
    for measure in MEASURES:
        cue = find_cue(measure, decisions.set)
        if cue is None:
            continue
        value = _value_on_set(decisions, measure)
        if not math.isnan(value):
            number = int(_image_values(decisions, measure).counted.sum())
            interval = _interval_on_set(decisions, measure)
            answer = _find_people(decisions, measure, people)
            yield _make_row(
                cue, decisions.set, unit=measures.FRACTION, number=number, value=value, interval=interval, people=answer
            )


def _value_on_set(decisions: Decisions, measure: str) -> float:
    """Return a measure of one set; NaN if the decisions lack what it needs."""
    if measure in OF_CONFLICTS and decisions.cues != CUES:
        return NAN
    if measure == "accuracy_full" and (decisions.label_map == "identity" or decisions.rank is None):
        return MEASURES["accuracy"](decisions)
    return MEASURES[measure](decisions)


def _interval_on_set(decisions: Decisions, measure: str) -> Interval:
    """Return the interval of a share of decisions, else a bootstrap interval."""
    if measure in SHARES:
        return share_interval(decisions, _image_values(decisions, measure))
    return _bootstrap_interval([decisions], [_Mean(0, measure)], lambda means: means[0])


def _make_row(
    cue: CueMeasure, set_name: str, *, unit: str, number: int, value: float, interval: Interval, people: People
) -> CueValue:
    """Return the row of a measure. number: of decisions that the value rests on."""
    low, high = interval
    return CueValue(
        cue=cue.cue,
        meaning=cue.meaning,
        measure=cue.measure,
        set=set_name,
        unit=unit,
        decisions=number,
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


def _image_values(decisions: Decisions, measure: str) -> CountedValues:
    """Return the values of which a measure is the mean. Answers without ranks are the best of all outputs."""
    if measure == "accuracy_full" and decisions.rank is None:
        measure = "accuracy"
    return IMAGE_VALUES[measure].take(decisions)


def _values_of_mean(decisions: Decisions, mean: _Mean) -> CountedValues:
    """Return the values of a mean, which may be over a group or a condition alone."""
    if not mean.group:
        return _image_values(decisions, mean.measure)
    is_by_condition = mean.measure == record.BY_CONDITION
    names = decisions.condition if is_by_condition else decisions.group
    assert names is not None
    values = _image_values(decisions, "accuracy" if is_by_condition else mean.measure)
    return values.select(names == mean.group)


def _count_decisions(decided: Sequence[Decisions], means: Sequence[_Mean]) -> int:
    """Return the number of decisions that a function of means rests on.

    Of a set of which groups or conditions have means, those count. Of several sets the smallest number is taken.
    """
    counts = []
    for number, decisions in enumerate(decided):
        of_set = [mean for mean in means if mean.set == number]
        of_groups = [mean for mean in of_set if mean.group]
        counted = [_values_of_mean(decisions, mean).counted for mean in of_groups or of_set]
        counts.append(int(np.any(counted, axis=0).sum()))
    return min(counts)


class _PhotographSums(NamedTuple):
    """Two columns for each mean, over photographs: sums of its values, and numbers of images that count."""

    samples: list[np.ndarray]  # [photographs, columns] of each sample that is drawn independently
    first_column: dict[_Mean, int]  # of a mean, among the columns of all samples; the numbers are in the next one


def _sum_by_photograph(decided: Sequence[Decisions], means: Sequence[_Mean]) -> _PhotographSums:
    """Return the sums that means are quotients of. Sets of the same images are one sample."""
    samples: list[np.ndarray] = []
    first_column: dict[_Mean, int] = {}
    width = 0
    for numbers in _group_by_images(decided):
        columns: list[np.ndarray] = []
        for number in numbers:
            photograph = np.unique(decided[number].photograph_of_trial, return_inverse=True)[1]
            for mean in means:
                if mean.set == number:
                    first_column[mean] = width + len(columns)
                    values, counted = _values_of_mean(decided[number], mean)
                    columns.append(np.bincount(photograph, np.where(counted, values, 0.0)))
                    columns.append(np.bincount(photograph, counted))
        samples.append(np.stack(columns, axis=1))
        width += len(columns)
    return _PhotographSums(samples, first_column)


def _bootstrap_interval(
    decided: Sequence[Decisions], means: Sequence[_Mean], combine: Callable[[Sequence[float]], float]
) -> Interval:
    """Return the bootstrap interval of a function of means, over photographs.

    NaN if every resample has one value, or every resample of one sample, as if no image is right: such an interval
    would claim that nothing is left open. NaN, too, if more resamples than lie beyond one bound give no value, as a
    share of what is above chance has none at chance: the interval then is open.
    """
    samples, first_column = _sum_by_photograph(decided, means)
    if any((sample == sample[0]).all() for sample in samples):
        return NAN, NAN
    sum_columns = [first_column[mean] for mean in means]
    number_columns = [column + 1 for column in sum_columns]

    def combine_resamples(sums: np.ndarray) -> np.ndarray:
        drawn = []
        for row in sums:
            if row[number_columns].all():
                drawn.append(combine((row[sum_columns] / row[number_columns]).tolist()))
        values = np.array(drawn)
        return values if np.isnan(values).mean() <= (1 - LEVEL) / 2 else values[:0]

    low, high = sums_interval(samples, combine_resamples)
    return (low, high) if low < high else (NAN, NAN)


def _group_by_images(decided: Sequence[Decisions]) -> list[list[int]]:
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


def _derived_rows(cue: CueMeasure, declaration: record.Derived, by_set: Mapping[str, Decisions]) -> Iterator[CueValue]:
    """Yield the row of a derived value, unless an input is missing."""
    names = [record.parse_metric(name) for name in declaration.inputs]
    sets = list(dict.fromkeys(name.set for name in names if name is not None and name.set))
    if any(name is None or name.measure not in (*IMAGE_VALUES, record.BY_CONDITION) for name in names):
        return
    if not all(name in by_set for name in sets):
        return
    decided = [by_set[name] for name in sets]
    means = [_Mean(sets.index(str(name.set)), name.measure, name.group or "") for name in names if name is not None]
    inputs = [_values_of_mean(decided[mean.set], mean).mean for mean in means]
    if any(map(math.isnan, inputs)):
        return

    def combine(values: Sequence[float]) -> float:
        function, references = declaration.function, declaration.references
        value = derived_values.derive(function, values, references, declaration.higher_is_better)
        return NAN if value is None else value

    value = combine(inputs)
    if not math.isnan(value):
        people = NOBODY
        if declaration.name == "laion_c":
            people = People(1 - LAION_C_PEOPLE, source="Li et al. 2025, the best of 19")
        if declaration.function == "error_quotient":  # of a group by that of its set
            interval = error_ratio_interval(decided[0], _values_of_mean(decided[0], means[0]).counted)
        else:
            interval = _bootstrap_interval(decided, means, combine)
        number, unit = _count_decisions(decided, means), declaration.unit
        yield _make_row(cue, declaration.name, unit=unit, number=number, value=value, interval=interval, people=people)


# --- people -----------------------------------------------------------------------------------------------------------


def _find_people(decisions: Decisions, measure: str, answers: Sequence[Decisions]) -> People:
    """Return people's value of a measure: of the given people, else of the published ones on cue conflicts.

    The source of a missing value says why it is missing.
    """
    values = [value for value in (_value_on_set(person, measure) for person in answers) if not math.isnan(value)]
    if values:
        return People(math.fsum(values) / len(values), min(values), max(values), f"{len(values)} given here")
    if measure != "shape_bias":
        return NOBODY
    people = observers.people()
    labels = {name for name, count in decisions.label.counts().items() if count}
    if labels != observers.categories():
        number = len(observers.categories())
        seen = f"saw {number} categories, of which these images show {len(labels & observers.categories()) or 'none'}"
        return People(source=f"none beside this shape bias: the {len(people)} people of {observers.CITATION} {seen}")
    biases = [person.shape_bias for person in people]
    pooled = observers.pooled("people", people).shape_bias
    return People(pooled, min(biases), max(biases), f"{observers.CITATION}, {len(people)} people")
