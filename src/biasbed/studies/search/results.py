"""Results of a sweep: a table of its trials, and the best trial of each method and cell compared with the default."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from biasbed import measures
from biasbed.errors import Failure, listed
from biasbed.studies import ledger
from biasbed.studies.plan import PlannedRun
from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.studies.study_table import Overrides
from biasbed.system.csv_tables import write_rows
from biasbed.system.files import write_whole

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

HEADER = ("algorithm", "cell", "trial", "seed", "state", "value", "reached", "default", "attempts", "equal_to")
TAIL = ("seconds", "run_id", "host", "error")


@dataclass(frozen=True)
class SearchState:
    """State of a search: its trials, sorted by their numbers, from 0 on."""

    search: Search
    trials: Sequence[FrozenTrial]

    @property
    def best(self) -> FrozenTrial | None:
        return trials.select_best(self.trials, self.search.maximize)

    @property
    def default(self) -> FrozenTrial | None:
        """Trial with the method's default parameters."""
        return next((t for t in self.trials if t.user_attrs.get(trials.DEFAULT)), None)

    def settings(self, trial: FrozenTrial) -> Overrides:
        return self.search.settings(trial)


def group_by_subject(states: Sequence[SearchState]) -> dict[str, list[SearchState]]:
    """Group the repeats of each method in each cell, keyed by their common name."""
    groups: dict[str, list[SearchState]] = {}
    for state in states:
        groups.setdefault(state.search.subject, []).append(state)
    return groups


class Winner(NamedTuple):
    """Best complete trial of a method in a cell, and its repeat."""

    state: SearchState
    trial: FrozenTrial


def find_winner(repeats: Sequence[SearchState]) -> Winner | None:
    """Find the best complete trial of all repeats of a method in a cell; None if none is complete."""
    sign = 1 if repeats[0].search.maximize else -1
    complete = []
    for state in repeats:
        best = state.best
        if best is not None:
            complete.append(Winner(state, best))
    return max(complete, key=lambda winner: sign * (winner.trial.value or 0.0), default=None)


def collect_winners(states: Sequence[SearchState]) -> dict[str, dict[str, Overrides]]:
    """Return the settings of the best trials: method -> cell -> settings. Omits methods without one in every cell.

    Methods are named as `train` takes them, cells as `cells.expand_cells` names them.
    """
    best: dict[str, dict[str, Overrides]] = {}
    incomplete = set()
    for repeats in group_by_subject(states).values():
        search, winner = repeats[0].search, find_winner(repeats)
        method = search.overrides["algorithm"]
        if winner is None:
            incomplete.add(method)
        else:
            best.setdefault(method, {})[search.cell_name] = winner.state.settings(winner.trial)
    return {method: cells for method, cells in best.items() if method not in incomplete}


# --- text -------------------------------------------------------------------------------------------------------------


def format_summary(states: Sequence[SearchState]) -> list[str]:
    """Format, per method and cell, how its trials ended, and the best value against that of the default."""
    lines = []
    for subject, repeats in group_by_subject(states).items():
        search, counts = repeats[0].search, sum_states(repeats)
        text = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
        mark = " (ORACLE: on test images)" if search.is_oracle else ""
        lines.append(f"{subject}: {sum(counts.values())} trials: {text}; {search.metric}{mark}")
        lines += _format_best(repeats)
        failed = _list_failed(repeats)
        if failed:
            lines.append(f"  failed: {'; '.join(failed[:5])}{'; ...' if len(failed) > 5 else ''}")
    return lines


def sum_states(states: Sequence[SearchState]) -> dict[str, int]:
    """Return the number of trials in each state over all searches."""
    counts: dict[str, int] = {}
    for state in states:
        for name, number in trials.count_states(state.trials).items():
            counts[name] = counts.get(name, 0) + number
    return counts


def _list_failed(repeats: Sequence[SearchState]) -> list[str]:
    failed = []
    for state in repeats:
        for trial in state.trials:
            if trials.get_state(trial) == trials.FAILED:
                failed.append(f"{state.search.trial_name(trial.number)} ({trial.user_attrs[trials.ERROR]})")
    return failed


