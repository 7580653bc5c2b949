"""Schedule of a search's stages: when each begins, and which fixed settings its trials have.

A stage begins when every trial before it has ended. Settings that it does not search are those of the best trial
before, of several the earliest; in the first stage they are the method's defaults. The fixed settings of a stage's
first trial hold for all its trials, even if an earlier trial is retried later and turns out better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.studies.search.stages import NOTHING, FixedSettings, SearchStage, read_fixed

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def stage_at(search: Search, position: int) -> SearchStage:
    """Return the stage with this position of a search; the last stage for positions after its end."""
    return next((stage for stage in search.stages if position < stage.end), search.stages[-1])


def count_open(search: Search, all_trials: Sequence[FrozenTrial]) -> int:
    """Return how many positions of a search may be taken now: those before the first stage that cannot begin yet.

    A stage never begins if no trial before it is complete.
    """
    if len(search.stages) == 1:
        return search.trials
    outcomes = trials.select_outcomes(all_trials)
    for stage in search.stages[1:]:
        before = [outcomes.get(position) for position in range(stage.first)]
        has_ended = all(trial is not None and trial.state.is_finished() for trial in before)
        if not has_ended or not fix_settings(search, stage, all_trials):
            return stage.first
    return search.trials


def fix_settings(search: Search, stage: SearchStage, all_trials: Sequence[FrozenTrial]) -> FixedSettings | None:
    """Return the fixed settings of a stage's trials; None if no trial before it is complete."""
    names = [name for name in search.space.names if name not in stage.names]
    if not names:
        return NOTHING
    for trial in all_trials:
        if trials.FIXED in trial.user_attrs and stage.first <= trials.get_position(trial, all_trials) < stage.end:
            return read_fixed(trial)
    overrides, parameters = search.default.overrides, search.default.parameters
    if stage.first:
        before = [trial for position, trial in trials.select_outcomes(all_trials).items() if position < stage.first]
        best = trials.select_best(before, search.maximize)
        if best is None:
            return None
        overrides, parameters = search.settings(best), search.parameters(best)
    return FixedSettings(
        {name: overrides[name] for name in names if name in overrides},
        {name: parameters[name] for name in names if name in parameters},
    )
