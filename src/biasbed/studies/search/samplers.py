"""Samplers and pruners by name. Draws are keyed by a trial's place, so that a search that was cut goes on the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

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
        self.inner = self.make(_key(self.seed, self.place(trial)))
        self.inner.before_trial(drawn(study), trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(drawn(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.inner.sample_relative(drawn(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.inner.sample_independent(drawn(study), trial, param_name, param_distribution)


class ByName(samplers.RandomSampler):
    """Draws every parameter with a seed of its own, of a trial's seed and its name.

    So searches with one seed have equal draws of what they share, whatever else is in their spaces and in any order:
    common random numbers for what is compared, methods and cells.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        own = samplers.RandomSampler(_key(self.seed, param_name))
        return own.sample_independent(study, trial, param_name, param_distribution)


def _key(*parts: int | str) -> int:
    """A seed that depends on all of these."""
    return int(record.digest(list(parts)), 16) % 2**32


class _Drawn:
    """A study, or its storage, without the trials that ended and have no parameters."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.whole, name)
        if name in ("get_trials", "_get_trials", "get_all_trials"):
            return lambda *given, **named: [t for t in found(*given, **named) if t.params or not t.state.is_finished()]
        return _Drawn(found) if name == "_storage" else found


def drawn(study: Study) -> Study:
    """The study as samplers see it: what was not drawn, as a default that lies outside of the space, is not there.

    From a trial without parameters Optuna's samplers conclude that the space is empty.
    """
    return cast("Study", _Drawn(study))


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
        return ByName(key)

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
