"""Trials of a search as Optuna stores them: their places in the search, and trials that are tried once more.

A search of n trials has the places 0..n-1. A trial that is given up (its command died, or was asked to end) stays in
the storage as failed, and a new one with the same parameters takes its place: so n train, however often commands die.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from biasbed.system.signature import is_gone

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

# User attributes of trials.
PLACE = "place"  # in the search
AGAIN = "again"  # number of the trial whose place it takes
DEATHS = "deaths"  # of commands that had it
DEFAULT = "default"  # has the method's default parameters
SURPLUS = "surplus"  # two commands took the last place: this one came second, and never trains
COMMAND = "command"  # signature of the process that has it
HOST = "host"
FOLDER, RUN_ID, ERROR = "folder", "run_id", "error"
GIVEN = "given"  # what it has of settings that its stage does not search
EQUAL = "equal"  # number of an earlier trial with the same parameters, whose training it shares


def place(trial: FrozenTrial, trials: Iterable[FrozenTrial]) -> int:
    """Where a trial stands in its search: as many first attempts began before it."""
    if PLACE in trial.user_attrs:
        return int(trial.user_attrs[PLACE])
    return sum(is_first(other) and other.number < trial.number for other in trials)


def is_first(trial: FrozenTrial) -> bool:
    """Whether it took a new place."""
    return AGAIN not in trial.user_attrs and SURPLUS not in trial.user_attrs


def taken(trials: Iterable[FrozenTrial]) -> int:
    """How many places are taken."""
    return sum(map(is_first, trials))


def outcomes(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """Of each place the trial that counts: one that ended well, else one that may yet, else the last that failed."""
    order = ("FAIL", "WAITING", "RUNNING", "PRUNED", "COMPLETE")
    found: dict[int, FrozenTrial] = {}
    for trial in trials:
        if SURPLUS not in trial.user_attrs:
            where = place(trial, trials)
            known = found.get(where)
            if known is None or order.index(trial.state.name) >= order.index(known.state.name):
                found[where] = trial
    return dict(sorted(found.items()))


def attempts(trials: Sequence[FrozenTrial], where: int) -> int:
    """How many trials had this place."""
    return sum(SURPLUS not in trial.user_attrs and place(trial, trials) == where for trial in trials)


def ended_well(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Those that were trained, whether to the end or until they were pruned."""
    return [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]


def best(trials: Iterable[FrozenTrial], maximize: bool) -> FrozenTrial | None:
    """The complete trial with the best value, of several the first of these, in the order of their places.

    Not by Optuna's numbers: a trial that was cut off has a later one, and may not lose a tie by that.
    """
    complete = [trial for trial in trials if trial.state.name == "COMPLETE" and trial.value is not None]
    return max(complete, key=lambda t: (t.value or 0.0) * (1 if maximize else -1), default=None)


# --- once more --------------------------------------------------------------------------------------------------------


def queue_again(study: Study, trial: FrozenTrial, deaths: int, limit: int) -> bool:
    """Let another trial take a failed one's place, unless its commands died too often; whether it was queued."""
    from optuna import create_trial
    from optuna.trial import TrialState

    if deaths > limit:
        return False
    kept = {name: trial.user_attrs[name] for name in (DEFAULT, GIVEN) if name in trial.user_attrs}
    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={
                **kept,
                PLACE: place(trial, study.get_trials(deepcopy=False)),
                AGAIN: trial.number,
                DEATHS: deaths,
            },
            # What was fixed and not yet asked for when it ended.
            system_attrs={name: value for name, value in trial.system_attrs.items() if name == "fixed_params"},
        )
    )
    return True


def give_up(study: Study, trial: FrozenTrial, limit: int, died: bool = True) -> bool:
    """Fail a running trial and queue it again; False where somebody else was faster, or it was tried too often."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    with contextlib.suppress(ValueError, UpdateFinishedTrialError):
        study.tell(trial.number, state=TrialState.FAIL)
        return queue_again(study, trial, trial.user_attrs.get(DEATHS, 0) + died, limit)
    return False


def release_dead(study: Study, limit: int) -> list[int]:
    """Give up the running trials whose command was on this machine and is gone; their numbers."""
    found = [trial for trial in running(study) if is_gone(trial.user_attrs.get(COMMAND, ""))]
    return [trial.number for trial in found if give_up(study, trial, limit)]


def release_own(study: Study, command: str, limit: int, known: Sequence[int] = ()) -> None:
    """Give up what this command has, but for the known, as it was asked to end: that counts as no death."""
    for trial in running(study):
        if trial.user_attrs.get(COMMAND) == command and trial.number not in known:
            give_up(study, trial, limit, died=False)


def release_unstamped(study: Study, seconds: float, limit: int) -> None:
    """Give up trials that were taken so long ago by a command that ended before it could say who it is.

    It may have been asked to end, and no training had begun: that counts as no death.
    """
    since = datetime.datetime.now() - datetime.timedelta(seconds=seconds)
    for trial in running(study):
        if COMMAND not in trial.user_attrs and trial.datetime_start is not None and trial.datetime_start < since:
            give_up(study, trial, limit, died=False)


def queue_failed(study: Study, limit: int) -> int:
    """Queue what failed once more, with all its attempts; how many were. None while another command is at work.

    Else every command that joins would have a training that diverges start again.
    """
    if running(study):
        return 0
    found = [trial for trial in outcomes(study.get_trials(deepcopy=False)).values() if trial.state.name == "FAIL"]
    return sum(queue_again(study, trial, 0, limit) for trial in found)


def running(study: Study) -> list[FrozenTrial]:
    """The trials that some command has."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def counts(trials: Mapping[int, FrozenTrial]) -> dict[str, int]:
    """How many of these are in which state, by the names that people read."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}
    return {name: sum(trial.state.name == state for trial in trials.values()) for state, name in names.items()}
