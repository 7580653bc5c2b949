"""Faults put into tiny trainings of every family, which must end as if nothing had been.

A seed is one life of a training: it is started, a fault ends it, it is started again, until it has finished; then it is
held to the law (`law.py`). `python -m faults` lives seed after seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# What can be wrong with a life at its end.
LOST, DOUBLED, WRONG, UNEQUAL = "rows lost", "doubled", "wrong", "not bit-equal"
STUCK, LEFT, SAID = "stuck", "left over", "ill told"


@dataclass(frozen=True)
class Fault:
    """One that was really injected: what kind it is of, and where it came."""

    kind: str
    where: str


@dataclass
class Life:
    """Outcome of a seed."""

    seed: int
    scenario: str
    faults: list[Fault] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
    rows: int = 0  # of metrics that were compared
    seconds: float = 0.0
    trail: list[str] = field(default_factory=list)  # what happened, in order: for whoever looks into a failure

    def blame(self, problem: str, description: str) -> None:
        self.problems.setdefault(problem, []).append(description)
