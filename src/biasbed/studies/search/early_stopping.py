"""Early stopping of trials: each evaluation of a running trial is reported to Optuna, whose pruner may stop it.

Answers: When does a sweep, or a search of `protocol=day`, stop a trial early?
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.studies.runner import Item
from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.tracking.folder import evaluations

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.pruners import BasePruner

PRUNE_AFTER = 5  # trials that end by themselves before any is pruned (Optuna's default)


def make_pruner(name: str, total: int, cadence: int) -> BasePruner:
    """Make the pruner with this name, for trainings of `total` epochs (or steps) evaluated every `cadence`."""
    from optuna import pruners

    if name == "median":
        return pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=total // 5, interval_steps=cadence)
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=cadence, max_resource=total, reduction_factor=3)
    if name == "successive_halving":
        return pruners.SuccessiveHalvingPruner(min_resource=cadence, reduction_factor=3)
    return pruners.NopPruner()


@dataclass(kw_only=True)
class TrialItem(Item):
    """State of a trial that this command trains."""

    search: Search
    trial: Trial
    values: dict[int, float] = field(default_factory=dict)  # of the objective, by epoch or step; all are in the storage
    seen: int = 0  # last epoch or step that was looked at

    def report_evaluations(self) -> None:
        """Report each new evaluation to Optuna, one by one, and stop the trial if its pruner says so.

        Pruning so does not depend on when this is called. The default settings are never pruned: with one worker they
        are the first trial that a pruner sees, but with several workers others may be reported before them.
        """
        for evaluation in evaluations(self.run.folder().read_journal()):
            step, value = int(evaluation["step"]), evaluation["metrics"].get(self.search.metric)
            if step <= self.seen:
                continue
            if value is not None and record.is_finite(value) and step not in self.values:
                self.trial.report(value, step)
                self.values[step] = value
            self.seen = step
            may_prune = step in self.values and step < self.run.total and not self.has_ended
            if may_prune and trials.DEFAULT not in self.trial.user_attrs and self.trial.should_prune():
                self.stop = True
                return
