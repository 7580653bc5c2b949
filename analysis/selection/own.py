"""Selection rules from a user's own file, `selection=my_rules.py:MyRule` (docs/analysis.md has an example).

`MyRule(protocol, n)` gives an object with `name`, `label`, `oracle` and `steps(history, entry)`, as in rules.py. A
rule that chooses among runs too (hyper-parameters by leave-one-domain-out, a test-domain oracle) has
`choose(candidates)`: it gets the runs of one algorithm and returns those that count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.rules import RULES, History, Rule
from biasbed.errors import Failure, UsageError
from biasbed.registry import from_file

NEEDED: Mapping[str, type] = {"name": str, "label": str, "oracle": bool}


@dataclass(frozen=True)
class Candidate:
    """A run that a rule may choose."""

    run: Run
    history: History


@dataclass(frozen=True)
class OwnRule:
    """A user's rule: what it returns is checked, what it raises becomes one line."""

    source: str  # as the command names it
    rule: Any
    code: str  # hash of its file

    @property
    def name(self) -> str:
        return str(self.rule.name)

    @property
    def label(self) -> str:
        mark = "ORACLE: " if self.oracle and "ORACLE" not in self.rule.label else ""
        return f"{mark}{self.rule.label} ({self.source}, code {self.code})"

    @property
    def oracle(self) -> bool:
        return bool(self.rule.oracle)

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        try:
            found = tuple(self.rule.steps(history, entry))
        except (Exception, SystemExit) as error:  # a user's code may do anything
            raise self._failed(f"on run {history.run}", error) from error
        if not all(isinstance(step, int) for step in found):
            raise Failure(f"selection={self.source}: steps must return whole numbers, not {found!r}")
        return found

    def choose(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those of one algorithm's runs that count; all where the rule has no `choose`."""
        if not hasattr(self.rule, "choose"):
            return list(candidates)
        algorithm = candidates[0].run.algorithm
        try:
            ids = {candidate.run.id for candidate in self.rule.choose(candidates)}
        except (Exception, SystemExit) as error:
            raise self._failed(f"on the runs of {algorithm}", error) from error
        chosen = [candidate for candidate in candidates if candidate.run.id in ids]
        if not chosen:
            raise Failure(f"selection={self.source}: it chose none of the {len(candidates)} run(s) of {algorithm}")
        return chosen

    def _failed(self, where: str, error: BaseException) -> Failure:
        return Failure(f"selection={self.source} failed {where}: {type(error).__name__}: {error}")


def load(source: str, protocol: record.Protocol, n: int) -> OwnRule:
    """The rule `<file>.py:<Class>`, made by `<Class>(protocol, n)`; UsageError where that gives no rule."""
    place, _, attribute = source.rpartition(":")
    if not place.endswith(".py"):
        raise UsageError(f"selection={source}: a rule of your own is <file>.py:<Class>")
    path = Path(place).expanduser()
    try:
        rule = getattr(from_file(path), attribute)(protocol, n)
    except (Exception, SystemExit) as error:
        raise UsageError(f"selection={source} can't be used: {type(error).__name__}: {error}") from None
    wrong = [name for name, kind in NEEDED.items() if not isinstance(getattr(rule, name, None), kind)]
    if not callable(getattr(rule, "steps", None)):
        wrong.append("steps")
    if wrong:
        raise UsageError(
            f"selection={source} is no selection rule: it needs {', '.join(wrong)} (text name and label, oracle True "
            "or False, and steps(history, entry); docs/analysis.md)"
        )
    if rule.name in RULES:
        raise UsageError(f"selection={source}: call it otherwise, '{rule.name}' is one of biasbed's rules")
    return OwnRule(source, rule, hashlib.sha256(path.read_bytes()).hexdigest()[:8])


def choose(rule: Rule, runs: Sequence[Run], histories: Mapping[str, History]) -> tuple[tuple[Run, ...], list[str]]:
    """The runs that count under a rule, in their order, and what to say about the others."""
    if not isinstance(rule, OwnRule):
        return tuple(runs), []
    chosen: set[str] = set()
    notes = []
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        candidates = [Candidate(run, histories[run.id]) for run in runs if run.algorithm == algorithm]
        kept = rule.choose(candidates)
        chosen |= {candidate.run.id for candidate in kept}
        if len(kept) < len(candidates):
            notes.append(f"{algorithm}: the rule {rule.name} chose {len(kept)} of {len(candidates)} runs")
    return tuple(run for run in runs if run.id in chosen), notes
