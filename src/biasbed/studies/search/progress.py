"""Progress of a sweep on the terminal: a line per search, and news of its trials since the last look."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import measures
from biasbed.studies.display import Table
from biasbed.studies.search import trials
from biasbed.studies.search.results import SearchState, sum_states
from biasbed.studies.search.search import Search
from biasbed.tracking.folder import RunFolder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def make_table(sweep: str, states: Sequence[SearchState], workers: int) -> Table:
    """Count the trials by state and estimate the time left; then a line per search."""
    total = sum(state.search.trials for state in states)
    counts = sum_states(states)
    parts = []
    for name in ("complete", "pruned", "failed", "running"):
        if counts[name] or name == "complete":
            parts.append(f"{counts[name]} {name}")
    width = max(len(state.search.title) for state in states)
    lines = [_format_line(state, width) for state in states]
    return Table(f"{sweep}: {total} trials: {', '.join(parts)}", lines, _estimate(states, workers))


def _format_line(state: SearchState, width: int) -> str:
    """Return the line of a search: its trials by state, the best value, and each running trial."""
    search, counts = state.search, trials.count_states(state.trials)
    ended = counts["complete"] + counts["pruned"] + counts["failed"]
    parts = [f"  {search.title:{width}} {ended:3}/{search.trials} trials"]
    parts += [f"{counts[name]} {name}" for name in ("pruned", "failed") if counts[name]]
    best = state.best
    if best is not None:
        parts.append(f"best {measures.shown(best.value, search.unit)} (trial {best.number})")
    for trial in state.trials:
        if trials.get_state(trial) == "running":
            parts.append(f"trial {trial.number}: {format_running(trial, search)}")
    return ", ".join(parts)


def format_running(trial: FrozenTrial, search: Search) -> str:
    """Format how far a running trial is: `epoch 3/10, 71.20`."""
    base = trial.user_attrs.get(trials.FOLDER)
    step = trial.last_step
    if step is None:
        return "starting" if base is None or not RunFolder(Path(base)).journal.exists() else "in its first epoch"
    value = measures.shown(trial.intermediate_values[step], search.unit)
    return f"{search.run.unit} {step}/{search.run.total}, {value}"


def _estimate(states: Sequence[SearchState], workers: int) -> float | None:
    """Estimate the seconds left by the mean time of each search's trials; None while no trial has ended."""
    durations = {state.search.name: _durations(state.trials) for state in states}
    overall = list(itertools.chain.from_iterable(durations.values()))
    if not overall:
        return None
    left = [0.0]
    for state in states:
        times = durations[state.search.name] or overall
        fractions = [1.0] * (state.search.trials - len(state.trials))  # part of each trial that is left
        for trial in state.trials:
            if trial.state.name == "WAITING":
                fractions.append(1.0)
            elif trials.get_state(trial) == "running":
                fractions.append(1.0 - (trial.last_step or 0) / state.search.run.total)
        left += [fraction * sum(times) / len(times) for fraction in fractions]
    return max(sum(left) / workers, *left)


def _durations(all_trials: Iterable[FrozenTrial]) -> list[float]:
    seconds = [trial.user_attrs.get(trials.SECONDS, 0.0) for trial in trials.select_trained(all_trials)]
    return [second for second in seconds if second]


class TrialNews:
    """Reporter of changes of trials' states, each once."""

    def __init__(self, states: Sequence[SearchState]) -> None:
        self.reported: dict[tuple[str, int], str] = {}  # (search, trial's number) -> state
        for state in states:
            for trial in state.trials:
                self.reported[state.search.name, trial.number] = trials.get_state(trial)

    def since(self, states: Sequence[SearchState]) -> list[str]:
        """Return a line for each change since the last call."""
        lines = []
        for state in states:
            for trial in state.trials:
                key, now = (state.search.name, trial.number), trials.get_state(trial)
                if self.reported.get(key) != now:
                    lines += _format_news(state, trial)
                self.reported[key] = now
        return lines


def _format_news(search_state: SearchState, trial: FrozenTrial) -> list[str]:
    """Return the line on a trial whose state has changed, as a list; empty for states that are not reported."""
    search, state = search_state.search, trials.get_state(trial)
    name = f"{search.title} trial {trial.number}"
    if state == "running":
        again = " once more, in its folder" if trial.user_attrs.get(trials.ATTEMPTS, 1) > 1 else ""
        return [f"{name} started{again}"]
    if state == "complete":
        best = search_state.best
        mark = ", the best so far" if best is not None and best.number == trial.number else ""
        return [f"{name} complete: {measures.shown(trial.value, search.unit)}{mark}"]
    if state == "pruned":
        return [f"{name} pruned at {search.run.unit} {trial.last_step}: {measures.shown(trial.value, search.unit)}"]
    if state == trials.FAILED:
        return [f"{name} failed: {trial.user_attrs[trials.ERROR]}"]
    return []
