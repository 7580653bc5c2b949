"""A run, where it was found, and the collection of those that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from biasbed import record


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
    algorithm: str
    seed: str = ""
    test_domains: str = ""
    run_key: str = ""
    config_hash: str = ""
    data_fingerprint: str = ""
    code_hash: str = ""
    git_commit: str = ""
    git_dirty: str = ""
    selection: str = ""
    selection_n: int = 0
    source: str = ""
    skipped_images: str = ""
    oracle: str = ""  # the metric of test sets by which a sweep chose its hyper-parameters
    training_data: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.status == "FINISHED"

    @property
    def scope(self) -> Scope:
        return Scope(self.kind, self.suite, self.study, self.protocol)


@dataclass(frozen=True, order=True)
class Scope:
    """Runs that may stand in one table."""

    kind: str
    suite: str
    study: str
    protocol: str


@dataclass(frozen=True)
class Collection:
    """The runs of one analysis."""

    scope: Scope
    protocol: record.Protocol
    runs: tuple[Run, ...]  # that count
    duplicates: tuple[Run, ...] = ()  # finished too, but another run has the same key
    not_finished: Mapping[str, int] = field(default_factory=dict)  # status -> runs
    notes: tuple[str, ...] = ()
    published_by_rule: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)  # selection rule -> published runs

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
