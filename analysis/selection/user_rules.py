"""Selection rules from a user's file, `selection=my_rules.py:MyRule` (docs/selection.md has an example).

`MyRule` is a subclass of `Rule` with `name`, `label`, `oracle` and `steps(history, eval_set)`, made by
`MyRule(protocol, n)`. A rule that chooses among the trials of a search also has `value(history, eval_set)`. A rule that
reads several runs at once (e.g. hyper-parameters by leave-one-domain-out) has `choices(pool)` instead of these.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.analysis.columns import headline
from biasbed.analysis.selection.pools import Choice, History, Pool
from biasbed.analysis.selection.rules import RULES, Rule
from biasbed.errors import Failure, UsageError

STEPS = "whole numbers, each once"
NEEDED: Mapping[str, type] = {"name": str, "label": str, "oracle": bool}


class UserRule(Rule):
    """Wrapper of a user's rule that checks what it returns and turns what it raises into one line."""

    def __init__(self, source: str, rule: Rule, code: str) -> None:
        """source: value of `selection=`. code: hash of the file."""
        self.source, self.rule, self.code = source, rule, code
        self.name, self.oracle, self.needs = rule.name, rule.oracle, tuple(rule.needs)
        self.validates = rule.validates  # type: ignore[misc]

    @property
    def label(self) -> str:
        mark = "ORACLE: " if self.oracle and "ORACLE" not in self.rule.label else ""
        return f"{mark}{self.rule.label} ({self.source}, code {self.code})"

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        try:
            returned = tuple(self.rule.steps(history, eval_set))
        except (Exception, SystemExit) as error:  # a user's code may do anything
            raise self._failed(f"on run {history.run}", error) from error
        curve = history.curve(headline(eval_set))
        if not returned and any(map(record.is_finite, curve.values())):
            raise Failure(f"selection={self.source}: it chose no step of run {history.run} for '{eval_set.name}'")
        steps = _distinct_integers(returned)
        if steps is None:
            raise Failure(f"selection={self.source}: steps must return {STEPS}, not {returned!r}")
        return steps

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        try:
            value = self.rule.value(history, eval_set)
            return None if value is None else float(value)
        except UsageError:  # the rule does not define `value`
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(f"on run {history.run}", error) from error

    def choices(self, pool: Pool) -> list[Choice]:
        if type(self.rule).choices is Rule.choices:
            return list(super().choices(pool))
        try:
            returned = self.rule.choices(pool)
            choices = [Choice(str(choice.run), str(choice.set), tuple(choice.steps)) for choice in returned]
        except (Exception, SystemExit) as error:
            raise self._failed(f"on {pool.title}", error) from error
        if not choices:
            raise Failure(
                f"selection={self.source}: it chose none of the {len(pool.candidates)} run(s) of {pool.title}"
            )
        self._check(pool, choices)
        return [choice._replace(steps=_distinct_integers(choice.steps) or ()) for choice in choices]

    def _check(self, pool: Pool, choices: Sequence[Choice]) -> None:
        """Raise Failure for a choice that is impossible in this pool."""
        runs, sets = {candidate.run.id for candidate in pool.candidates}, [eval_set.name for eval_set in pool.sets]
        chosen: set[tuple[str, str]] = set()
        for choice in choices:
            key = (choice.set, "" if pool.is_search else choice.run)
            problem = ""
            if choice.run not in runs:
                problem = f"it chose the run {choice.run}, which is none of these"
            elif choice.set not in sets:
                problem = f"it chose for '{choice.set}', which is none of the sets {', '.join(sets)}"
            elif not choice.steps or _distinct_integers(choice.steps) is None:
                problem = f"it chose the steps {choice.steps!r}, which should be {STEPS}"
            elif key in chosen:
                problem = f"it chose twice for '{choice.set}'"
            if problem:
                raise Failure(f"selection={self.source} on {pool.title}: {problem}")
            chosen.add(key)

    def _failed(self, where: str, error: BaseException) -> Failure:
        return Failure(f"selection={self.source} failed {where}: {type(error).__name__}: {error}")


def _distinct_integers(steps: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the steps as Python integers; None if one is no integer or occurs twice."""
    try:
        integers = tuple(map(operator.index, steps))
    except TypeError:
        return None
    return integers if len(set(integers)) == len(integers) else None


def load(source: str, protocol: record.Protocol, n: int) -> UserRule:
    """Load the rule `<file>.py:<Class>`, made by `<Class>(protocol, n)`. Raises UsageError if that gives no rule."""
    path = source.rpartition(":")[0]
    if not path.endswith(".py"):
        raise UsageError(f"selection={source}: a rule of your own is <file>.py:<Class>")
    cls = RULES.load(source)
    try:
        rule = cls.made(protocol, n)
        missing = [name for name, kind in NEEDED.items() if not _has_attribute(rule, name, kind)]
    except (Exception, SystemExit) as error:
        raise UsageError(f"selection={source} can't be used: {type(error).__name__}: {error}") from None
    if cls.steps is Rule.steps and cls.choices is Rule.choices:
        missing.append("steps")
    if missing:
        raise UsageError(
            f"selection={source} is no selection rule: it needs {', '.join(missing)} (text name and label, "
            "oracle True or False, and steps(history, eval_set); docs/selection.md)"
        )
    if rule.name in RULES:
        raise UsageError(f"selection={source}: call it otherwise, '{rule.name}' is one of biasbed's rules")
    return UserRule(source, rule, hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:8])


def _has_attribute(rule: Rule, name: str, kind: type) -> bool:
    """Return True if the rule defines this attribute, with a value of this type."""
    try:
        return isinstance(getattr(rule, name, None), kind)
    except NotImplementedError:  # the base class's property
        return False
