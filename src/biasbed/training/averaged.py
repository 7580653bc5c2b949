"""Weight averages of a training, and the validation loss that SWAD watches."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from statistics import fmean

from biasbed.algorithms.base import Algorithm
from biasbed.compute.average import Average
from biasbed.compute.mean_weights import EMA, SMA, SWAD
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import MEASURES
from biasbed.evaluation.evaluator import Evaluator
from biasbed.suites.sets import EvaluationSet
from biasbed.training.engine import Engine
from biasbed.training.job import Job, monitored_sets


def validation_loss(algorithm: Algorithm, evaluator: Evaluator, sets: Sequence[EvaluationSet]) -> float:
    """Return the mean over sets of each set's mean loss, of the weights that the algorithm has now; on every rank."""
    group = evaluator.group
    group.share_buffers(algorithm)
    algorithm.eval()
    decisions = evaluator.decide(algorithm.predict, sets=sets)
    algorithm.train()
    mean = None
    if decisions is not None:
        mean = fmean(MEASURES["loss"](of_set) for of_set in decisions.values())
    return float(group.share_object(mean))


def make_average(job: Job, algorithm: Algorithm, evaluator: Evaluator) -> Average:
    """Make the average that the settings ask for. evaluator: decides on all sets."""
    config, group = job.config, evaluator.group
    if config.average == "sma":
        return SMA(algorithm, group, config.average_from)
    if config.average == "ema":
        return EMA(algorithm, group, config.average_from, config.ema)
    watched_loss = functools.partial(validation_loss, algorithm, evaluator, watched_sets(job))
    return SWAD(algorithm, group, config.swad, watched_loss)


def watched_sets(job: Job) -> list[EvaluationSet]:
    """Return the validation sets behind the monitor. Raises UsageError if there are none, or one has no loss."""
    sets = monitored_sets(job)
    without_loss = [evaluation_set.name for evaluation_set in sets if not evaluation_set.label_map.is_logits]
    if without_loss or not sets:
        name = without_loss[0] if without_loss else job.suite.monitor
        raise UsageError(f"average=swad watches the validation loss, and '{name}' has none")
    return sets


def refuse_too_short(engine: Engine) -> None:
    """Raise UsageError for a training that ends before anything could be averaged."""
    config = engine.config
    evaluations, total = engine.count_evaluations()
    needed = config.swad.optimum_patience
    if config.average in ("sma", "ema") and total <= config.average_from:
        raise UsageError(f"average_from={config.average_from}: the training has {total} steps")
    if config.average == "swad" and evaluations < needed:
        raise UsageError(
            f"average=swad finds its start after swad.optimum_patience={needed} evaluations, and there are "
            f"{evaluations}: lower evaluate_every"
        )
