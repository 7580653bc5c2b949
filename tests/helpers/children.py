"""Commands in processes of their own that start at once: forked from a server that has imported torch and MLflow."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.commands import command_environment

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
    """How a command ended; with several processes the first non-zero code, and everything they printed."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]  # what the fixture `biasbed` is


def one_line(text: str) -> str:
    """The message of a command that failed, which is its last line and the only one of its kind."""
    assert "Traceback" not in text
    assert text.count("biasbed: ") == 1
    return text.splitlines()[-1]


def run(
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    processes: int = 1,
    kill: tuple[str, int, str] | None = None,
    victim: int | None = None,
    cwd: Path | None = None,
    timeout: float = 240,
) -> Done:
    """`biasbed <words>`, in `processes` processes as torchrun would start them.

    kill: (moment, count, signal), see kill_at.py; every process is signalled at its own such moment, or `victim` alone.
    """
    environment = {**os.environ, **(env or {})}
    environment.pop("MLFLOW_RUN_ID", None)
    if processes > 1:
        environment |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        environment |= {"WORLD_SIZE": str(processes)}
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(processes):
            own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else environment
            at = kill if victim in (None, rank) else None
            arguments = (list(words), own, str(cwd or Path.cwd()), f"{folder}/{rank}", at)
            children.append(_CONTEXT.Process(target=_child, args=arguments))
            children[-1].start()
        for child in children:
            child.join(timeout)
            if child.is_alive():
                child.kill()
        codes = [child.exitcode or 0 for child in children]
        texts = ["".join(Path(f"{folder}/{rank}.{s}").read_text() for rank in range(processes)) for s in ("out", "err")]
    return Done(next((code for code in codes if code), 0), *texts)


def train_at(here: Path, store: Path, words: Sequence[str]) -> None:
    """`biasbed <words>` in a folder that gets its own database (a copy of the empty `store`) and output folder `home`.

    So a module's tests can copy one training and its run in place of training each on its own.
    """
    shutil.copy(store, here / "mlflow.db")
    env = {"MLFLOW_TRACKING_URI": f"sqlite:///{here / 'mlflow.db'}", "BIASBED_HOME": str(here / "home")}
    done = run(words, env=env, cwd=here)
    assert done.returncode == 0, done.stderr


def start_server() -> None:
    """Start the fork server. Python 3.11 tells it no path, and passes over what it can't import without a word."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", command_environment()["PYTHONPATH"])
        multiprocessing.forkserver.ensure_running()


def _child(
    words: list[str], environment: dict[str, str], cwd: str, output: str, kill: tuple[str, int, str] | None
) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    # As in a command of its own; a child of the fork server would start loader workers through another such server.
    multiprocessing.set_start_method("fork", force=True)
    import torch

    from biasbed import cli

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))  # the fork server's is that of whoever started it
    if kill is not None:
        from helpers import kill_at

        kill_at.arm(*kill)
    code = cli.main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
