"""Workers: every place of a search is trained once, whoever dies; draws do not depend on what was cut off."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.studies import runner
from biasbed.studies.search import samplers, trials, worker
from biasbed.studies.search import search as searches
from biasbed.studies.search import storage as storages
from biasbed.studies.search.liveness import is_gone, signature
from biasbed.studies.search.objective import TrialObjective, note_run
from biasbed.studies.search.results import SearchState, ledger_lines
from biasbed.studies.search.worker import Worker
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import NOTE, Tracker
from helpers.fake_trials import Bed, FakeTrials, score


def found(worker: Worker) -> SearchState:
    search, study, _ = worker.studies[0]
    return SearchState(search, study.get_trials(deepcopy=False))


def rates(worker: Worker) -> list[float]:
    return [trial.params["optim.lr"] for trial in found(worker).outcomes.values()]


def test_a_search_has_its_trials_and_the_first_is_the_default(bed: Bed) -> None:
    launcher = FakeTrials()
    one = found(bed.work(launcher))
    assert launcher.started == [f"erm-trial{place}" for place in range(6)]
    assert trials.counts(one.outcomes)["complete"] == 6
    assert one.default is not None
    assert (one.default.number, one.default.params) == (0, {"optim.lr": 0.1})
    assert one.best is not None
    assert one.best.value == max(score(command.words) * (1 - 0.5**4) for command in launcher.commands)
    assert len({command.log.parent for command in launcher.commands}) == 6
    again = FakeTrials()
    bed.work(again)
    assert again.started == []
    more = FakeTrials()
    assert len(found(bed.work(more, trials=8)).outcomes) == 8
    assert more.started == ["erm-trial6", "erm-trial7"]


def test_two_workers_train_each_place_once(bed: Bed) -> None:
    launcher = FakeTrials()
    plan = bed.plan(launcher, trials=6, algorithms=("erm", "infodrop"))
    bed.home.mkdir()
    workers = [Worker(bed.task(plan, slot, trials=6), launcher, pause=0.001) for slot in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = {f"{name}-trial{place}" for name in ("erm", "infodrop") for place in range(6)}
    assert Counter(launcher.started) == dict.fromkeys(expected, 1)
    every = [t for _, study, _ in workers[0].studies for t in study.get_trials(deepcopy=False)]
    assert sum(trial.state.name == "COMPLETE" for trial in every) == 12
    assert {command.slot for command in launcher.commands} == {0, 1}


def test_the_last_place_is_taken_by_one_of_two(bed: Bed) -> None:
    """A trial that a race creates beyond the last never trains, and is none of the sweep's."""
    launcher = FakeTrials()
    done = bed.work(launcher, trials=2)
    _, study, objective = done.studies[0]
    study.optimize(objective, n_trials=1, catch=(Exception,))
    assert len(launcher.started) == len(found(done).outcomes) == 2
    assert len(study.trials) == 3
    assert trials.taken(study.trials) == 2


def test_a_search_that_was_cut_goes_on_as_it_would_have(bed: Bed) -> None:
    """Ended in good order: the trial is tried again in its folder, and all draws are the same."""
    straight = rates(bed.work(FakeTrials(), trials=8))

    cut = Bed(bed.image_root, bed.home.with_name("cut"), bed.space)
    cut.home.mkdir()
    launcher = FakeTrials({"erm-trial3": ["signal"], "erm-trial6": ["signal"]})
    for _ in range(2):
        one = Worker(cut.task(cut.plan(launcher, trials=8), trials=8), launcher, pause=0.001)
        with pytest.raises(Interrupted):
            one.run()
        one.release()
    last = cut.work(launcher, trials=8)
    assert rates(last) == straight
    assert Counter(launcher.started) == {f"erm-trial{place}": 1 + (place in (3, 6)) for place in range(8)}
    folders = {command.name: command.log.parent for command in launcher.commands}
    assert len(set(folders.values())) == 8
    assert {trial.state.name for trial in found(last).outcomes.values()} == {"COMPLETE"}
    assert trials.attempts(found(last).every, 3) == 2


