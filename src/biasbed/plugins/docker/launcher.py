"""Launcher `docker`: trainings in containers of the image (Dockerfile), by the Docker API.

The folders that a training needs are mounted under the paths that they have here, so that its run folder, its lock and
its command line are the same inside and outside. A training ends with this process: we hold its standard input, which
the engine closes when our connection ends (`StdinOnce`), and a training with `LIFELINE` then ends in good order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.compute.device import resolve_device
from biasbed.config import Auto, Config
from biasbed.errors import Failure, UsageError
from biasbed.options import StudyOptions
from biasbed.registry import with_whole_path
from biasbed.settings import replace_values, setting
from biasbed.studies.launchers import Launcher, TrainCommand, assign_devices, require_server
from biasbed.system import code, places
from biasbed.system.processes import LIFELINE


@dataclass(frozen=True)
class Docker:
    """Settings of launcher=docker."""

    image: str = setting("biasbed", "image to train in; docker/README.md builds it")
    gpus: int | Auto = setting("auto", "GPUs of the engine to be used, 0: none (auto: all)")
    shm_size: str = setting("8g", "limit of the memory through which loader processes pass images")
    network: str = setting("bridge", "Docker's network; host: for a tracking server on this machine")
    mounts: tuple[str, ...] | None = setting(None, "more folders that trainings read, at the same paths as here")

    def __post_init__(self) -> None:
        if self.gpus != "auto" and int(self.gpus) < 0:
            raise ValueError(f"docker.gpus={self.gpus}: should be at least 0")


@dataclass(frozen=True)
class DockerOptions(StudyOptions):
    """Options of a study whose trainings run in containers."""

    docker: Docker = Docker()


CODE_SETTINGS = ("algorithm", "suite")  # may name a user's Python file
READ_SETTINGS = ("data_dir", "init", "model", "weights", "label_map")  # may name a file or folder that is read
KILLED = 137  # exit code of a container whose process was ended by SIGKILL


class DockerTraining:
    """Container of a training. Two threads write its log and wait for its end; the engine then removes it."""

    def __init__(self, container: Any, log: Path) -> None:
        self.container, self.log = container, log
        self.code = 1
        self.socket = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._write_log, self._wait_for_end)]
        for thread in self.threads:
            thread.start()
        container.start()

    def poll(self) -> int | None:
        if self.threads[1].is_alive():
            return None
        self.threads[0].join(5)  # the log's last lines
        self.socket.close()
        return self.code

    def stop(self) -> None:
        self._send_signal("SIGTERM")

    def kill(self) -> None:
        self._send_signal("SIGKILL")

    def _send_signal(self, name: str) -> None:
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        with contextlib.suppress(DockerException, RequestException):  # it has ended, or the engine has
            self.container.kill(signal=name)

    def _write_log(self) -> None:
        from docker.utils.socket import frames_iter

        with self.log.open("ab", buffering=0) as log, contextlib.suppress(OSError, ValueError):
            for _, text in frames_iter(self.socket, tty=False):
                log.write(text)

    def _wait_for_end(self) -> None:
        """Wait until the container is removed. Requested before the container starts, so that no end is missed."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            code = int(self.container.wait(timeout=None, condition="removed")["StatusCode"])
            self.code = -9 if code == KILLED else code
        except (DockerException, RequestException) as error:
            with self.log.open("a") as log:
                log.write(f"biasbed: the Docker engine has lost the training: {_first_line_of(error)}\n")


