"""Runs that are started, skipped, resumed, retried, shared and stopped; with trainings that only pretend."""

from __future__ import annotations

import io
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from biasbed import cli
from biasbed.errors import Failure
from biasbed.studies import ledger
from biasbed.studies import runner as running
from biasbed.studies.display import Display, make_table
from biasbed.studies.dry_run import list_runs
from biasbed.studies.launchers import Preempted, TrainCommand, assign_devices, local
from biasbed.studies.status import estimate, read_status
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from helpers.fake_runs import Fake, FakeLauncher, Notes, begin, lines_of, planned, runner, train, wait_for
from helpers.screens import open_terminal


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ELSEWHERE", 0.02)


def test_every_run_is_trained_once_and_then_never_again(tmp_path: Path) -> None:
    runs = [planned(tmp_path, name, seed) for seed in range(3) for name in ("erm", "infodrop")]
    launcher = FakeLauncher(tmp_path)
    first = runner(runs, launcher)
    first.run()
    assert sorted(launcher.started) == sorted(run.name for run in runs)
    assert {item.state for item in first.items} == {"done"}
    assert first.report.most_running == 2  # type: ignore[attr-defined]
    assert {command.slot for command in launcher.commands} == {0, 1}
    assert all(
        command.arguments[:2] == ["train", f"--algorithm={run.algorithm}"]
        for command, run in zip(
            sorted(launcher.commands, key=lambda c: c.name), sorted(runs, key=lambda r: r.name), strict=True
        )
    )
    again = FakeLauncher(tmp_path)
    second = runner(runs, again)
    second.run()
    assert again.started == []
    assert {item.state for item in second.items} == {"done"}


def test_a_value_that_looks_like_a_setting_stays_a_value(tmp_path: Path) -> None:
    """A sweep's table comes from a server; on a command line of two words a setting, `--epochs=1` would be one."""
    words = {"study": "--epochs=1", "hparams.drop_rate": "--lr", "seed": "3"}
    command = TrainCommand("x", words, {}, tmp_path / "train.log", 0, 1, 1)
    name, *flags = command.arguments
    assert cli.parse(name, flags) == words


def test_unfinished_runs_come_first_and_go_on_in_their_folder(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(3)]
    folder = train(runs[2].folder(), 2)
    launcher = FakeLauncher(tmp_path)
    runner(runs, launcher).run()
    assert launcher.started[0] == "erm-seed2"
    assert launcher.commands[0].log.parent == folder.path
    assert not (folder.path.parent / f"{folder.path.name}-2").exists()


def test_a_failed_run_is_retried_as_often_as_said_and_nothing_else_stops(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(4)]
    outcomes = {"erm-seed0": ["fail"] * 9, "erm-seed1": ["killed", "fail", "done"], "erm-seed2": ["refuse"] * 9}
    launcher = FakeLauncher(tmp_path, outcomes)
    study = runner(runs, launcher, retries=2)
    study.run()
    assert Counter(launcher.started) == {"erm-seed0": 3, "erm-seed1": 3, "erm-seed2": 1, "erm-seed3": 1}
    assert [item.state for item in study.items] == ["failed", "done", "failed", "done"]
    assert study.items[0].failure == "the loss is not finite"
    assert study.items[2].failure == "exit code 2"
    assert len(ledger.read_attempts(runs[0].folder())) == 3
    # The same command tries them again, and only them.
    after = FakeLauncher(tmp_path)
    runner(runs, after).run()
    assert sorted(after.started) == ["erm-seed0", "erm-seed2"]


class Shy(FakeLauncher):
    """Refuses each run's first start, and fails its second at the first look."""

    def start(self, command: TrainCommand) -> Fake:
        training = super().start(command)
        count = self.started.count(command.name)
        if count == 1:
            raise Failure("the engine does not answer: i/o timeout")
        return replace(training, act=self.fail) if count == 2 else training

    def fail(self) -> None:
        raise Failure("Slurm refuses the job: socket timed out")


