"""Commands in processes of their own that start at once: forked from a server that has imported torch and MLflow."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import command_environment, free_port

_CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = (
    *(
        "biasbed.cli",
        "biasbed.training.train",
        "biasbed.evaluation.models",
        "biasbed.studies.benchmark",
        "helpers.kill_at",
        "helpers.known",
    ),
    *("mlflow", "mlflow.pytorch", "mlflow.store.tracking.sqlalchemy_store", "pyarrow.parquet", "torchvision"),
    *("torch.export", "torch._dynamo", "pandas", "scipy.stats", "timm"),
)
_CONTEXT.set_forkserver_preload(list(PRELOADED))


@dataclass(frozen=True)
class Done:
    """End of a command; with several processes the first non-zero code, and everything they printed."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float = 0.0  # of a processor; of several processes the slowest's, endless of one that was killed
    peak: int = 0  # bytes of memory at most, of the largest process; 0 of one that was killed


Command = Callable[..., Done]  # what the fixture `biasbed` is


def one_line(text: str) -> str:
    """Return the message of a command that failed, which is its last line and the only one of its kind."""
    assert "Traceback" not in text
    assert text.count("biasbed: ") == 1
    return text.splitlines()[-1]


def run(
    words: Sequence[str],
    env: Mapping[str, str | None] | None = None,
    processes: int = 1,
    kill: tuple[str, int, str] | None = None,
    victim: int | None = None,
    cwd: Path | None = None,
    timeout: float = 600,
    before: Callable[[], None] | None = None,
) -> Done:
    """`biasbed <words>`, in `processes` processes as torchrun would start them.

    kill: (moment, count, signal), see kill_at.py; every process is signalled at its own such moment, or `victim` alone.
    env: beside this process's own; a variable of None is not there. before: what each process does first, as limiting
    itself. One that has not ended in `timeout` seconds is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        kills = [kill if victim in (None, rank) else None for rank in range(processes)]
        children = start(words, env or {}, cwd or Path.cwd(), f"{folder}/", kills, [before] * processes)
        for child in children:
            child.join(timeout)
            if child.is_alive():
                child.kill()
                child.join()
        codes = [child.exitcode or 0 for child in children]
        out, err, used = ([_text(f"{folder}/{rank}.{s}") for rank in range(processes)] for s in ("out", "err", "used"))
    seconds, peak = (max(numbers) for numbers in zip(*(map(float, text.split()) for text in used), strict=True))
    return Done(next((code for code in codes if code), 0), "".join(out), "".join(err), seconds, int(peak))


def start(
    words: Sequence[str],
    env: Mapping[str, str | None],
    cwd: Path,
    output: str,
    kills: Sequence[tuple[str, int, str] | None],
    befores: Sequence[Callable[[], None] | None],
) -> list[BaseProcess]:
    """Return the processes of `biasbed <words>`, one for each of `befores`, which is what it does first; see `run`.

    output: what the names of their files begin with, <output><rank>.out, .err and .used.
    """
    environment = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    environment.pop("MLFLOW_RUN_ID", None)
    if len(befores) > 1:
        environment |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment |= {"WORLD_SIZE": str(len(befores))}
    start_server()
    started = []
    for rank, (kill, before) in enumerate(zip(kills, befores, strict=True)):
        variables = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)} if len(befores) > 1 else environment
        arguments = (list(words), variables, str(cwd), f"{output}{rank}", kill, before)
        started.append(_CONTEXT.Process(target=_child, args=arguments))
        started[-1].start()
    return started


def _text(path: str) -> str:
    return Path(path).read_text(errors="backslashreplace")


def train_at(here: Path, store: Path, words: Sequence[str]) -> None:
    """`biasbed <words>` in a folder that gets its own database (a copy of the empty `store`) and output folder `home`.

    So a module's tests can copy one training and its run in place of training each on its own.
    """
    shutil.copy(store, here / "mlflow.db")
    env = {"MLFLOW_TRACKING_URI": f"sqlite:///{here / 'mlflow.db'}", "BIASBED_HOME": str(here / "home")}
    done = run(words, env=env, cwd=here)
    assert done.returncode == 0, done.stderr


# The server of this process, and how it makes sure of it. Python lets no process name another's server.
_SERVER: Any = multiprocessing.forkserver._forkserver


def start_server() -> str:
    """Start the fork server, unless it runs or `use_server` has named one, and return where it listens.

    Python 3.11 tells it no path, and passes over what it can't import without a word. It passes its signals on to its
    children, so it is not to ignore Ctrl-C, as what a shell starts in the background does.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", command_environment()["PYTHONPATH"])
        _SERVER.ensure_running()
    return str(_SERVER._forkserver_address)


def use_server(address: str) -> None:
    """Use the server of the process that started this one: to import all that each once again takes ten seconds."""
    _SERVER._forkserver_address = address
    _SERVER._forkserver_alive_fd = os.pipe()[1]  # a server's ends with whoever started it
    _SERVER.ensure_running = multiprocessing.resource_tracker.ensure_running


def _child(
    words: list[str],
    environment: dict[str, str],
    cwd: str,
    output: str,
    kill: tuple[str, int, str] | None,
    before: Callable[[], None] | None = None,
) -> None:
    used = os.open(f"{output}.used", os.O_WRONLY | os.O_CREAT)
    os.write(used, b"inf 0")
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the fork server may have asked for its own already
    os.chdir(cwd)
    # As in a command of its own; a child of the fork server would start loader workers through another such server.
    multiprocessing.set_start_method("fork", force=True)
    import torch

    from biasbed import cli

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))  # the fork server's is that of whoever started it
    if kill is not None:
        from helpers import kill_at

        kill_at.arm(*kill)
    if before is not None:
        before()
    code = 1
    try:
        code = cli.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        seconds, peak = (
            sum(used_by.ru_utime + used_by.ru_stime for used_by in usage),
            max(used_by.ru_maxrss for used_by in usage),
        )
        os.pwrite(used, f"{seconds} {peak * 1024}".encode(), 0)
    sys.stderr.flush()
    sys.exit(code)
