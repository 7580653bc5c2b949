"""server/compose.yaml on a real Docker engine: read, started, written to, killed, restarted, backed up, restored."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from helpers import children, small_study
from helpers.commands import ROOT, free_port
from helpers.fake_runs import wait_for
from helpers.real_docker import DATABASE, IMAGE, SERVER, Docker, inspected
from helpers.runs import all_runs, history, run_folders, timeless

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # images that are built for the first time

FILE = ROOT / "server" / "compose.yaml"


@dataclass
class Compose:
    """The file's services under a project of their own, on free ports. Docker's plugin takes the file as it is; the
    last docker-compose in Python (1.29), without `name`, which is younger."""

    docker: Docker
    folder: Path

    def __post_init__(self) -> None:
        self.project = f"test{os.getpid()}"
        self.port = free_port()
        self.environment = {**self.docker.environment, "POSTGRES_PASSWORD": secrets.token_hex(8)}
        self.environment |= {"PORT": str(self.port), "POSTGRES_PORT": str(free_port()), "BIND": "127.0.0.1"}
        file = self.folder / "compose.yaml"
        if self.docker.call("compose", "version", check=False).returncode == 0:
            self.words, text = ["docker", "compose"], FILE.read_text()
        elif shutil.which("docker-compose"):
            self.words, text = ["docker-compose"], FILE.read_text().replace("\nname: biasbed\n", "\n")
        else:
            pytest.skip("needs `docker compose` or docker-compose")
        file.write_text(text)
        self.words += ["-f", str(file), "--project-directory", str(ROOT / "server"), "-p", self.project]

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, words: str, check: bool = True, text: bytes | None = None) -> bytes:
        """Return the output of `docker compose <words>`; text: its standard input."""
        call = [*self.words, *words.split()]
        done = subprocess.run(call, env=self.environment, input=text, capture_output=True, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.stderr.decode()}"
        return done.stdout

    def up(self) -> None:
        """Until the server answers."""
        self.call("up -d --no-build")
        wait_for(self.is_well, 600)

    def is_well(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def container(self, service: str) -> str:
        return self.call(f"ps -q {service}").decode().strip()


@pytest.fixture(scope="module")
def compose(docker_engine: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    docker_engine.build_services()
    missing = [
        name for name in (DATABASE, SERVER) if docker_engine.call("image", "inspect", name, check=False).returncode != 0
    ]
    if missing:
        pytest.skip(f"needs the images {', '.join(missing)}")
    services = Compose(docker_engine, tmp_path_factory.mktemp("compose"))
    try:
        services.up()
        yield services
    finally:
        services.call("--profile worker down --volumes --timeout 20", check=False)


def trained(compose: Compose, image_root: Path, home: Path) -> tuple[str, dict[int, dict[str, float]]]:
    """(the id of a training that was logged on the server; its numbers per epoch)"""
    settings = small_study.settings(image_root, algorithm="infodrop", study=home.name)
    words = [
        "train",
        "--suite",
        "folders",
        *(word for name, value in settings.items() for word in (f"--{name}", value)),
    ]
    done = children.run(words, env={"BIASBED_HOME": str(home), "MLFLOW_TRACKING_URI": compose.uri})
    assert done.returncode == 0, done.stderr
    (run,) = all_runs(compose.uri, study=home.name)
    assert run.info.status == "FINISHED"
    return run.info.run_id, history(run_folders(home)[0])


def kept(compose: Compose, run_id: str) -> dict[int, dict[str, float]]:
    """Return a run's numbers per epoch as the server has them, whose artifacts are there, too."""
    client = MlflowClient(compose.uri)
    assert yaml.safe_load(Path(client.download_artifacts(run_id, "config.yaml")).read_text())["algorithm"] == "infodrop"
    histories: dict[int, dict[str, float]] = {}
    for key in client.get_run(run_id).data.metrics:
        for metric in client.get_metric_history(run_id, key):
            histories.setdefault(metric.step, {})[key] = metric.value
    return {step: timeless(metrics) for step, metrics in histories.items() if timeless(metrics)}


def test_a_training_logs_into_it_and_all_is_there_after_restart_kill_and_restore(
    compose: Compose, image_root: Path, tmp_path: Path
) -> None:
    run_id, numbers = trained(compose, image_root, tmp_path / "logged")
    assert kept(compose, run_id) == numbers

    compose.call("down --timeout 30")
    assert not compose.is_well()
    compose.up()
    assert kept(compose, run_id) == numbers

    process = inspected(compose.docker, "inspect", compose.container("server"))["State"]["Pid"]
    os.kill(process, signal.SIGKILL)  # not by `docker kill`, after which nothing is started again
    wait_for(lambda: not compose.is_well())
    wait_for(compose.is_well, 600)
    assert kept(compose, run_id) == numbers

    dump = compose.call("exec -T database pg_dumpall -U biasbed --clean --if-exists")
    files = compose.call("exec -T server tar -C /artifacts -cz .")
    compose.call("down --volumes --timeout 30")
    compose.up()
    assert not all_runs(compose.uri, study="logged")
    compose.call("stop server")
    compose.call("exec -T database psql -q -U biasbed -d postgres", text=dump)
    compose.call("run --rm -T server tar -C /artifacts -xz", text=files)
    compose.up()
    assert kept(compose, run_id) == numbers


def test_strangers_names_are_refused(compose: Compose) -> None:
    request = urllib.request.Request(
        f"{compose.uri}/api/2.0/mlflow/experiments/search", headers={"Host": "evil.example"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5)
    assert caught.value.code == 403
    done = subprocess.run(
        ["docker", "logs", compose.container("server")], env=compose.environment, capture_output=True, check=True
    )
    assert compose.environment["POSTGRES_PASSWORD"].encode() not in done.stdout + done.stderr


def test_a_worker_trains_in_a_container_of_the_image(compose: Compose) -> None:
    if compose.docker.call("image", "inspect", IMAGE, check=False).returncode != 0:
        pytest.skip(f"needs the image {IMAGE}")
    compose.call("--profile worker run --rm worker train --algorithm erm --epochs 1 --study worker")
    (run,) = all_runs(compose.uri, study="worker")
    assert run.info.status == "FINISHED"
