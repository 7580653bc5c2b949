"""A training that was killed and started again ends with the numbers of one that never was, each stored once.

Processes that are asked to end leave one line; nothing is left behind when all is done.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from biasbed import cli, record
from biasbed.compute import device
from biasbed.tracking.folder import RunFolder
from biasbed.training import job, train
from biasbed.training.resolve import resolve
from helpers import children
from helpers.children import Command, one_line
from helpers.commands import command_environment
from helpers.resumable import ON_SHADES, command
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights

# Loader workers, batch norm, augmentation, InfoDrop's randomness and a schedule that begins anew are all on.
FLAGS = ("--algorithm", "infodrop", "--workers", "1", "--seed", "3", "--optim.restarts", "0.6111")
EPOCHS, STEPS_PER_EPOCH = 3, 6
RESTART = 11  # of 18 steps, in the middle of an epoch


def killed_at(moment: str, count: int, words: list[str], number: str = "SIGKILL") -> children.Done:
    return children.run(words, kill=(moment, count, number))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> Path:
    """The run folder of an uninterrupted training."""
    home = tmp_path_factory.mktemp("reference")
    words = ["train", *_flags(image_root), "--tracking", "offline"]
    done = children.run(words, env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return run_folders(home)[0]


def _flags(image_root: Path) -> list[str]:
    return [
        *("--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "16"),
        *("--epochs", str(EPOCHS), "--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.02", "--device", "cpu", "--log_model", "false", *FLAGS),
    ]


def test_killed_and_resumed_equals_uninterrupted(
    biasbed: Command, image_root: Path, reference: Path, tracking: str, tmp_path: Path
) -> None:
    """At an evaluation of the last epoch; `tests/faults/` kills at every other moment."""
    words = ["train", *_flags(image_root)]
    killed = killed_at("evaluation", 7, words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (run_folders(tmp_path / "home")[0] / "done").exists()
    biasbed(*words)
    (folder,) = run_folders(tmp_path / "home")
    assert_equal(weights(folder), weights(reference))
    assert_equal(weights(folder, "best.ckpt"), weights(reference, "best.ckpt"))
    assert history(folder) == history(reference)
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert run.data.tags["biasbed.attempts"] == "2"
    assert stored(tracking, run.info.run_id) == history(reference)


# --- trainings of all kinds -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> Callable[..., Path]:
    """Return a function that gives the run folder of a training that was never cut, made once."""
    made: dict[tuple[str, int], Path] = {}

    def train(name: str, processes: int = 1) -> Path:
        if (name, processes) not in made:
            home = tmp_path_factory.mktemp(name)
            done = children.run(command(name, image_root), env={"BIASBED_HOME": str(home)}, processes=processes)
            assert done.returncode == 0, done.stderr
            (made[name, processes],) = run_folders(home)
        return made[name, processes]

    return train


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


KILLS = [
    ("staged", "pass", 1, 1),
    ("staged", "step", 8, 1),  # the last stage has begun, and no checkpoint says so
    ("staged", "step", 6, 2),
    ("swad", "step", 8, 1),
    slow("ema", "step", 6, 1),
    slow("staged", "step", 4, 1),  # within the first stage: it begins anew
    slow("staged", "stage", 2, 1),  # after the pass
    slow("lff_like", "step", 6, 2),
    slow("streaming", "step", 6, 2),
    slow("swad", "evaluation", 10, 1),
    slow("compiled", "step", 6, 1),
    *(slow("phases", "step", count, 1) for count in (3, 7, 9)),  # in the first phase, at its end, in the second
    slow("probe", "stage", 1, 1),
    slow("wise_ft", "pass", 3, 1),
    slow("dfr", "pass", 2, 1),
    slow("dfr", "stage", 3, 1),
    slow("jtt", "step", 7, 1),  # the second training has begun
    slow("softcon", "step", 2, 1),
    slow("softcon", "stage", 1, 1),
    slow("remembering", "step", 8, 1),  # the best of its first stage lies behind it, in the second epoch's checkpoint
    slow("remembering", "stage", 1, 1),
    slow("ensemble", "step", 2, 1),
    slow("ensemble", "pass", 1, 1),
    slow("ensemble", "stage", 2, 1),
    slow("ensemble", "step", 8, 1),
]


@pytest.mark.parametrize(("name", "moment", "count", "processes"), KILLS)
def test_any_training_killed_and_resumed_equals_uninterrupted(
    name: str, moment: str, count: int, processes: int, straight: Callable[..., Path], image_root: Path, tmp_path: Path
) -> None:
    home, words = {"BIASBED_HOME": str(tmp_path / "home")}, command(name, image_root)
    killed = children.run(words, env=home, processes=processes, kill=(moment, count, "SIGKILL"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = children.run(words, env=home, processes=processes)
    assert done.returncode == 0, done.stderr
    (folder,), expected = run_folders(tmp_path / "home"), straight(name, processes)
    for file in ("last.ckpt", "best.ckpt"):
        assert_equal(weights(folder, file), weights(expected, file))
    assert history(folder) == history(expected)
    states = [torch.load(path / "last.ckpt", weights_only=True).get("average") for path in (folder, expected)]
    if states[0]:
        assert_equal(states[0]["live"], states[1]["live"])
    if (expected / "examples.parquet").exists():
        assert pd.read_parquet(folder / "examples.parquet").equals(pd.read_parquet(expected / "examples.parquet"))


# The gradients of all methods on two processes are the conformance suite's.
TWO = [
    *("staged", "coupled", "swad"),
    *map(slow, ("plain", "sagnet_like", "lff_like", "streaming", "ema_without_norms", "probe", "knn", "wise_ft")),
    *map(slow, ("dfr", "jtt", "group_dro")),
]


@pytest.mark.parametrize("name", TWO)
def test_one_process_and_two_train_the_same_network(name: str, straight: Callable[..., Path]) -> None:
    one, two = straight(name), straight(name, 2)
    tolerance = {"rtol": 2e-3, "atol": 2e-4} if name in ON_SHADES else {"rtol": 1e-4, "atol": 1e-6}
    left, right = weights(one), weights(two)
    assert left.keys() == right.keys()
    for key, value in left.items():
        torch.testing.assert_close(value, right[key], **tolerance, msg=lambda text, key=key: f"{key}: {text}")
    if name in ON_SHADES:
        return
    for (epoch, first), second in zip(history(one).items(), history(two).values(), strict=True):
        for metric in first:
            assert first[metric] == pytest.approx(second[metric], rel=1e-4), (epoch, metric)


# --- a training whose process ends ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("steps", [RESTART - 1, RESTART])
def test_killed_where_the_schedule_begins_anew(
    steps: int, image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    """A checkpoint of the step before which it does has no momenta, those around it have."""
    words = ["train", *_flags(image_root), "--checkpoint_every", "1", "--tracking", "offline"]
    killed = killed_at("step", steps + 1, words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (folder,) = run_folders(tmp_path / "home")
    state = torch.load(folder / "last.ckpt", weights_only=True)
    assert state["position"]["step"] == steps
    assert [not optimizer["state"] for optimizer in state["optimizers"].values()] == [steps == RESTART]
    assert children.run(words).returncode == 0
    assert_equal(weights(folder), weights(reference))
    assert history(folder) == history(reference)


def test_sigterm_settles_the_run_and_the_same_command_continues_it(
    image_root: Path, biasbed: Command, reference: Path, tracking: str, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root)]
    ended = killed_at("step", STEPS_PER_EPOCH + 3, words, "SIGTERM")
    assert position(tmp_path / "home") == (STEPS_PER_EPOCH + 3, False)
    assert ended.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in ended.stderr
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "KILLED"
    assert run.data.tags["biasbed.ended_by"] == "SIGTERM"
    biasbed(*words)
    (folder,) = run_folders(tmp_path / "home")
    assert_equal(weights(folder), weights(reference))
    (again,) = all_runs(tracking, kind="train")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert "biasbed.ended_by" not in again.data.tags


@pytest.mark.slow
def test_the_last_step_is_continued_from_with_the_evaluation_that_is_due(
    image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    words, count = ["train", *_flags(image_root), "--tracking", "offline"], EPOCHS * STEPS_PER_EPOCH
    ended = killed_at("step", count, words, "SIGUSR2")
    assert ended.returncode == 128 + signal.SIGUSR2
    assert position(tmp_path / "home") == (count, True)
    assert children.run(words).returncode == 0
    (folder,) = run_folders(tmp_path / "home")
    assert history(folder) == history(reference)
    assert_equal(weights(folder, "best.ckpt"), weights(reference, "best.ckpt"))


@pytest.mark.slow
def test_an_evaluation_that_is_cut_off_does_not_cost_a_long_epoch(
    image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root), "--tracking", "offline"]
    ended = killed_at("evaluation of much", 2, words, "SIGTERM")  # the first: nothing is known of its length
    assert ended.returncode == 128 + signal.SIGTERM
    assert position(tmp_path / "home") == (STEPS_PER_EPOCH, True)
    assert children.run(words).returncode == 0
    assert_equal(weights(run_folders(tmp_path / "home")[0]), weights(reference))
    assert history(run_folders(tmp_path / "home")[0]) == history(reference)


def position(home: Path) -> tuple[int, bool]:
    """(the next step, whether an evaluation comes before it)."""
    found = torch.load(run_folders(home)[0] / "last.ckpt", weights_only=True)["position"]
    return found["step"], found["due"]


def test_finished_runs_are_never_touched(
    biasbed: Command, tracking: str, train_flags: list[str], tmp_path: Path
) -> None:
    words = ["train", *train_flags, "--epochs", "1"]
    biasbed(*words)
    (first,) = run_folders(tmp_path / "home")
    before = (first / "last.ckpt").stat().st_mtime_ns
    again = biasbed(*words)
    _, second = run_folders(tmp_path / "home")
    (line,) = (line for line in again.stderr.splitlines() if "has the same settings" in line)
    run_id = RunFolder(first).read_state()["run_id"]
    assert f"run {run_id}, {first}; this one is trained anew into {second.name}; resume=once" in line
    assert second.name == f"{first.name}-2"
    assert (first / "last.ckpt").stat().st_mtime_ns == before
    assert_equal(weights(first), weights(second))  # the same command gives the same numbers
    assert history(first) == history(second)
    once = biasbed(*words, "--resume", "once")
    assert "finished already" in once.stdout
    assert "has the same settings" not in once.stderr
    assert len(run_folders(tmp_path / "home")) == len(all_runs(tracking, kind="train")) == 2


def test_of_two_copies_that_end_the_same_one_is_sent_and_neither_fails(
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both are of a training that was killed after its last evaluation."""
    homes = tmp_path / "left", tmp_path / "right"
    monkeypatch.setenv("BIASBED_HOME", str(homes[0]))
    assert cli.main(["train", *train_flags, "--tracking", "offline"]) == 0
    (run_folders(homes[0])[0] / "done").unlink()
    shutil.copytree(*homes)
    for home in homes:
        monkeypatch.setenv("BIASBED_HOME", str(home))
        assert cli.main(["train", *train_flags]) == 0
    assert "is left alone: its results were sent as run" in capsys.readouterr().err
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert all(RunFolder(run_folders(home)[0]).is_done for home in homes)


