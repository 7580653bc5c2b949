"""Selection rules: which runs count, and which of their epochs stand for them.

A rule is a small frozen object that looks at one run's history and names the steps that count for one evaluation set;
every measure of that set is then the mean over those steps. Of the trials of a search it chooses one, by a value of its
own or by all that the pool tells. A new rule is a subclass of `Rule`: in a file of your own (own.py), or here with a
line in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from biasbed import record
from biasbed.analysis.columns import Column, blocks, headline, unit_of
from biasbed.analysis.selection.pools import Candidate, Choice, History, Pool
from biasbed.errors import Failure, UsageError
from biasbed.measures import MEASURES
from biasbed.registry import Registry

TEST_LABELS = "labels of the test images"
GROUP_LABELS = "groups of the validation images"
CLASS_LABELS = "classes of the validation images"
NO_LABELS = "none"
OF_BIASES = frozenset(name for name, measure in MEASURES.items() if measure.of_biases)


class Rule:
    """Which runs count, and at which steps."""

    name: str  # as `selection=` has it
    oracle: bool  # whether it looks at the evaluation sets: no model could be chosen so in practice
    needs: tuple[str, ...] = ()  # the labels that it looks at, in words, besides those of validation
    validates: ClassVar[bool] = True  # whether it looks at the validation images at all
    in_every_protocol: ClassVar[bool] = False  # whether it makes sense where the protocol doesn't list it
    needs_all: ClassVar[bool] = False  # whether every run that it may look at must be there (completeness.py)
    looks_elsewhere: ClassVar[bool] = False  # among these those of other cells, which hold out one domain more
    alike_on_sets: ClassVar[bool] = False  # whether a run's steps and value are the same whatever the set
    error: ClassVar[str] = "standard_deviation"  # what ± usually is in tables of what it chose (`AnalyzeOptions.error`)

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        """The rule for a protocol, whose `sets` are those that count. n: as `n=` says."""
        return cls(protocol, n)  # type: ignore[call-arg]

    @property
    def labels(self) -> str:
        """All labels that it takes, in words; who has groups has classes too."""
        return " and ".join(self.needs) or (CLASS_LABELS if self.validates else NO_LABELS)

    @property
    def label(self) -> str:
        """The rule in words, for captions; that of an oracle begins with ORACLE."""
        raise NotImplementedError

    def choices(self, pool: Pool) -> Iterable[Choice]:
        """Which run of the pool stands for it on each set, and at which steps.

        Every run for itself; of a search the trial that the rule holds for the best, by `value`.
        """
        chosen: list[tuple[str, tuple[int, ...], float]] = []
        has_value = pool.is_search or self.validates
        for number, entry in enumerate(pool.sets):
            if number == 0 or not self.alike_on_sets:
                standing = (self._best(pool, entry),) if pool.is_search else pool.candidates
                chosen = []
                for candidate in standing:
                    steps = self.steps(candidate.history, entry)
                    value = self.criterion(candidate.history, entry, steps) if has_value and steps else math.nan
                    chosen.append((candidate.run.id, steps, value))
            yield from (Choice(run, entry.name, steps, value) for run, steps, value in chosen)

    def _best(self, pool: Pool, entry: record.SetRecord) -> Candidate:
        """The candidate with the highest value, of several the first."""
        values = {number: self.value(candidate.history, entry) for number, candidate in enumerate(pool.candidates)}
        finite = {number: value for number, value in values.items() if value is not None and math.isfinite(value)}
        if not finite:
            raise Failure(f"selection={self.name}: no trial of {pool.title} has a value to choose it by")
        return pool.candidates[max(finite, key=finite.__getitem__)]

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        """How good a trial is by this rule, where it is to choose one for this set: the higher the better."""
        raise UsageError(f"selection={self.name}: the rule does not say how to choose among the trials of a search")

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        """The steps of a run that count for this evaluation set; empty where the run was never tested on it."""
        raise NotImplementedError

    def criterion(self, history: History, entry: record.SetRecord, steps: Sequence[int]) -> float:
        """Return the value by which these steps were chosen, as it was measured; NaN if it is none of the run's.

        Its unit is that of `monitor` if the rule has such a metric, else the set's.
        """
        metric = getattr(self, "monitor", "")
        curve = history.curve(metric)
        if not metric or any(step not in curve for step in steps):
            return math.nan
        return math.fsum(curve[step] for step in steps) / len(steps)


@dataclass(frozen=True)
class BestValidation(Rule):
    """The epoch with the best monitor; of several the first. The same epoch for every evaluation set."""

    alike_on_sets: ClassVar[bool] = True
    monitor: str
    higher_is_better: bool = True
    name: str = "best_validation"
    oracle: bool = False
    needs: tuple[str, ...] = ()

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        needs = (GROUP_LABELS,) if _is_of_groups(protocol, protocol.monitor) else ()
        return cls(protocol.monitor, protocol.monitor_higher_is_better, needs=needs)

    @property
    def label(self) -> str:
        return f"the epoch with the best {self.monitor}"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(self.monitor), self.higher_is_better)
        if best is None:
            raise Failure(f"run {history.run} has no finite {self.monitor}, so it has no best validation epoch")
        return (best,)

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        return _best_value(history.curve(self.monitor), self.higher_is_better)


class OneMeasure(BestValidation):
    """The epoch with the best value of one measure on the monitor's validation set, whatever the monitor is."""

    measure: ClassVar[str]

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        """UsageError where the monitor is of no set, on which to look at another measure."""
        monitor = record.parse_metric(protocol.monitor)
        if monitor is None or monitor.set is None:
            raise UsageError(f"selection={cls.name}: these runs' monitor, {protocol.monitor}, is of no set")
        return cls(str(record.MetricName(monitor.phase, cls.measure, monitor.set)))


