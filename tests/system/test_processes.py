"""Ends of commands by signals, wherever they arrive; their streams and warnings."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from biasbed.system import processes
from helpers.children import Command
from helpers.commands import command_environment
from helpers.runs import all_runs

# --- signals ----------------------------------------------------------------------------------------------------------

# Code in which Python discards every exception, with `send()` in it.
DISCARDING = {
    "weak reference": "thing = Thing(); reference = weakref.ref(thing, lambda _: send()); del thing",
    "finalizer": "Thing.__del__ = lambda self: send(); thing = Thing(); del thing",
    "collector": "gc.callbacks.append(lambda *_: send()); gc.collect(); gc.callbacks.clear()",
    "library": "swallow()",
}
PROGRAM = """
import atexit, contextlib, gc, os, signal, sys, time, weakref
from biasbed.system import processes

class Thing: pass

def send():
    os.kill(os.getpid(), {number})
    time.sleep(0)

def swallow():
    with contextlib.suppress(BaseException):
        send()
"""
WAITS = """
try:
    with processes.interruptible():
        {place}
        {again}
        while True:
            time.sleep(0.05)
except KeyboardInterrupt as error:
    print(processes.signal_of(error).name)
"""
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


def run_program(code: str, number: signal.Signals = signal.SIGTERM) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM.format(number=int(number)) + code]
    return subprocess.run(words, env=command_environment(), capture_output=True, text=True, check=False, timeout=600)


REMINDED = """
from biasbed import cli
from biasbed.system import processes
sys.argv = ["biasbed", "list"]
processes.AGAIN = 1e-4  # of a second, so that one of the reminders meets every line
cli.COMMANDS = {{"list": cli.EntryPoint("", "__main__:send", "biasbed.options:ListOptions", is_light=True)}}
send = lambda options: os.kill(os.getpid(), {number})
for _ in range(50):
    assert cli.main() == 128 + {number}
    processes._request.restore()
"""


def test_a_command_that_a_signal_ends_is_not_reminded_of_it_at_its_end() -> None:
    """Once in fourteen times on a busy machine it was: a traceback after the message, and the alarm's exit code."""
    done = run_program(REMINDED.format(number=int(signal.SIGTERM)))
    assert (done.returncode, set(done.stderr.splitlines())) == (0, {"biasbed: ended by SIGTERM"})


@pytest.mark.parametrize(
    ("place", "number", "again"),
    [
        *itertools.product(DISCARDING, [signal.SIGTERM], ["pass", "swallow()"]),
        ("library", signal.SIGTERM, "send()"),
        ("library", signal.SIGINT, "pass"),
        ("library", signal.SIGUSR2, "pass"),
    ],
)
def test_a_signal_whose_exception_is_discarded_ends_the_block(place: str, number: signal.Signals, again: str) -> None:
    done = run_program(WAITS.format(place=DISCARDING[place], again=again), number)
    assert (done.stdout, done.stderr) == (f"{number.name}\n", "")


ENDS = """
try:
    with processes.interruptible():
        swallow()
except KeyboardInterrupt as error:
    print("at the end")
"""
FAILS = """
try:
    with processes.interruptible():
        swallow()
        raise RuntimeError("what a library made of it")
except KeyboardInterrupt as error:
    print("at the end")
"""


@pytest.mark.parametrize("code", [ENDS, FAILS])
def test_a_discarded_signal_acts_at_the_end_of_the_block(code: str) -> None:
    assert run_program("processes.AGAIN = 1000\n" + code).stdout == "at the end\n"


REMINDS = """
def remind(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "_report_discarded":
        os.kill(os.getpid(), signal.SIGALRM)

sys.setprofile(remind)
"""


def test_a_signal_that_is_raised_again_during_the_report_is_not_reported() -> None:
    done = run_program(REMINDS + WAITS.format(place=DISCARDING["weak reference"], again="pass"))
    assert (done.stdout, done.stderr) == ("SIGTERM\n", "")


CLEANS_UP = """
processes.COPIES = {copies}
try:
    with processes.interruptible():
        try:
            send()
        finally:
            time.sleep(3 * processes.AGAIN)
            send()
            send()
            print("cleaned up", flush=True)
except KeyboardInterrupt:
    print("ended")
"""


def test_copies_of_a_signal_do_not_cut_through_the_end_of_the_work() -> None:
    assert run_program(CLEANS_UP.format(copies=1000)).stdout == "cleaned up\nended\n"


def test_a_later_signal_ends_the_process_at_once() -> None:
    done = run_program(CLEANS_UP.format(copies=0))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")


POSTPONES = """
processes.COPIES = {copies}
with processes.interruptible(), processes.postponed():
    send()
    print(processes.noted_signal().name, flush=True)
    try:
        send()
        with processes.acting_at_once():
            print("not reached")
    except KeyboardInterrupt:
        print("acted", flush=True)
    {then}
"""


@pytest.mark.parametrize("copies", [0, 1000])
def test_a_postponed_signal_is_noted_and_a_second_one_or_an_inner_block_acts(copies: int) -> None:
    done = run_program(POSTPONES.format(copies=copies, then="os._exit(0)"))
    assert (done.stdout, done.stderr) == ("SIGTERM\nacted\n", "")


