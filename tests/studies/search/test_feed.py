"""Trials under way: every place of a search is trained once, whoever dies; draws do not depend on what was cut off."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from biasbed import record
from biasbed.errors import Failure
from biasbed.studies import runner
from biasbed.studies.search import feed as feeds
from biasbed.studies.search import samplers, trials
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.results import SearchState, make_ledger_lines, write_trials
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE
from biasbed.tracking.tracker import Tracker
from helpers.fake_trials import Bed, FakeTrials, feed_of, finish, score

if TYPE_CHECKING:
    from optuna import Study


def first_state(feed: TrialFeed) -> SearchState:
    return feed.states()[0]


def rates(feed: TrialFeed) -> list[float]:
    return [trial.params["optim.lr"] for trial in first_state(feed).outcomes.values()]


def test_a_search_has_its_trials_and_the_first_is_the_default(bed: Bed) -> None:
    launcher = FakeTrials()
    state = first_state(bed.work(launcher))
    assert launcher.started == [f"erm-trial{position}" for position in range(6)]
    assert trials.count_states(state.outcomes)["complete"] == 6
    assert state.default is not None
    assert (state.default.number, state.default.params) == (0, {"optim.lr": 0.1})
    assert state.best is not None
    assert state.best.value == max(score(command.overrides) * (1 - 0.5**4) for command in launcher.commands)
    assert len({command.log.parent for command in launcher.commands}) == 6
    again = FakeTrials()
    bed.work(again)
    assert again.started == []
    more = FakeTrials()
    assert len(first_state(bed.work(more, trials=8)).outcomes) == 8
    assert more.started == ["erm-trial6", "erm-trial7"]


def test_two_commands_train_each_place_once(bed: Bed) -> None:
    launchers = [FakeTrials(), FakeTrials()]
    both: dict[str, Any] = {"trials": 6, "algorithms": ("erm", "infodrop"), "workers": 2}
    commands = [bed.begin(launcher, **both) for launcher in launchers]
    threads = [threading.Thread(target=command.run) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    expected = {f"{name}-trial{position}" for name in ("erm", "infodrop") for position in range(6)}
    started = [name for launcher in launchers for name in launcher.started]
    assert Counter(started) == dict.fromkeys(expected, 1)
    every = [trial for state in feed_of(commands[0]).states() for trial in state.all_trials]
    assert sum(trial.state.name == "COMPLETE" for trial in every) == 12
    assert {command.slot for launcher in launchers for command in launcher.commands} == {0, 1}
    for command in commands:
        feed_of(command).release()


def test_the_last_place_is_taken_by_one_of_two(bed: Bed) -> None:
    """A trial that a race creates beyond the last never trains, and is none of the sweep's."""
    launcher = FakeTrials()
    done = bed.work(launcher, trials=2)
    search, study = done.studies[0]
    assert done._ask(search, study) is None
    assert len(launcher.started) == len(first_state(done).outcomes) == 2
    assert len(study.trials) == 3
    assert trials.count_positions(study.trials) == 2


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
    assert {trial.state.name for trial in first_state(last).outcomes.values()} == {"COMPLETE"}
    assert trials.count_attempts(first_state(last).all_trials, 3) == 2


def silence(study: Study, trial: int) -> None:
    """Let a trial's last heartbeat be an hour old."""
    from sqlalchemy import text

    storage: Any = study._storage
    with storage._backend.engine.begin() as connection:
        change = "UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 hour') WHERE trial_id = :trial"
        connection.execute(text(change), {"trial": trial})


def test_the_trial_of_a_dead_command_is_tried_again_but_not_for_ever(bed: Bed) -> None:
    command = bed.begin(FakeTrials())
    search, study = feed_of(command).studies[0]
    storage = feed_of(command).heartbeats.storage
    for _ in range(3):  # retries=2
        trial = study.ask()
        storage.record_heartbeat(trial._trial_id)
        trial.set_user_attr(trials.HOST, "another")
        trial.set_user_attr(trials.POSITION, 0)
        trials.release_stale(study, seconds=60.0, limit=2)
        assert study.trials[trial.number].state.name == "RUNNING"
        silence(study, trial._trial_id)
        trials.release_stale(study, seconds=60.0, limit=2)
    assert [t.state.name for t in study.trials] == ["FAIL"] * 3
    assert trials.select_outcomes(study.trials)[0].user_attrs[trials.DEATHS] == 2
    assert trials.retry_failed(study, 2) == 1
    done = first_state(finish(command))
    assert done.outcomes[0].params == {"optim.lr": 0.1}
    assert done.outcomes[0].user_attrs[trials.DEFAULT]
    assert trials.count_states(done.outcomes)["complete"] == search.trials


