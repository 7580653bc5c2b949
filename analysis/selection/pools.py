"""Pools that a selection rule chooses from: the runs of a row on a cell, or the trials of one search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from biasbed import record
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Run, group_runs
from biasbed.suites import derived


class History:
    """Metrics of one run over its steps."""

    def __init__(
        self,
        run: str,
        rows: Iterable[tuple[str, int, float]],
        is_settled: bool = False,
        counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """run: the run's name in messages. rows: (metric, step, value), one per metric and step, in any order.

        is_settled: there is one value per metric and so no step to choose, as with published numbers or a tested model.
        counts: numbers of images by name, named like metrics (`record.COUNTS_FILE`); empty if unknown.
        """
        self.run, self.is_settled, self.counts = run, is_settled, counts
        self._curves: dict[str, dict[int, float]] = {}
        self._by_cell: Mapping[str, History] = {}
        for metric, step, value in sorted(rows):
            self._curves.setdefault(metric, {})[step] = value

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._curves)

    def curve(self, metric: record.MetricName | str) -> Mapping[int, float]:
        """Return the metric's values by step, sorted. May contain NaN. Empty if the run lacks the metric."""
        return self._curves.get(str(metric), {})

    def values(self, metric: record.MetricName | str, steps: Iterable[int]) -> list[float]:
        """Return the metric's values at the steps, NaN where it has none."""
        curve = self._curves.get(str(metric), {})
        # Twice as fast as a comprehension, and called for every run and column.
        return list(map(curve.get, steps, itertools.repeat(math.nan)))

    def mean(self, metric: record.MetricName | str, steps: Sequence[int]) -> float:
        """Return the metric's mean over the steps; NaN if any of them has no value."""
        if not self.curve(metric):
            return math.nan
        return math.fsum(self.values(metric, steps)) / len(steps)

    def with_curves(self, curves: Mapping[str, Mapping[int, float]]) -> History:
        """Return the history with further curves: metric -> step -> value."""
        history = History(self.run, (), self.is_settled, self.counts)
        history._curves = {**self._curves, **{name: dict(sorted(curve.items())) for name, curve in curves.items()}}
        return history

    def with_derived(self, declared: Iterable[record.Derived], test_domains: Sequence[str]) -> History:
        """Return the history with the declared metrics that can be derived from it and were not logged.

        Each is derived at every step that has all its inputs. declared: in an order in which inputs come before what is
        derived of them.
        """
        derived_curves: dict[str, dict[int, float]] = {}
        for derivation in declared:
            if self.curve(derivation.metric):
                continue
            names = [name for name in derivation.inputs_without(test_domains) if name not in self.counts]
            inputs = {name: {**self.curve(name), **derived_curves.get(name, {})} for name in names}
            for step in set.intersection(*map(set, inputs.values())) if inputs else ():
                at_step = {name: curve[step] for name, curve in inputs.items()}
                for metric, value in derived.derive_values([derivation], at_step, test_domains, self.counts).items():
                    derived_curves.setdefault(metric, {})[step] = value
        if not derived_curves:
            return self
        return self.with_curves(derived_curves)

    def on(self, cell: str) -> History:
        """Return the history that counts on a cell: its own part if it is split by cell, else the history itself."""
        if not self._by_cell:
            return self
        return self._by_cell.get(cell, History(self.run, (), self.is_settled))

    def split_by_cell(self, sources: Mapping[str, Mapping[str, str]]) -> History:
        """Return the history of a published row, which has a number on every cell, split by cell (`on`).

        sources: cell -> metric on that cell -> metric of this history that holds it.
        """
        history, empty = self.with_curves({}), History(self.run, (), self.is_settled)
        by_cell = {}
        for cell, source_by_metric in sources.items():
            by_cell[cell] = empty.with_curves({name: self.curve(source) for name, source in source_by_metric.items()})
        history._by_cell = by_cell
        return history


@dataclass(frozen=True)
class Candidate:
    """Run that a rule may choose, with its history."""

    run: Run
    history: History


