"""Trials under way: every trial of a search is trained once; draws do not depend on what was cut off."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from biasbed import record
from biasbed.studies import runner
from biasbed.studies.search import early_stopping, trials
from biasbed.studies.search import feed as feeds
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.results import SearchState, make_ledger_lines, write_trials
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE
from biasbed.tracking.tracker import Tracker
from helpers.fake_trials import Bed, FakeTrials, feed_of, score


def first_state(feed: TrialFeed) -> SearchState:
    return feed.states()[0]


def rates(feed: TrialFeed) -> list[float]:
    return [trial.params["optim.lr"] for trial in first_state(feed).trials]


def test_a_search_has_its_trials_and_the_first_is_the_default(bed: Bed) -> None:
    launcher = FakeTrials()
    state = first_state(bed.work(launcher))
    assert launcher.started == [f"erm-trial{position}" for position in range(6)]
    assert trials.count_states(state.trials)["complete"] == 6
    assert state.default is not None
    assert (state.default.number, state.default.params) == (0, {"optim.lr": 0.1})
    assert state.best is not None
    assert state.best.value == max(score(command.overrides) * (1 - 0.5**4) for command in launcher.commands)
    assert len({command.log.parent for command in launcher.commands}) == 6
    again = FakeTrials()
    bed.work(again)
    assert again.started == []
    more = FakeTrials()
    assert len(first_state(bed.work(more, trials=8)).trials) == 8
    assert more.started == ["erm-trial6", "erm-trial7"]


def test_a_search_that_was_cut_goes_on_as_it_would_have(bed: Bed) -> None:
    """Ended in good order: the trial is tried again in its folder, and all draws are the same."""
    straight = rates(bed.work(FakeTrials(), trials=8))

    cut = Bed(bed.image_root, bed.home.with_name("cut"), bed.space)
    launcher = FakeTrials({"erm-trial3": ["signal"], "erm-trial6": ["signal"]})
    for _ in range(2):
        with pytest.raises(Interrupted):
            cut.work(launcher, trials=8)
    last = cut.work(launcher, trials=8)
    assert rates(last) == straight
    assert Counter(launcher.started) == {f"erm-trial{position}": 1 + (position in (3, 6)) for position in range(8)}
    folders = {command.name: command.log.parent for command in launcher.commands}
    assert len(set(folders.values())) == 8
    assert {trial.state.name for trial in first_state(last).trials} == {"COMPLETE"}
    assert [trial.user_attrs[trials.ATTEMPTS] for trial in first_state(last).trials] == [1, 1, 1, 2, 1, 1, 2, 1]


def test_a_complete_trial_keeps_nothing_of_what_ended_it_before(tracking: str, tmp_path: Path) -> None:
    """Neither a note of ours, nor what the training said of a signal that came as it was being sent."""
    from mlflow import MlflowClient

    client, run = MlflowClient(tracking), SimpleNamespace(tracked=True)
    for number, end in enumerate(("failed", "aborted", "")):
        folder = RunFolder(tmp_path / str(number))
        folder.path.mkdir()
        tracker = Tracker(folder)
        tracker.start("erm-trial0", "trials", {record.KIND: "trial"}, {})
        if end == "failed":
            feeds.note_ending(run, folder, "failed", "killed by SIGKILL", print)  # type: ignore[arg-type]
            assert client.get_run(tracker.run_id).data.tags[NOTE] == "killed by SIGKILL"
            tracker.start("erm-trial0", "trials", {record.KIND: "trial"}, {})
        elif end == "aborted":
            tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended by SIGTERM")
        else:
            client.set_tag(tracker.run_id, NOTE, "my own words")
        feeds.note_ending(run, folder, "complete", "", print)  # type: ignore[arg-type]
        tags = client.get_run(tracker.run_id).data.tags
        assert tags.get(NOTE) == (None if end else "my own words")
        for stored_tags in (tags, folder.read_state()["tags"]):
            assert stored_tags[record.TRIAL_STATE] == "complete"
            assert record.ENDED_BY not in stored_tags
        assert NOTE not in folder.read_state()["tags"]


@pytest.mark.slow
def test_pruned_trainings_are_stopped_and_counted_as_such(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the values in order, not by when we look: whatever the pause, the same trials end at the same epoch."""
    ends = []
    monkeypatch.setattr(early_stopping, "PRUNE_AFTER", 2)
    for pause in (0.0, 0.05):
        monkeypatch.setattr(runner, "LOOK", pause)
        bed_of_pause = Bed(bed.image_root, bed.home.with_name(f"home{pause}"), bed.space)
        launcher = FakeTrials()
        done = first_state(bed_of_pause.work(launcher, trials=10, pruner="median", sampler="random"))
        counted = trials.count_states(done.trials)
        assert counted["pruned"] >= 2
        assert counted["complete"] + counted["pruned"] == 10
        for trial in done.trials:
            folder = RunFolder(Path(trial.user_attrs[trials.FOLDER]))
            assert folder.is_done == (trial.state.name == "COMPLETE")
            state = folder.read_state()["tags"]["biasbed.trial_state"]
            assert state == trial.state.name.lower()
        ends.append([(trial.params, trial.state, trial.last_step) for trial in done.trials])
        assert done.best is not None
        assert done.best.state.name == "COMPLETE"
    assert ends[0] == ends[1]