def test_the_trial_of_a_silent_command_is_taken_over(bed: Bed) -> None:
    """One that died after its last heartbeat, and one that died before its first."""
    launcher = FakeTrials()
    command = bed.begin(launcher, heartbeat=1)
    study = feed_of(command).studies[0][1]
    silent, unknown = study.ask(), study.ask()
    feed_of(command).heartbeats.storage.record_heartbeat(silent._trial_id)
    silent.set_user_attr(trials.HOST, "another")
    trials.release_stale(study, seconds=60.0, limit=2)
    assert {trial.state.name for trial in study.trials} == {"RUNNING"}
    done = first_state(finish(command))
    assert trials.count_states(done.outcomes)["complete"] == 6
    again = {t.user_attrs[trials.AGAIN] for t in done.all_trials if trials.AGAIN in t.user_attrs}
    assert again == {silent.number, unknown.number}
    assert sorted(launcher.started) == [f"erm-trial{position}" for position in range(6)]


def once_before_a_look(feed: TrialFeed, happens: Callable[[], bool]) -> None:
    """Before the command looks at its own trials, until `happens` says that it was time."""
    looked, monkeypatch = feed._look_at_items, pytest.MonkeyPatch()

    def look() -> None:
        if happens():
            monkeypatch.undo()
        looked()

    monkeypatch.setattr(feed, "_look_at_items", look)


def test_a_trial_that_another_has_taken_over_is_left_to_it(bed: Bed) -> None:
    """This command was asleep for too long: it ends its own training, and waits for what becomes of the trial."""
    launcher = FakeTrials({"erm-trial1": ["fail", "done"]})
    command = bed.begin(launcher, trials=3)
    feed, study = feed_of(command), feed_of(command).studies[0][1]

    def asleep() -> bool:
        is_time = len(launcher.started) == 2 and trials.count_positions(study.trials) == 2
        if is_time:
            trials.give_up(study, study.trials[1], 2)
        return is_time

    once_before_a_look(feed, asleep)
    done = first_state(finish(command))
    assert trials.count_states(done.outcomes)["complete"] == 3
    assert launcher.started == ["erm-trial0", "erm-trial1", "erm-trial1", "erm-trial2"]
    assert "erm-trial1 was given to another command" in feed.log.read_text()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_trained_trial_that_another_has_taken_over_counts_once(bed: Bed, elsewhere: bool) -> None:
    """The other one's training does, unless it is this very one, in a folder that both see."""
    launcher = FakeTrials()
    command = bed.begin(launcher, trials=3)
    feed, study = feed_of(command), feed_of(command).studies[0][1]

    def asleep() -> bool:
        is_time = bool(feed.items) and feed.items[0].trial.number == 1 and feed.items[0].has_ended
        if is_time:
            feed.items[0].report()  # its evaluations came before it was taken over
            trials.give_up(study, study.trials[1], 2)
            heir = study.ask()
            heir.set_user_attr(trials.FOLDER, "/elsewhere" if elsewhere else str(feed.items[0].run.base))
            study.tell(heir, 0.5)
        return is_time

    once_before_a_look(feed, asleep)
    done = first_state(finish(command))
    assert trials.count_states(done.outcomes)["complete"] == 3
    assert launcher.started == ["erm-trial0", "erm-trial1", "erm-trial2"]
    states = [
        RunFolder(started_command.log.parent).read_state()["tags"].get(record.TRIAL_STATE)
        for started_command in launcher.commands
    ]
    assert states == ["complete", "superseded" if elsewhere else "complete", "complete"]


def test_a_command_that_ends_before_it_says_who_it_is_costs_no_trial(bed: Bed) -> None:
    """Whichever place it had, and however often: no training had begun."""
    study = feed_of(bed.begin(FakeTrials())).studies[0][1]
    study.ask()
    study.ask()
    for _ in range(4):  # retries=2
        trials.release_stale(study, seconds=0.0, limit=2)
        assert trials.count_states(trials.select_outcomes(study.trials))["waiting"] == 2
        assert {trials.get_position(study.trials[study.ask().number], study.trials) for _ in range(2)} == {0, 1}