@dataclass(frozen=True)
class ValidationAccuracy(OneMeasure):
    """By accuracy of all validation images, which takes no more labels than their classes."""

    name: str = "validation_accuracy"
    measure: ClassVar[str] = "accuracy"


@dataclass(frozen=True)
class WorstClass(OneMeasure):
    """By the least accuracy of a class, which takes no more labels than classes (Yang et al. 2023)."""

    name: str = "worst_class"
    measure: ClassVar[str] = "worst_class_accuracy"


@dataclass(frozen=True)
class WorstGroup(OneMeasure):
    """By the least accuracy among the groups of one class and one bias (Sagawa et al. 2020)."""

    name: str = "worst_group"
    needs: tuple[str, ...] = (GROUP_LABELS,)
    measure: ClassVar[str] = "worst_group_accuracy"


@dataclass(frozen=True)
class LastN(Rule):
    """The last n epochs at which the set was tested, averaged (Kalischek et al. 2023)."""

    validates: ClassVar[bool] = False
    n: int
    monitor: str = ""  # by which it chooses among trials, at the same epochs
    higher_is_better: bool = True
    name: str = "last_n"
    oracle: bool = False

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(n, protocol.monitor, protocol.monitor_higher_is_better)

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

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        return _monitored(self.monitor, self.higher_is_better, history, self.steps(history, entry))


@dataclass(frozen=True)
class BestEpoch(Rule):
    """Each set's own best epoch, chosen on the set itself: an oracle, an upper bound that no practice can reach."""

    name: str = "best_epoch"
    oracle: bool = True
    needs: tuple[str, ...] = (TEST_LABELS,)
    in_every_protocol: ClassVar[bool] = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls()

    @property
    def label(self) -> str:
        return "ORACLE: each set's own best epoch, chosen on the test images"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(history.curve(headline(entry)), entry.higher_is_better)
        return () if best is None else (best,)

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        return _best_value(history.curve(headline(entry)), entry.higher_is_better)

    def criterion(self, history: History, entry: record.SetRecord, steps: Sequence[int]) -> float:
        return history.curve(headline(entry))[steps[0]]


@dataclass(frozen=True)
class BestEpochPerRun(Rule):
    """One epoch for all sets, that with the best mean over their blocks; of several the first. An oracle too."""

    blocks: tuple[tuple[record.SetRecord, ...], ...]  # of each the columns that count
    name: str = "best_epoch_per_run"
    alike_on_sets: ClassVar[bool] = True
    oracle: bool = True
    needs: tuple[str, ...] = (TEST_LABELS,)
    in_every_protocol: ClassVar[bool] = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        columns = [Column(entry.name, entry, unit=unit_of(protocol, entry)) for entry in protocol.sets]
        counted = list(blocks(columns).values())
        if len({column.unit for same in counted for column in same}) > 1:
            what = " and ".join(sorted({column.headline for same in counted for column in same}))
            raise UsageError(f"selection={cls.name}: {what} have no common mean; choose sets= of one unit")
        return cls(tuple(tuple(column.set_record for column in same) for same in counted))

    @property
    def label(self) -> str:
        return "ORACLE: each run's epoch with the best mean over the test sets, chosen on the test images"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        best = _best_step(self._means(history), higher_is_better=True)
        return () if best is None else (best,)

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        return _best_value(self._means(history), higher_is_better=True)

    def criterion(self, history: History, entry: record.SetRecord, steps: Sequence[int]) -> float:
        """Return the mean over blocks."""
        mean = self._means(history)[steps[0]] / len(self.blocks)
        return mean if self.blocks[0][0].higher_is_better else -mean

    def _means(self, history: History) -> dict[int, float]:
        """Step -> the sum over blocks, turned round where less is better."""
        curves = {entry.name: history.curve(headline(entry)) for same in self.blocks for entry in same}
        common = set.intersection(*map(set, curves.values()))
        tested = [step for step in next(iter(curves.values())) if step in common]
        of_blocks = [_block_values(same, curves, tested) for same in self.blocks]
        return dict(zip(tested, map(math.fsum, zip(*of_blocks, strict=True)), strict=True))