OVER = """
processes.COPIES = 0
processes.handle_signals()
processes.ignore_first_signal()
send()
print("ignored", flush=True)
send()
print("not reached", flush=True)
"""


def test_a_command_that_is_over_ignores_a_first_signal_and_no_second() -> None:
    done = run_program(OVER)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "ignored\n")


def test_handlers_are_as_before_after_the_block() -> None:
    before = {number: signal.getsignal(number) for number in (*NUMBERS, signal.SIGCHLD, signal.SIGALRM)}
    with contextlib.suppress(KeyboardInterrupt), processes.interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(300)
    assert {number: signal.getsignal(number) for number in before} == before
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0


def test_a_thread_may_use_what_handles_signals() -> None:
    def work() -> None:
        with processes.interruptible():
            done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


COMMAND = """
from biasbed import cli
calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"
    if calls == {at}:
        sys.setprofile(None)
        {place}

sys.setprofile(count)
atexit.register(lambda: print("calls:", calls, file=sys.stderr))
cli.run()
"""


def count_calls(words: list[str], folder: Path) -> int:
    """Return the number of Python functions that a command calls."""
    done = run_command(words, folder, -1, "pass")
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1].removeprefix("calls: "))


def run_command(
    words: list[str], folder: Path, at: int, place: str, number: signal.Signals = signal.SIGTERM
) -> subprocess.CompletedProcess[str]:
    """Run a command whose `at`-th call of a function is `place`. Words such as NAME=value go into its environment."""
    code = PROGRAM.format(number=int(number)) + COMMAND.format(at=at, place=place)
    variables = dict(word.split("=", 1) for word in words if re.match("[A-Z_]+=", word))
    command = [sys.executable, "-c", code, *(word for word in words if word.partition("=")[0] not in variables)]
    environment = command_environment(variables)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600, cwd=folder
    )


def check_signals(words: list[str], folder: Path, draw: random.Random) -> None:
    """Check that a signal in each place, at a random moment of a command, ends it in order. {}: numbers its outputs."""
    calls = count_calls([word.format(0) for word in words], folder)
    for attempt, (place, code) in enumerate(DISCARDING.items(), 1):
        number, at = draw.choice(NUMBERS), int(calls * draw.uniform(0.05, 0.9))
        done = run_command([word.format(attempt) for word in words], folder, at, code, number)
        case = (words[0], place, number.name, f"call {at} of {calls}", done.stdout[-300:], done.stderr)
        assert done.returncode == 128 + number, case
        assert "Traceback" not in done.stderr, case
        assert "Exception ignored" not in done.stderr, case
        assert re.search(r"^biasbed: (interrupted|ended by)", done.stderr, re.M), case


@pytest.mark.parametrize("command", ["list", pytest.param("compare", marks=pytest.mark.slow)])
def test_a_light_command_ends_by_a_signal_at_any_moment(command: str, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("method,a,b,c\nx,1,2,3\ny,2,3,5\nz,3,1,4\n")
    words = {"list": ["list", "--what", "rules"], "compare": ["compare", "scores.csv", "--output_dir", "compared"]}
    check_signals(words[command], tmp_path, random.Random(1))


TRACKING = {
    "train": ["--seed", "1", "--resume", "never"],
    "evaluate": [
        *("--model", "<run>", "--suite", "folders", "--data_dir", "<images>", "--sets", "paint,ink"),
        *("--device", "cpu", "--workers", "0", "--resume", "never"),
    ],
    "benchmark": ["--algorithms", "erm", "--seeds", "3..3", "--study", "study{}", "--workers", "1"],
    "sweep": ["--algorithms", "erm", "--trials", "1", "--study", "sweep{}", "--workers", "1"],
    "reproduce": ["--run", "<run>", "--output_dir", "again{}"],
    "analyze": ["--output_dir", "analysis{}"],
    "site": ["--output_dir", "site{}"],
    "export": ["--run", "<run>", "--file", "runs{}.zip"],
    "import": ["MLFLOW_TRACKING_URI=sqlite:///<here>/import{}.db", "--source", "biasbed"],
    "sync": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", TRACKING)
def test_a_tracking_command_ends_by_a_signal_at_any_moment(
    command: str, train_flags: list[str], tracking: str, tmp_path: Path, image_root: Path, biasbed: Command
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    biasbed("train", *train_flags)
    (run,) = all_runs(tracking, kind="train")
    common = list(train_flags) if command in ("train", "benchmark", "sweep") else []
    if command == "sweep":  # which searches over the rate
        rate = common.index("--optim.lr")
        del common[rate : rate + 2]
    here = {"<run>": run.info.run_id, "<here>": str(tmp_path), "<images>": str(image_root)}
    words = [re.sub("<.*>", lambda name: here[name[0]], word) for word in TRACKING[command]]
    check_signals([command, *common, *words], tmp_path, random.Random(seed))


# --- the end ----------------------------------------------------------------------------------------------------------

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
