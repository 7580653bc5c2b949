"""Trials of a search in Optuna's storage: their positions in the search, and retries of trials that were given up.

A search of n trials has the positions 0..n-1. A trial that is given up (its command died, or was asked to end) stays in
the storage as failed, and a new trial with the same parameters takes its position: n positions are trained however
often commands die. A trial is asked for, reported and pruned in `feed`.

Answers: What is a trial of a sweep, and who tries it again?
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

# User attributes of trials.
POSITION = "place"  # in the search
AGAIN = "again"  # number of the trial whose position it takes
DEATHS = "deaths"  # of commands that had it
DEFAULT = "default"  # has the method's default parameters
SURPLUS = "surplus"  # two commands took the last position: this trial came second, and never trains
HOST = "host"  # machine whose command has it; noted after its first heartbeat
FOLDER, RUN_ID, ERROR = "folder", "run_id", "error"


def get_position(trial: FrozenTrial, trials: Iterable[FrozenTrial]) -> int:
    """Return a trial's position in its search: the number of first attempts that began before it."""
    if POSITION in trial.user_attrs:
        return int(trial.user_attrs[POSITION])
    return sum(is_first(earlier) and earlier.number < trial.number for earlier in trials)


def is_first(trial: FrozenTrial) -> bool:
    """Return True if the trial took a new position."""
    return AGAIN not in trial.user_attrs and SURPLUS not in trial.user_attrs


def count_positions(trials: Iterable[FrozenTrial]) -> int:
    """Return the number of positions that are taken."""
    return sum(map(is_first, trials))


def select_outcomes(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """Return the trial that counts at each position: one that ended well, else one that may yet, else the last failed.

    Sorted by position.
    """
    order = ("FAIL", "WAITING", "RUNNING", "PRUNED", "COMPLETE")
    counting: dict[int, FrozenTrial] = {}
    for trial in trials:
        if SURPLUS in trial.user_attrs:
            continue
        index = get_position(trial, trials)
        best = counting.get(index)
        if best is None or order.index(trial.state.name) >= order.index(best.state.name):
            counting[index] = trial
    return dict(sorted(counting.items()))


def count_attempts(trials: Sequence[FrozenTrial], index: int) -> int:
    """Return how many trials had this position."""
    return sum(SURPLUS not in trial.user_attrs and get_position(trial, trials) == index for trial in trials)


def select_trained(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that were trained to the end or until they were pruned."""
    return [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]


def select_best(trials: Iterable[FrozenTrial], maximize: bool) -> FrozenTrial | None:
    """Return the complete trial with the best value; of several the first, in the order of `trials`.

    Pass them in the order of positions, not of Optuna's numbers: a trial that was cut off and retried has a later
    number, and would lose ties by that.
    """
    complete = [trial for trial in trials if trial.state.name == "COMPLETE" and trial.value is not None]
    sign = 1 if maximize else -1
    return max(complete, key=lambda trial: sign * (trial.value or 0.0), default=None)


# --- once more --------------------------------------------------------------------------------------------------------


def retry(study: Study, trial: FrozenTrial, deaths: int, limit: int) -> bool:
    """Queue a trial for a failed one's position, unless its commands died too often; returns True if it was queued."""
    from optuna import create_trial
    from optuna.trial import TrialState

    if deaths > limit:
        return False
    kept = {name: trial.user_attrs[name] for name in (DEFAULT,) if name in trial.user_attrs}
    index = get_position(trial, study.get_trials(deepcopy=False))
    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={**kept, POSITION: index, AGAIN: trial.number, DEATHS: deaths},
            # Parameters that were fixed and not yet asked for when it ended.
            system_attrs={name: value for name, value in trial.system_attrs.items() if name == "fixed_params"},
        )
    )
    return True


def release_stale(study: Study, seconds: float, limit: int) -> None:
    """Fail the running trials whose command gives no sign of life, and queue them again.

    Those are the trials whose heartbeats have ended (Optuna counts them as deaths, `storage.open_storage`), and those
    that a command took this long ago and ended before its first heartbeat: no training had begun.
    """
    from optuna.storages import fail_stale_trials

    fail_stale_trials(study)
    latest = datetime.datetime.now() - datetime.timedelta(seconds=seconds)
    for trial in list_running(study):
        if HOST not in trial.user_attrs and trial.datetime_start is not None and trial.datetime_start < latest:
            give_up(study, trial, limit, has_died=False)


def give_up(study: Study, trial: FrozenTrial, limit: int, has_died: bool = True) -> bool:
    """Fail a running trial and queue a retry; returns False if another command was faster, or it died too often."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    with contextlib.suppress(ValueError, UpdateFinishedTrialError):
        study.tell(trial.number, state=TrialState.FAIL)
        return retry(study, trial, trial.user_attrs.get(DEATHS, 0) + has_died, limit)
    return False


def retry_failed(study: Study, limit: int) -> int:
    """Queue all failed trials once more, with all their attempts; returns how many. Does nothing while a trial runs.

    Otherwise every command that joins would start a diverging training again.
    """
    if list_running(study):
        return 0
    trials = select_outcomes(study.get_trials(deepcopy=False)).values()
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    return sum(retry(study, trial, 0, limit) for trial in failed)


def list_running(study: Study) -> list[FrozenTrial]:
    """Return the trials that some command has."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def count_states(trials: Mapping[int, FrozenTrial]) -> dict[str, int]:
    """Return the number of trials in each state, keyed by the names that people read."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}
    counts = dict.fromkeys(names.values(), 0)
    for trial in trials.values():
        counts[names[trial.state.name]] += 1
    return counts
