"""Reliance on shape, texture and colour: a suite's evaluation sets with one cue suppressed at a time.

Burgert, Stoll, Rota & Demir, ImageNet-trained CNNs are not biased towards texture, NeurIPS 2025: what accuracy is lost
without a cue is the reliance on the cue. `sets=photo,reliance` or `reliance.sets=photo` tests `photo_reliance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed.config import Config
from biasbed.data import transforms
from biasbed.data.corruptions.suppression import (
    BILATERAL,
    BILATERAL_FILTER,
    BLURS,
    GAUSSIAN_SMOOTHING,
    GREY_BLEND,
    PATCH_SHUFFLE,
    SUPPRESSIONS,
)
from biasbed.datasets.suppressed import CLEAN, Condition, suppressed
from biasbed.errors import UsageError
from biasbed.record import BY_CONDITION, MAP_BY_CONDITION, SHAPE_BIAS, Derived, MetricName
from biasbed.suites.changed_copies import ChangedCopies, find_common_problem
from biasbed.suites.sets import EvaluationSet

if TYPE_CHECKING:
    from biasbed.suites.suite import OpenSuite

WORD = "reliance"  # among `sets`: of all other sets that are named
SUFFIX, WHOLE_SUFFIX = f"_{WORD}", f"_{WORD}_whole"
# The suppression that stands for each cue, in both forms; the short form has one strength of each, and of a blur.
STANDS_FOR = {"shape": PATCH_SHUFFLE.name, "texture": BILATERAL_FILTER.name, "colour": GREY_BLEND.name}
SHORT = {
    PATCH_SHUFFLE.name: ((4,),),
    BILATERAL_FILTER.name: (BILATERAL[4],),
    GAUSSIAN_SMOOTHING.name: (BLURS[3],),
    GREY_BLEND.name: ((1.0,),),
}
WHOLE = {name: suppression.strengths for name, suppression in SUPPRESSIONS.items()}


def with_reliance(suite: OpenSuite, config: Config) -> OpenSuite:
    """Return the suite with a reliance set of each set that `reliance.sets` names; the word `reliance` means all.

    Sets of cue conflicts beside others are left out: without one cue their images still show the other one's class.
    Raises UsageError for an unknown set, or one in which no cue can be suppressed.
    """
    names = config.reliance.sets
    if WORD in names:
        names = tuple(member.name for member in suite.sets if member.counts and not _find_problem(member))
    conflicts = {member.name for member in suite.sets if SHAPE_BIAS in member.measured}
    if names and conflicts.issuperset(names):
        raise UsageError(f"reliance.sets={','.join(names)}: these images have two cues; name a set of images with one")
    names = tuple(name for name in names if name not in conflicts)
    copies = ChangedCopies(
        "reliance.sets",
        WHOLE_SUFFIX if config.reliance.every_strength else SUFFIX,
        _find_problem,
        make=lambda original: reliance_set(original, config),
        derive=derivations,
    )
    return copies.add(suite, names)


def expand_reliance(config: Config) -> Config:
    """Replace the word `reliance` among the sets: `sets=photo,reliance` becomes `sets=photo reliance.sets=photo`.

    `sets=reliance` alone means all sets that are there.
    """
    others = tuple(name for name in config.sets if name != WORD)
    names = tuple(dict.fromkeys((*config.reliance.sets, *(others or (WORD,)))))
    return replace(config, sets=others or "auto", reliance=replace(config.reliance, sets=names))


def conditions(is_whole: bool) -> tuple[Condition, ...]:
    """Return no suppression, then every suppression in its strengths."""
    shown = [Condition(CLEAN)]
    for name, strengths in (WHOLE if is_whole else SHORT).items():
        shown += [Condition(condition_name(name, constants), name, constants) for constants in strengths]
    return tuple(shown)


def condition_name(suppression: str, constants: Sequence[float]) -> str:
    """Return the condition's name in metrics: `patch_shuffle-4`, `grey_blend-40` in percent, `smooth_shuffle-12-4`.

    The second constant of a filter follows from its first and is left out.
    """
    if suppression == GREY_BLEND.name:
        constants = [round(100 * share) for share in constants]
    elif len(constants) > 1:
        constants = [constants[0], *constants[2:]]
    return "-".join([suppression, *(f"{value:g}" for value in constants)])


def reliance_set(original: EvaluationSet, config: Config) -> EvaluationSet:
    """Return a set of the original's images under the suppressions. Raises UsageError if OpenCV is missing."""
    is_whole = config.reliance.every_strength
    name = f"{original.name}{WHOLE_SUFFIX if is_whole else SUFFIX}"
    shown = conditions(is_whole)
    headline = original.task.measures[0]
    source = suppressed(original.source, name, original.transform, original.preprocessing, shown, config.corrupted.seed)
    return replace(
        original,
        name=name,
        source=source,
        transform=transforms.Exact(input_side(original)),
        measures=tuple(dict.fromkeys((headline, "accuracy", "loss"))),
        headline=headline,
        preprocessing=f"{original.preprocessing}; a cue suppressed",
        block="",
        aliases=(),
        domain="",
        cadence="end",
        counts=False,
        plain="" if transforms.is_random(original.transform) else original.name,
    )


def derivations(reliance: EvaluationSet) -> Iterator[Derived]:
    """Yield the reliance on each suppressed thing, then on each cue.

    Reliance is 1 - the mean over strengths of (accuracy - chance) / (accuracy without suppression - chance). If images
    have several labels, mean average precision takes the place of accuracy.
    """
    name, source = reliance.name, reliance.source
    chance = reliance.task.chance(reliance.headline, source.y, len(source.classes))
    by_condition = MAP_BY_CONDITION if reliance.task.several else BY_CONDITION

    def value(measure: str, shown: Sequence[str]) -> Derived:
        cells = tuple(str(MetricName("test", by_condition, name, condition)) for condition in (CLEAN, *shown))
        return Derived("test", measure, name, "lost_share", cells, (chance,), higher_is_better=False)

    for suppression in SUPPRESSIONS:
        shown = [condition for condition in source.conditions if condition.split("-")[0] == suppression]
        if shown:
            yield value(f"loss_by_{suppression}", shown)
    for cue, suppression in STANDS_FOR.items():
        shown = [condition for condition in source.conditions if condition.split("-")[0] == suppression]
        yield value(f"{WORD}_{cue}", shown)


def _find_problem(original: EvaluationSet) -> str:
    """Return why no cue can be suppressed in a set's images, as text; empty if it can."""
    return find_common_problem(original, "cues are suppressed in 3")


def input_side(original: EvaluationSet) -> int:
    """Return the side of the images that the network gets."""
    example = transforms.make_example(original.transform, 3)
    return int(original.transform(example).shape[-1])
