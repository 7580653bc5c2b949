"""Trials of a search as Optuna stores them, numbered from 0.

A trial whose training did not end stays `RUNNING` in the storage, and the next command continues it. A failed trial
also stays `RUNNING`, with the reason as an attribute, and the next command tries it again.

Answers: What is a trial of a sweep, and who tries it again?
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# User attributes of trials.
DEFAULT = "default"  # has the method's default parameters
ATTEMPTS = "attempts"  # number of commands that had it
SECONDS = "seconds"  # of its training, without breaks between commands
HOST, FOLDER, RUN_ID = "host", "folder", "run_id"
ERROR = "error"  # why it failed; empty once it is tried again

FAILED = "fail"


def get_state(trial: FrozenTrial) -> str:
    """Return `complete`, `pruned`, `fail`, `running` or `waiting`."""
    if trial.state.name == "RUNNING" and trial.user_attrs.get(ERROR):
        return FAILED
    return trial.state.name.lower()


def select_trained(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that were trained to the end or until they were pruned."""
    return [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]


def select_best(trials: Iterable[FrozenTrial], maximize: bool) -> FrozenTrial | None:
    """Return the complete trial with the best value; of several the first."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE" and trial.value is not None]
    sign = 1 if maximize else -1
    return max(complete, key=lambda trial: sign * (trial.value or 0.0), default=None)


def count_states(trials: Iterable[FrozenTrial]) -> dict[str, int]:
    """Return the number of trials in each state, keyed by the names that people read."""
    names = {"complete": "complete", "pruned": "pruned", FAILED: "failed", "running": "running", "waiting": "waiting"}
    counts = dict.fromkeys(names.values(), 0)
    for trial in trials:
        counts[names[get_state(trial)]] += 1
    return counts