def test_what_a_launcher_refuses_is_an_attempt_like_any_other(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(3)]
    patient, hasty = runner(runs[:2], Shy(tmp_path), retries=2), runner(runs[2:], Shy(tmp_path), retries=1)
    patient.run()
    hasty.run()
    assert [item.state for item in patient.items] == ["done", "done"]
    assert [attempt["code"] for attempt in ledger.read_attempts(runs[0].folder())] == [1, 1, 0]
    (item,) = hasty.items
    assert (item.state, item.failure) == ("failed", "Slurm refuses the job: socket timed out")
    said = "erm-seed2 failed (the engine does not answer: i/o timeout); attempt 2 follows"
    assert said in hasty.report.said  # type: ignore[attr-defined]
    claim = runs[2].folder().claim()
    assert claim is not None  # nobody has it
    claim.close()


class Crowded(FakeLauncher):
    """Takes a run's first five starts away from it."""

    def start(self, command: TrainCommand) -> Fake:
        training = super().start(command)
        return replace(training, act=self.preempt) if len(self.started) <= 5 else training

    def preempt(self) -> None:
        raise Preempted("the cluster ended job 7: PREEMPTED")


def test_what_the_cluster_ends_uses_up_no_attempt(tmp_path: Path) -> None:
    launcher = Crowded(tmp_path)
    study = runner([planned(tmp_path)], launcher, retries=0)
    study.run()
    assert [item.state for item in study.items] == ["done"]
    said = "erm-seed0 was interrupted (the cluster ended job 7: PREEMPTED); attempt 1 follows"
    assert study.report.said.count(said) == 5  # type: ignore[attr-defined]


def test_a_run_that_somebody_else_trains_is_waited_for(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(3)]
    finished, abandoned = begin(runs[0].folder()), begin(runs[1].folder())
    launcher = FakeLauncher(tmp_path)
    with finished.locked(), abandoned.locked():
        study = runner(runs, launcher)
        thread = threading.Thread(target=study.run)
        thread.start()
        wait_for(lambda: [item.state for item in study.items] == ["elsewhere", "elsewhere", "done"])
        assert launcher.started == ["erm-seed2"]
        train(finished, 4).mark_done()
    thread.join(600)
    assert sorted(launcher.started) == ["erm-seed1", "erm-seed2"]
    assert {item.state for item in study.items} == {"done"}
    assert any("erm-seed0 is trained by process" in line for line in study.report.said)  # type: ignore[attr-defined]


def test_a_start_that_finds_another_training_in_the_folder_is_no_failure(tmp_path: Path) -> None:
    launcher = FakeLauncher(tmp_path, {"erm-seed0": ["held", "held", "done"]})
    study = runner([planned(tmp_path)], launcher, retries=0)
    study.run()
    assert launcher.started == ["erm-seed0"] * 3
    assert study.items[0].state == "done"