@dataclass(frozen=True)
class Last(Rule):
    """The last epoch at which the set was tested."""

    monitor: str = ""  # by which it chooses among trials, at the same epoch
    higher_is_better: bool = True
    name: str = "last"
    oracle: bool = False
    validates: ClassVar[bool] = False
    in_every_protocol: ClassVar[bool] = True

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(protocol.monitor, protocol.monitor_higher_is_better)

    @property
    def label(self) -> str:
        return "the last epoch"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, entry)

    def value(self, history: History, entry: record.SetRecord) -> float | None:
        return _monitored(self.monitor, self.higher_is_better, history, self.steps(history, entry))


# biasbed's own; a user's is `<file>.py:<Class>` (own.py).
RULES = Registry(
    "selection",
    {
        "best_validation": "biasbed.analysis.selection.rules:BestValidation",
        "validation_accuracy": "biasbed.analysis.selection.rules:ValidationAccuracy",
        "worst_class": "biasbed.analysis.selection.rules:WorstClass",
        "worst_group": "biasbed.analysis.selection.rules:WorstGroup",
        "last_n": "biasbed.analysis.selection.rules:LastN",
        "last": "biasbed.analysis.selection.rules:Last",
        "best_epoch": "biasbed.analysis.selection.rules:BestEpoch",
        "best_epoch_per_run": "biasbed.analysis.selection.rules:BestEpochPerRun",
        "training_domain_validation": "biasbed.analysis.selection.domain_rules:TrainingDomainValidation",
        "leave_one_domain_out": "biasbed.analysis.selection.domain_rules:LeaveOneDomainOut",
        "test_domain_oracle": "biasbed.analysis.selection.domain_rules:DomainOracle",
    },
    base="biasbed.analysis.selection.rules:Rule",
    kind="rule",
)
PRINTED = record.Protocol("", (), (), (), monitor="validation score")  # as far as papers say


class AsPublished(Rule):
    """Numbers that were published with a rule applied: there is one value per run and set, and it is taken."""

    def __init__(self, name: str, n: int = 0) -> None:
        """name: empty where the paper names no rule; n: as the numbers were published with, if their rule has one."""
        self.rule = RULES.load(name).made(PRINTED, n) if name in RULES else None
        self.name, self.oracle = name or "as_published", self.rule is not None and self.rule.oracle
        self.error = Rule.error if self.rule is None else self.rule.error  # type: ignore[misc]

    @property
    def label(self) -> str:
        return "as published" if self.rule is None else f"as published: {self.rule.label}"

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, entry)


class AsTested(Rule):
    """Models that are only tested: there is one value for each set, and it is taken."""

    name, label, oracle = "as_tested", "as tested", False

    def steps(self, history: History, entry: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, entry)


def last_step(history: History, entry: record.SetRecord) -> tuple[int, ...]:
    """The last step at which the set was tested; of published numbers the only one."""
    return tuple(history.curve(headline(entry)))[-1:]


def _best_step(curve: Mapping[int, float], higher_is_better: bool) -> int | None:
    """The step of the best finite value, of several the first; None without one."""
    finite = {step: value for step, value in curve.items() if record.is_finite(value)}
    best = max if higher_is_better else min
    return best(finite, key=finite.__getitem__, default=None)  # max and min return the first of equal values


def _is_of_groups(protocol: record.Protocol, metric: str) -> bool:
    """Whether a metric is one of a group of images or takes their bias labels, or is derived of such."""
    name, derived = record.parse_metric(metric), protocol.derivation(metric)
    if name is not None and (name.group is not None or name.measure in OF_BIASES):
        return True
    return derived is not None and any(_is_of_groups(protocol, source) for source in derived.inputs)


def _block_values(
    block: Sequence[record.SetRecord], curves: Mapping[str, Mapping[int, float]], steps: Sequence[int]
) -> list[float]:
    """The mean of its columns at each of the steps, turned round where less is better."""
    size = len(block) if block[0].higher_is_better else -len(block)
    of_columns = [[curves[entry.name][step] for step in steps] for entry in block]
    return [math.fsum(values) / size for values in zip(*of_columns, strict=True)]


def _best_value(curve: Mapping[int, float], higher_is_better: bool) -> float | None:
    """The best finite value, turned round where less is better; None without one."""
    step = _best_step(curve, higher_is_better)
    return None if step is None else curve[step] if higher_is_better else -curve[step]


def _monitored(monitor: str, higher_is_better: bool, history: History, steps: Sequence[int]) -> float | None:
    """The monitor's mean over the steps, turned round where less is better; None where it has no value at one."""
    curve = history.curve(monitor)
    if not steps or any(step not in curve for step in steps):
        return None
    mean = math.fsum(curve[step] for step in steps) / len(steps)
    return mean if higher_is_better else -mean
