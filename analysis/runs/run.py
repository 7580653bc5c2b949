"""A run, where it was found, and the collection of those that are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from biasbed import limits, record


@dataclass(frozen=True)
class Run:
    """One tracked run, by what its tags say. Tags that a run does not have are empty."""

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
    algorithm: str  # what it is one of in tables: its row's name, where there is none the method's
    method: str = ""  # how it was trained
    cell: str = ""  # what it trained on, where several such things are told apart
    cells: tuple[str, ...] = ()  # of a tested model beside trained ones: theirs, on which it stands
    seed: str = ""
    test_domains: str = ""
    run_key: str = ""
    config_hash: str = ""
    data_fingerprint: str = ""
    code_hash: str = ""
    tested: str = ""  # hash of all that it is tested on
    needs: frozenset[str] = frozenset()  # what its method needs of the training data
    provides: frozenset[str] = frozenset()  # what of that they have
    repeat: str = ""  # of a trial: of its search
    space: str = ""  # of a trial: hash of what is searched
    trial: str = ""  # which one of its search
    trial_state: str = ""  # how it ended: complete, pruned, failed
    git_commit: str = ""
    git_dirty: str = ""
    selection: str = ""
    selection_n: int = 0
    source: str = ""
    summary: Mapping[str, str | int] = field(default_factory=dict)  # of a published row: which spread was printed
    skipped_images: str = ""
    oracle: str = ""  # the metric of test sets by which a sweep chose its hyper-parameters
    training_data: Mapping[str, float] = field(default_factory=dict)
    overlaps: frozenset[str] = frozenset()  # kinds of condition that training resembles
    weights: str = ""  # of a tested model: hash of its content
    init: Mapping[str, str] = field(default_factory=dict)  # what training started from
    parameters: int = 0  # of the model; 0 where it is not known
    images_per_second: float = 0.0  # in training, or of a tested model in testing
    is_quick: bool = False  # of a study that only shows how things go
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.status == "FINISHED"

    @property
    def is_trial(self) -> bool:
        """Whether it is one of a search, of which a rule chooses one."""
        return self.kind == "trial"

    @property
    def draw(self) -> int:
        """Of a trial: which of its search's settings it has (3 of the trial `r1-3`), the same on all cells."""
        return int(re.findall(r"[0-9]+", self.trial or "0")[-1])

    @property
    def place(self) -> tuple[str, str]:
        """Row and cell: runs that differ in seed alone share them."""
        return self.algorithm, self.cell

    def among(self, cells: Iterable[str]) -> tuple[str, ...]:
        """Of these cells those on which it counts: its own, and every one if it has none."""
        known = tuple(dict.fromkeys(cells))
        alone = (self.cell,) if self.cell or "" in known else known
        return tuple(cell for cell in known if cell in self.cells) or tuple(cell for cell in known if cell in alone)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Its test domains."""
        return tuple(filter(None, self.test_domains.split(",")))

    @property
    def scope(self) -> Scope:
        return Scope(self.kind, self.suite, self.study, self.protocol)


@dataclass(frozen=True, order=True)
class Scope:
    """Runs that may stand in one table."""

    kind: str
    suite: str
    study: str
    protocol: str  # of all of them, or of those of the first cell


@dataclass(frozen=True)
class TrainedOn:
    """A cell: what its runs trained on, and what they are judged on."""

    name: str  # empty where there is one alone
    protocol: record.Protocol  # of the first of its runs
    test_domains: tuple[str, ...] = ()
    provides: frozenset[str] = frozenset()  # what methods may need of the training data and these have


@dataclass(frozen=True)
class Collection:
    """The runs of one analysis."""

    scope: Scope
    cells: tuple[TrainedOn, ...]
    protocols: Mapping[str, record.Protocol]  # hash -> the protocol of some of the runs
    runs: tuple[Run, ...]  # that count
    evidence: tuple[Run, ...] = ()  # that rules alone look at, as more domains are held out than a column shows
    duplicates: tuple[Run, ...] = ()  # finished too, but another run has the same key
    unfinished: tuple[Run, ...] = ()  # of the same study; no run with the same key is finished
    not_finished: Mapping[str, int] = field(default_factory=dict)  # status -> runs
    notes: tuple[str, ...] = ()
    left_out: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)  # row, cell -> what it needs there
    published_by_rule: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)  # selection rule -> published runs

    @property
    def protocol(self) -> record.Protocol:
        """Of the first cell."""
        return self.cells[0].protocol

    @property
    def part(self) -> str:
        """What must be said where the runs saw a part of the images; empty where they saw all."""
        return limits.note(self.protocol.limit, any(run.is_quick for run in self.runs))

    @property
    def is_search(self) -> bool:
        """Whether the runs are trials, of which a rule chooses one per search."""
        return self.scope.kind == "trial"

    def protocol_of(self, run: Run) -> record.Protocol:
        return self.protocols[run.protocol]

    def not_applicable(self, algorithm: str, cell: str) -> frozenset[str]:
        """What a row needs that a cell's training data don't have; empty where it can be trained on them.

        As its study noted it, which knows what each method trains on; else by what the cell's runs have.
        """
        if (algorithm, cell) in self.left_out:
            return self.left_out[algorithm, cell]
        needs = frozenset[str]().union(*(run.needs for run in self.runs if run.algorithm == algorithm))
        return needs - next(known.provides for known in self.cells if known.name == cell)

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(sorted({run.algorithm for run in self.runs}))

    @property
    def published(self) -> bool:
        """Whether all of it is published; one's own runs may have published ones beside them."""
        return self.scope.kind == "published"

    @property
    def own(self) -> tuple[Run, ...]:
        """The runs that count and are not published."""
        return tuple(run for run in self.runs if run.kind != "published")
