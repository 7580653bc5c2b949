"""Selection rules: the runs that count, and the epochs whose results they are judged by.

A rule reads one run's history and returns the steps that count for one evaluation set; every measure of that set is
then the mean over those steps. Among the trials of a search it also chooses one: the trial with the highest `value`, or
by anything that the pool contains (`choices`). To add a rule, subclass `Rule` in a file of your own, or here with a
line in `RULES`.

Answers: How is an epoch chosen?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from biasbed import record
from biasbed.analysis.columns import Column, blocks, headline, unit_of
from biasbed.analysis.selection.pools import Candidate, Choice, History, Pool
from biasbed.errors import Failure, UsageError
from biasbed.measures import find_measure
from biasbed.registry import Registry

TEST_LABELS = "labels of the test images"
GROUP_LABELS = "groups of the validation images"
CLASS_LABELS = "classes of the validation images"
NO_LABELS = "none"


class Rule:
    """Base class of selection rules. A subclass overrides `steps`, and `value` if it can choose among trials."""

    name: str  # value of `selection=`
    label: str  # description for captions; an oracle's begins with ORACLE
    oracle: bool  # True if it reads the evaluation sets: no model could be chosen so in practice
    needs: tuple[str, ...] = ()  # labels that it reads, in words, besides those of validation
    monitor: str = ""  # metric that it chooses by; empty: each set's own
    validates: bool = True  # False if it ignores the validation images
    in_every_protocol: bool = False  # True if it is valid in protocols that don't list it
    needs_all: bool = False  # True if every run that it may read must exist (completeness.py)
    looks_elsewhere: bool = False  # True if it reads runs of other cells, which hold out one more domain
    alike_on_sets: bool = False  # True if a run's steps and value are the same for all sets
    error: str = "standard_deviation"  # default meaning of ± in its tables (`AnalyzeOptions.error`)

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        """Make the rule for a protocol whose `sets` are those that count. n: value of the option `n=`."""

    @property
    def labels(self) -> str:
        """Labels that the rule reads, in words; groups imply classes."""
        if self.needs:
            return " and ".join(self.needs)
        return CLASS_LABELS if self.validates else NO_LABELS

    def choices(self, pool: Pool) -> Iterable[Choice]:
        """Yield the runs and steps that represent the pool on each of its sets.

        Every run represents itself; a search is represented by the trial with the highest `value`.
        """
        choices: list[Choice] = []
        for eval_set in pool.sets:
            if choices and self.alike_on_sets:
                choices = [choice._replace(set=eval_set.name) for choice in choices]
            else:
                representatives = (self._best(pool, eval_set),) if pool.is_search else pool.candidates
                choices = [self._choose_steps(pool, candidate, eval_set) for candidate in representatives]
            yield from choices

    def _choose_steps(self, pool: Pool, candidate: Candidate, eval_set: record.SetRecord) -> Choice:
        """Return the steps of a run that count for a set, with the value by which they or the trial were chosen."""
        steps = self.steps(candidate.history, eval_set)
        value = math.nan
        if steps and (pool.is_search or self.validates):
            value = self.criterion(candidate.history, eval_set, steps)
        return Choice(candidate.run.id, eval_set.name, steps, value)

    def _best(self, pool: Pool, eval_set: record.SetRecord) -> Candidate:
        """Return the candidate with the highest finite value, the first of equals. Raises Failure if there is none."""
        best, highest = None, -math.inf
        for candidate in pool.candidates:
            value = self.value(candidate.history, eval_set)
            if value is not None and math.isfinite(value) and value > highest:
                best, highest = candidate, value
        if best is None:
            raise Failure(f"selection={self.name}: no trial of {pool.title} has a value to choose it by")
        return best

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        """Return the number by which the rule ranks trials for this set, higher is better; None if it has none."""
        raise UsageError(f"selection={self.name}: the rule does not say how to choose among the trials of a search")

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        """Return the steps of a run that count for this evaluation set; empty if it was never tested on it."""
        raise NotImplementedError

    def criterion(self, history: History, eval_set: record.SetRecord, steps: Sequence[int]) -> float:
        """Return the value by which these steps were chosen, for tables: as it was measured, NaN if it is not a metric.

        Its unit is that of the monitor if the rule has one, else the set's.
        """
        return history.mean(self.monitor, steps)


class MonitorRule(Rule):
    """Base class of rules that choose by the protocol's monitor."""

    oracle = False

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        self.monitor, self.higher_is_better = protocol.monitor, protocol.monitor_higher_is_better

    def monitored(self, history: History, steps: Sequence[int]) -> float:
        """Return the monitor's mean over the steps, negated if lower is better; NaN if a step has no value."""
        if not steps:
            return math.nan
        mean = history.mean(self.monitor, steps)
        return mean if self.higher_is_better else -mean


