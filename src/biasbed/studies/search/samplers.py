"""Samplers and pruners by name. Draws are keyed by a trial's place, so that a search that was cut goes on the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optuna import pruners, samplers
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from biasbed import record

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STARTUP = 10  # trials that are drawn at random before a model of the others is worth anything
PRUNE_AFTER = 5  # trials that end by themselves before any is pruned (Optuna's default)


class Keyed(BaseSampler):
    """A sampler made anew for each trial, with a seed of the search's seed and the trial's place.

    Optuna's samplers draw from one stream, which a resumed search would begin again, with the same parameters.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int, place: Callable[[FrozenTrial], int]) -> None:
        """place: of a trial in its search."""
        self.make, self.seed, self.place = make, seed, place
        self.inner = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.inner = self.make(int(record.digest([self.seed, self.place(trial)]), 16) % 2**32)
        self.inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


def make_sampler(name: str, seed: int, is_conditional: bool, place: Callable[[FrozenTrial], int]) -> BaseSampler:
    """The sampler of this name."""

    def make(key: int) -> BaseSampler:
        if name == "tpe":
            # Running trials count as bad ones, so that not all try the same at once; parameters are drawn jointly.
            return samplers.TPESampler(
                n_startup_trials=STARTUP, multivariate=True, group=is_conditional, constant_liar=True, seed=key
            )
        if name == "gp":
            return samplers.GPSampler(seed=key, n_startup_trials=STARTUP)
        if name == "qmc":  # one sequence, of which each trial takes the next point
            first = samplers.RandomSampler(seed=key)
            return samplers.QMCSampler(
                scramble=True, seed=seed, independent_sampler=first, warn_independent_sampling=False
            )
        if name == "brute_force":
            return samplers.BruteForceSampler(seed=key, avoid_premature_stop=True)
        return samplers.RandomSampler(seed=key)

    return Keyed(make, seed, place)


def make_pruner(name: str, total: int, cadence: int) -> BasePruner:
    """The pruner of this name, for trainings of `total` epochs (or steps) that are evaluated every `cadence`."""
    if name == "median":
        return pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=total // 5, interval_steps=cadence)
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=cadence, max_resource=total, reduction_factor=3)
    if name == "successive_halving":
        return pruners.SuccessiveHalvingPruner(min_resource=cadence, reduction_factor=3)
    return pruners.NopPruner()