def test_the_trial_of_a_dead_worker_is_tried_again_but_not_for_ever(bed: Bed) -> None:
    launcher = FakeTrials()
    bed.home.mkdir()
    first = Worker(bed.task(bed.plan(launcher)), launcher, pause=0.001)
    search, study, _ = first.studies[0]
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = signature(gone.pid)
    assert not is_gone(name)
    gone.kill()
    gone.wait()
    assert is_gone(name)
    assert not is_gone(signature())
    assert not is_gone("")
    for _ in range(3):  # retries=2
        trial = study.ask()
        trial.set_user_attr(trials.WORKER, name)
        trial.set_user_attr(trials.PLACE, 0)
        trials.release_dead(study, limit=2)
    assert [t.state.name for t in study.trials] == ["FAIL"] * 3
    assert trials.outcomes(study.trials)[0].user_attrs[trials.DEATHS] == 2
    assert trials.queue_failed(study, 2) == 1
    first.run()
    done = found(first)
    assert done.outcomes[0].params == {"optim.lr": 0.1}
    assert done.outcomes[0].user_attrs[trials.DEFAULT]
    assert trials.counts(done.outcomes)["complete"] == search.trials


def test_the_trial_of_a_silent_worker_is_taken_over(bed: Bed) -> None:
    """One on another machine, which can't be looked at; and one that died before it could say who it is."""
    launcher = FakeTrials()
    bed.home.mkdir()
    first = Worker(bed.task(bed.plan(launcher), heartbeat=1), launcher, pause=0.001)
    _, study, _ = first.studies[0]
    silent, unknown = study.ask(), study.ask()
    silent.set_user_attr(trials.WORKER, "another-boot another-namespace 1 1")
    study._storage.record_heartbeat(silent._trial_id)  # type: ignore[attr-defined]
    assert trials.release_dead(study, 2) == []
    first.run()
    done = found(first)
    assert trials.counts(done.outcomes)["complete"] == 6
    assert {t.user_attrs[trials.AGAIN] for t in done.every if trials.AGAIN in t.user_attrs} == {
        silent.number,
        unknown.number,
    }
    assert sorted(launcher.started) == [f"erm-trial{place}" for place in range(6)]


def test_a_worker_that_ends_before_it_says_who_it_is_costs_no_trial(bed: Bed) -> None:
    """Whichever place it had, and however often: no training had begun."""
    bed.home.mkdir()
    study = Worker(bed.task(bed.plan(FakeTrials())), FakeTrials()).studies[0][1]
    study.ask()
    study.ask()
    for _ in range(4):  # retries=2
        trials.release_unstamped(study, 0.0, limit=2)
        assert trials.counts(trials.outcomes(study.trials))["waiting"] == 2
        assert {trials.place(study.trials[study.ask().number], study.trials) for _ in range(2)} == {0, 1}


class Away:
    """A storage that goes away when a trial's end is stored, and comes back at once."""

    def __init__(self, storage: Any) -> None:
        self.tell = storage.set_trial_state_values
        self.is_away = False

    def __call__(self, trial: int, state: Any, values: Any = None) -> bool:
        from optuna.exceptions import StorageInternalError

        self.is_away = state.is_finished()
        if self.is_away:
            raise StorageInternalError("the server closed the connection")
        return bool(self.tell(trial, state, values))


