"""Tasks in copies of a process: all are done, errors and deaths are told, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from biasbed.system import forks
from helpers.commands import command_environment

# In a process of its own, as this one has threads of pytest.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from biasbed.system import forks

folder, kind = Path(sys.argv[1]), sys.argv[2]
forks.count_processes = lambda: 3

def task(number):
    def run():
        if number == 4 and kind == "error":
            raise ValueError("four")
        if number == 4 and kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "endless":
            time.sleep(600)
        (folder / str(number)).write_text(str(os.getpid()))
        return number * "x"
    return run

with forks.forked([task(number) for number in range(9)], "counted") as running:
    if kind != "endless":
        print("results in order:", running.finish() == [number * "x" for number in range(9)])
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
print(os.getpid())
"""


def run(folder: Path, kind: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM, str(folder), kind]
    return subprocess.run(words, env=command_environment(), capture_output=True, text=True, timeout=600, check=False)


def test_all_tasks_are_done_in_other_processes(tmp_path: Path) -> None:
    done = run(tmp_path, "all")
    assert done.returncode == 0, done.stderr
    assert "results in order: True" in done.stdout
    assert "no child is left" in done.stdout
    owners = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(owners) == set(map(str, range(9)))
    assert done.stdout.split()[-1] not in owners.values()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("error", "ValueError: four"),
        ("killed", "Failure: a process that counted was killed; is there enough memory?"),
    ],
)
def test_an_error_and_a_death_are_those_of_the_whole(tmp_path: Path, kind: str, message: str) -> None:
    done = run(tmp_path, kind)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(message)


def test_processes_end_with_the_block(tmp_path: Path) -> None:
    done = run(tmp_path, "endless")
    assert done.returncode == 0, done.stderr
    assert "no child is left" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_process_with_threads_does_its_tasks_itself() -> None:
    """A thread may hold a lock, which a copy without that thread would wait for in vain."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert forks.count_processes() == 1
        owners: list[int] = []

        def task() -> int:
            owners.append(os.getpid())
            return len(owners)

        with forks.forked([task] * 3, "counted") as running:
            assert running.finish() == [1, 2, 3]
        assert owners == [os.getpid()] * 3
    finally:
        stop.set()
        thread.join()


def test_watchers_of_the_launcher_and_of_the_input_do_not_count_as_threads() -> None:
    """Under `mlflow run` every command watches its launcher; its reports are computed side by side all the same."""
    program = """
import os, threading
from biasbed.system import forks, processes

alone = forks.count_processes()
processes.FOLLOW_EVERY = 600
processes.follow_launcher()
os.environ[processes.LIFELINE] = "yes"
processes.end_with_input()
print(threading.active_count(), forks.count_processes() == alone)
"""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, env=command_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read().split() == [b"3", b"True"]