def test_equal_parameters_are_trained_once(bed: Bed) -> None:
    """They have one folder, whose training has ended when the second trial begins."""
    bed.space.write_text("optim.lr: {distribution: categorical, choices: [0.1, 0.2, 0.3, 0.4]}\n")
    launcher = FakeTrials()
    feed = bed.work(launcher, trials=4, sampler="random", seed=3)
    done = first_state(feed)
    assert len(done.trials) == 4
    drawn = {trial.params["optim.lr"] for trial in done.trials}
    assert len(launcher.started) == len(drawn) < 4
    for trial in done.trials:
        assert trial.value == score({"optim.lr": trial.params["optim.lr"]}) * (1 - 0.5**4)

    # Folders of another machine can't be seen from here.
    search, study = feed.studies[0]
    every = study.get_trials()
    write_trials(bed.home / "trials.csv", [SearchState(search, every)])
    with (bed.home / "trials.csv").open() as file:
        equal_to = [row["equal_to"] for row in csv.DictReader(file)]
    assert sum(map(bool, equal_to)) == 4 - len(drawn)
    lines = make_ledger_lines([SearchState(search, every)])
    assert [line.cost.attempts for line in lines] == [1] * len(drawn)
    every[0].user_attrs[trials.FOLDER] = str(bed.home / "elsewhere")
    here = {trial.user_attrs[trials.FOLDER] for trial in every[1:]}
    assert len(make_ledger_lines([SearchState(search, every)])) == len(here)


def test_a_training_that_fails_is_a_failed_trial_until_the_next_command(bed: Bed) -> None:
    launcher = FakeTrials({"erm-trial2": ["fail"] * 3})
    first = first_state(bed.work(launcher))
    assert trials.get_state(first.trials[2]) == "fail"
    assert first.trials[2].user_attrs[trials.ERROR] == "the loss is not finite"
    assert Counter(launcher.started)["erm-trial2"] == 3
    assert len(launcher.started) == 8
    again = FakeTrials()
    assert trials.count_states(first_state(bed.work(again)).trials)["complete"] == 6
    assert again.started == ["erm-trial2"]


@pytest.mark.parametrize("is_drawn", [False, True])
def test_the_trial_of_a_killed_command_goes_on_where_it_was(bed: Bed, is_drawn: bool) -> None:
    """Kill the command before the settings are drawn, or after it told an evaluation."""
    straight = rates(bed.work(FakeTrials(), trials=3))
    killed = Bed(bed.image_root, bed.home.with_name("killed"), bed.space)
    killed.work(FakeTrials(), trials=2)
    feed = feed_of(killed.begin(FakeTrials(), trials=3))
    taken = feed._ask_optuna()
    assert taken is not None
    if is_drawn:
        feed._draw_settings(*taken)
        taken[1].report(0.1, 1)
    launcher = FakeTrials()
    last = killed.work(launcher, trials=3)
    assert rates(last) == straight
    assert launcher.started == ["erm-trial2"]
    told = first_state(last).trials[2].intermediate_values
    assert (told[1] == 0.1) == is_drawn
    assert len(told) == 4
