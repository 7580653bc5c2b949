"""Searches of two stages: learning rates, then the method's own settings at the best one, however often it is cut."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli, record
from biasbed.studies.search import stage_schedule
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.stages import read_fixed
from biasbed.studies.study_table import read_table
from biasbed.system.processes import Interrupted
from helpers.commands import command_environment
from helpers.fake_trials import Bed, FakeTrials, finish
from helpers.runs import all_runs

RATES = "optim.lr: {distribution: categorical, choices: [0.01, 0.1, 1.0]}\n"
OWN = "hparams.layers: {distribution: int, low: 0, high: 2}\n"
TWO: dict[str, Any] = {"search": "two_stage", "trials": "auto", "pruner": "auto", "algorithms": ("infodrop",)}


def worth(words: Mapping[str, str]) -> float:
    """Best at a rate of 1 and two layers; the rate alone decides before."""
    return {"0.01": 0.2, "0.1": 0.3, "1.0": 0.4}[words.get("optim.lr", "0.1")] + 0.1 * int(words["hparams.layers"])


def level(words: Mapping[str, str]) -> float:
    return 0.5


@pytest.fixture
def staged(bed: Bed) -> Bed:
    bed.space.write_text(OWN + RATES)
    return bed


def first_state(feed: TrialFeed) -> SearchState:
    return feed.states()[0]


def settings(state: SearchState) -> list[tuple[str, str]]:
    """Return the rate and layers of every trial, in the order of the search."""
    every = [state.settings(trial) for trial in state.outcomes.values()]
    return [(words["optim.lr"], words["hparams.layers"]) for words in every]


def test_the_rate_first_then_the_others_at_the_best_rate(staged: Bed) -> None:
    launcher = FakeTrials(value=worth)
    state = first_state(staged.work(launcher, **TWO))
    # The default first, the other rates as they stand, then the method's own in order at the best rate.
    assert settings(state) == [("0.1", "0"), ("0.01", "0"), ("1.0", "0"), ("1.0", "0"), ("1.0", "1"), ("1.0", "2")]
    assert state.search.trials == 6
    assert state.best is state.outcomes[5]
    # What won the first stage is a point of the second: it is not trained twice.
    assert launcher.started == [f"infodrop-trial{position}" for position in (0, 1, 2, 4, 5)]
    assert len({command.log.parent for command in launcher.commands}) == 5
    assert {"optim.lr": "1.0", "hparams.layers": "2"}.items() <= launcher.commands[-1].overrides.items()


def test_what_is_equal_goes_to_the_earlier(staged: Bed) -> None:
    """To the default's rate; also where the default was cut off, so that its second attempt is Optuna's last."""
    for name, outcomes in (("whole", {}), ("cut", {"infodrop-trial0": ["signal"]})):
        fresh_bed = Bed(staged.image_root, staged.home.with_name(name), staged.space)
        launcher = FakeTrials(outcomes, value=level)
        if outcomes:
            with pytest.raises(Interrupted):
                fresh_bed.work(launcher, **TWO, workers=2)
        done = first_state(fresh_bed.work(launcher, **TWO))
        assert {rate for rate, _ in settings(done)[3:]} == {"0.1"}
        assert done.best is done.outcomes[0]


# Both stages' first places, and the one that is equal to an earlier one.
@pytest.mark.parametrize("position", [0, 3, 4])
def test_cut_off_anywhere_it_ends_as_if_it_had_not_been(staged: Bed, position: int) -> None:
    launcher = FakeTrials({f"infodrop-trial{position}": ["signal"]}, value=worth)
    if position == 3:  # equal to an earlier one: never started
        feed = finish(staged.begin(launcher, **TWO))
    else:
        with pytest.raises(Interrupted):
            staged.work(launcher, **TWO)
        feed = staged.work(launcher, **TWO)
    state = first_state(feed)
    assert settings(state) == [("0.1", "0"), ("0.01", "0"), ("1.0", "0"), ("1.0", "0"), ("1.0", "1"), ("1.0", "2")]
    assert state.best is state.outcomes[5]
    assert len({command.log.parent for command in launcher.commands}) == 5
    assert len(launcher.started) == 5 + (position != 3)


def test_ended_between_the_stages(staged: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeTrials(value=worth)
    with monkeypatch.context() as patched:
        patched.setattr(stage_schedule, "count_open", lambda search, all_trials: search.stages[0].end)
        assert len(first_state(staged.work(launcher, **TWO)).outcomes) == 3
    state = first_state(staged.work(launcher, **TWO))
    assert settings(state)[3:] == [("1.0", "0"), ("1.0", "1"), ("1.0", "2")]
    assert launcher.started == [f"infodrop-trial{position}" for position in (0, 1, 2, 4, 5)]


def test_a_stage_waits_for_all_before_it(staged: Bed) -> None:
    """With many workers, too; and what a stage was given stays, though a trial before it is tried again, and better."""
    launcher = FakeTrials({"infodrop-trial2": ["fail"] * 3}, value=worth)
    state = first_state(staged.work(launcher, **TWO, workers=4))
    assert [trial.state.name for trial in state.outcomes.values()].count("FAIL") == 1
    assert {rate for rate, _ in settings(state)[3:]} == {"0.1"}
    again = FakeTrials(value=worth)
    state = first_state(staged.work(again, **TWO))
    assert again.started == ["infodrop-trial2"]
    assert {rate for rate, _ in settings(state)[3:]} == {"0.1"}
    assert state.best is state.outcomes[5]  # 0.1 and two layers: 0.5


def test_without_a_complete_trial_there_is_no_second_stage(staged: Bed) -> None:
    launcher = FakeTrials({f"infodrop-trial{position}": ["fail"] * 3 for position in range(3)}, value=worth)
    state = first_state(staged.work(launcher, **TWO))
    assert len(state.outcomes) == 3
    assert state.best is None


def test_a_method_without_settings_of_its_own_has_one_stage(bed: Bed) -> None:
    bed.space.write_text(RATES)
    launcher = FakeTrials(value=lambda words: worth({**words, "hparams.layers": "0"}))
    state = first_state(bed.work(launcher, **{**TWO, "algorithms": ("erm",)}, workers=3))
    assert [trial.params["optim.lr"] for trial in state.outcomes.values()] == ["0.1", "0.01", "1.0"]
    assert len(launcher.started) == 3


def test_an_infinite_stage_is_drawn_as_often_as_asked(staged: Bed) -> None:
    momentum = "optim.momentum: {distribution: uniform, low: 0.5, high: 0.99}\n"
    staged.space.write_text(RATES + OWN + momentum)
    drawn = []
    for sampler in ("auto", "tpe"):
        fresh_bed = Bed(staged.image_root, staged.home.with_name(sampler), staged.space)
        launcher = FakeTrials(value=lambda words: float(words.get("optim.lr", "0.1")) / 2)
        done = first_state(fresh_bed.work(launcher, **{**TWO, "trials": 6, "sampler": sampler}))
        assert done.search.trials == 9
        assert [read_fixed(trial).overrides for trial in done.outcomes.values()][3:] == [{"optim.lr": "1.0"}] * 6
        drawn.append([trial.params for trial in done.outcomes.values()][3:])
    assert len({str(params) for params in drawn[0]}) == 6
    assert all(set(params) == {"hparams.layers", "optim.momentum"} for params in drawn[0] + drawn[1])


def test_from_start_to_winners(
    staged: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = FakeTrials(value=worth)
    flags = {"algorithms": "infodrop", "search": "two_stage", "study": "mine", "pruner": "none"}
    assert staged.run(launcher, monkeypatch, **flags, dry_run="yes") == 0
    printed = capsys.readouterr().out
    assert "optim.lr (in order): 3 trials; then, with the best of these, hparams.layers (in order): 3 trials" in printed
    assert "mine: 6 trials: 0 complete" in printed
    assert not staged.home.exists()

    assert staged.run(launcher, monkeypatch, **flags) == 0
    assert "infodrop: 6 trials: 6 complete" in capsys.readouterr().out
    folder = staged.home / "studies" / "mine"
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert [(row["optim.lr"], row["hparams.layers"]) for row in rows][3:] == [("1.0", str(n)) for n in range(3)]
    assert rows[3]["equal_to"] == "2"
    assert read_table(str(folder / "winners.yaml")).rows["infodrop"] == {
        **{"algorithm": "infodrop", "hparams.layers": "2", "optim.lr": "1.0"}
    }
    tags = [json.loads(command.environment[record.GIVEN_TAGS]) for command in launcher.commands]
    assert len({tags_of_trial[record.SPACE] for tags_of_trial in tags}) == 1

    for changed, message in (
        ({"search": "auto", "sampler": "random", "trials": "6"}, "the sweep was made with stages=optim.lr (in order)"),
        ({"pruner": "median"}, "pruner=median: search=two_stage needs every trial's whole course"),
        ({"optim.lr": "0.1"}, "optim.lr is searched over and given as optim.lr=0.1"),
    ):
        assert staged.run(launcher, monkeypatch, **{**flags, **changed}) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_what_does_not_fit_is_refused_in_a_line(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conditional = "hparams.layers: {distribution: int, low: 0, high: 2, when: {optim.lr: 0.1}}\n"
    infinite = "optim.momentum: {distribution: uniform, low: 0.5, high: 0.99}\n"
    for space, sampler, message in (
        (OWN, "auto", "search=two_stage: the space has no optim.lr, which this search begins with"),
        (RATES + conditional, "auto", "hparams.layers: when optim.lr: it is searched in another stage"),
        (RATES + infinite, "brute_force", "sampler=brute_force needs a finite space"),
    ):
        bed.space.write_text(space)
        assert bed.run(FakeTrials(), monkeypatch, algorithms="infodrop", search="two_stage", sampler=sampler) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error


@pytest.mark.slow
def test_two_real_stages_in_two_severities(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the embedded data set: the second stage trains at the rate that won the first; nothing is trained again."""
    monkeypatch.setenv("PYTHONPATH", command_environment()["PYTHONPATH"])
    space = tmp_path / "space.yaml"
    space.write_text(
        "optim.lr: {distribution: categorical, choices: [0.001, 0.00001]}\n"
        "hparams.q: {distribution: categorical, choices: [0.5, 0.7]}\n"
    )
    flags = {
        **{"suite": "debiasing", "train": "figures", "data.severity": "5,50", "algorithms": "lff", "backbone": "mlp"},
        **{"image_size": "12", "epochs": "1", "batch_size": "256", "search": "two_stage", "space": str(space)},
        **{"device": "cpu", "log_model": "no", "study": "real", "output_dir": str(tmp_path / "home"), "workers": "2"},
    }
    words = ["sweep", *(word for name, value in flags.items() for word in (f"--{name}", value))]
    assert cli.main(words) == 0
    rows = list(csv.DictReader((tmp_path / "home" / "studies" / "real" / "trials.csv").open()))
    assert [row["state"] for row in rows] == ["complete"] * 8
    for severity in range(2):
        first, second = rows[4 * severity :][:2], rows[4 * severity :][2:4]
        won = max(first, key=lambda row: float(row["value"]))["optim.lr"]
        assert {row["optim.lr"] for row in second} == {won}
        assert [row["hparams.q"] for row in second] == ["0.5", "0.7"]
        assert second[1]["equal_to"] != ""
    runs = all_runs(tracking, kind="trial", study="real")
    assert len(runs) == 6
    assert cli.main(words) == 0
    assert "nothing is left to train" in capsys.readouterr().err
    assert len(all_runs(tracking, kind="trial", study="real")) == 6
    table = read_table(str(tmp_path / "home" / "studies" / "real" / "winners.yaml"))
    assert {cell.partition(".")[0] for cell in table.chosen["lff"]} == {"5", "50"}
