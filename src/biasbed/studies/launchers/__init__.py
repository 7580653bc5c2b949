"""Launchers: where a study's trainings run. A launcher starts training commands; all else is the runner's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit

from biasbed.compute.device import Device
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.options import StudyOptions
from biasbed.registry import Registry
from biasbed.settings import as_flags, build, extended, specs
from biasbed.system import places
from biasbed.tracking.server import database, resolve_uri

S = TypeVar("S", bound=StudyOptions)


@dataclass(frozen=True)
class TrainCommand:
    """One training to be started, or one test of a model that is trained already."""

    name: str
    words: Mapping[str, str]  # the settings of the command
    environment: Mapping[str, str]  # to be set besides the launcher's own: tracking server, parent run
    log: Path  # what the training prints is appended to this file
    slot: int  # which of the trainings at a time this is, from 0
    slots: int  # how many there are at a time
    processes: int  # that it trains with
    kind: str = "train"  # the command: train or evaluate

    @property
    def folder(self) -> Path:
        """Where it trains."""
        return self.log.parent

    @property
    def home(self) -> Path:
        """The folder of all runs."""
        return self.folder.parents[1]

    @property
    def arguments(self) -> list[str]:
        """The words after `biasbed`."""
        return [self.kind, *as_flags(self.words)]


class StartedTraining(Protocol):
    """A training that was started."""

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None while it runs."""

    def stop(self) -> None:
        """Ask it to end in good order, as SIGTERM does; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


class Launcher:
    """A way to run trainings.

    They end when this process does, however that ends; or, where they are `detached`, go on and are found again.
    Settings: a subclass of `StudyOptions` with what this launcher alone can be told.
    """

    Settings: ClassVar[type[StudyOptions]] = StudyOptions
    detached: bool = False

    def __init__(self, options: Any) -> None:
        """options: of `Settings`. UsageError where it can't work here."""
        self.options = options

    def settle(self, config: Config) -> Config:
        """The config with the device and the number of processes that it has where it runs.

        They are part of a run's identity, so that planning must know them. UsageError where they can't be had.
        """
        raise NotImplementedError

    def capacity(self, config: Config) -> int:
        """How many trainings like this one fit at a time, for `workers=auto`."""
        raise NotImplementedError

    def start(self, command: TrainCommand) -> StartedTraining:
        """Start a training. Failure where that can't be done, here or at its first `poll`: a failed attempt."""
        raise NotImplementedError

    def ongoing(self, folder: Path) -> StartedTraining | None:
        """The training in this folder that an earlier process started and that is still to run, runs, or just ended."""
        return None


REGISTRY = Registry(
    "launcher",
    {
        "local": "biasbed.studies.launchers.local:LocalLauncher",
        "docker": "biasbed.studies.launchers.docker:DockerLauncher",
        "slurm": "biasbed.studies.launchers.slurm:SlurmLauncher",
    },
    base="biasbed.studies.launchers:Launcher",
)


def load(name: str) -> type[Launcher]:
    """The class of a launcher, imported only now; UsageError where there is none of that name."""
    found: type[Launcher] = REGISTRY.load(name)
    return found


def read_options(cls: type[S], flags: Mapping[str, str]) -> tuple[S, dict[str, str]]:
    """(the options of a command that trains; the flags that are none of them)."""
    cls = extended(cls, load(flags.get("launcher", StudyOptions.launcher)).Settings)
    known = specs(cls)
    options = build(cls, {name: value for name, value in flags.items() if name in known})
    return options, {name: value for name, value in flags.items() if name not in known}


def open_launcher(options: StudyOptions) -> Launcher:
    """The launcher that a study asks for. UsageError where it can't work here."""
    return load(options.launcher)(options)


# --- what launchers share ---------------------------------------------------------------------------------------------


def with_device(config: Config, device: Device, processes: int) -> Config:
    """The config with what was settled; UsageError where the batch can't be shared out among the processes."""
    try:
        return dataclasses.replace(config, device=device, nproc=processes)
    except ValueError as error:
        raise UsageError(str(error)) from None


def require_server(config: Config, where: str, remedy: str | None) -> None:
    """UsageError where trainings in another place can't write to the runs' tracking store.

    where: that place. remedy: what makes a server on this machine reachable from there; None where it is.
    """
    if config.tracking != "on":
        return
    uri = resolve_uri()
    if database(uri) is not None:
        raise UsageError(
            f"{where} can't share the file {places.public_uri(uri)}: start `mlflow server --workers 1` and set "
            "MLFLOW_TRACKING_URI to it, or train with tracking=offline"
        )
    if remedy is not None and urlsplit(uri).hostname in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(f"{where} don't reach a server at {places.public_uri(uri)}: {remedy}")


def share(places: Sequence[str], slot: int, count: int) -> list[str]:
    """The places of a slot's training, one per process; slots share them where there are fewer."""
    return [places[(slot * count + number) % len(places)] for number in range(count)] if places else []
