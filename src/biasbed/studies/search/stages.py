"""The stages of a search: some settings are searched first, then others, with what has won so far.

A stage has places of its own in the search. When it begins, and with what, is in `turns.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from biasbed.errors import UsageError
from biasbed.studies.search import trials
from biasbed.studies.search.space import Default, Parameters, Space, Value, exists
from biasbed.studies.table import Words

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

IN_ORDER = "in order"  # sampler of a stage that tries all points of its space, as they stand in the file


@dataclass(frozen=True)
class SearchStage:
    """Some settings of a search, and the trials in which they are searched."""

    space: Space
    sampler: str
    first: int  # place of its first trial
    trials: int
    points: tuple[Parameters, ...] = ()  # that it tries one by one, after the method's default; only IN_ORDER

    @property
    def end(self) -> int:
        """The place after its last."""
        return self.first + self.trials

    @property
    def names(self) -> tuple[str, ...]:
        return self.space.names

    @property
    def title(self) -> str:
        return f"{', '.join(self.names)} ({self.sampler})"

    def point(self, place: int) -> Parameters:
        """Of the trial at this place of the search; IN_ORDER."""
        return self.points[place - self.end + len(self.points)]


@dataclass(frozen=True)
class Given:
    """What the trials of a stage have of settings that it does not search."""

    words: Words
    parameters: Parameters  # the same as Optuna has them, so far as they lie in the space

    def plain(self) -> dict[str, Mapping[str, Value]]:
        return {"words": dict(self.words), "parameters": dict(self.parameters)}


NOTHING = Given({}, {})


def given_to(trial: FrozenTrial) -> Given:
    """What a trial was given; nothing in a search of one stage."""
    found = trial.user_attrs.get(trials.GIVEN)
    return Given(found["words"], found["parameters"]) if found else NOTHING


def planned(
    space: Space, default: Default, firsts: Sequence[Sequence[str]], sampler: str, asked: int
) -> tuple[tuple[SearchStage, ...], list[str]]:
    """The stages of a search, and what is said of their numbers of trials.

    firsts: settings of each stage but the last, which has what is left; none: one stage. asked: trials of each; a
    finite space has not more than points, and where there are `firsts`, it is tried point by point. UsageError where
    they don't fit.
    """
    parts = _parts(space, firsts)
    found: list[SearchStage] = []
    said: list[str] = []
    for part in parts:
        own = _default_in(part, default) if not found else None  # the first trial of all
        outside = own is not None and not own.is_inside  # it is none of the points then
        count = part.points(at_most=asked)
        number = min(asked, count + outside)
        in_order = bool(firsts) and part.is_finite and part.points(at_most=asked + 1) <= asked
        is_known = own.parameters if own is not None and own.is_inside else None
        points = tuple(point for point in _points(part) if point != is_known) if in_order else ()
        if in_order:
            number = len(points) + (own is not None)
        elif number < asked:
            besides = " besides its default" if outside else ""
            said.append(f"its space has {count} points only{besides}, so it has {number} trials")
        first = found[-1].end if found else 0
        found.append(SearchStage(part, IN_ORDER if in_order else sampler, first, number, points))
    return tuple(found), said


def _parts(space: Space, firsts: Sequence[Sequence[str]]) -> list[Space]:
    """The space, divided. What is left may be nothing: a method without settings of its own has one stage less."""
    parts: list[Space] = []
    left = space.dimensions
    for names in firsts:
        if not (own := tuple(dimension for dimension in left if dimension.name in names)):
            raise UsageError(f"the space has no {' or '.join(names)}, which this search begins with")
        parts.append(Space(space.algorithm, own))
        left = tuple(dimension for dimension in left if dimension not in own)
    parts += [Space(space.algorithm, left)] if left else []
    for part in parts:
        for dimension in part.dimensions:
            if strange := [name for name in dimension.when if name not in part.names]:
                raise UsageError(f"{dimension.name}: when {strange[0]}: it is searched in another stage")
    return parts


def _default_in(space: Space, default: Default) -> Default:
    words = {name: word for name, word in default.words.items() if name in space.names}
    return Default(words, {name: value for name, value in default.parameters.items() if name in words})


def _points(space: Space) -> Iterator[dict[str, Value]]:
    """All of a finite space, the last setting changing fastest."""

    def further(index: int, words: dict[str, str]) -> Iterator[dict[str, Value]]:
        if index == len(space.dimensions):
            yield {}
            return
        one = space.dimensions[index]
        if not exists(one, words):
            yield from further(index + 1, words)
            return
        for word in one.values():
            value: Value = word if one.choices else int(word) if one.is_int else float(word)
            for rest in further(index + 1, {**words, one.name: word}):
                yield {one.name: value, **rest}

    return further(0, {})
