"""Real engines, started by the first test that needs one and ended with the session; and what is trained on them."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.engine_study import EngineStudy, Lingering, Studies
from helpers.real_docker import Docker
from helpers.real_slurm import Slurm
from helpers.tracking_server import Server


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Yield a folder with a short name: sockets' are limited."""
    folder = Path(tempfile.mkdtemp(prefix="engines-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def _cluster(scratch: Path) -> Iterator[Slurm]:
    cluster = Slurm(scratch / "slurm")
    cluster.folder.mkdir()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def slurm(_cluster: Slurm) -> Iterator[Slurm]:
    """Yield two idle nodes, whatever the test before this one did to them."""
    yield _cluster
    _cluster.clear()


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
    method.lighten()


@pytest.fixture(scope="session")
def undisturbed(scratch: Path, image_root: Path, method: Lingering) -> Path:
    """Return the output folder of trainings by the local launcher, without a server: seeds 0 to 2."""
    method.hurry()
    flags = ("--launcher", "local", "--tracking", "offline", "--nproc", "1")
    study = EngineStudy("alone", scratch / "alone", image_root, method, flags, {}, "0..2")
    study.run()
    return study.home


@pytest.fixture(scope="session")
def undisturbed_pair(scratch: Path, image_root: Path, method: Lingering) -> Path:
    """Return the same of a training with two processes."""
    method.hurry()
    flags = ("--launcher", "local", "--tracking", "offline", "--nproc", "2")
    study = EngineStudy("pair", scratch / "pair", image_root, method, flags, {})
    study.run()
    return study.home


@pytest.fixture
def study(tmp_path: Path, image_root: Path, method: Lingering, tracking_uri: str) -> Iterator[Studies]:
    """Yield what makes studies, named by the test."""
    made: list[EngineStudy] = []

    def make(name: str, *launcher: str, environment: dict[str, str], seeds: str = "0..0") -> EngineStudy:
        own = {**environment, "MLFLOW_TRACKING_URI": tracking_uri}
        made.append(EngineStudy(name, tmp_path / name, image_root, method, launcher, own, seeds))
        return made[-1]

    yield make
    for study in made:
        study.close()
