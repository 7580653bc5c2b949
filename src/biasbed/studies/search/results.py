"""What came out of a sweep: its trials as a table, and per method and cell the best against the default."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import measures
from biasbed.errors import Failure, listed
from biasbed.studies import ledger
from biasbed.studies.plan import PlannedRun
from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.studies.table import Words
from biasbed.system.files import write_whole
from biasbed.system.tables import write_rows
from biasbed.tracking.folder import RunFolder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

HEADER = ("algorithm", "cell", "trial", "seed", "state", "value", "reached", "default", "attempts", "equal_to")
TAIL = ("seconds", "run_id", "host", "error")


@dataclass(frozen=True)
class SearchState:
    """A search as it stands: all that Optuna has, and of each place the trial that counts."""

    search: Search
    every: Sequence[FrozenTrial]

    @property
    def outcomes(self) -> dict[int, FrozenTrial]:
        return trials.outcomes(self.every)

    @property
    def best(self) -> FrozenTrial | None:
        return trials.best(self.outcomes.values(), self.search.maximize)

    @property
    def default(self) -> FrozenTrial | None:
        """The trial with the method's own parameters."""
        return next((t for t in self.outcomes.values() if t.user_attrs.get(trials.DEFAULT)), None)

    def settings(self, trial: FrozenTrial) -> Words:
        return self.search.settings(trial)


def by_subject(found: Sequence[SearchState]) -> dict[str, list[SearchState]]:
    """The repeats of each method in each cell, by what both are called."""
    grouped: dict[str, list[SearchState]] = {}
    for one in found:
        grouped.setdefault(one.search.subject, []).append(one)
    return grouped


def winner(repeats: Sequence[SearchState]) -> tuple[SearchState, FrozenTrial] | None:
    """The best complete trial of all repeats of a method in a cell."""
    sign = 1 if repeats[0].search.maximize else -1
    complete = [(one, one.best) for one in repeats if one.best is not None]
    return max(complete, key=lambda pair: sign * (pair[1].value or 0.0), default=None)


def winners(found: Sequence[SearchState]) -> dict[str, dict[str, Words]]:
    """Of each method the settings of its best trial in each cell; of methods that have one in every of their cells.

    Methods by the name that `train` takes, cells as `cells.expand` calls them.
    """
    best: dict[str, dict[str, Words | None]] = {}
    for repeats in by_subject(found).values():
        search, pair = repeats[0].search, winner(repeats)
        own = best.setdefault(search.words["algorithm"], {})
        own[search.expanded] = None if pair is None else pair[0].settings(pair[1])
    whole = {name: {cell: words for cell, words in own.items() if words is not None} for name, own in best.items()}
    return {name: own for name, own in whole.items() if len(own) == len(best[name])}


# --- words ------------------------------------------------------------------------------------------------------------


def summary(found: Sequence[SearchState]) -> list[str]:
    """Per method and cell: how its trials ended, and the best value against that of the default."""
    lines = []
    for subject, repeats in by_subject(found).items():
        metric = repeats[0].search.metric
        counted = [trials.counts(one.outcomes) for one in repeats]
        total = {name: sum(each[name] for each in counted) for name in counted[0]}
        states = ", ".join(f"{number} {name}" for name, number in total.items() if number)
        mark = " (ORACLE: on test images)" if repeats[0].search.is_oracle else ""
        lines.append(f"{subject}: {sum(total.values())} trials: {states}; {metric}{mark}")
        lines += _best_lines(repeats)
        failed = [
            f"{one.search.trial(where)} ({trial.user_attrs.get(trials.ERROR, 'its command died')})"
            for one in repeats
            for where, trial in one.outcomes.items()
            if trial.state.name == "FAIL"
        ]
        lines += [f"  failed: {'; '.join(failed[:5])}{'; ...' if len(failed) > 5 else ''}"] if failed else []
    return lines