@pytest.mark.parametrize("is_back", [True, False])
def test_a_storage_that_is_away_at_a_trial_s_end_is_one_line(
    bed: Bed, is_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna's own clearing up raises other errors then. The trial is another worker's, and nothing is lost."""
    from optuna.exceptions import StorageInternalError

    bed.home.mkdir()
    launcher = FakeTrials()
    one = Worker(bed.task(bed.plan(launcher)), launcher, pause=0.001)
    with monkeypatch.context() as patched:
        storage = one.studies[0][1]._storage
        inner = getattr(storage, "_backend", storage)  # Optuna's cache around it
        away = Away(inner)
        patched.setattr(inner, "set_trial_state_values", away)
        if not is_back:
            read = inner.get_trial

            def get_trial(trial: int) -> Any:
                if away.is_away:
                    raise StorageInternalError("connection refused")
                return read(trial)

            patched.setattr(inner, "get_trial", get_trial)
        with pytest.raises(
            Failure, match=r"^the storage sqlite:///.* can't be used: (the server|connection)"
        ) as caught:
            one.run()
    assert "\n" not in str(caught.value)
    one.release()
    assert trials.counts(found(bed.work(launcher)).outcomes)["complete"] == 6
    assert Counter(launcher.started) == {f"erm-trial{place}": 1 for place in range(6)}


def test_a_worker_says_in_one_line_what_it_can_t_use(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = bed.task(bed.plan(FakeTrials()))

    def refuse(options: object) -> None:
        raise UsageError("no sbatch here")

    monkeypatch.setattr(worker, "open_launcher", refuse)
    assert worker._work(task) == 2
    assert capsys.readouterr().err == "biasbed: no sbatch here\n"


def test_whoever_takes_a_trial_over_ends_the_run_that_was_left_open(bed: Bed, tracking: str) -> None:
    """A machine that is gone had a folder of its own, and its run still says that it is trained."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    run_id = client.create_run("0").info.run_id
    bed.home.mkdir()
    launcher = FakeTrials()
    one = Worker(bed.task(bed.plan(launcher, {"tracking": "on"}, trials=1), trials=1), launcher, pause=0.001)
    study = one.studies[0][1]
    lost = study.ask()
    folder = RunFolder(bed.home / "lost")
    folder.path.mkdir()
    folder.write_state({"run_id": run_id})
    note_run(lost, folder)
    assert trials.give_up(study, study.trials[0], 2)
    one.run()
    assert found(one).outcomes[0].state.name == "COMPLETE"
    assert client.get_run(run_id).info.status == "KILLED"


def test_a_complete_trial_keeps_nothing_of_what_ended_it_before(tracking: str, tmp_path: Path) -> None:
    """Neither a note of ours, nor what the training said of a signal that came as it was being sent."""
    from mlflow import MlflowClient

    client, run, settle = MlflowClient(tracking), SimpleNamespace(tracked=True), TrialObjective._settle
    for number, end in enumerate(("failed", "aborted", "")):
        folder = RunFolder(tmp_path / str(number))
        folder.path.mkdir()
        tracker = Tracker(folder)
        tracker.start("erm-trial0", "trials", {record.KIND: "trial"}, {})
        if end == "failed":
            settle(None, run, folder, "failed", "killed by SIGKILL")  # type: ignore[arg-type]
            assert client.get_run(tracker.run_id).data.tags[NOTE] == "killed by SIGKILL"
            tracker.start("erm-trial0", "trials", {record.KIND: "trial"}, {})
        elif end == "aborted":
            tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended by SIGTERM")
        else:
            client.set_tag(tracker.run_id, NOTE, "my own words")
        settle(None, run, folder, "complete", "")  # type: ignore[arg-type]
        tags = client.get_run(tracker.run_id).data.tags
        assert tags.get(NOTE) == (None if end else "my own words")
        for known in (tags, folder.read_state()["tags"]):
            assert known[record.TRIAL_STATE] == "complete"
            assert record.ENDED_BY not in known
        assert NOTE not in folder.read_state()["tags"]


def test_pruned_trainings_are_stopped_and_counted_as_such(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the values in order, not by when we look: whatever the pause, the same trials end at the same epoch."""
    ends = []
    monkeypatch.setattr(samplers, "PRUNE_AFTER", 2)
    for pause in (0.0, 0.05):
        monkeypatch.setattr(runner, "LOOK", pause)
        one = Bed(bed.image_root, bed.home.with_name(f"home{pause}"), bed.space)
        launcher = FakeTrials()
        done = found(one.work(launcher, trials=10, pruner="median", sampler="random"))
        counted = trials.counts(done.outcomes)
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
    bed.space.write_text("optim.lr: {distribution: categorical, choices: [0.1, 0.2, 0.3, 0.4]}\n")
    launcher = FakeTrials()
    done = found(bed.work(launcher, trials=4, sampler="random", seed=3))
    assert len(done.outcomes) == 4
    drawn = {trial.params["optim.lr"] for trial in done.outcomes.values()}
    assert len(launcher.started) == len(drawn) < 4
    for trial in done.outcomes.values():
        assert trial.value == score({"optim.lr": trial.params["optim.lr"]}) * (1 - 0.5**4)

    # Two workers that draw the same at once share a folder, too; folders of another machine can't be seen from here.
    search, study, _ = bed.work(launcher, trials=4, sampler="random", seed=3).studies[0]
    every = study.get_trials()
    assert sum(trial.user_attrs.pop(trials.EQUAL, None) is not None for trial in every) == 4 - len(drawn)
    lines = ledger_lines([SearchState(search, every)])
    assert [line.cost.attempts for line in lines] == [1] * len(drawn)
    every[0].user_attrs[trials.FOLDER] = str(bed.home / "elsewhere")
    here = {trial.user_attrs[trials.FOLDER] for trial in every[1:]}
    assert len(ledger_lines([SearchState(search, every)])) == len(here)


def test_a_training_that_fails_is_a_failed_trial_until_the_next_command(bed: Bed) -> None:
    from optuna.trial import TrialState

    launcher = FakeTrials({"erm-trial2": ["fail"] * 3})
    first = found(bed.work(launcher))
    assert first.outcomes[2].state.name == "FAIL"
    assert first.outcomes[2].user_attrs[trials.ERROR] == "the loss is not finite"
    assert Counter(launcher.started)["erm-trial2"] == 3
    assert len(launcher.started) == 8
    again = FakeTrials()
    second = bed.work(again)
    assert again.started == []
    study = second.studies[0][1]
    joined = study.ask()  # another command is at work
    assert trials.queue_failed(study, 2) == 0
    joined.set_user_attr(trials.SURPLUS, True)
    study.tell(joined, state=TrialState.FAIL)
    assert trials.queue_failed(study, 2) == 1
    assert trials.counts(found(bed.work(again)).outcomes)["complete"] == 6
    assert again.started == ["erm-trial2"]


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("random", "gp", "qmc")]


@pytest.mark.parametrize("sampler", ["tpe", "brute_force", *OTHERS])
def test_samplers_stay_in_the_space_and_repeat_themselves(bed: Bed, sampler: str) -> None:
    bed.space.write_text(
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.lr: {distribution: uniform, low: 0.1, high: 0.5, step: 0.1}\n"
        "optim.momentum: {distribution: uniform, low: 0.5, high: 0.9, step: 0.4, when: {optim.name: sgd}}\n"
    )
    drawn = []
    for home in ("a", "b"):
        one = Bed(bed.image_root, bed.home.with_name(home), bed.space)
        launcher = FakeTrials()
        done = found(one.work(launcher, trials=7, sampler=sampler))
        drawn.append([trial.params for trial in done.outcomes.values()])
        for trial in done.outcomes.values():
            assert ("optim.momentum" in trial.params) == (trial.params["optim.name"] == "sgd")
        if sampler == "brute_force":
            assert len({str(sorted(params.items())) for params in drawn[-1]}) == len(drawn[-1]) == 7
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7


@pytest.mark.parametrize("pruner", ["hyperband", "successive_halving"])
def test_pruners_let_good_trainings_end(bed: Bed, pruner: str) -> None:
    done = found(bed.work(FakeTrials(), trials=6, pruner=pruner, sampler="random"))
    counted = trials.counts(done.outcomes)
    assert counted["complete"] + counted["pruned"] == 6
    assert counted["complete"] >= 1
    assert counted["pruned"] >= 1


def test_domainbed_s_search_is_random_and_repeated_with_new_seeds(bed: Bed) -> None:
    launcher = FakeTrials()
    options: dict[str, Any] = {"search": "domainbed", "trials": 4, "pruner": "auto", "sampler": "auto", "seed": 5}
    done = bed.work(launcher, **options)
    assert [search.name for search, _, _ in done.studies] == [f"sweep/erm/r{repeat}" for repeat in range(3)]
    assert {(search.sampler, search.pruner) for search, _, _ in done.studies} == {("random", "none")}
    assert [search.seed for search, _, _ in done.studies] == [5, 6, 7]
    assert {command.words["seed"] for command in launcher.commands} == {"5", "6", "7"}
    drawn = [{t.params["optim.lr"] for t in study.trials} for _, study, _ in done.studies]
    assert len(set.union(*drawn)) == 3 * 3 + 1
    assert "erm-trialr2-3" in launcher.started
    assert searches.SweepOptions(search="domainbed").settled("trials") == 20


# --- storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mysql://u:secret@h/d", "storage=mysql: can't be used"),
        ("redis://:secret@h", "storage=redis"),
        ("journal.log", "can't be read"),
        ("sqlite:///rel.db", "whole path"),
        ("sqlite://", "whole path"),
        ("postgresql://u:secret@h:port/d", "can't be read"),
        ("postgresql://u:p@secret@h:5432/d", "write an @ in its password as %40"),
        ("postgresql://u:p@s/secret@h/d", "write an @ in its password as %40"),
    ],
)
def test_storages_without_signs_of_life_are_refused(given: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        storages.storage_url(given, tmp_path)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_storage_s_password_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "postgresql://someone:se%2Fcret@127.0.0.1:1/trials?password=secret"
    monkeypatch.setenv(storages.VARIABLE, given)
    url = storages.storage_url("auto", tmp_path)
    assert url.startswith("postgresql+psycopg://someone:")
    assert storages.shown(url) == "postgresql://127.0.0.1:1/trials"
    monkeypatch.setattr(storages.time, "sleep", lambda seconds: None)
    with (
        pytest.raises(Failure, match=r"postgresql://127.*/trials can't be") as caught,
        storages.answering(url),
    ):
        storages.open_storage(url, 1, 1)
    assert "cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.delenv(storages.VARIABLE)
    assert storages.storage_url("auto", tmp_path) == f"sqlite:///{tmp_path}/sweep.db"


def test_looking_for_a_storage_makes_nothing(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "trials.db"
    assert not storages.exists(f"sqlite:///{file}")
    assert not file.exists()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE experiments (a INTEGER)")  # somebody else's, MLflow's for instance
    before = file.read_bytes()
    assert not storages.exists(f"sqlite:///{file}")
    assert file.read_bytes() == before
    storages.open_storage(f"sqlite:///{file}", 60, 2)
    assert storages.exists(f"sqlite:///{file}")
    with pytest.raises(Failure, match=r"postgresql://127.0.0.1:1/d can't be used"):
        storages.exists("postgresql+psycopg://u:p@127.0.0.1:1/d")


def test_a_sweep_is_refused_for_searches_of_its_own_only(bed: Bed) -> None:
    import optuna

    bed.home.mkdir()
    plan = bed.plan(FakeTrials(), study="a")
    storage = storages.open_storage(f"sqlite:///{bed.home / 'sweep.db'}", 60, 2)
    for name in ("a/erm", "a/b/erm", "a/b/erm/r0", "ab/infodrop"):
        optuna.create_study(study_name=name, storage=storage)
    storages.refuse_others(storage, plan.searches)
    optuna.create_study(study_name="a/sagnet/r1", storage=storage)
    with pytest.raises(UsageError, match="searches of sagnet/r1, too"):
        storages.refuse_others(storage, plan.searches)
