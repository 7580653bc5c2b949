"""Stages of a search: some settings are searched first, then others with the best of the settings before.

A stage has its own positions in the search. `stage_schedule.py` decides when it begins, and with which settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from biasbed.errors import UsageError
from biasbed.studies.search import trials
from biasbed.studies.search.space import Default, Dimension, Parameters, Space, Value, is_active
from biasbed.studies.study_table import Overrides

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

IN_ORDER = "in order"  # sampler of a stage that tries all points of its space, in the order of the file


@dataclass(frozen=True)
class SearchStage:
    """Settings that a search tries together, and the trials for them."""

    space: Space
    sampler: str
    first: int  # position of its first trial
    trials: int
    points: tuple[Parameters, ...] = ()  # that it tries one by one, after the method's default; only IN_ORDER

    @property
    def end(self) -> int:
        """Position after its last trial."""
        return self.first + self.trials

    @property
    def names(self) -> tuple[str, ...]:
        return self.space.names

    @property
    def title(self) -> str:
        return f"{', '.join(self.names)} ({self.sampler})"

    def point(self, position: int) -> Parameters:
        """Return the point of the trial at this position of the search; only IN_ORDER."""
        return self.points[position - self.end + len(self.points)]


@dataclass(frozen=True)
class FixedSettings:
    """Settings that the trials of a stage have but do not search."""

    overrides: Overrides
    parameters: Parameters  # Optuna's values, of the settings that lie inside the space

    def plain(self) -> dict[str, Mapping[str, Value]]:
        """Return them as a trial's user attribute stores them."""
        return {"words": dict(self.overrides), "parameters": dict(self.parameters)}


NOTHING = FixedSettings({}, {})


def read_fixed(trial: FrozenTrial) -> FixedSettings:
    """Read a trial's fixed settings; none in a search of one stage."""
    stored = trial.user_attrs.get(trials.FIXED)
    return FixedSettings(stored["words"], stored["parameters"]) if stored else NOTHING


class StagePlan(NamedTuple):
    """Stages of a search, and messages about their numbers of trials."""

    stages: tuple[SearchStage, ...]
    messages: list[str]


def plan_stages(
    space: Space, default: Default, firsts: Sequence[Sequence[str]], sampler: str, num_trials: int
) -> StagePlan:
    """Plan the stages of a search.

    firsts: settings of each stage but the last, which has the others; empty: one stage. num_trials: per stage. A finite
    space has no more trials than points; if there are `firsts`, it is tried point by point. Raises UsageError if
    `firsts` do not fit the space.
    """
    stages: list[SearchStage] = []
    messages: list[str] = []
    for part in _split_space(space, firsts):
        # The default is the first trial of all.
        part_default = None if stages else _restrict_default(part, default)
        is_outside = part_default is not None and not part_default.is_inside  # the default is none of the points
        count = part.points(at_most=num_trials)
        number = min(num_trials, count + is_outside)
        in_order = bool(firsts) and part.is_finite and part.points(at_most=num_trials + 1) <= num_trials
        points: tuple[Parameters, ...] = ()
        if in_order:
            tried = part_default.parameters if part_default is not None and part_default.is_inside else None
            points = tuple(point for point in _list_points(part) if point != tried)
            number = len(points) + (part_default is not None)
        elif number < num_trials:
            besides = " besides its default" if is_outside else ""
            messages.append(f"its space has {count} points only{besides}, so it has {number} trials")
        first = stages[-1].end if stages else 0
        stages.append(SearchStage(part, IN_ORDER if in_order else sampler, first, number, points))
    return StagePlan(tuple(stages), messages)


def _split_space(space: Space, firsts: Sequence[Sequence[str]]) -> list[Space]:
    """Split the space into stages. A method without settings of its own has no last stage."""
    parts: list[Space] = []
    left = space.dimensions
    for names in firsts:
        selected = tuple(dimension for dimension in left if dimension.name in names)
        if not selected:
            raise UsageError(f"the space has no {' or '.join(names)}, which this search begins with")
        parts.append(Space(space.algorithm, selected))
        left = tuple(dimension for dimension in left if dimension not in selected)
    if left:
        parts.append(Space(space.algorithm, left))
    for part in parts:
        for dimension in part.dimensions:
            missing = [name for name in dimension.when if name not in part.names]
            if missing:
                raise UsageError(f"{dimension.name}: when {missing[0]}: it is searched in another stage")
    return parts


def _restrict_default(space: Space, default: Default) -> Default:
    overrides = {name: value for name, value in default.overrides.items() if name in space.names}
    return Default(overrides, {name: value for name, value in default.parameters.items() if name in overrides})


def _list_points(space: Space) -> Iterator[dict[str, Value]]:
    """Yield all points of a finite space, the last setting changing fastest."""

    def complete(index: int, overrides: dict[str, str]) -> Iterator[dict[str, Value]]:
        if index == len(space.dimensions):
            yield {}
            return
        dimension = space.dimensions[index]
        if not is_active(dimension, overrides):
            yield from complete(index + 1, overrides)
            return
        for setting in dimension.values():
            value = _parse_value(dimension, setting)
            for rest in complete(index + 1, {**overrides, dimension.name: setting}):
                yield {dimension.name: value, **rest}

    return complete(0, {})


def _parse_value(dimension: Dimension, setting: str) -> Value:
    if dimension.choices:
        return setting
    return int(setting) if dimension.is_int else float(setting)