def _format_best(repeats: Sequence[SearchState]) -> list[str]:
    """Return the lines on a search's best trial: settings, gain over the default, spread over repeats."""
    winner, unit = find_winner(repeats), repeats[0].search.unit
    if winner is None:
        return ["  no trial is complete"]
    state, best = winner
    settings = " ".join(f"{name}={value}" for name, value in state.settings(best).items())
    name = state.search.trial_name(best.number)
    lines = [f"  best     {measures.shown(best.value, unit)} (trial {name}): {settings}"]
    default = state.default
    if default is not None:
        value = default.value if default.state.name == "COMPLETE" else None
        ending = "" if value is not None else f" ({trials.get_state(default)})"
        text = f"{measures.shown(value, unit)}{ending} (trial {state.search.trial_name(0)})"
        lines.append(f"  default  {text}{_format_gain(unit, best, value)}")
    values = [each.best.value for each in repeats if each.best is not None]
    numbers = [value for value in values if value is not None]
    if len(repeats) > 1 and len(numbers) > 1:
        mean, spread = statistics.mean(numbers), statistics.stdev(numbers)
        text = f"{measures.shown(mean, unit)}, standard deviation {measures.shown(spread, unit)}"
        lines.append(f"  over {len(numbers)} repeats: {text}")
    return lines


def _format_gain(unit: str, best: FrozenTrial, default: float | None) -> str:
    if default is None or best.value is None:
        return ""
    if best.value == default:
        return "; no trial was better"
    return f"; the best is {measures.shown(abs(best.value - default), unit)} better, on one seed"


# --- files ------------------------------------------------------------------------------------------------------------


def write_trials(path: Path, states: Sequence[SearchState]) -> None:
    """Write a CSV file with a row for each trial and a column for each searched setting."""
    names: dict[str, None] = {}
    rows: list[Mapping[str, object]] = []
    for state in states:
        names |= dict.fromkeys(state.search.space.names)
        for trial in state.trials:
            rows.append({**_make_row(state, trial), **state.settings(trial)})
    file = io.StringIO(newline="")
    write_rows(file, [*HEADER, *names, *TAIL], rows)
    write_whole(path, file.getvalue())


def _make_row(state: SearchState, trial: FrozenTrial) -> Mapping[str, object]:
    """Return a trial as a row of the table of trials."""
    attributes = trial.user_attrs
    seconds = attributes.get(trials.SECONDS)
    return {
        "algorithm": state.search.algorithm,
        "cell": state.search.cell,
        "trial": state.search.trial_name(trial.number),
        "seed": state.search.seed,
        "state": trials.get_state(trial),
        "value": "" if trial.value is None else repr(trial.value),
        "reached": trial.last_step or 0,
        "default": "yes" if attributes.get(trials.DEFAULT) else "",
        "attempts": attributes.get(trials.ATTEMPTS, 0),
        "equal_to": _find_equal(state, trial),
        "seconds": "" if seconds is None else f"{seconds:.1f}",
        "run_id": attributes.get(trials.RUN_ID, ""),
        "host": attributes.get(trials.HOST, ""),
        "error": attributes.get(trials.ERROR, ""),
    }


def _find_equal(state: SearchState, trial: FrozenTrial) -> int | str:
    """Return the number of the earlier trial with the same settings, whose training it shares; empty without one."""
    folder = trial.user_attrs.get(trials.FOLDER)
    for earlier in trials.select_trained(state.trials):
        is_same = folder is not None and earlier.user_attrs.get(trials.FOLDER) == folder
        if is_same and earlier.number < trial.number:
            return earlier.number
    return ""


class TrialTraining(NamedTuple):
    """Training of a trial."""

    run: PlannedRun
    trial: FrozenTrial


def find_trainings(states: Sequence[SearchState]) -> Iterator[TrialTraining]:
    """Yield the trainings whose folders are on this machine. A training that several trials share is yielded once."""
    seen = set()
    for state in states:
        for trial in state.trials:
            base = trial.user_attrs.get(trials.FOLDER)
            if base is None or base in seen:
                continue
            run = state.search.find_training(base, trial.number)
            if run.folder().path.exists():
                seen.add(base)
                yield TrialTraining(run, trial)


def make_ledger_lines(states: Sequence[SearchState]) -> list[ledger.Line]:
    """Return the cost of each training whose folder is on this machine."""
    lines = []
    for run, trial in find_trainings(states):
        records = run.folder().read_journal()
        reached = run.reached(records) or trial.last_step or 0
        lines.append(ledger.Line(run, trials.get_state(trial), reached, ledger.compute_cost(run, records)))
    return lines


def refuse_incomplete(states: Sequence[SearchState]) -> None:
    """Raise Failure if a method has no complete trial in some cell."""
    without = [subject for subject, repeats in group_by_subject(states).items() if find_winner(repeats) is None]
    if without:
        raise Failure(f"no trial of {listed(without)} is complete; the same command tries those that failed again")
