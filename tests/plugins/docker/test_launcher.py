"""launcher=docker, with an engine that answers the Docker API and runs commands without containers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli
from biasbed.config import Config
from biasbed.errors import UsageError
from helpers.commands import ROOT, command_environment
from helpers.fake_docker import Engine, Request, command, launcher
from helpers.fake_runs import wait_for

GPUS = {"DiscoveredDevices": [{"ID": f"nvidia.com/gpu={name}"} for name in (*range(4), "all")]}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    fake = Engine(tmp_path)
    for name, value in {**command_environment(), "DOCKER_HOST": fake.uri}.items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.close()


def script(text: str) -> Any:
    return lambda request: [sys.executable, "-c", text]


def only_request(engine: Engine) -> Request:
    (container,) = engine.containers.values()
    return container.request


def test_what_the_engine_is_asked_for(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders under their own paths, all but the runs' read-only; who calls; the GPUs of the slot; the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    for name in ("data", "more", "home/prepared"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("weights.pt", "own.py"):
        (tmp_path / name).touch()
    engine.info |= GPUS
    engine.execute = script("print('trained')")
    words = {"data_dir": "data", "init": "weights.pt", "algorithm": "own.py:Mine", "device": "cuda", "nproc": "2"}
    training = launcher(mounts=f"{tmp_path}/more", shm_size="1g").start(command(tmp_path / "home", 1, 2, **words))
    wait_for(lambda: training.poll() is not None)
    assert training.poll() == 0
    assert training.log.read_text() == "trained\n"

    request = only_request(engine)
    host = request["HostConfig"]
    pairs = dict(word.split("=", 1) for word in request["Cmd"][1:])
    assert request["Cmd"][0] == "train"
    assert pairs["--output_dir"] == str(tmp_path / "home")
    assert pairs["--prepared_dir"] == str(tmp_path / "home" / "prepared")
    assert pairs["--data_dir"] == str(tmp_path / "data")
    assert pairs["--init"] == str(tmp_path / "weights.pt")
    assert pairs["--algorithm"] == f"{tmp_path}/own.py:Mine"
    assert all(mount["Source"] == mount["Target"] for mount in host["Mounts"])
    writable = [mount["Source"] for mount in host["Mounts"] if not mount.get("ReadOnly")]
    assert writable == [str(tmp_path / "home")]
    readable = {mount["Source"] for mount in host["Mounts"] if mount.get("ReadOnly")}
    assert readable == {str(tmp_path / name) for name in ("data", "more", "home/prepared", "weights.pt")} | {
        str(tmp_path)
    }
    assert request["User"] == f"{os.getuid()}:{os.getgid()}"
    (gpus,) = host["DeviceRequests"]
    assert (gpus["Driver"], gpus["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=2", "nvidia.com/gpu=3"])
    assert (host["ShmSize"], host["NetworkMode"], host["Init"]) == (2**30, "bridge", True)
    expected = {"MLFLOW_TRACKING_URI=http://server:5000", "BIASBED_PARENT_RUN=abc", "MLFLOW_TRACKING_TOKEN=secret"}
    assert expected <= set(request["Env"])
    assert request["Labels"] == {"biasbed.study": "s", "biasbed.run": "erm-seed0"}


@pytest.mark.parametrize(
    ("options", "user", "namespace"),
    [
        (["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], "0:0", ""),
        (["name=userns"], f"{os.getuid()}:{os.getgid()}", "host"),
        (["name=cgroupns"], f"{os.getuid()}:{os.getgid()}", ""),
    ],
)
def test_the_container_s_user_is_the_caller_also_if_the_engine_maps_users(
    engine: Engine, tmp_path: Path, options: list[str], user: str, namespace: str
) -> None:
    engine.info |= {"SecurityOptions": options}
    engine.execute = script("print('trained')")
    training = launcher().start(command(tmp_path / "home", 0, 1))
    wait_for(lambda: training.poll() is not None)
    assert only_request(engine)["User"] == user
    assert (only_request(engine)["HostConfig"].get("UsernsMode") or "") == namespace


def test_a_model_that_is_only_tested_is_mounted(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container runs `evaluate`, with words that this command takes."""
    monkeypatch.chdir(tmp_path)
    for name in ("net.ckpt", "outputs.yaml"):
        (tmp_path / name).touch()
    words = {"model": "net.ckpt", "label_map": "outputs.yaml", "weights": "none", "suite": "demo"}
    training = launcher().start(replace(command(tmp_path / "home", **words), kind="evaluate"))
    wait_for(lambda: training.poll() is not None)
    request = only_request(engine)
    name, *flags = request["Cmd"]
    assert name == "evaluate"
    pairs = cli.parse(name, flags)
    assert (pairs["model"], pairs["weights"]) == (str(tmp_path / "net.ckpt"), "none")
    readable = {mount["Source"] for mount in request["HostConfig"]["Mounts"] if mount.get("ReadOnly")}
    assert {pairs["model"], pairs["label_map"]} <= readable


