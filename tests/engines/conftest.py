"""Real engines, started by the first test that needs one and ended with the session; and what is trained on them."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.lingering import Lingering
from helpers.real_docker import Docker
from helpers.tracking_server import Server


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Yield a folder with a short name: sockets' are limited."""
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
    """Return the database of the tracking server, as tests read it past the server."""
    shutil.copy(_empty_store, scratch / "mlflow.db")
    return f"sqlite:///{scratch / 'mlflow.db'}"


@pytest.fixture(scope="session")
def tracking_uri(scratch: Path, store: str) -> Iterator[str]:
    """Yield a tracking server by this machine's own name: launchers refuse one that only this machine reaches."""
    server = Server(scratch, store, socket.gethostname())
    server.start()
    yield server.uri
    server.stop()


@pytest.fixture(scope="session")
def method(scratch: Path) -> Lingering:
    return Lingering(scratch)


@pytest.fixture
def lingering(method: Lingering) -> Iterator[Lingering]:
    """Yield the method; its trainings linger in their second epoch until the test lets them hurry."""
    method.linger()
    yield method
    method.hurry()