class BestValidation(MonitorRule):
    """Epoch with the best monitor, the first of equals; the same for every evaluation set."""

    name = "best_validation"
    alike_on_sets = True

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        super().__init__(protocol, n)
        self.label = f"the epoch with the best {self.monitor}"
        if _is_of_groups(protocol, self.monitor):
            self.needs = (GROUP_LABELS,)

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        best = _best_steps(history.curve(self.monitor), self.higher_is_better)
        if not best:
            raise Failure(f"run {history.run} has no finite {self.monitor}, so it has no best validation epoch")
        return best

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        return _best_value(history.curve(self.monitor), self.higher_is_better)


class OneMeasure(BestValidation):
    """Epoch with the best value of one measure on the monitor's validation set, whatever the monitor is."""

    measure: str

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        """Make the rule. Raises UsageError if the monitor belongs to no set."""
        monitor = record.parse_metric(protocol.monitor)
        if monitor is None or monitor.set is None:
            raise UsageError(f"selection={self.name}: these runs' monitor, {protocol.monitor}, is of no set")
        self.monitor = str(record.MetricName(monitor.phase, self.measure, monitor.set))
        self.higher_is_better = True
        self.label = f"the epoch with the best {self.monitor}"


class ValidationAccuracy(OneMeasure):
    """Epoch with the best accuracy on all validation images; it needs class labels only."""

    name = "validation_accuracy"
    measure = "accuracy"


class WorstClass(OneMeasure):
    """Epoch with the best worst-class accuracy; it needs class labels only (Yang et al. 2023)."""

    name = "worst_class"
    measure = "worst_class_accuracy"


class WorstGroup(OneMeasure):
    """Epoch with the best worst-group accuracy, over groups of one class and one bias (Sagawa et al. 2020)."""

    name = "worst_group"
    needs = (GROUP_LABELS,)
    measure = "worst_group_accuracy"


class LastN(MonitorRule):
    """Mean over the last n epochs at which the set was tested (Kalischek et al. 2023).

    Among trials it chooses by the monitor at these epochs.
    """

    name = "last_n"
    validates = False

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        super().__init__(protocol, n)
        self.n, self.label = n, f"the mean over the last {n} epochs"

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        curve = history.curve(headline(eval_set))
        if 0 < len(curve) < self.n:
            raise UsageError(
                f"n={self.n}: run {history.run} was tested on {eval_set.name} at {len(curve)} epochs only; "
                f"choose n of at most {len(curve)}"
            )
        return tuple(curve)[-self.n :]

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        return self.monitored(history, self.steps(history, eval_set))


class BestEpoch(Rule):
    """Best epoch of each set, chosen on the set itself: an oracle, which gives an upper bound."""

    name = "best_epoch"
    label = "ORACLE: each set's own best epoch, chosen on the test images"
    oracle = True
    needs = (TEST_LABELS,)
    in_every_protocol = True

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        return _best_steps(history.curve(headline(eval_set)), eval_set.higher_is_better)

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        return _best_value(history.curve(headline(eval_set)), eval_set.higher_is_better)

    def criterion(self, history: History, eval_set: record.SetRecord, steps: Sequence[int]) -> float:
        return history.curve(headline(eval_set))[steps[0]]


