"""Fixtures of all tests: small image folders, a fresh tracking database, and commands run as a user runs them."""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing.util
import os
import pickle
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from PIL import Image
from sqlalchemy import event
from sqlalchemy.engine import Engine

from biasbed.system.commands import LAUNCHED
from biasbed.system.processes import leave, yield_while_waiting
from helpers import children
from helpers.commands import SHARED
from helpers.postgres import postgres  # noqa: F401  (a fixture)
from helpers.slices import outside_slice

# Before torch loads. Small convolutions: threads that wait for each other on a busy machine take longer than they save.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The same examples in every run, and no clock: a slow machine must not decide whether a test passes.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
yield_while_waiting()  # as every command does; a test of numbers beside a test of commands is a busy neighbour


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """Commands that tests run in this process end by ignoring signals, and what a process ignores its children do.

    So do fixtures of a whole session; and a shell that starts something in the background has it ignore Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_launcher_is_kept() -> Iterator[None]:
    """A command that `mlflow run` started notes that for its children; tests run commands in this process."""
    yield
    os.environ.pop(LAUNCHED, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--algorithm", help="conformance suite: this method alone, by name or as <file.py>:<Class>")
    parser.addoption("--slice", help="a part of the slow tests alone: 3/10 has every tenth of them, from the third")
    parser.addoption("--renew", action="store_true", help="write golden traces as they are now")


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_configure_node(node: Any) -> None:
    """Several test processes have one fork server, that of the process which started them."""
    if node.config.getoption("numprocesses") > 1:
        node.workerinput["fork_server"] = children.start_server()


def pytest_configure(config: pytest.Config) -> None:
    address = getattr(config, "workerinput", {}).get("fork_server")
    if address is not None:
        children.use_server(address)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of other slices."""
    if not config.getoption("--slice"):
        return
    left_out = outside_slice(items, config.getoption("--slice"))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """Freeze imported and collected objects: to scan them again takes a thirteenth of the time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    """One of several test processes ends as commands do: to free what it has come to hold takes it ten seconds."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        atexit.register(_leave)


def _leave() -> None:
    atexit.unregister(_leave)
    leave(0)  # nobody asks how it has ended: it has said all


@pytest.fixture
def renew(pytestconfig: pytest.Config) -> bool:
    """Return True if files that are kept beside the code are written anew and not only compared."""
    return bool(pytestconfig.getoption("--renew"))


CLASSES = ("circle", "cross", "square")
T = TypeVar("T")


@pytest.fixture(scope="session", autouse=True)
def _temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put the temporary folder, with files that killed children leave, into the tests' own folder."""
    multiprocessing.util.get_temp_dir()  # made now: it is used to the end, and then takes its folder away itself
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The workplace's real images and published numbers; tests that need them skip where they are absent."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared, which holds other people's images and is not part of the repository")
    return SHARED


@pytest.fixture(scope="session")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders (two of 3 x 10 images, one of 3 x 5) of noisy shapes of 24 x 24 pixels."""
    root = tmp_path_factory.mktemp("images")
    for number, (folder, count) in enumerate({"photo": 17, "paint": 10, "ink": 5}.items()):
        generator = np.random.default_rng(number)
        for label, name in enumerate(CLASSES):
            (root / folder / name).mkdir(parents=True)
            for index in range(count):
                Image.fromarray(_shape(label, generator)).save(root / folder / name / f"{name}{index}.png")
    return root


def _shape(label: int, generator: np.random.Generator) -> np.ndarray:
    rows, columns = np.mgrid[:24, :24] - 11.5 + generator.integers(-2, 3, size=(2, 1, 1))
    masks = (
        np.hypot(rows, columns) < 8,
        np.minimum(abs(rows), abs(columns)) < 3,
        np.maximum(abs(rows), abs(columns)) < 7,
    )
    picture = np.where(masks[label][..., None], 210, 60) + generator.normal(0, 25, (24, 24, 3))
    return picture.clip(0, 255).astype(np.uint8)


class Once:
    """Makes what takes long for all processes of these tests: in the first that asks, into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, make: Callable[[Path], T]) -> T:
        """Return the result of `make`, fresh or read back."""
        place = self.folder / name
        with FileLock(f"{place}.lock"):
            if not (place / "made").exists():
                place.mkdir()
                (place / "made").write_bytes(pickle.dumps(make(place)))
        made: T = pickle.loads((place / "made").read_bytes())
        return made


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "once"
    folder.mkdir(exist_ok=True)
    return Once(folder)


@event.listens_for(Engine, "connect")
def _trust_the_disk(connection: object, record: object) -> None:
    """Test databases need not outlive a power cut: sqlite waits for no disk, a seventh of many tests' time."""
    if isinstance(connection, sqlite3.Connection):
        with contextlib.suppress(sqlite3.DatabaseError):  # it is none: whoever reads it first finds out
            connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")


@pytest.fixture(scope="session")
def _empty_store(once: Once) -> Path:
    """A tracking database with its tables: making them takes seconds, so it is made once and copied."""
    return once("store", _make_store)


def _make_store(folder: Path) -> Path:
    from mlflow import MlflowClient

    path = folder / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def published_uri(_empty_store: Path, once: Once) -> str:
    """A tracking server with the imported BiasBed results; tests only read it."""

    def make(folder: Path) -> str:
        from biasbed.published import import_runs

        shutil.copy(_empty_store, folder / "mlflow.db")
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        assert import_runs("biasbed", uri) == 158
        return uri

    return once("published", make)


@pytest.fixture
def serve_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a tracking URI in force, here and for commands, until the test's end."""

    def in_force(uri: str) -> None:
        import mlflow

        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        mlflow.set_tracking_uri(uri)

    yield in_force
    if "mlflow" in sys.modules:
        sys.modules["mlflow"].set_tracking_uri(None)


@pytest.fixture
def tracking(
    tmp_path: Path, _empty_store: Path, monkeypatch: pytest.MonkeyPatch, serve_at: Callable[[str], None]
) -> str:
    """The URI of a fresh tracking database, in force for this test and its commands."""
    shutil.copy(_empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "BIASBED_PARENT_RUN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    serve_at(uri)
    monkeypatch.chdir(tmp_path)
    return uri


@pytest.fixture
def move(
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _empty_store: Path,
    serve_at: Callable[[str], None],
) -> Callable[[str], str]:
    """Makes another, empty server the one in use."""

    def to(name: str) -> str:
        folder = tmp_path / name
        if not folder.exists():
            folder.mkdir()
            shutil.copy(_empty_store, folder / "mlflow.db")
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        monkeypatch.setenv("BIASBED_HOME", str(folder / "home"))
        serve_at(uri)
        return uri

    return to


@pytest.fixture(scope="session")
def train_flags(image_root: Path) -> list[str]:
    """A training of a few seconds' work in all: 41 training images, 3 epochs, two test sets."""
    return [
        *("--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "16"),
        *("--epochs", "3", "--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.02", "--workers", "0", "--device", "cpu", "--log_model", "false"),
    ]


@pytest.fixture
def biasbed(tracking: str) -> children.Command:
    """Runs `biasbed <words>` in a process of its own, with this test's tracking; `check=False` allows a failure."""

    def run(*words: str, check: bool = True, **options: Any) -> children.Done:
        done = children.run(words, **options)
        assert not check or done.returncode == 0, done.stderr
        return done

    return run
