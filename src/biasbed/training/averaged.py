"""The average that a training is asked for, and the validation loss that one of its kinds watches."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from biasbed import record
from biasbed.algorithms.base import Algorithm
from biasbed.compute.average import SMA, SWAD, Average
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import MEASURES
from biasbed.evaluation.evaluator import Evaluator
from biasbed.suites.sets import EvaluationSet
from biasbed.training.engine import Engine
from biasbed.training.job import Job


class LiveLoss:
    """The mean over some sets of the mean loss of each, of whatever weights an algorithm has."""

    def __init__(self, algorithm: Algorithm, evaluator: Evaluator, sets: Sequence[EvaluationSet]) -> None:
        self.algorithm, self.evaluator, self.sets, self.group = algorithm, evaluator, sets, evaluator.group

    def loss(self) -> float:
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        found = self.evaluator.decide(self.algorithm.predict, sets=self.sets)
        self.algorithm.train()
        mean = None if found is None else fmean(MEASURES["loss"](decisions) for decisions in found.values())
        return float(self.group.share_object(mean))


def make_average(job: Job, algorithm: Algorithm, tested: Evaluator) -> Average:
    """As configured. tested: what decides on all sets."""
    config, group = job.config, tested.group
    if config.average == "none":
        return Average(algorithm, group)
    if config.average == "sma":
        return SMA(algorithm, group, config.average_from)
    return SWAD(algorithm, group, config.swad, LiveLoss(algorithm, tested, watched(job)).loss)


def watched(job: Job) -> list[EvaluationSet]:
    """The validation sets that the monitor comes from; UsageError where one of them has no loss."""
    metrics = map(record.parse_metric, _measured(job, job.suite.monitor))
    wanted = {metric.set for metric in metrics if metric is not None}
    found = [entry for entry in job.suite.validating if entry.name in wanted]
    without = next((entry.name for entry in found if not entry.label_map.is_logits), None)
    if without is not None or not found:
        raise UsageError(f"average=swad watches the validation loss, and '{without or job.suite.monitor}' has none")
    return found


def _measured(job: Job, metric: str) -> list[str]:
    """What a metric is derived of in the end; itself where it is measured."""
    derived = job.protocol.derivation(metric)
    if derived is None:
        return [metric]
    return [name for entry in derived.inputs_without(job.suite.test_domains) for name in _measured(job, entry)]


def refuse_too_short(engine: Engine) -> None:
    """UsageError for a training that ends before anything could be averaged."""
    config = engine.config
    plan, total = engine.reader.last(engine.phases)
    if config.average == "sma" and total <= config.average_from:
        raise UsageError(f"average_from={config.average_from}: the training has {total} steps")
    interval = config.cadence * (plan.steps_per_epoch if config.unit == "epoch" else 1)
    evaluations, needed = -(-total // interval), config.swad.optimum_patience
    if config.average == "swad" and evaluations < needed:
        raise UsageError(
            f"average=swad finds its start after swad.optimum_patience={needed} evaluations, and there are "
            f"{evaluations}: lower evaluate_every"
        )