class BestEpochPerRun(Rule):
    """Epoch with the best mean over the test sets' blocks, the first of equals, for all sets. An oracle too."""

    name = "best_epoch_per_run"
    label = "ORACLE: each run's epoch with the best mean over the test sets, chosen on the test images"
    alike_on_sets = True
    oracle = True
    needs = (TEST_LABELS,)
    in_every_protocol = True

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        columns = [Column(eval_set.name, eval_set, unit=unit_of(protocol, eval_set)) for eval_set in protocol.sets]
        counted = blocks(columns).values()
        self.blocks = tuple(tuple(column.set_record for column in block) for block in counted)
        if len({column.unit for column in itertools.chain.from_iterable(counted)}) > 1:
            names = " and ".join(sorted({eval_set.headline for eval_set in itertools.chain.from_iterable(self.blocks)}))
            raise UsageError(f"selection={self.name}: {names} have no common mean; choose sets= of one unit")

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        return _best_steps(self._sum_blocks(history), higher_is_better=True)

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        return _best_value(self._sum_blocks(history), higher_is_better=True)

    def criterion(self, history: History, eval_set: record.SetRecord, steps: Sequence[int]) -> float:
        """Return the mean over blocks at the chosen step, as measured."""
        mean = self._sum_blocks(history)[steps[0]] / len(self.blocks)
        return mean if self.blocks[0][0].higher_is_better else -mean

    def _sum_blocks(self, history: History) -> dict[int, float]:
        """Return the sum of the blocks' means at each step with all sets; blocks are negated if lower is better."""
        metrics = [headline(eval_set) for eval_set in itertools.chain.from_iterable(self.blocks)]
        steps = sorted(set(history.curve(metrics[0])).intersection(*map(history.curve, metrics)))
        means = []
        for block in self.blocks:
            divisor = len(block) if block[0].higher_is_better else -len(block)
            curves = [history.values(headline(eval_set), steps) for eval_set in block]
            totals = curves[0] if len(block) == 1 else map(math.fsum, zip(*curves, strict=True))
            means.append([total / divisor for total in totals])
        return dict(zip(steps, map(math.fsum, zip(*means, strict=True)), strict=True))


class Last(MonitorRule):
    """Last epoch at which the set was tested. Among trials it chooses by the monitor at this epoch."""

    name = "last"
    label = "the last epoch"
    validates = False
    in_every_protocol = True

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, eval_set)

    def value(self, history: History, eval_set: record.SetRecord) -> float | None:
        return self.monitored(history, self.steps(history, eval_set))


# Rules of biasbed; a user's rule is `<file>.py:<Class>` (docs/selection.md).
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
PRINTED = record.Protocol("", (), (), (), monitor="validation score")  # stands for a paper's protocol in labels


class AsPublished(Rule):
    """Published numbers, to which a rule was applied already: there is one value per run and set."""

    oracle = False

    def __init__(self, name: str, n: int = 0) -> None:
        """name: empty if the paper names no rule. n: the value that the numbers were published with, if any."""
        self.name, self.label = name or "as_published", "as published"
        if name in RULES:
            rule: Rule = RULES.load(name)(PRINTED, n)
            self.label += f": {rule.label}"
            self.oracle, self.error = rule.oracle, rule.error

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, eval_set)


class AsTested(Rule):
    """Models that are only tested: there is one value per set."""

    name, label, oracle = "as_tested", "as tested", False

    def __init__(self) -> None:
        """Make the rule, whatever the protocol."""

    def steps(self, history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
        return last_step(history, eval_set)


class AsScored(AsTested):
    """Scores from a user's table: there is one value per line."""

    name, label = "as_scored", "as the table has it"


SETTLED_RULES = (AsTested.name, AsScored.name)  # rules that leave nothing to choose, so that no other can be tried


def last_step(history: History, eval_set: record.SetRecord) -> tuple[int, ...]:
    """Return the last step at which the set was tested; empty if it never was."""
    return tuple(history.curve(headline(eval_set)))[-1:]


def _best_steps(curve: Mapping[int, float], higher_is_better: bool) -> tuple[int, ...]:
    """Return a tuple with the step of the best finite value, the first of equals; empty without a finite value."""
    finite = curve
    if not record.is_finite(sum(map(abs, curve.values()))):  # one look at many curves that are finite throughout
        finite = {step: value for step, value in curve.items() if record.is_finite(value)}
    if not finite:
        return ()
    best = max if higher_is_better else min
    return (best(finite, key=finite.__getitem__),)


def _is_of_groups(protocol: record.Protocol, metric: str) -> bool:
    """Return True if a metric is about a group of images, needs bias labels, or is derived from such a metric."""
    name, derived = record.parse_metric(metric), protocol.derivation(metric)
    if name is not None and (name.group is not None or find_measure(name.measure).of_biases):
        return True
    return derived is not None and any(_is_of_groups(protocol, source) for source in derived.inputs)


def _best_value(curve: Mapping[int, float], higher_is_better: bool) -> float | None:
    """Return the best finite value, negated if lower is better; None without one."""
    sign = 1 if higher_is_better else -1
    return next((sign * curve[step] for step in _best_steps(curve, higher_is_better)), None)