def _best_lines(repeats: Sequence[SearchState]) -> list[str]:
    won, unit = winner(repeats), repeats[0].search.unit
    if won is None:
        return ["  no trial is complete"]
    one, best = won
    number = next(where for where, trial in one.outcomes.items() if trial.number == best.number)
    settings = " ".join(f"{name}={value}" for name, value in one.settings(best).items())
    lines = [f"  best     {measures.shown(best.value, unit)} (trial {one.search.trial(number)}): {settings}"]
    if one.default is not None:
        value = one.default.value if one.default.state.name == "COMPLETE" else None
        state = "" if value is not None else f" ({one.default.state.name.lower()})"
        trial = f"{measures.shown(value, unit)}{state} (trial {one.search.trial(0)})"
        lines.append(f"  default  {trial}{_gain(unit, best, value)}")
    values = [each.best.value for each in repeats if each.best is not None and each.best.value is not None]
    if len(repeats) > 1 and len(values) > 1:
        mean, spread = (measures.shown(of(values), unit) for of in (statistics.mean, statistics.stdev))
        lines.append(f"  over {len(values)} repeats: {mean}, standard deviation {spread}")
    return lines


def _gain(unit: str, best: FrozenTrial, default: float | None) -> str:
    if default is None or best.value is None:
        return ""
    if best.value == default:
        return "; no trial was better"
    return f"; the best is {measures.shown(abs(best.value - default), unit)} better, on one seed"


# --- files ------------------------------------------------------------------------------------------------------------


def write_trials(path: Path, found: Sequence[SearchState]) -> None:
    """Every trial that counts, a row each, with a column per setting."""
    names = list(dict.fromkeys(name for one in found for name in one.search.space.names))
    file = io.StringIO(newline="")
    rows = (
        {**_row(one, where, trial), **one.settings(trial)} for one in found for where, trial in one.outcomes.items()
    )
    write_rows(file, [*HEADER, *names, *TAIL], rows)
    write_whole(path, file.getvalue())


def _row(one: SearchState, where: int, trial: FrozenTrial) -> Mapping[str, object]:
    attributes = trial.user_attrs
    seconds = trial.duration.total_seconds() if trial.duration else None
    return {
        "algorithm": one.search.algorithm,
        "cell": one.search.cell,
        "trial": one.search.trial(where),
        "seed": one.search.seed,
        "state": trial.state.name.lower(),
        "value": "" if trial.value is None else repr(trial.value),
        "reached": trial.last_step or 0,
        "default": "yes" if attributes.get(trials.DEFAULT) else "",
        "attempts": trials.attempts(one.every, where),
        "equal_to": attributes.get(trials.EQUAL, ""),
        "seconds": "" if seconds is None else f"{seconds:.1f}",
        "run_id": attributes.get(trials.RUN_ID, ""),
        "host": attributes.get(trials.HOST, ""),
        "error": attributes.get(trials.ERROR, ""),
    }


def trained(found: Sequence[SearchState]) -> Iterator[tuple[PlannedRun, FrozenTrial]]:
    """The trainings whose folders are on this machine, or shared with it; each once, also where trials share one."""
    seen = set()
    for one in found:
        for where, trial in one.outcomes.items():
            base = trial.user_attrs.get(trials.FOLDER)
            if base is None or trials.EQUAL in trial.user_attrs or base in seen:
                continue
            run = one.search.in_folder(base, where)
            if run.folder().path.exists():
                seen.add(base)
                yield run, trial


def ledger_lines(found: Sequence[SearchState]) -> list[ledger.Line]:
    """What each training has cost, as far as its folder can be seen from this machine."""
    lines = []
    for run, trial in trained(found):
        records = run.folder().read_journal()
        reached = run.reached(records) or trial.last_step or 0
        lines.append(ledger.Line(run, trial.state.name.lower(), reached, ledger.cost(run, records)))
    return lines


def refuse_nothing(found: Sequence[SearchState]) -> None:
    """Failure where a method has no complete trial, in some cell."""
    without = [subject for subject, repeats in by_subject(found).items() if winner(repeats) is None]
    if without:
        raise Failure(f"no trial of {listed(without)} is complete; the same command tries those that failed again")


def progress_of(trial: FrozenTrial, search: Search) -> str:
    """Where a running trial is: `epoch 3/10, 71.20`."""
    base = trial.user_attrs.get(trials.FOLDER)
    step = trial.last_step
    if step is None:
        return "starting" if base is None or not RunFolder(Path(base)).journal.exists() else "in its first epoch"
    value = measures.shown(trial.intermediate_values[step], search.unit)
    return f"{search.run.unit} {step}/{search.run.total}, {value}"
