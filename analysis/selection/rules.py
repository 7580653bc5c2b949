"""Selection rules: which runs count, and which of their epochs stand for them.

A rule is a small frozen object that looks at one run's history and names the steps that count for one evaluation set;
every measure of that set is then the mean over those steps. It may also choose among an algorithm's runs. A new rule is
a subclass of `Rule`: in a file of your own (own.py), or here with a line in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from biasbed import record
from biasbed.analysis.runs.run import Run
from biasbed.errors import Failure, UsageError
from biasbed.registry import Registry


class History:
    """One run's curves: every metric's values by step, in the order of steps."""

    def __init__(self, run: str, rows: Iterable[tuple[str, int, float]], is_published: bool = False) -> None:
        """rows: metric, step, value; one for each metric and step. run: the run's name in messages.

        is_published: a rule was applied already, and what it gave is all there is.
        """
        self.run, self.is_published = run, is_published
        self._curves: dict[str, dict[int, float]] = {}
        for metric, step, value in sorted(rows):
            self._curves.setdefault(metric, {})[step] = value

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._curves)

    def curve(self, metric: record.MetricName | str) -> Mapping[int, float]:
        """Values by step, in the order of steps, finite or not; empty where the run has no such metric."""
        return self._curves.get(str(metric), {})


@dataclass(frozen=True)
class Candidate:
    """A run that a rule may choose."""

    run: Run
    history: History


class Rule:
    """Which runs of an algorithm count, and at which steps."""

    name: str  # as `selection=` has it
    oracle: bool  # whether it looks at the evaluation sets: no model could be chosen so in practice
    in_every_protocol: ClassVar[bool] = False  # whether it makes sense where the protocol doesn't list it

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        """The rule for a protocol, whose `sets` are those that count. n: as `n=` says."""
        return cls(protocol, n)  # type: ignore[call-arg]

    @property
    def label(self) -> str:
        """The rule in words, for captions; that of an oracle begins with ORACLE."""
        raise NotImplementedError

    def choose(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those of one algorithm's runs that count: all, but for rules that choose hyper-parameters too."""
        return candidates

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        """The steps of a run that count for this evaluation set; empty where the run was never tested on it."""
        raise NotImplementedError


@dataclass(frozen=True)
class BestValidation(Rule):
    """The epoch with the best monitor; of several the first. The same epoch for every evaluation set."""

    monitor: str
    higher_is_better: bool = True
    name: str = "best_validation"
    oracle: bool = False

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(protocol.monitor, protocol.monitor_higher_is_better)

    @property
    def label(self) -> str:
        return f"the epoch with the best {self.monitor}"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(self.monitor), self.higher_is_better)
        if best is None:
            raise Failure(f"run {history.run} has no finite {self.monitor}, so it has no best validation epoch")
        return (best,)


@dataclass(frozen=True)
class LastN(Rule):
    """The last n epochs at which the set was tested, averaged (Kalischek et al. 2023)."""

    n: int
    name: str = "last_n"
    oracle: bool = False

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(n)

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
class BestEpoch(Rule):
    """Each set's own best epoch, chosen on the set itself: an oracle, an upper bound that no practice can reach."""

    name: str = "best_epoch"
    oracle: bool = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls()

    @property
    def label(self) -> str:
        return "ORACLE: each set's own best epoch, chosen on the test images"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(headline(entry)), entry.higher_is_better)
        return () if best is None else (best,)


@dataclass(frozen=True)
class BestEpochPerRun(Rule):
    """One epoch for all sets, that with the best mean over them; of several the first. An oracle too."""

    sets: tuple[record.SetRecord, ...]
    name: str = "best_epoch_per_run"
    oracle: bool = True
    in_every_protocol: ClassVar[bool] = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(protocol.sets)

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
class Last(Rule):
    """The last epoch at which the set was tested."""

    name: str = "last"
    oracle: bool = False
    in_every_protocol: ClassVar[bool] = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls()

    @property
    def label(self) -> str:
        return "the last epoch"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, entry)


# biasbed's own; a user's is `<file>.py:<Class>` (own.py).
RULES = Registry(
    "selection",
    {
        "best_validation": "biasbed.analysis.selection.rules:BestValidation",
        "last_n": "biasbed.analysis.selection.rules:LastN",
        "last": "biasbed.analysis.selection.rules:Last",
        "best_epoch": "biasbed.analysis.selection.rules:BestEpoch",
        "best_epoch_per_run": "biasbed.analysis.selection.rules:BestEpochPerRun",
    },
    base="biasbed.analysis.selection.rules:Rule",
    kind="rule",
)
PRINTED = record.Protocol("", (), (), (), monitor="validation score")  # as far as papers say


class AsPublished(Rule):
    """Numbers that were published with a rule applied: there is one value per run and set, and it is taken."""

    def __init__(self, name: str, n: int = 0) -> None:
        """n: as the numbers were published with, if their rule has one."""
        self.rule = RULES.load(name).made(PRINTED, n) if name in RULES else None
        self.name, self.oracle = name, self.rule is not None and self.rule.oracle

    @property
    def label(self) -> str:
        return "as published" if self.rule is None else f"as published: {self.rule.label}"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, entry)


def last_step(history: History, entry: record.SetRecord) -> tuple[int, ...]:
    """The last step at which the set was tested; of published numbers the only one."""
    return tuple(history.curve(headline(entry)))[-1:]


def headline(entry: record.SetRecord) -> record.MetricName:
    """The metric that stands for an evaluation set."""
    return record.MetricName("test", entry.headline, entry.name)


def _best_step(curve: Mapping[int, float], higher_is_better: bool) -> int | None:
    """The step of the best finite value, of several the first; None without one."""
    finite = {step: value for step, value in curve.items() if record.is_finite(value)}
    best = max if higher_is_better else min
    return best(finite, key=finite.__getitem__, default=None)  # max and min return the first of equal values
