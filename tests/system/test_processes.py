"""How a process ends: by Ctrl-C once, in good order; by itself as Python ends it, but for one thing."""

from __future__ import annotations

import itertools
import shlex
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
    assert process.communicate(timeout=600) == ("whole\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize(("later", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_one_that_comes_much_later_acts_again(later: signal.Signals, code: int) -> None:
    process = begun(0.1, stays=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "whole\n"
    process.send_signal(later)
    assert process.communicate(timeout=600) == ("" if code else "cut\n", "")
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
        assert (process.stderr.read(), process.wait(600)) == ("", 0)


# --- streams, warnings, telemetry -------------------------------------------------------------------------------------


CLOSED = (">&-", "<&-", "2>&-", ">&- 2>&- <&-")
QUICK = (("train", ">&-"), ("list", ">&- 2>&- <&-"))


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        *QUICK,
        *(
            pytest.param(command, closed, marks=pytest.mark.slow)
            for command, closed in itertools.product(("list", "--help", "train"), CLOSED)
            if (command, closed) not in QUICK
        ),
    ],
)
def test_closed_streams_are_no_failure(
    closed: str, command: str, tracking: str, train_flags: list[str], tmp_path: Path
) -> None:
    words = [*train_flags, "--epochs", "1", "--tracking", "offline"] if command == "train" else []
    typed = shlex.join([sys.executable, "-m", "biasbed", command, *words])
    script = ["bash", "-c", f"{typed} {closed}"]
    done = subprocess.run(script, env=command_environment(), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if command == "train" and "2>" not in closed:
        assert "done: " in done.stderr


WARNS = """
import sys, warnings
from biasbed.system.processes import shorten_warnings
shorten_warnings()
warnings.warn("Palette images with transparency\\n  should be converted \\x1b[31m", UserWarning)
warnings.warn("old", FutureWarning)
"""


def test_warnings_of_libraries_are_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(WARNS)
    words = [sys.executable, str(tmp_path / "warns.py")]
    done = subprocess.run(words, env=command_environment(), capture_output=True, text=True, check=True)
    first = "warning: Palette images with transparency should be converted \\x1b[31m"
    assert done.stderr.splitlines() == [first, "warning: old"]


ASKS = """
import biasbed
import os, subprocess, sys
from mlflow.telemetry import get_telemetry_client
from huggingface_hub import constants
print(get_telemetry_client(), constants.HF_HUB_DISABLE_TELEMETRY)
child = "from mlflow.telemetry.utils import is_telemetry_disabled; print(is_telemetry_disabled())"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_nothing_is_told_of_how_libraries_are_used() -> None:
    """Neither by this process nor by those that it starts. Tests and continuous integration tell nothing anyway."""
    quiet = ("PYTEST_", "MLFLOW_", "HF_", "CI", "GITHUB_ACTIONS", "DO_NOT_TRACK", "DISABLE_TELEMETRY", "JENKINS_URL")
    environment = {name: value for name, value in command_environment().items() if not name.startswith(quiet)}
    words = [sys.executable, "-c", ASKS]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["None", "True", "True"]