@pytest.mark.parametrize(
    "call", ["set_trial_state_values", pytest.param("set_trial_intermediate_value", marks=pytest.mark.slow)]
)
def test_a_storage_that_is_away_for_a_moment_costs_no_trial(
    bed: Bed, call: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever moment that is: as a trial begins, is trained or ends."""
    from optuna.exceptions import StorageInternalError

    launcher = FakeTrials()
    command = bed.begin(launcher, heartbeat=1)
    storage = feed_of(command).heartbeats.storage
    answer, calls = getattr(storage, call), Counter[str]()

    def away(*arguments: Any, **named: Any) -> Any:
        calls[call] += 1
        if calls[call] in (2, 6, 13):
            raise StorageInternalError("the server closed the connection")
        return answer(*arguments, **named)

    monkeypatch.setattr(storage, call, away)
    done = finish(command)
    monkeypatch.undo()
    assert trials.count_states(first_state(done).outcomes)["complete"] == 6
    assert Counter(launcher.started) == {f"erm-trial{position}": 1 for position in range(6)}
    said = capsys.readouterr().err
    assert "can't be used: the server closed the connection; trainings go on\n" in said
    assert said.count("trainings go on") == said.count("the storage is back")


def test_a_storage_that_stays_away_ends_the_command_in_one_line(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.exceptions import StorageInternalError

    launcher = FakeTrials()
    command = bed.begin(launcher)

    def away(*arguments: Any, **named: Any) -> None:
        raise StorageInternalError("connection refused")

    monkeypatch.setattr(feeds, "PATIENCE", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(feed_of(command).heartbeats.storage, "set_trial_state_values", away)
        with pytest.raises(Failure, match=r"^the storage sqlite:///.* can't be used: connection refused") as caught:
            command.run()
    assert "\n" not in str(caught.value)
    command.stop()
    feed_of(command).release()
    assert trials.count_states(first_state(bed.work(launcher)).outcomes)["complete"] == 6
    assert Counter(launcher.started) == {f"erm-trial{position}": 1 for position in range(6)}


def test_whoever_takes_a_trial_over_ends_the_run_that_was_left_open(bed: Bed, tracking: str) -> None:
    """A machine that is gone had a folder of its own, and its run still says that it is trained."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    run_id = client.create_run("0").info.run_id
    command = bed.begin(FakeTrials(), {"tracking": "on"}, trials=1)
    study = feed_of(command).studies[0][1]
    study.ask().set_user_attr(trials.RUN_ID, run_id)
    assert trials.give_up(study, study.trials[0], 2)
    assert first_state(finish(command)).outcomes[0].state.name == "COMPLETE"
    assert client.get_run(run_id).info.status == "KILLED"


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
    monkeypatch.setattr(samplers, "PRUNE_AFTER", 2)
    for pause in (0.0, 0.05):
        monkeypatch.setattr(runner, "LOOK", pause)
        bed_of_pause = Bed(bed.image_root, bed.home.with_name(f"home{pause}"), bed.space)
        launcher = FakeTrials()
        done = first_state(bed_of_pause.work(launcher, trials=10, pruner="median", sampler="random"))
        counted = trials.count_states(done.outcomes)
        assert counted["pruned"] >= 2
        assert counted["complete"] + counted["pruned"] == 10
        for trial in done.outcomes.values():
            folder = RunFolder(Path(trial.user_attrs[trials.FOLDER]))
            assert folder.is_done == (trial.state.name == "COMPLETE")
            state = folder.read_state()["tags"]["biasbed.trial_state"]
            assert state == trial.state.name.lower()
        ends.append([(trial.params, trial.state, trial.last_step) for trial in done.outcomes.values()])
        assert done.best is not None
        assert done.best.state.name == "COMPLETE"
    assert ends[0] == ends[1]


def test_equal_parameters_are_trained_once(bed: Bed) -> None:
    """They have one folder, whose training has ended when the second trial begins."""
    bed.space.write_text("optim.lr: {distribution: categorical, choices: [0.1, 0.2, 0.3, 0.4]}\n")
    launcher = FakeTrials()
    feed = bed.work(launcher, trials=4, sampler="random", seed=3)
    done = first_state(feed)
    assert len(done.outcomes) == 4
    drawn = {trial.params["optim.lr"] for trial in done.outcomes.values()}
    assert len(launcher.started) == len(drawn) < 4
    for trial in done.outcomes.values():
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
    from optuna.trial import TrialState

    launcher = FakeTrials({"erm-trial2": ["fail"] * 3})
    first = first_state(bed.work(launcher))
    assert first.outcomes[2].state.name == "FAIL"
    assert first.outcomes[2].user_attrs[trials.ERROR] == "the loss is not finite"
    assert Counter(launcher.started)["erm-trial2"] == 3
    assert len(launcher.started) == 8
    study = feed_of(bed.begin(FakeTrials())).studies[0][1]
    assert study.trials[-1].state.name == "WAITING"  # the next command's
    joined = study.ask()  # another command is at work
    assert trials.retry_failed(study, 2) == 0
    study.tell(joined, state=TrialState.FAIL)
    again = FakeTrials()
    assert trials.count_states(first_state(bed.work(again)).outcomes)["complete"] == 6
    assert again.started == ["erm-trial2"]