class DockerLauncher(Launcher):
    """Launcher of containers that run `biasbed train`; with several GPUs each training gets its own."""

    Settings = DockerOptions

    def __init__(self, options: DockerOptions) -> None:
        """Connect to the engine and check that it has the image."""
        import docker
        from docker.errors import DockerException, ImageNotFound

        self.options = options.docker
        self.mounts = [os.path.abspath(os.path.expanduser(path)) for path in self.options.mounts or ()]
        for path in self.mounts:
            if not os.path.exists(path):
                raise UsageError(f"docker.mounts: there is no {path}")
        try:
            self.client = docker.from_env()
            self.info: Mapping[str, Any] = self.client.info()
            self.image = self.client.images.get(self.options.image)
        except ImageNotFound:
            name = self.options.image
            raise UsageError(f"docker.image={name}: the engine has no such image; `docker build -t {name} .`") from None
        except DockerException as error:
            where = os.environ.get("DOCKER_HOST", "its usual socket")
            raise UsageError(f"launcher=docker: no Docker engine answers at {where}: is it running?") from error
        self._warn_of_other_code()

    def resolve_device(self, config: Config) -> Config:
        in_reach = self.options.network == "host"
        require_server(config, "containers", None if in_reach else "docker.network=host gives them this machine's")
        gpus = len(self._list_gpus())
        device, processes = resolve_device(config.device, config.nproc, gpus, "for containers (docker.gpus)")
        return replace_values(config, device=device, nproc=processes)

    def capacity(self, config: Config) -> int:
        devices = len(self._list_gpus()) if config.device == "cuda" else int(self.info["NCPU"])
        return max(1, devices // int(config.nproc))

    def start(self, command: TrainCommand) -> DockerTraining:
        """Start a container. Raises Failure if the engine refuses it, or does not answer."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        container = None
        try:
            container = self._create_container(command)
            return DockerTraining(container, command.log)
        except (DockerException, RequestException) as error:
            if container is not None:  # the engine removes only what has run
                with contextlib.suppress(DockerException, RequestException):
                    container.remove(force=True)
            raise Failure(f"the Docker engine can't start {command.name}: {_first_line_of(error)}") from None

    def _create_container(self, command: TrainCommand) -> Any:
        """Create a training's container, with its mounts, its user and its share of the GPUs; nothing starts yet."""
        from docker.types import DeviceRequest

        command = dataclasses.replace(command, overrides=_with_absolute_paths(command))
        gpus: list[str] = []
        if command.overrides.get("device") == "cuda":
            gpus = assign_devices(self._list_gpus(), command.slot, command.processes)
        is_cdi = bool(gpus) and "=" in gpus[0]
        access: dict[str, Any] = {"driver": "cdi"} if is_cdi else {"capabilities": [["gpu"]]}
        return self.client.containers.create(
            self.image,
            command.arguments,
            stdin_open=True,  # and, as we don't detach, StdinOnce
            auto_remove=True,
            init=True,  # passes signals on, and collects orphans
            **self._user_options(),
            environment=self._training_environment(command),
            mounts=self._training_mounts(command),
            device_requests=[DeviceRequest(device_ids=gpus, **access)] if gpus else [],
            shm_size=self.options.shm_size,
            network_mode=self.options.network,
            labels={"biasbed.study": command.overrides.get("study", record.ADHOC), "biasbed.run": command.name},
        )

    def _user_options(self) -> dict[str, str]:
        """Return options that make the container's user the caller outside of it.

        In a rootless engine that is root. An engine with user namespaces is told not to map users, as the caller would
        become nobody.
        """
        modes = " ".join(self.info.get("SecurityOptions") or ())
        if "name=rootless" in modes:
            return {"user": "0:0"}
        user = {"user": f"{os.getuid()}:{os.getgid()}"}
        return {**user, "userns_mode": "host"} if "name=userns" in modes else user

    def _training_environment(self, command: TrainCommand) -> dict[str, str]:
        """Return the training's variables: MLflow's as they are here, threads, and the command's own."""
        environment = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}
        threads = max(1, int(self.info["NCPU"]) // (command.slots * command.processes))
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads))
        return {**environment, **command.environment, LIFELINE: "stdin"}

    def _training_mounts(self, command: TrainCommand) -> list[Any]:
        """Return the mounts of a training: the folder of runs, and read-only everything else that it reads."""
        from docker.types import Mount

        overrides = command.overrides
        paths = [overrides[name] for name in ("prepared_dir", *READ_SETTINGS) if name in overrides]
        for name in CODE_SETTINGS:
            if ".py:" in overrides.get(name, ""):
                paths.append(str(Path(overrides[name].rpartition(":")[0]).parent))
        mounts = [Mount(str(command.home), str(command.home), type="bind")]
        for path in dict.fromkeys([*paths, *self.mounts]):
            if os.path.isabs(path) and os.path.exists(path):
                mounts.append(Mount(path, path, type="bind", read_only=True))
        return mounts

    def _list_gpus(self) -> list[str]:
        """Return the GPUs for trainings by the engine's names, or by numbers if the engine does not list them."""
        devices = [device.get("ID", "") for device in self.info.get("DiscoveredDevices") or ()]
        gpus = [name for name in devices if re.fullmatch(r"nvidia\.com/gpu=\d+", name)]
        if self.options.gpus != "auto":
            return gpus[: int(self.options.gpus)] or [str(number) for number in range(int(self.options.gpus))]
        if not gpus and "nvidia" in (self.info.get("Runtimes") or {}):
            import torch

            return [str(number) for number in range(torch.cuda.device_count())]
        return gpus

    def _warn_of_other_code(self) -> None:
        """Print a warning if the image's code differs from this checkout."""
        image_commit = (self.image.labels or {}).get("org.opencontainers.image.revision", "unknown")
        state = code.git_state()
        has_changes = state.has_changes == "true"
        if state.commit and (image_commit != state.commit or has_changes):
            ours = f"this checkout's ({state.commit[:12]}{' with changes' if has_changes else ''})"
            print(f"warning: trainings run the image's code (commit {image_commit[:12]}), not {ours}", file=sys.stderr)


def _with_absolute_paths(command: TrainCommand) -> dict[str, str]:
    """Return the command's overrides with absolute paths: working directory and home differ in the container."""
    overrides = dict(command.overrides)
    overrides["output_dir"] = str(command.home)
    overrides["prepared_dir"] = str(places.prepared_home(overrides.get("prepared_dir", "auto")))
    for name in READ_SETTINGS:
        if name in overrides:
            path = os.path.expanduser(overrides[name])
            if os.path.exists(path):
                overrides[name] = os.path.abspath(path)
    return overrides | {name: with_whole_path(overrides[name]) for name in CODE_SETTINGS if name in overrides}


def _first_line_of(error: Exception) -> str:
    """Return the first line of the engine's explanation, or of the error."""
    text = str(getattr(error, "explanation", None) or error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