@dataclass(frozen=True)
class Pool:
    """Runs of one row on one cell, from which a rule chooses.

    Without a search they differ in seed, and each represents itself. With a search they are the trials of one repeat,
    and one of them represents all.
    """

    algorithm: str
    cell: str
    repeat: str  # of the search; empty without one
    is_search: bool
    sets: tuple[record.SetRecord, ...]  # those that count
    candidates: tuple[Candidate, ...]
    elsewhere: Mapping[str, tuple[Candidate, ...]]  # cell -> runs of the same row and repeat on the other cells
    protocol: record.Protocol  # of these runs, with all its sets

    @cached_property
    def by_run(self) -> Mapping[str, Candidate]:
        """Candidates keyed by run id."""
        return {candidate.run.id: candidate for candidate in self.candidates}

    @cached_property
    def holding_out(self) -> Mapping[tuple[frozenset[str], str], Candidate]:
        """Runs on other cells with the same protocol, keyed by (held-out domains, `settings`); of several the first."""
        candidates: dict[tuple[frozenset[str], str], Candidate] = {}
        for candidate in itertools.chain.from_iterable(self.elsewhere.values()):
            if candidate.run.protocol == self.candidates[0].run.protocol:
                candidates.setdefault((frozenset(candidate.run.held_out), self.settings(candidate.run)), candidate)
        return candidates

    def settings(self, run: Run) -> str:
        """Return the key by which a run is matched with those on other cells: the draw of a trial, else the seed."""
        return str(run.draw) if self.is_search else run.seed

    @cached_property
    def replicates(self) -> Mapping[str, str]:
        """Run id -> replicate, by which a row's values on several columns belong together.

        Without cells a run is its own replicate. Else the replicate is `seed 3`, or `repeat r1` of a search.
        """
        runs = [candidate.run for candidate in self.candidates]
        if self.is_search:
            return dict.fromkeys((run.id for run in runs), f"repeat {self.repeat}")
        if not self.cell:
            return {run.id: run.id for run in runs}
        replicates = {}
        for seed, same in group_runs(runs, "seed").items():
            for number, run in enumerate(same, 1):
                replicates[run.id] = f"seed {seed}" if len(same) == 1 else f"seed {seed} ({number})"
        return replicates

    @cached_property
    def varied_settings(self) -> tuple[str, ...]:
        """Names of the settings in which the trials of a search differ, sorted; empty without a search."""
        if not self.is_search:
            return ()
        configs = [candidate.run.config for candidate in self.candidates]
        varied = []
        for name in sorted(set().union(*configs)):
            if len({config.get(name, "") for config in configs}) > 1:
                varied.append(name)
        return tuple(varied)

    @property
    def title(self) -> str:
        """Name of the pool in messages."""
        title = self.algorithm
        if self.cell:
            title += f" on {self.cell}"
        if self.is_search:
            title += f" repeat {self.repeat}"
        return title


class Choice(NamedTuple):
    """Run that represents a pool on a set, and the steps at which it counts."""

    run: str  # its id
    set: str
    steps: tuple[int, ...]
    value: float = math.nan  # the criterion by which the rule chose, as measured; NaN if it has none


def pools_of(
    runs: Sequence[Run],
    histories: Mapping[str, History],
    columns: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
    evidence: Sequence[Run] = (),
) -> list[Pool]:
    """Return a pool for each row and cell, and of a search for each repeat; in the order of first occurrence.

    A tested model may be on several cells. evidence: runs on cells that have no column, hence no pool of their own.
    protocols: hash -> protocol, of all runs.
    """
    sets_by_cell: dict[str, list[record.SetRecord]] = {}
    for column in columns:
        sets_by_cell.setdefault(column.cell, []).append(column.set_record)
    cells_of_runs = [(run, run.among(sets_by_cell)) for run in runs]
    cells_of_runs += [(run, (run.cell,)) for run in evidence]
    rows: dict[tuple[str, str], dict[str, list[Candidate]]] = {}  # (row, repeat) -> cell -> runs
    for run, cells in cells_of_runs:
        by_cell = rows.setdefault((run.algorithm, run.repeat if run.is_trial else ""), {})
        for cell in cells:
            by_cell.setdefault(cell, []).append(Candidate(run, histories[run.id].on(cell)))
    pools = []
    for (algorithm, repeat), by_cell in rows.items():
        for cell, candidates in by_cell.items():
            if cell not in sets_by_cell:
                continue
            first = candidates[0].run
            pool = Pool(
                algorithm=algorithm,
                cell=cell,
                repeat=repeat,
                is_search=first.is_trial,
                sets=tuple(sets_by_cell[cell]),
                candidates=tuple(candidates),
                elsewhere={name: tuple(others) for name, others in by_cell.items() if name != cell},
                protocol=protocols[first.protocol],
            )
            pools.append(pool)
    return pools
