"""Selection rules from a user's own file, `selection=my_rules.py:MyRule` (docs/selection.md has an example).

`MyRule` is a subclass of `Rule` with `name`, `label`, `oracle` and `steps(history, entry)`; `MyRule(protocol, n)` makes
it. One that chooses among the trials of a search says by which `value(history, entry)`; one that looks at more than one
run at a time (hyper-parameters by leave-one-domain-out) has `choices(pool)` in place of all of these.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.analysis.columns import headline
from biasbed.analysis.selection.pools import Choice, History, Pool
from biasbed.analysis.selection.rules import RULES, Rule
from biasbed.errors import Failure, UsageError

WHOLE = "whole numbers, each once"
NEEDED: Mapping[str, type] = {"name": str, "label": str, "oracle": bool}


class OwnRule(Rule):
    """A user's rule: what it returns is checked, what it raises becomes one line."""

    def __init__(self, source: str, rule: Rule, code: str) -> None:
        """source: as the command names it. code: hash of its file."""
        self.source, self.rule, self.code = source, rule, code
        self.name, self.oracle, self.needs = rule.name, rule.oracle, tuple(rule.needs)
        self.validates = rule.validates  # type: ignore[misc]

    @property
    def label(self) -> str:
        mark = "ORACLE: " if self.oracle and "ORACLE" not in self.rule.label else ""
        return f"{mark}{self.rule.label} ({self.source}, code {self.code})"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        try:
            found = tuple(self.rule.steps(history, entry))
        except (Exception, SystemExit) as error:  # a user's code may do anything
            raise self._failed(f"on run {history.run}", error) from error
        curve = history.curve(headline(entry))
        if not found and any(map(record.is_finite, curve.values())):
            raise Failure(f"selection={self.source}: it chose no step of run {history.run} for '{entry.name}'")
        steps = _whole(found)
        if steps is None:
            raise Failure(f"selection={self.source}: steps must return {WHOLE}, not {found!r}")
        return steps

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        try:
            found = self.rule.value(history, entry)
            return None if found is None else float(found)
        except UsageError:  # it has none
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(f"on run {history.run}", error) from error

    def choices(self, pool: Pool) -> list[Choice]:
        if type(self.rule).choices is Rule.choices:
            return list(super().choices(pool))
        try:
            found = [Choice(str(one.run), str(one.set), tuple(one.steps)) for one in self.rule.choices(pool)]
        except (Exception, SystemExit) as error:
            raise self._failed(f"on {pool.title}", error) from error
        if not found:
            raise Failure(
                f"selection={self.source}: it chose none of the {len(pool.candidates)} run(s) of {pool.title}"
            )
        self._check(pool, found)
        return [replace(one, steps=_whole(one.steps) or ()) for one in found]

    def _check(self, pool: Pool, found: Sequence[Choice]) -> None:
        """Failure for what can't be a choice from this pool."""
        runs, sets = {candidate.run.id for candidate in pool.candidates}, [entry.name for entry in pool.sets]
        taken: set[tuple[str, str]] = set()
        for one in found:
            wrong = ""
            if one.run not in runs:
                wrong = f"it chose the run {one.run}, which is none of these"
            elif one.set not in sets:
                wrong = f"it chose for '{one.set}', which is none of the sets {', '.join(sets)}"
            elif not one.steps or _whole(one.steps) is None:
                wrong = f"it chose the steps {one.steps!r}, which should be {WHOLE}"
            elif ((one.set, "") if pool.is_search else (one.set, one.run)) in taken:
                wrong = f"it chose twice for '{one.set}'"
            if wrong:
                raise Failure(f"selection={self.source} on {pool.title}: {wrong}")
            taken.add((one.set, "") if pool.is_search else (one.set, one.run))

    def _failed(self, where: str, error: BaseException) -> Failure:
        return Failure(f"selection={self.source} failed {where}: {type(error).__name__}: {error}")


def _whole(steps: Sequence[Any]) -> tuple[int, ...] | None:
    """The steps as Python's own integers; None for what is no whole number, and for one that is there twice."""
    try:
        found = tuple(map(operator.index, steps))
    except TypeError:
        return None
    return found if len(set(found)) == len(found) else None


def load(source: str, protocol: record.Protocol, n: int) -> OwnRule:
    """The rule `<file>.py:<Class>`, made by `<Class>(protocol, n)`; UsageError where that gives no rule."""
    place = source.rpartition(":")[0]
    if not place.endswith(".py"):
        raise UsageError(f"selection={source}: a rule of your own is <file>.py:<Class>")
    cls = RULES.load(source)
    try:
        rule = cls.made(protocol, n)
        wrong = [name for name, kind in NEEDED.items() if not _is(rule, name, kind)]
    except (Exception, SystemExit) as error:
        raise UsageError(f"selection={source} can't be used: {type(error).__name__}: {error}") from None
    wrong += ["steps"] if cls.steps is Rule.steps and cls.choices is Rule.choices else []
    if wrong:
        raise UsageError(
            f"selection={source} is no selection rule: it needs {', '.join(wrong)} (text name and label, "
            "oracle True or False, and steps(history, entry); docs/selection.md)"
        )
    if rule.name in RULES:
        raise UsageError(f"selection={source}: call it otherwise, '{rule.name}' is one of biasbed's rules")
    return OwnRule(source, rule, hashlib.sha256(Path(place).expanduser().read_bytes()).hexdigest()[:8])


def _is(rule: Rule, name: str, kind: type) -> bool:
    """Whether the rule says this of itself."""
    try:
        return isinstance(getattr(rule, name, None), kind)
    except NotImplementedError:  # `Rule` itself answers
        return False
