"""Samplers by name. Draws are keyed by a trial's number, so that a resumed search draws the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from optuna import samplers
from optuna.samplers import BaseSampler

from biasbed import record

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from biasbed.studies.search.search import Search

STARTUP = 10  # random trials before a model of the others is fitted


class KeyedSampler(BaseSampler):
    """Sampler made anew for each trial, with a seed made of the search's seed and the trial's number.

    Optuna's samplers draw from one stream, which a resumed search would begin again, with the same parameters.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self.make, self.seed = make, seed
        self.inner = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.inner = self.make(_key(self.seed, trial.number))
        self.inner.before_trial(hide_undrawn(study), trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(hide_undrawn(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.inner.sample_relative(hide_undrawn(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.inner.sample_independent(hide_undrawn(study), trial, param_name, param_distribution)


class NamedRandomSampler(samplers.RandomSampler):
    """Random sampler that seeds every parameter by the trial's seed and the parameter's name.

    Searches with the same seed draw equal values of the parameters they share, whatever else their spaces hold and in
    any order: common random numbers for the methods and cells that are compared.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        sampler = samplers.RandomSampler(_key(self.seed, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)


def _key(*parts: int | str) -> int:
    """Return a seed that depends on all parts."""
    return int(record.digest(list(parts)), 16) % 2**32


class _FilteredStudy:
    """Proxy of a study, or of its storage, that shows only some of its trials."""

    def __init__(self, target: Any, keep: Callable[[FrozenTrial], bool]) -> None:
        self.target, self.keep = target, keep

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.target, name)
        if name in ("get_trials", "_get_trials", "get_all_trials"):
            return lambda *args, **kwargs: list(filter(self.keep, attribute(*args, **kwargs)))
        return _FilteredStudy(attribute, self.keep) if name == "_storage" else attribute


def hide_undrawn(study: Study) -> Study:
    """Hide finished trials without parameters, such as a default that lies outside of the space.

    From such a trial Optuna's samplers conclude that the space is empty.
    """
    return cast("Study", _FilteredStudy(study, lambda trial: bool(trial.params) or not trial.state.is_finished()))


def make_sampler(search: Search) -> BaseSampler:
    """Make the sampler of a search."""
    return make_keyed_sampler(search.sampler, search.seed)


def make_keyed_sampler(name: str, seed: int) -> BaseSampler:
    """Make the sampler with this name, keyed by the numbers of trials."""

    def make(key: int) -> BaseSampler:
        if name == "tpe":
            # Running trials count as bad ones, so that not all try the same at once; parameters are drawn jointly.
            return samplers.TPESampler(n_startup_trials=STARTUP, multivariate=True, constant_liar=True, seed=key)
        if name == "brute_force":
            return samplers.BruteForceSampler(seed=key, avoid_premature_stop=True)
        return NamedRandomSampler(key)

    return KeyedSampler(make, seed)
