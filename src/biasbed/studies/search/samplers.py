"""Samplers and pruners by name. Draws are keyed by a trial's place, so that a search that was cut goes on the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from optuna import pruners, samplers
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from biasbed import record
from biasbed.studies.search.stages import IN_ORDER, SearchStage

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from biasbed.studies.search.search import Search

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


class _Seen:
    """A study, or its storage, with some of its trials alone."""

    def __init__(self, whole: Any, keep: Callable[[FrozenTrial], bool]) -> None:
        self.whole, self.keep = whole, keep

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.whole, name)
        if name in ("get_trials", "_get_trials", "get_all_trials"):
            return lambda *given, **named: list(filter(self.keep, found(*given, **named)))
        return _Seen(found, self.keep) if name == "_storage" else found


def drawn(study: Study) -> Study:
    """The study as samplers see it: what was not drawn, as a default that lies outside of the space, is not there.

    From a trial without parameters Optuna's samplers conclude that the space is empty.
    """
    return cast("Study", _Seen(study, lambda trial: bool(trial.params) or not trial.state.is_finished()))


class Staged(BaseSampler):
    """Draws the trials of each stage of a search by a sampler that sees no others: they have other parameters."""

    def __init__(self, parts: Sequence[tuple[SearchStage, BaseSampler]], place: Callable[[FrozenTrial], int]) -> None:
        """parts: the stages in order, and what draws them. place: of a trial in its search."""
        self.parts, self.place = parts, place
        self.stage, self.inner = parts[0]

    def _seen(self, study: Study) -> Study:
        """The stage's trials. Those that are running have a place, but perhaps none that is noted."""
        here = range(self.stage.first, self.stage.end)
        return cast("Study", _Seen(study, lambda trial: self.place(trial) in here))

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        place = self.place(trial)
        self.stage, self.inner = next((part for part in self.parts if place < part[0].end), self.parts[-1])
        self.inner.before_trial(self._seen(study), trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.inner.infer_relative_search_space(self._seen(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.inner.sample_relative(self._seen(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.inner.sample_independent(self._seen(study), trial, param_name, param_distribution)


class PointByPoint(samplers.RandomSampler):
    """Takes the points of a stage as they stand; of several commands none takes another's.

    Optuna's own for finite spaces may draw a point that another trial is just training, and leave one out for that.
    """

    def __init__(self, stage: SearchStage, place: Callable[[FrozenTrial], int]) -> None:
        super().__init__(seed=0)
        self.stage, self.place = stage, place

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.stage.point(self.place(trial))[param_name]


def make_sampler(search: Search, place: Callable[[FrozenTrial], int]) -> BaseSampler:
    """What draws the trials of a search. place: of a trial in it."""

    def of(stage: SearchStage) -> BaseSampler:
        if stage.sampler == IN_ORDER:
            return PointByPoint(stage, place)
        return by_name(stage.sampler, search.seed, stage.space.is_conditional, place)

    parts = [(stage, of(stage)) for stage in search.stages]
    return parts[0][1] if len(parts) == 1 else Staged(parts, place)


def by_name(name: str, seed: int, is_conditional: bool, place: Callable[[FrozenTrial], int]) -> BaseSampler:
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