def test_a_second_command_names_the_holder_and_leaves(
    train_flags: list[str], tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {name[2:]: value for name, value in zip(train_flags[::2], train_flags[1::2], strict=True)}
    with job.plan(resolve({**flags, "nproc": "1"})).find_folder().locked():
        assert cli.main(["train", *train_flags]) == 1  # flock excludes other openings within one process too
    assert "is being trained by process" in capsys.readouterr().err
    assert not all_runs(tracking, kind="train")


# --- signals and lost processes ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_loader_is_one_line(train_flags: list[str], tracking: str, tmp_path: Path, image_root: Path) -> None:
    flags = [*train_flags, "--workers", "1", "--epochs", "400"]
    with started(flags) as training:
        reached(tmp_path / "home", 1)
        for child in descendants(training.pid):
            os.kill(child, signal.SIGKILL)
        _, err = training.communicate(timeout=600)
    assert training.returncode == 1
    assert re.search("a loader process ended", one_line(err.decode()))
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FAILED"


def test_an_interrupted_training_is_killed_and_says_how_it_goes_on(
    train_flags: list[str], tracking: str, biasbed: Command
) -> None:
    done = biasbed("train", *train_flags, check=False, kill=("step", 4, "SIGINT"))
    assert done.returncode == 130
    server = f"MLFLOW_TRACKING_URI={shlex.quote(tracking)}"
    again = f"biasbed: interrupted; to go on: {server} biasbed train {shlex.join(train_flags)}"
    assert one_line(done.stderr) == again
    (run,) = all_runs(tracking, kind="train")
    assert (run.info.status, run.data.tags[record.ENDED_BY]) == ("KILLED", "SIGINT")


@pytest.mark.slow
def test_two_processes_listen_to_nobody_else_and_one_that_is_killed_is_one_line(
    train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started([*train_flags, "--nproc", "2", "--epochs", "400"]) as training:
        reached(tmp_path / "home", 1)
        ranks = descendants(training.pid)
        open_ = [address for pid in (training.pid, *ranks) for address in listening(pid)]
        assert open_, "gloo's own sockets are looked at as well"
        assert set(open_) <= {"0100007F", "00000000000000000000000001000000"}  # loopback
        os.kill(ranks[1], signal.SIGKILL)
        _, err = training.communicate(timeout=600)
    assert training.returncode in (1, 143)
    said = one_line(err.decode())  # by gloo's error, or, if that was quicker, by torchrun's signal
    assert "another process of this training ended" in said or "ended by SIGTERM" in said
    assert not list(tmp_path.glob("biasbed-*"))


def test_a_signal_when_all_is_done_ends_nothing_early(
    train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the last line is printed."""

    def signalled(*_: Any) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "done"

    monkeypatch.setattr(train, "_describe_end", signalled)
    assert cli.main(["train", *train_flags, "--epochs", "1", "--nproc", "1"]) == 0
    assert [run.info.status for run in all_runs(tracking)] == ["FINISHED"]


def test_a_signal_as_the_last_of_it_is_noted_does_not_end_the_run_early(
    train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would mend a run that is KILLED on the server and sent by its folder."""
    write = RunFolder.write_state

    def signalled(folder: RunFolder, state: dict[str, Any]) -> None:
        write(folder, state)
        if state.get("sent"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(RunFolder, "write_state", signalled)
    cli.main(["train", *train_flags, "--epochs", "1", "--nproc", "1"])
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert record.ENDED_BY not in run.data.tags


@pytest.mark.parametrize(("spoil", "code"), [(None, 0), ("done", 143), ("sent", 143)])
def test_torchrun_s_word_for_a_signal_does_not_count_when_all_is_done(
    spoil: str | None, code: int, train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(count: int, arguments: list[str]) -> int:
        flags = dict(word.removeprefix("--").split("=", 1) for word in arguments[1:])
        folder = job.plan(resolve(flags)).find_folder()
        folder.path.mkdir(parents=True)
        folder.write_state({"tags": {record.STUDY: "adhoc"}, "sent": spoil != "sent"})
        if spoil != "done":
            folder.mark_done()
        return 143

    monkeypatch.setattr(device, "run_torchrun", ended)
    assert cli.main(["train", *train_flags, "--nproc", "2"]) == code


def started(flags: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "biasbed", "train", *flags],
        env=command_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def reached(home: Path, count: int) -> None:
    """Wait for so many records of a training."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for folder in run_folders(home):
            if len(RunFolder(folder).read_journal()) >= count:
                return
        time.sleep(0.1)
    pytest.fail("the training did not get that far")


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    own = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [*own, *(other for child in own for other in descendants(child))]


def listening(pid: int) -> list[str]:
    """The addresses, in the kernel's notation, on which a process listens."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:")}
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1].partition(":")[0] for row in rows if row[9] in inodes and row[3] == "0A"]
