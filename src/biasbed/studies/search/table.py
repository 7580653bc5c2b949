"""How a sweep goes: a line per method, and what happened since the last look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from biasbed import measures
from biasbed.studies.display import Table
from biasbed.studies.search import trials
from biasbed.studies.search.results import SearchState, progress_of

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def table(sweep: str, found: Sequence[SearchState], workers: int) -> Table:
    """How many trials are in which state and how long the rest takes, then a line per search."""
    total = sum(one.search.trials for one in found)
    counted = [trials.counts(one.outcomes) for one in found]
    states = {name: sum(each[name] for each in counted) for name in ("complete", "pruned", "failed", "running")}
    words = ", ".join(f"{number} {name}" for name, number in states.items() if number or name == "complete")
    width = max(len(one.search.title) for one in found)
    rows = [_line(one, width) for one in found]
    return Table(f"{sweep}: {total} trials: {words}", rows, _left(found, workers))


def _line(one: SearchState, width: int) -> str:
    outcomes = one.outcomes
    counted = trials.counts(outcomes)
    ended = counted["complete"] + counted["pruned"] + counted["failed"]
    parts = [f"  {one.search.title:{width}} {ended:3}/{one.search.trials} trials"]
    parts += [f"{counted[name]} {name}" for name in ("pruned", "failed") if counted[name]]
    if one.best is not None:
        number = next(where for where, trial in outcomes.items() if trial.number == one.best.number)
        parts.append(f"best {measures.shown(one.best.value, one.search.unit)} (trial {number})")
    for where, trial in outcomes.items():
        if trial.state.name == "RUNNING":
            parts.append(f"trial {where}: {progress_of(trial, one.search)}")
    return ", ".join(parts)


def _left(found: Sequence[SearchState], workers: int) -> float | None:
    """Seconds that the rest takes, by the mean time of each method's trials; None while none has ended."""
    ended = {one.search.name: _durations(one.outcomes.values()) for one in found}
    every = [seconds for durations in ended.values() for seconds in durations]
    if not every:
        return None
    rest: list[float] = [0.0]
    for one in found:
        own = ended[one.search.name] or every
        parts = [1.0] * (one.search.trials - len(one.outcomes))  # of a whole trial
        parts += [1.0 for trial in one.outcomes.values() if trial.state.name == "WAITING"]
        running = [trial for trial in one.outcomes.values() if trial.state.name == "RUNNING"]
        parts += [1.0 - (trial.last_step or 0) / one.search.run.total for trial in running]
        rest += [part * sum(own) / len(own) for part in parts]
    return max(sum(rest) / workers, *rest)


def _durations(found: Iterable[FrozenTrial]) -> list[float]:
    return [
        trial.duration.total_seconds()
        for trial in found
        if trial.state.name in ("COMPLETE", "PRUNED") and trial.duration and trials.EQUAL not in trial.user_attrs
    ]


class TrialNews:
    """Says once what each trial has come to."""

    def __init__(self, found: Sequence[SearchState]) -> None:
        self.known = {(one.search.name, t.number): t.state.name for one in found for t in one.every}

    def since(self, found: Sequence[SearchState]) -> list[str]:
        said = []
        for one in found:
            for trial in one.every:
                key, state = (one.search.name, trial.number), trial.state.name
                if self.known.get(key) != state and trials.SURPLUS not in trial.user_attrs:
                    said += _told(one, trial, self.known.get(key))
                self.known[key] = state
        return said


def _told(one: SearchState, trial: FrozenTrial, before: str | None) -> list[str]:
    name = f"{one.search.title} trial {trials.place(trial, one.every)}"
    unit, state = one.search.unit, trial.state.name
    if state == "RUNNING":
        again = " once more, in its folder" if trials.AGAIN in trial.user_attrs else ""
        return [f"{name} started{again}"]
    if state == "COMPLETE":
        best = one.best is not None and one.best.number == trial.number
        return [f"{name} complete: {measures.shown(trial.value, unit)}{', the best so far' if best else ''}"]
    if state == "PRUNED":
        return [f"{name} pruned at {one.search.run.unit} {trial.last_step}: {measures.shown(trial.value, unit)}"]
    if state == "FAIL" and before is not None:
        if any(other.user_attrs.get(trials.AGAIN) == trial.number for other in one.every):
            return [f"{name} was cut off and is tried again"]
        return [f"{name} failed: {trial.user_attrs.get(trials.ERROR, 'its command died too often')}"]
    return []