def test_a_training_ends_as_it_is_told(engine: Engine, tmp_path: Path) -> None:
    """SIGTERM, SIGKILL, an exit code of its own; and what it printed last is in the log by then."""
    wait = "import signal, sys, time; signal.signal(15, lambda *a: sys.exit('last word')); print('on', flush=True); "
    engine.execute = script(wait + "time.sleep(60)")
    log = tmp_path / "demo" / "erm-s0-1234" / "train.log"
    for end, code in (("stop", 1), ("kill", -9)):
        training = launcher().start(command(tmp_path))
        assert training.poll() is None
        wait_for(lambda: "on\n" in log.read_text())  # a line's end is written by itself
        getattr(training, end)()
        wait_for(lambda training=training: training.poll() is not None)
        assert training.poll() == code
        training.kill()  # once more does no harm
        assert log.read_text() == {"stop": "on\nlast word\n", "kill": "on\n"}[end]
        log.unlink()


def test_it_ends_when_nobody_holds_its_input(engine: Engine, tmp_path: Path) -> None:
    """A launcher that is killed with -9: the engine's connection to it ends, and with it the container's input."""
    engine.execute = script(
        "import time; from biasbed.system.processes import end_with_input; end_with_input(); time.sleep(60)"
    )
    starter = (
        "import time; from pathlib import Path; from helpers.fake_docker import command, launcher;"
        f"launcher().start(command(Path({str(tmp_path)!r}))); print('started', flush=True); time.sleep(60)"
    )
    environment = command_environment()
    process = subprocess.Popen([sys.executable, "-c", starter], env=environment, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    (container,) = engine.containers.values()
    wait_for(lambda: container.is_attached)
    assert container.process is not None
    assert container.process.poll() is None
    process.kill()
    process.wait()
    assert container.process.wait(600) == -15


def test_device_and_processes_are_those_of_the_engine(
    engine: Engine, tmp_path: Path, serve_at: Callable[[str], None]
) -> None:
    config = Config(batch_size=64, tracking="offline")
    settled = launcher().resolve_device(config)
    assert (settled.device, settled.nproc, launcher().capacity(settled)) == ("cpu", 1, 4)
    engine.info |= GPUS
    settled = launcher().resolve_device(config)
    assert (settled.device, settled.nproc, launcher().capacity(settled)) == ("cuda", 4, 1)
    engine.info = {"NCPU": 4, "Runtimes": {"nvidia": {}}}  # an engine that keeps no list of devices
    launcher(gpus="2").start(command(tmp_path, slot=1, device="cuda"))
    (gpus,) = only_request(engine)["HostConfig"]["DeviceRequests"]
    assert (gpus["DeviceIDs"], gpus["Capabilities"]) == (["1"], [["gpu"]])
    settled = launcher(gpus="0").resolve_device(config)
    assert (settled.device, settled.nproc) == ("cpu", 1)
    with pytest.raises(UsageError, match=r"no GPU for containers \(docker.gpus\)"):
        launcher(gpus="0").resolve_device(Config(device="cuda", tracking="offline"))
    serve_at("sqlite:////tmp/x.db")
    with pytest.raises(UsageError, match=r"containers can't share the file .*mlflow server --workers 1"):
        launcher(network="host").resolve_device(Config())
    serve_at("http://localhost:5000")
    with pytest.raises(UsageError, match=r"docker.network=host"):
        launcher().resolve_device(Config())
    assert launcher(network="host", gpus="0").resolve_device(Config(batch_size=64)).device == "cpu"
