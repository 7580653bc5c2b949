"""Real engines, started by the first test that needs one and ended with the session; and what is trained on them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.engine_study import EngineStudy, Lingering, Studies
from helpers.real_docker import Docker
from helpers.tracking_server import Server


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder with a short name: sockets' are limited."""
    folder = Path(tempfile.mkdtemp(prefix="engines-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def docker_engine(scratch: Path) -> Iterator[Docker]:
    engine = Docker(scratch / "docker")
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def store(scratch: Path, _empty_store: Path) -> str:
    """The database of the tracking server, as tests read it past the server."""
    shutil.copy(_empty_store, scratch / "mlflow.db")
    return f"sqlite:///{scratch / 'mlflow.db'}"


@pytest.fixture(scope="session")
def tracking_uri(scratch: Path, store: str) -> Iterator[str]:
    """A tracking server by this machine's own name: launchers refuse one that only this machine reaches."""
    server = Server(scratch, store, socket.gethostname())
    server.start()
    yield server.uri
    server.stop()


@pytest.fixture(scope="session")
def method(scratch: Path) -> Lingering:
    return Lingering(scratch)


@pytest.fixture
def lingering(method: Lingering) -> Iterator[Lingering]:
    """Trainings linger in their second epoch until the test lets them hurry."""
    method.linger()
    yield method
    method.hurry()


@pytest.fixture(scope="session")
def undisturbed(scratch: Path, image_root: Path, method: Lingering) -> Path:
    """The output folder of trainings by the local launcher, without a server: seeds 0 to 2."""
    method.hurry()
    flags = ("--launcher", "local", "--tracking", "offline", "--nproc", "1")
    study = EngineStudy("alone", scratch / "alone", image_root, method, flags, os.environ, "0..2")
    study.run()
    return study.home


@pytest.fixture
def study(tmp_path: Path, image_root: Path, method: Lingering, tracking_uri: str) -> Iterator[Studies]:
    """Makes studies, named by the test."""
    made: list[EngineStudy] = []

    def make(name: str, *launcher: str, environment: dict[str, str], seeds: str = "0..0") -> EngineStudy:
        variables = {**environment, "MLFLOW_TRACKING_URI": tracking_uri}
        made.append(EngineStudy(name, tmp_path / name, image_root, method, launcher, variables, seeds))
        return made[-1]

    yield make
    for engine_study in made:
        engine_study.close()
