"""Samplers and pruners: samplers stay in the space and repeat themselves, defaults come first, pruners let go on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from biasbed.options import SweepOptions
from biasbed.studies.search import trials
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.results import SearchState, format_summary
from biasbed.system.processes import Interrupted
from helpers.fake_trials import Bed, FakeTrials, score


def first_state(feed: TrialFeed) -> SearchState:
    return feed.states()[0]


def rates(feed: TrialFeed) -> list[float]:
    return [trial.params["optim.lr"] for trial in first_state(feed).trials]


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("random", "brute_force")]


@pytest.mark.parametrize("sampler", ["tpe", *OTHERS])
def test_samplers_stay_in_the_space_and_repeat_themselves(bed: Bed, sampler: str) -> None:
    bed.space.write_text(
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.lr: {distribution: uniform, low: 0.1, high: 0.5, step: 0.1}\n"
    )
    drawn = []
    for home in ("a", "b"):
        fresh_bed = Bed(bed.image_root, bed.home.with_name(home), bed.space)
        launcher = FakeTrials()
        done = first_state(fresh_bed.work(launcher, trials=7, sampler=sampler))
        drawn.append([trial.params for trial in done.trials])
        if sampler == "brute_force":
            assert len({str(sorted(params.items())) for params in drawn[-1]}) == len(drawn[-1]) == 7
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("brute_force", marks=pytest.mark.slow)])
def test_the_first_trial_has_the_default_also_where_it_lies_outside_of_the_space(bed: Bed, sampler: str) -> None:
    """Cut off, too; and samplers model the others as if it were not there: it is no point of their space."""
    bed.space.write_text(
        "optim.lr: {distribution: uniform, low: 0.2, high: 0.4, step: 0.1}\n"
        "optim.momentum: {distribution: uniform, low: 0.5, high: 0.9, step: 0.4}\n"
    )
    launcher = FakeTrials({"erm-trial0": ["signal"]})
    with pytest.raises(Interrupted):
        bed.work(launcher, trials=9, sampler=sampler)
    feed = bed.work(launcher, trials=9, sampler=sampler)
    done, study = first_state(feed), feed.studies[0][1]
    default = {"optim.lr": "0.1", "optim.momentum": "0.9"}
    assert done.default is done.trials[0]
    assert done.trials[0].params == {}
    assert done.settings(done.trials[0]) == default
    assert {"optim.lr": "0.1"}.items() <= launcher.commands[1].overrides.items()
    assert [name for name, count in Counter(launcher.started).items() if count > 1] == ["erm-trial0"]
    assert len(done.trials) == 7  # and six points
    if sampler == "brute_force":
        assert len(set(launcher.started)) == 7
    else:
        assert bool(study.ask().relative_params) == (sampler != "random")
    for trial in done.trials[1:]:
        assert trial.params["optim.lr"] >= 0.2
    assert f"default  {100 * score(default) * (1 - 0.5**4):.2f} (trial 0); the best is" in "\n".join(
        format_summary([done])
    )


def test_random_draws_depend_on_seed_place_and_name_alone(bed: Bed) -> None:
    """Whatever else is in a space and in which order: methods and cells are compared at equal draws."""
    wider_space = bed.space.with_name("own.yaml")
    wider_space.write_text("hparams.drop_rate: {distribution: uniform, low: 0.1, high: 2}\n" + bed.space.read_text())
    drawn = []
    for seed, method, space, workers in (
        (3, "erm", bed.space, 2),
        (3, "infodrop", wider_space, 1),
        (4, "erm", bed.space, 1),
    ):
        fresh_bed = Bed(bed.image_root, bed.home.with_name(f"{method}{seed}"), space)
        done = fresh_bed.work(
            FakeTrials(), trials=4, sampler="random", seed=seed, algorithms=(method,), workers=workers
        )
        drawn.append(rates(done))
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 1 + 3 + 3  # the default is in both


@pytest.mark.parametrize("pruner", ["hyperband", pytest.param("successive_halving", marks=pytest.mark.slow)])
def test_pruners_let_good_trainings_end(bed: Bed, pruner: str) -> None:
    done = first_state(bed.work(FakeTrials(), trials=6, pruner=pruner, sampler="random"))
    counted = trials.count_states(done.trials)
    assert counted["complete"] + counted["pruned"] == 6
    assert counted["complete"] >= 1
    assert counted["pruned"] >= 1


def test_domainbed_s_search_is_random_and_repeated_with_new_seeds(bed: Bed) -> None:
    launcher = FakeTrials()
    options: dict[str, Any] = {"search": "domainbed", "trials": 4, "pruner": "auto", "sampler": "auto", "seed": 5}
    done = bed.work(launcher, **options)
    assert [search.name for search, _ in done.studies] == [f"sweep/erm/r{repeat}" for repeat in range(3)]
    assert {(search.sampler, search.pruner) for search, _ in done.studies} == {("random", "none")}
    assert [search.seed for search, _ in done.studies] == [5, 6, 7]
    assert {command.overrides["seed"] for command in launcher.commands} == {"5", "6", "7"}
    drawn = [{t.params["optim.lr"] for t in study.trials} for _, study in done.studies]
    assert len(set.union(*drawn)) == 3 * 3 + 1
    assert "erm-trialr2-3" in launcher.started
    assert SweepOptions(search="domainbed").value_or_default("trials") == 20
