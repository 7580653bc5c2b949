"""Selection rules: which epochs of a run stand for it.

A rule is a small frozen object that looks at one run's history and names the steps that count for one evaluation set;
every measure of that set is then the mean over those steps. A new rule is a class with `name`, `label`, `oracle` and
`steps`: in a file of your own (own.py; there it may choose among runs too), or here with a line in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol as Interface

from biasbed import record
from biasbed.errors import Failure, UsageError


class History:
    """One run's curves: every metric's values by step, in the order of steps."""

    def __init__(self, run: str, rows: Iterable[tuple[str, int, float]]) -> None:
        """rows: metric, step, value; one for each metric and step. run: the run's name in messages."""
        self.run = run
        self._curves: dict[str, dict[int, float]] = {}
        for metric, step, value in sorted(rows):
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
        """One of `RULES`, or the name of your own."""

    @property
    def label(self) -> str:
        """The rule in words, for captions; that of an oracle begins with ORACLE."""

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
class BestEpochPerRun:
    """One epoch for all sets, that with the best mean over them; of several the first. An oracle too."""

    sets: tuple[record.SetRecord, ...]
    name: str = "best_epoch_per_run"
    oracle: bool = True

    def __post_init__(self) -> None:
        units = sorted({entry.headline for entry in self.sets})
        if len({entry.headline == "loss" for entry in self.sets}) > 1:
            raise UsageError(
                f"selection={self.name}: {' and '.join(units)} have no common mean; choose sets= of one unit"
            )

    @property
    def label(self) -> str:
        return "ORACLE: each run's epoch with the best mean over the test sets, chosen on the test images"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        curves = [(history.curve(headline(other)), 1 if other.higher_is_better else -1) for other in self.sets]
        tested = [step for step in curves[0][0] if all(step in curve for curve, _ in curves)]
        means = {step: math.fsum(sign * curve[step] for curve, sign in curves) for step in tested}
        best = _best_step(means, higher_is_better=True)
        return () if best is None else (best,)


@dataclass(frozen=True)
class Last:
    """The last epoch at which the set was tested."""

    name: str = "last"
    oracle: bool = False

    @property
    def label(self) -> str:
        return "the last epoch"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return tuple(history.curve(headline(entry)))[-1:]


@dataclass(frozen=True)
class AsPublished:
    """Numbers that were published with a rule applied: there is one value per run and set, and it is taken."""

    name: str
    n: int = 0

    @property
    def oracle(self) -> bool:
        return self.name in ORACLES

    @property
    def label(self) -> str:
        rules: Mapping[str, Rule] = {
            "best_validation": BestValidation("validation score"),
            "last_n": LastN(self.n),
            "best_epoch": BestEpoch(),
            "best_epoch_per_run": BestEpochPerRun(()),
            "last": Last(),
        }
        return f"as published: {rules[self.name].label}" if self.name in rules else "as published"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return tuple(history.curve(headline(entry)))[-1:]


RULES: Mapping[str, Callable[[record.Protocol, int], Rule]] = {
    "best_validation": lambda protocol, n: BestValidation(protocol.monitor, protocol.monitor_higher_is_better),
    "last_n": lambda protocol, n: LastN(n),
    "last": lambda protocol, n: Last(),
    "best_epoch": lambda protocol, n: BestEpoch(),
    "best_epoch_per_run": lambda protocol, n: BestEpochPerRun(protocol.sets),
}
ORACLES = ("best_epoch", "best_epoch_per_run")
NEED_NO_CONSENT = ("last", "best_epoch_per_run")  # make sense in every protocol; the others if it lists them


def headline(entry: record.SetRecord) -> record.MetricName:
    """The metric that stands for an evaluation set."""
    return record.MetricName("test", entry.headline, entry.name)


def _best_step(curve: Mapping[int, float], higher_is_better: bool) -> int | None:
    """The step of the best finite value, of several the first; None without one."""
    finite = {step: value for step, value in curve.items() if record.is_finite(value)}
    best = max if higher_is_better else min
    return best(finite, key=finite.__getitem__, default=None)  # max and min return the first of equal values
