"""When a stage of a search begins, and what its trials are given.

It begins when every trial before it has ended. Its trials have of what it does not search the settings of the best
trial before, of several the earliest; those of the first stage the method's own. What the first trial of a stage was
given counts for all of it: a trial before that failed and is tried again later may be better, and then wins by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.studies.search.stages import NOTHING, Given, SearchStage, given_to

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def stage_at(search: Search, place: int) -> SearchStage:
    """The stage that a place of a search is in; the last one for what lies behind."""
    return next((stage for stage in search.stages if place < stage.end), search.stages[-1])


def opened(search: Search, every: Sequence[FrozenTrial]) -> int:
    """How many places of a search may be taken: up to the first stage for which it is too early.

    every: all of its trials. A stage before which no trial is complete never begins.
    """
    if len(search.stages) == 1:
        return search.trials
    outcomes = trials.outcomes(every)
    for stage in search.stages[1:]:
        before = [outcomes.get(place) for place in range(stage.first)]
        if any(trial is None or not trial.state.is_finished() for trial in before) or not given(search, stage, every):
            return stage.first
    return search.trials


def given(search: Search, stage: SearchStage, every: Sequence[FrozenTrial]) -> Given | None:
    """What the trials of a stage have of settings that it does not search; None where nothing has won yet."""
    others = [name for name in search.space.names if name not in stage.names]
    if not others:
        return NOTHING
    for trial in every:
        if trials.GIVEN in trial.user_attrs and stage.first <= trials.place(trial, every) < stage.end:
            return given_to(trial)
    words, parameters = search.default.words, search.default.parameters
    if stage.first:
        before = [trial for place, trial in trials.outcomes(every).items() if place < stage.first]
        if (won := trials.best(before, search.maximize)) is None:
            return None
        words, parameters = search.settings(won), search.parameters(won)
    return Given(
        {name: words[name] for name in others if name in words},
        {name: parameters[name] for name in others if name in parameters},
    )
