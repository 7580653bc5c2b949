"""How a process ends: by Ctrl-C once, in good order; by itself as Python ends it, but for one thing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import command_environment

WORK = """
import time
from biasbed.system import processes
processes.PATIENCE = {patience}
processes.interrupt_once()
try:
    print("ready", flush=True)
    time.sleep(20)
except KeyboardInterrupt:
    print("ending", flush=True)
    try:
        time.sleep(0.5)
        print("whole", flush=True)
        time.sleep(20 * {stays})
    except KeyboardInterrupt:
        print("cut", flush=True)
"""


def begun(patience: float, stays: bool) -> subprocess.Popen[str]:
    """A process at its work, which Ctrl-C has ended; now it brings it to its end, and stays where that is asked for."""
    code = WORK.format(patience=patience, stays=stays)
    process = subprocess.Popen([sys.executable, "-c", code], env=command_environment(), stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "ending\n"
    return process


@pytest.mark.parametrize("copy", [signal.SIGINT, signal.SIGTERM])  # mlflow passes Ctrl-C on as SIGTERM
def test_a_second_signal_does_not_cut_through_the_end_of_the_work(copy: signal.Signals) -> None:
    process = begun(10, stays=False)
    process.send_signal(copy)
    assert process.communicate(timeout=20) == ("whole\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize(("later", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_one_that_comes_much_later_acts_again(later: signal.Signals, code: int) -> None:
    process = begun(0.1, stays=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "whole\n"
    process.send_signal(later)
    assert process.communicate(timeout=20) == ("" if code else "cut\n", "")
    assert process.returncode == code


END = """
import atexit, sys, tempfile, threading, time
from biasbed.system import processes

class Kept:
    def __del__(self):
        print("freed")

kept = Kept()
folder = tempfile.TemporaryDirectory()
print(folder.name)
atexit.register(print, "called")
threading.Thread(target=lambda: (time.sleep(0.2), print("waited for"))).start()
print("at the end")
print("to stderr", file=sys.stderr, end="")
processes.leave(3)
"""


def test_what_is_to_be_done_at_the_end_is_done_and_nothing_is_freed() -> None:
    words = [sys.executable, "-c", END]
    done = subprocess.run(words, env=command_environment(), capture_output=True, text=True, check=False)
    folder, *printed = done.stdout.splitlines()
    assert (done.returncode, printed, done.stderr) == (3, ["at the end", "waited for", "called"], "to stderr")
    assert not Path(folder).exists()


def test_nobody_who_reads_is_no_failure_at_the_end() -> None:
    code = "import sys; from biasbed.system import processes; sys.stdin.read(); print('buffered'); processes.leave(0)"
    words, env = [sys.executable, "-c", code], command_environment() | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(words, env=env, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert (process.stderr.read(), process.wait(30)) == ("", 0)