def test_two_commands_share_a_study_and_double_nothing(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(12)]
    launchers = [FakeLauncher(tmp_path), FakeLauncher(tmp_path)]
    studies = [runner(runs, launcher) for launcher in launchers]
    threads = [threading.Thread(target=study.run) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    started = [name for launcher in launchers for name in launcher.started]
    assert sorted(started) == sorted(run.name for run in runs)
    assert all(item.state == "done" for study in studies for item in study.items)


def test_what_the_server_has_finished_is_not_started(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(2)]
    launcher = FakeLauncher(tmp_path)
    study = runner(runs, launcher, is_finished=lambda run: run.seed == 1)
    study.run()
    assert launcher.started == ["erm-seed0"]
    assert not runs[1].base.exists()


def test_runs_of_another_study_are_left_alone(tmp_path: Path) -> None:
    ours, theirs = planned(tmp_path), planned(tmp_path, study="other")
    train(theirs.folder(), 4, study="other").mark_done()
    assert read_status(ours, {}).state == "to do"
    runner([ours], FakeLauncher(tmp_path)).run()
    assert ours.folder().path != theirs.folder().path
    assert theirs.folder().path == theirs.base
    assert (read_status(ours, {}).state, read_status(theirs, {}).state) == ("done", "done")


def test_stopping_ends_trainings_and_frees_their_runs(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(3)]
    launcher = FakeLauncher(tmp_path, {run.name: ["hang"] for run in runs})

    class Signal(Notes):
        def update(self, items: list[running.Item]) -> None:
            if len(launcher.started) == 2:
                raise Interrupted(15)

    study = runner(runs, launcher)
    study.report = Signal()
    with pytest.raises(Interrupted):
        study.run()
    study.stop()
    assert [item.active for item in study.items] == [None] * 3
    assert [attempt["code"] for attempt in ledger.read_attempts(runs[0].folder())] == [143]
    after = FakeLauncher(tmp_path)
    runner(runs, after).run()
    assert sorted(after.started) == [run.name for run in runs]


def test_a_run_that_is_to_stop_ends_in_good_order_and_is_not_tried_again(tmp_path: Path) -> None:
    runs = [planned(tmp_path, seed=seed) for seed in range(3)]
    launcher = FakeLauncher(tmp_path, {"erm-seed0": ["hang"]})

    class Watch(Notes):
        def update(self, items: list[running.Item]) -> None:
            items[0].stop = items[0].state == "running"
            items[2].stop = items[2].state == "elsewhere"

    study = runner(runs, launcher)
    study.report = Watch()
    with begin(runs[2].folder()).locked():
        study.run()
    assert [item.state for item in study.items] == ["stopped", "done", "stopped"]
    assert sorted(launcher.started) == ["erm-seed0", "erm-seed1"]
    assert [attempt["code"] for attempt in ledger.read_attempts(runs[0].folder())] == [143]


def test_a_plan_that_grows_is_asked_for_no_more_than_can_be_trained(tmp_path: Path) -> None:
    coming = [planned(tmp_path, seed=seed) for seed in range(5)]

    class Growing:
        is_open = True
        most = 0

        def next(self) -> running.Item | None:
            self.most = max(self.most, sum(not item.has_ended for item in study.items) + 1)
            self.is_open = bool(coming)
            return running.Item(coming[0], read_status(coming.pop(0), {})) if coming else None

    launcher, feed = FakeLauncher(tmp_path, {"erm-seed1": ["fail", "done"]}), Growing()
    study = runner([planned(tmp_path, "infodrop")], launcher, feed=feed)
    study.run()
    assert launcher.started[:3] == ["infodrop-seed0", "erm-seed0", "erm-seed1"]
    assert Counter(launcher.started) == {"infodrop-seed0": 1, **{f"erm-seed{n}": 1 + (n == 1) for n in range(5)}}
    assert [item.state for item in study.items] == ["done"] * 6
    assert feed.most == 2


def test_an_attempt_without_an_end_lasted_until_its_last_sign(tmp_path: Path) -> None:
    """The launcher was killed: nobody wrote down when the training ended."""
    import os

    folder = train(planned(tmp_path).folder(), 2)
    ledger.note_start(folder, 2)
    (start,) = (line["start"] for line in lines_of(folder.path / ledger.ATTEMPTS))
    for path in folder.path.iterdir():
        os.utime(path, (start + 36, start + 36))
    with (folder.path / ledger.ATTEMPTS).open("a") as file:
        file.write('{"sta')  # cut off by the kill
    os.utime(folder.path / ledger.ATTEMPTS, (start + 36, start + 36))
    (attempt,) = ledger.read_attempts(folder)
    assert attempt["code"] is None
    assert attempt["end"] <= attempt["start"] + 36


def test_the_ledger_counts_what_was_lost(tmp_path: Path) -> None:
    run = planned(tmp_path)
    folder = train(run.folder(), 3)
    entries = ['{"start": 1000, "processes": 2}', '{"code": -9, "end": 4600}']
    entries += ['{"start": 5000, "processes": 2}', '{"code": 0, "end": 6800}']
    (folder.path / ledger.ATTEMPTS).write_text("\n".join(entries) + "\n")
    cost = ledger.compute_cost(run, folder.read_journal())
    assert (cost.training, cost.evaluation) == (pytest.approx(30 / 3600), pytest.approx(6 / 3600))
    assert cost.total == pytest.approx(3.0)  # 1.5 hours of two processes
    assert cost.attempts == 2
    ledger.write_ledger(tmp_path / "ledger.csv", [ledger.Line(run, "done", 3, cost)])
    header, row = (tmp_path / "ledger.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["device_hours"] == "3.00000"
    shown = ledger.format_summary([ledger.Line(run, "done", 3, cost)] * 2, "cuda")
    assert shown[0].startswith("device hours")
    assert shown[-1].split()[-1] == "6.000"


def test_the_estimate_takes_each_method_s_own_epochs(tmp_path: Path) -> None:
    runs = [planned(tmp_path, "erm", seed) for seed in range(2)] + [planned(tmp_path, "infodrop")]
    nothing = estimate([(run, read_status(run, {})) for run in runs], 2)
    assert nothing.seconds is None
    train(runs[0].folder(), 1)
    left = estimate([(run, read_status(run, {})) for run in runs], 2)
    assert left.process_seconds == pytest.approx(12 * (3 + 4 + 4))
    assert left.seconds == pytest.approx(12 * 11 / 2)
    assert left.guessed == ("infodrop",)
    shown = list_runs([(run, read_status(run, {})) for run in runs], left, 2)
    assert shown[:2] == ["unfinished:", "  erm-seed0 at epoch 1 of 4"]
    assert shown[2:5] == ["to do:", "  erm      seed 1", "  infodrop seed 0"]
    assert "1:06 left" in shown[-1]
    assert "infodrop" in shown[-1]
    for run in runs:
        train(run.folder(), 4).mark_done()
    done = [(run, read_status(run, {})) for run in runs]
    assert list_runs(done, estimate(done, 2), 2)[-1] == "nothing is left to train"


def test_a_run_that_ended_before_the_end_of_its_plan_counts_as_a_whole_one(tmp_path: Path) -> None:
    runs = [planned(tmp_path, "probe", seed) for seed in range(3)]
    train(runs[0].folder(), 1).mark_done()  # 1 of 4 planned epochs, of 12 s: there is no more to fit
    left = estimate([(run, read_status(run, {})) for run in runs], 1)
    assert left.seconds == pytest.approx(2 * 12)


def test_what_a_start_takes_beside_its_epochs_is_counted_for_those_to_come(tmp_path: Path) -> None:
    runs = [planned(tmp_path, "erm", seed) for seed in range(3)]
    folder = train(runs[0].folder(), 4)
    (folder.path / ledger.ATTEMPTS).write_text('{"start": 1000, "processes": 1}\n{"code": 0, "end": 1056}\n')
    folder.mark_done()  # 4 epochs of 12 s, and 8 s more
    left = estimate([(run, read_status(run, {})) for run in runs], 1)
    assert left.seconds == pytest.approx(2 * (4 * 12 + 8))


def test_the_live_table_is_redrawn_in_place_and_a_log_gets_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = runner([planned(tmp_path, seed=seed) for seed in range(2)], FakeLauncher(tmp_path))
    terminal, log = open_terminal(monkeypatch), io.StringIO()
    for stream in (terminal, log):
        display = Display("s", 2, stream)
        for _ in range(3):
            display.update(study.items)
            display._drawn = -1e9  # as if the time had passed
        display.say("a message")
        for item in study.items:
            item.state = "done"  # since the table was drawn last
        display.close()
    message, head, row, end = terminal.screen()
    assert (message, end) == ("a message", "")
    assert [head, row] == make_table("s", study.items, 2).lines
    assert "\x1b" not in log.getvalue()
    assert log.getvalue().splitlines()[-1] == "a message"


def test_a_lock_that_is_only_looked_at_stops_nobody(tmp_path: Path) -> None:
    folder = begin(RunFolder(tmp_path / "run"))
    looking = True

    def look() -> None:
        while looking:
            folder.holder()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            with folder.locked():
                assert folder.holder() is not None
    finally:
        looking = False
        for thread in threads:
            thread.join()
    assert folder.holder() is None


def test_each_training_at_a_time_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3,5,GPU-7")
    gpus = local._gpus()
    assert [assign_devices(gpus, slot, 2) for slot in range(2)] == [["1", "3"], ["5", "GPU-7"]]
    assert [assign_devices(gpus, slot, 1) for slot in (3, 4)] == [["GPU-7"], ["1"]]  # more workers than GPUs share them
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(local, "_gpu_count", lambda: 2)
    assert assign_devices(local._gpus(), 1, 1) == ["1"]
