"""Selection rules: which epochs of a run stand for it.

A rule is a small frozen object that looks at one run's history and names the steps that count for one evaluation set;
every measure of that set is then the mean over those steps. A new rule is a class with `name`, `label`, `oracle` and
`steps`, and a line in `make_rule`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import pandas as pd

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest


class History:
    """One run's curves: every metric's values by step, in the order of steps."""

    def __init__(self, run: str, rows: Iterable[tuple[str, int, float]]) -> None:
        """rows: metric, step, value; one for each metric and step. run: the run's name in messages."""
        self.run = run
        self._curves: dict[str, dict[int, float]] = {}
        for metric, step, value in sorted(rows, key=lambda row: row[:2]):
            self._curves.setdefault(metric, {})[step] = value

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._curves)

    def curve(self, metric: record.MetricName | str) -> Mapping[int, float]:
        """Values by step, in the order of steps, finite or not; empty where the run has no such metric."""
        return self._curves.get(str(metric), {})


class Rule(Interface):
    """What every selection rule offers."""

    @property
    def name(self) -> str:
        """One of `record.SELECTION_RULES`."""

    @property
    def label(self) -> str:
        """The rule in words, for captions."""

    @property
    def oracle(self) -> bool:
        """Whether the rule looks at the evaluation sets: no model could be chosen so in practice."""

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        """The steps that count for this evaluation set; empty where the run was never tested on it."""


@dataclass(frozen=True)
class BestValidation:
    """The epoch with the best monitor; of several the first. The same epoch for every evaluation set."""

    monitor: str
    higher_is_better: bool = True
    name: str = "best_validation"
    oracle: bool = False

    @property
    def label(self) -> str:
        return f"the epoch with the best {self.monitor}"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(self.monitor), self.higher_is_better)
        if best is None:
            raise Failure(f"run {history.run} has no finite {self.monitor}, so it has no best validation epoch")
        return (best,)


@dataclass(frozen=True)
class LastN:
    """The last n epochs at which the set was tested, averaged (Kalischek et al. 2023)."""

    n: int
    name: str = "last_n"
    oracle: bool = False

    @property
    def label(self) -> str:
        return f"the mean over the last {self.n} epochs"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        curve = history.curve(headline(entry))
        if 0 < len(curve) < self.n:
            raise UsageError(
                f"n={self.n}: run {history.run} was tested on {entry.name} at {len(curve)} epochs only; "
                f"choose n of at most {len(curve)}"
            )
        return tuple(curve)[-self.n :]


@dataclass(frozen=True)
class BestEpoch:
    """Each set's own best epoch, chosen on the set itself: an oracle, an upper bound that no practice can reach."""

    name: str = "best_epoch"
    oracle: bool = True

    @property
    def label(self) -> str:
        return "ORACLE: each set's own best epoch, chosen on the test images"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(headline(entry)), entry.higher_is_better)
        return () if best is None else (best,)


@dataclass(frozen=True)
class AsPublished:
    """Numbers that were published with a rule applied: there is one value per run and set, and it is taken."""

    name: str
    n: int = 0

    @property
    def oracle(self) -> bool:
        return self.name == "best_epoch"

    @property
    def label(self) -> str:
        rules: Mapping[str, Rule] = {
            "best_validation": BestValidation("validation score"),
            "last_n": LastN(self.n),
            "best_epoch": BestEpoch(),
        }
        return f"as published: {rules[self.name].label}" if self.name in rules else "as published"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return tuple(history.curve(headline(entry)))[-1:]


def make_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """The rule that `selection=` names (auto: the protocol's own); UsageError where the protocol does not have it."""
    name = protocol.default_selection if name == "auto" else name
    if name not in protocol.selection_rules:
        raise UsageError(f"selection={name}: this protocol has no such rule{nearest(name, protocol.selection_rules)}")
    rules: Mapping[str, Rule] = {
        "best_validation": BestValidation(protocol.monitor, protocol.monitor_higher_is_better),
        "last_n": LastN(n),
        "best_epoch": BestEpoch(),
    }
    if name not in rules:
        raise UsageError(f"selection={name}: this version of biasbed does not know the rule; valid: {', '.join(rules)}")
    return rules[name]


def headline(entry: record.SetRecord) -> record.MetricName:
    """The metric that stands for an evaluation set."""
    return record.MetricName("test", entry.headline, entry.name)


@dataclass(frozen=True)
class Missing:
    """A run without a usable value for one evaluation set."""

    run_id: str
    dataset: str
    why: str


SELECTED_COLUMNS = ("run_id", "dataset", "measure", "value", "first_step", "last_step", "num_steps", "monitor")


def select(
    rule: Rule, histories: Mapping[str, History], sets: Sequence[record.SetRecord], monitor: str
) -> tuple[pd.DataFrame, list[Missing]]:
    """Every run's values under a rule, tidy, and what is missing.

    One row per run and set: `SELECTED_COLUMNS` (value: mean of the headline measure over the selected steps, in the
    metric's unit; monitor: the monitor's mean over the same steps), then each further measure of any set.
    """
    measures = list(dict.fromkeys(measure for entry in sets for measure in entry.measures))
    rows, missing = [], []
    for run_id, history in histories.items():
        for entry in sets:
            steps = list(rule.steps(history, entry))
            problem = _problem(history.curve(headline(entry)), steps)
            if problem:
                missing.append(Missing(run_id, entry.name, problem))
                continue
            means = [_mean_at(history, record.MetricName("test", measure, entry.name), steps) for measure in measures]
            value = _mean_at(history, headline(entry), steps)
            row = (run_id, entry.name, entry.headline, value, min(steps), max(steps), len(steps))
            rows.append((*row, _mean_at(history, monitor, steps), *means))
    return pd.DataFrame(rows, columns=[*SELECTED_COLUMNS, *measures]), missing


def _best_step(curve: Mapping[int, float], higher_is_better: bool) -> int | None:
    """The step of the best finite value, of several the first; None without one."""
    finite = {step: value for step, value in curve.items() if record.is_finite(value)}
    best = max if higher_is_better else min
    return best(finite, key=finite.__getitem__, default=None)  # max and min return the first of equal values


def _problem(curve: Mapping[int, float], steps: Sequence[int]) -> str:
    """Why the selected steps give no value; empty where they do."""
    if not curve:
        return "never tested"
    if not steps:
        return "no finite value"
    absent = [str(step) for step in steps if step not in curve]
    if absent:
        tested = ", ".join(str(step) for step in list(curve)[:5]) + ", ..." * (len(curve) > 5)
        return f"not tested at step {', '.join(absent)} (tested at {tested})"
    bad = [str(step) for step in steps if not record.is_finite(curve[step])]
    return f"not a finite number at step {', '.join(bad)}" if bad else ""


def _mean_at(history: History, metric: record.MetricName | str, steps: Sequence[int]) -> float:
    """The mean over the steps; NaN where any of them has no value."""
    curve = history.curve(metric)
    return math.fsum(curve.get(step, math.nan) for step in steps) / len(steps)
