"""Data classes of a tracked run, its cell and scope, and the collection of runs that are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from biasbed import limits, record

TABLE = "table"  # kind of the rows of a score table that a user brings: they are no tracked runs
TESTED = ("evaluate",)  # kinds of runs of models that are only tested


@dataclass(frozen=True)
class Run:
    """Tracked run, described by its tags. Tags that a run lacks are empty."""

    id: str
    name: str
    experiment: str
    status: str
    started: int  # milliseconds since 1970
    ended: int
    kind: str
    suite: str
    study: str
    protocol: str
    algorithm: str  # name of its row in tables; defaults to the method
    method: str = ""  # the method that trained it
    display_name: str = ""  # of its row, as MLflow's pages group by it
    cell: str = ""  # the training data, if a study has several
    cells: tuple[str, ...] = ()  # for a tested model beside trained ones: those of their cells on which it counts
    seed: str = ""
    test_domains: str = ""
    run_key: str = ""
    config_hash: str = ""
    data_fingerprint: str = ""
    code_hash: str = ""
    tested: str = ""  # hash of everything that it is tested on
    needs: frozenset[str] = frozenset()  # requirements of its method on the training data
    provides: frozenset[str] = frozenset()  # requirements that the training data meet
    repeat: str = ""  # for a trial: the repeat of its search
    space: str = ""  # for a trial: hash of the search space
    trial: str = ""  # for a trial: its name within the search
    trial_state: str = ""  # for a trial: complete, pruned or failed
    git_commit: str = ""
    git_dirty: str = ""
    selection: str = ""
    selection_n: int = 0
    source: str = ""
    summary: Mapping[str, str | int] = field(default_factory=dict)  # for a published mean: the kind of spread printed
    skipped_images: str = ""
    oracle: str = ""  # the test metric by which a sweep chose the hyper-parameters
    training_data: Mapping[str, float] = field(default_factory=dict)
    overlaps: frozenset[str] = frozenset()  # kinds of test conditions that resemble the training data
    weights: str = ""  # for a tested model: hash of its weights
    init: Mapping[str, str] = field(default_factory=dict)  # the weights that training started from
    method_facts: Mapping[str, str] = field(default_factory=dict)  # of the trained method: hash of a text classifier
    parameters: int = 0  # number of the model's parameters; 0 if unknown
    images_per_second: float = 0.0  # in training; for a tested model in testing
    is_quick: bool = False  # True if its study is only a quick demonstration
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.status == "FINISHED"

    @property
    def is_trial(self) -> bool:
        """True if it belongs to a search, of which a rule chooses one run."""
        return self.kind == "trial"

    @property
    def draw(self) -> int:
        """Number of a trial's settings in its search, the same on all cells: 3 for the trial `r1-3`; 0 without one."""
        return int(re.findall(r"[0-9]+", self.trial or "0")[-1])

    @property
    def row_and_cell(self) -> tuple[str, str]:
        """Row and cell, which runs that differ only in seed share."""
        return self.algorithm, self.cell

    def among(self, cells: Iterable[str]) -> tuple[str, ...]:
        """Return those of these cells on which the run counts, each once: its own, or all if it has no cell."""
        candidates = tuple(dict.fromkeys(cells))
        own_cells = tuple(cell for cell in candidates if cell in self.cells)
        if own_cells:
            return own_cells
        if not self.cell and self.cell not in candidates:
            return candidates
        return (self.cell,) if self.cell in candidates else ()

    @property
    def held_out(self) -> tuple[str, ...]:
        """Domains that are held out of training and tested."""
        return tuple(filter(None, self.test_domains.split(",")))

    @property
    def scope(self) -> Scope:
        return Scope(self.kind, self.suite, self.study, self.protocol)


def distinct(runs: Iterable[Run], name: str) -> list[str]:
    """Return the sorted distinct values of a field of the runs."""
    return sorted(set(map(attrgetter(name), runs)))


def runs_by_row(runs: Iterable[Run], cell: str, cells: Sequence[str]) -> dict[str, list[Run]]:
    """Return row -> its runs that count on a cell, sorted by row. cells: of all columns."""
    rows: dict[str, list[Run]] = {}
    for run in runs:
        if cell in run.among(cells):
            rows.setdefault(run.algorithm, []).append(run)
    return dict(sorted(rows.items()))


def group_runs(runs: Iterable[Run], name: str) -> dict[Any, list[Run]]:
    """Return the runs by the value of a field, in the order of its first occurrences."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(getattr(run, name), []).append(run)
    return groups


@dataclass(frozen=True, order=True)
class Scope:
    """Key of the runs that may be in one table."""

    kind: str
    suite: str
    study: str
    protocol: str  # of all of them, or of those on the first cell


@dataclass(frozen=True)
class TrainedOn:
    """Cell of a table: the training data of its runs, and the sets that they are judged on."""

    name: str  # empty if there is only one cell
    protocol: record.Protocol  # of the first of its runs
    test_domains: tuple[str, ...] = ()
    provides: frozenset[str] = frozenset()  # requirements of methods that the training data meet


@dataclass(frozen=True)
class Collection:
    """Runs of one analysis."""

    scope: Scope
    cells: tuple[TrainedOn, ...]
    protocols: Mapping[str, record.Protocol]  # hash -> protocol
    runs: tuple[Run, ...]  # the runs that count
    evidence: tuple[Run, ...] = ()  # runs that only rules read: they hold out more domains than a column shows
    duplicates: tuple[Run, ...] = ()  # finished runs whose key another run has
    unfinished: tuple[Run, ...] = ()  # unfinished runs of the study whose key no finished run has
    not_finished: Mapping[str, int] = field(default_factory=dict)  # status -> number of runs
    notes: tuple[str, ...] = ()
    left_out: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)  # (row, cell) -> unmet needs
    published_by_rule: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)  # selection rule -> published runs

    @property
    def protocol(self) -> record.Protocol:
        """Protocol of the first cell."""
        return self.cells[0].protocol

    @property
    def part(self) -> str:
        """Note for runs that saw only a part of the images; empty if they saw all."""
        return limits.note(self.protocol.limit, any(run.is_quick for run in self.runs))

    @property
    def is_search(self) -> bool:
        """True if the runs are trials, of which a rule chooses one per search."""
        return self.scope.kind == "trial"

    def protocol_of(self, run: Run) -> record.Protocol:
        return self.protocols[run.protocol]

    def not_applicable(self, algorithm: str, cell: str) -> frozenset[str]:
        """Return the needs of a row that a cell's training data don't meet; empty if it can be trained on them.

        The study's note counts, as it knows the needs of every method; else they follow from the cell's runs.
        """
        if (algorithm, cell) in self.left_out:
            return self.left_out[algorithm, cell]
        provides = next(column.provides for column in self.cells if column.name == cell)
        return self._needs.get(algorithm, frozenset()) - provides

    @cached_property
    def _needs(self) -> Mapping[str, frozenset[str]]:
        """Needs of the runs of each row."""
        needs: dict[str, frozenset[str]] = {}
        for run in self.runs:
            needs[run.algorithm] = needs.get(run.algorithm, frozenset()) | run.needs
        return needs

    @cached_property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(distinct(self.runs, "algorithm"))

    @property
    def published(self) -> bool:
        """True if all runs are published; other collections may contain published runs besides."""
        return self.scope.kind == "published"

    @property
    def is_table(self) -> bool:
        """True if the scores come from a user's table and not from tracked runs."""
        return self.scope.kind == TABLE

    @cached_property
    def unpublished(self) -> tuple[Run, ...]:
        """Runs that count and are not published."""
        return tuple(run for run in self.runs if run.kind != "published")
