"""What a selection rule chooses from: the runs of a row on a cell, or the trials of one search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from biasbed import record
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Run
from biasbed.suites import derived


class History:
    """One run's curves: every metric's values by step, in the order of steps."""

    def __init__(
        self,
        run: str,
        rows: Iterable[tuple[str, int, float]],
        is_settled: bool = False,
        counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """rows: metric, step, value; one for each metric and step. run: the run's name in messages.

        is_settled: there was nothing to choose, or it has been chosen already: published numbers, a tested model.
        counts: how many images there are of a kind, by names like metrics' (`record.COUNTS_FILE`); none where unknown.
        """
        self.run, self.is_settled, self.counts = run, is_settled, counts
        self._curves: dict[str, dict[int, float]] = {}
        self._on: Mapping[str, History] = {}
        for metric, step, value in sorted(rows):
            self._curves.setdefault(metric, {})[step] = value

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._curves)

    def curve(self, metric: record.MetricName | str) -> Mapping[int, float]:
        """Values by step, in the order of steps, finite or not; empty where the run has no such metric."""
        return self._curves.get(str(metric), {})

    def with_curves(self, curves: Mapping[str, Mapping[int, float]]) -> History:
        """The same history with further curves."""
        found = History(self.run, (), self.is_settled, self.counts)
        found._curves = {**self._curves, **{name: dict(sorted(curve.items())) for name, curve in curves.items()}}
        return found

    def with_derived(self, declared: Iterable[record.Derived], test_domains: Sequence[str]) -> History:
        """The same history with all of this that can be derived of it and was not logged."""
        curves: dict[str, dict[int, float]] = {}
        for entry in declared:
            if self.curve(entry.metric):
                continue
            names = [name for name in entry.inputs_without(test_domains) if name not in self.counts]
            inputs = {name: {**self.curve(name), **curves.get(name, {})} for name in names}
            for step in set.intersection(*map(set, inputs.values())) if inputs else ():
                at = {name: curve[step] for name, curve in inputs.items()}
                for metric, value in derived.values([entry], at, test_domains, self.counts).items():
                    curves.setdefault(metric, {})[step] = value
        return self.with_curves(curves) if curves else self

    def on(self, cell: str) -> History:
        """The history as it counts on a cell. A published row stands in every cell, with other curves in each."""
        return self._on.get(cell, History(self.run, (), self.is_settled)) if self._on else self

    def told_apart(self, metrics: Mapping[str, Mapping[str, str]]) -> History:
        """The same history, which on these cells has these curves alone: cell -> name of a curve there -> here."""
        found, bare = self.with_curves({}), History(self.run, (), self.is_settled)
        found._on = {
            cell: bare.with_curves({name: self.curve(own) for name, own in names.items()})
            for cell, names in metrics.items()
        }
        return found


@dataclass(frozen=True)
class Candidate:
    """A run that a rule may choose."""

    run: Run
    history: History


@dataclass(frozen=True)
class Pool:
    """Runs that a rule chooses from.

    Without a search these are a row's runs on a cell, which differ in seed, and each stands for itself. With one they
    are the trials of one search, and one of them stands for all.
    """

    algorithm: str
    cell: str
    repeat: str  # of the search; empty without one
    is_search: bool
    sets: tuple[record.SetRecord, ...]  # that count, as the protocol has them
    candidates: tuple[Candidate, ...]
    elsewhere: Mapping[str, tuple[Candidate, ...]]  # cell -> runs of the same row and repeat on the other cells
    protocol: record.Protocol  # of these runs, with all its sets

    @cached_property
    def by_run(self) -> Mapping[str, Candidate]:
        """Run id -> candidate."""
        return {candidate.run.id: candidate for candidate in self.candidates}

    @cached_property
    def holding_out(self) -> Mapping[tuple[frozenset[str], str], Candidate]:
        """(held-out domains, settings) -> the first run elsewhere that was trained so on the same data set.

        Settings are a trial's in its search, without one a run's seed: see `settings`.
        """
        found: dict[tuple[frozenset[str], str], Candidate] = {}
        for candidate in (one for same in self.elsewhere.values() for one in same):
            if candidate.run.protocol == self.candidates[0].run.protocol:
                found.setdefault((frozenset(candidate.run.held_out), self.settings(candidate.run)), candidate)
        return found

    def settings(self, run: Run) -> str:
        """By what its runs are matched with those on other cells."""
        return str(run.draw) if self.is_search else run.seed

    def replicate(self, run: Run) -> str:
        """By what a row's values on all columns are matched: the run, or where each cell has its own runs the seed."""
        if self.is_search:
            return f"repeat {self.repeat}"
        if not self.cell:
            return run.id
        same = [c.run.id for c in self.candidates if c.run.seed == run.seed]
        return f"seed {run.seed}" + (f" ({same.index(run.id) + 1})" if len(same) > 1 else "")

    @property
    def title(self) -> str:
        """In messages."""
        where = f" on {self.cell}" if self.cell else ""
        return f"{self.algorithm}{where}{f' repeat {self.repeat}' if self.is_search else ''}"


@dataclass(frozen=True)
class Choice:
    """Which run stands for a pool on a set, and at which steps."""

    run: str  # its id
    set: str
    steps: tuple[int, ...]
    value: float = math.nan  # by which the rule chose, as it was measured; NaN if it chose by none


def pools_of(
    runs: Sequence[Run],
    histories: Mapping[str, History],
    columns: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    evidence: Sequence[Run] = (),
) -> list[Pool]:
    """The pools of these runs, in the order of rows, cells and repeats. What is only tested may be on several cells.

    evidence: runs on cells that have no column. protocols: hash -> protocol, of all runs.
    """
    sets: dict[str, list[record.SetRecord]] = {}
    for column in columns:
        sets.setdefault(column.cell, []).append(column.set_record)
    found: dict[tuple[str, str], dict[str, list[Candidate]]] = {}
    for run, cells in [*((run, run.among(sets)) for run in runs), *((run, (run.cell,)) for run in evidence)]:
        search = (run.algorithm, run.repeat if run.is_trial else "")
        for cell in cells:
            found.setdefault(search, {}).setdefault(cell, []).append(Candidate(run, histories[run.id].on(cell)))
    return [
        Pool(
            algorithm=algorithm,
            cell=cell,
            repeat=repeat,
            is_search=candidates[0].run.is_trial,
            sets=tuple(sets[cell]),
            candidates=tuple(candidates),
            elsewhere={other: tuple(theirs) for other, theirs in of_cells.items() if other != cell},
            protocol=protocols[candidates[0].run.protocol],
        )
        for (algorithm, repeat), of_cells in found.items()
        for cell, candidates in of_cells.items()
        if cell in sets
    ]
