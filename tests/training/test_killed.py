"""Processes that are killed or asked to end: one line, nothing left behind, and no word of it when all is done."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import cli, record
from biasbed.compute import device, distributed
from biasbed.system import files, processes
from biasbed.tracking import folder as run_folder
from biasbed.tracking.folder import RunFolder
from biasbed.training import job, train
from biasbed.training.resolve import resolve
from helpers.children import Command, one_line
from helpers.commands import command_environment
from helpers.runs import all_runs, run_folders


@pytest.mark.slow
def test_a_killed_loader_is_one_line(train_flags: list[str], tracking: str, tmp_path: Path, image_root: Path) -> None:
    flags = [*train_flags, "--workers", "1", "--epochs", "400"]
    with started(flags) as training:
        reached(tmp_path / "home", 1)
        for child in descendants(training.pid):
            os.kill(child, signal.SIGKILL)
        _, err = training.communicate(timeout=600)
    assert training.returncode == 1
    assert re.search("a loader process (was killed|ended)", one_line(err.decode()))
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
    assert not list(tmp_path.glob(f"{files.SCRATCH}*"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("DataLoader worker (pid 20906) is killed by signal: Killed. "), "was killed (Killed)"),
        (RuntimeError("DataLoader worker (pid(s) 31, 32) exited unexpectedly"), "a loader process ended"),
        (
            RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4567"),
            "another process",
        ),
        (
            torch.distributed.DistBackendError("NCCL error in: x.cpp:3670, remote process exited\nncclRemoteError: x"),
            "another process of this training ended",
        ),
    ],
)
def test_how_torch_words_a_lost_process(error: Exception, said: str) -> None:
    assert said in (distributed.describe_lost_process(error) or "")


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("gloo/transport"), KeyError("peer")])
def test_other_errors_are_not_taken_for_a_lost_process(error: Exception) -> None:
    assert distributed.describe_lost_process(error) is None


def test_what_a_killed_launcher_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("STORE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(getattr(processes, name, name), "x")
    old, young = tmp_path / f"{files.SCRATCH}old", tmp_path / f"{files.SCRATCH}young"
    for left in (old, young):
        left.mkdir()
        (left / "ranks").touch()
    os.utime(old, (1, 1))
    with device._meeting_place() as used:
        os.utime(used.parent, (1, 1))
        with device._meeting_place() as other:
            assert {path.name for path in tmp_path.iterdir()} == {young.name, used.parent.name, other.parent.name}


@pytest.mark.parametrize("offline", [True, False])
def test_a_signal_when_all_is_done_ends_nothing_early(
    offline: bool, train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the last line is printed."""

    def signalled(*_: Any) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "done"

    monkeypatch.setattr(train, "_farewell", signalled)
    mode = "offline" if offline else "on"
    assert cli.main(["train", *train_flags, "--epochs", "1", "--nproc", "1", "--tracking", mode]) == 0
    assert [run.info.status for run in all_runs(tracking)] == ([] if offline else ["FINISHED"])


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
        run_folder.make_folder(folder.path)
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
