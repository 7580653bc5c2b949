"""Launcher `local`: trainings as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from biasbed.compute.device import choose_device
from biasbed.config import Config
from biasbed.settings import replace_values
from biasbed.studies.launchers import Launcher, TrainCommand, assign_devices
from biasbed.system.processes import PARENT_PROCESS


class LocalTraining:
    """Training in a session of its own, so that a terminal's Ctrl-C reaches it through the launcher alone."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class LocalLauncher(Launcher):
    """Launcher of processes `python -m biasbed train`; with several GPUs each training gets its own."""

    def resolve_device(self, config: Config) -> Config:
        device, processes = choose_device(config.device, config.nproc)
        return replace_values(config, device=device, nproc=processes)

    def capacity(self, config: Config) -> int:
        devices = _gpu_count() if config.device == "cuda" else (os.cpu_count() or 1)
        return max(1, devices // int(config.nproc))

    def start(self, command: TrainCommand) -> LocalTraining:
        """Start a training as a process of its own session, with its share of the cores and GPUs."""
        environment = {**os.environ, **command.environment, PARENT_PROCESS: str(os.getpid())}
        threads = (os.cpu_count() or 1) // (command.slots * command.processes)
        environment.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
        if command.overrides.get("device") == "cuda":
            gpus = assign_devices(_gpus(), command.slot, command.processes)
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        with command.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "biasbed", *command.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return LocalTraining(process)


def _gpu_count() -> int:
    import torch

    return torch.cuda.device_count()


def _gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as in `CUDA_VISIBLE_DEVICES`."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible:
        return visible.split(",")
    return [str(number) for number in range(_gpu_count())]
