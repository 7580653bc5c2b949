"""Launchers, which start the trainings of a study on this machine, in containers or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from biasbed import redaction
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import StudyOptions
from biasbed.registry import Registry
from biasbed.settings import as_flags, build, combine_settings, specs
from biasbed.tracking.server import database, resolve_uri

S = TypeVar("S", bound=StudyOptions)


@dataclass(frozen=True)
class TrainCommand:
    """Command of a run to start: a training, or a test of a model that is trained already."""

    name: str
    overrides: Mapping[str, str]  # settings of the command
    environment: Mapping[str, str]  # added to the launcher's own: tracking server, parent run
    log: Path  # the training's output is appended to this file
    slot: int  # number among the trainings at a time, from 0
    slots: int  # number of trainings at a time
    processes: int  # of this training
    kind: str = "train"  # the command: train or evaluate

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.log.parent

    @property
    def home(self) -> Path:
        """Folder of all runs."""
        return self.folder.parents[1]

    @property
    def arguments(self) -> list[str]:
        """Arguments after `biasbed`."""
        return [self.kind, *as_flags(self.overrides)]


class Preempted(Failure):
    """Failure of a training that the cluster ended; it is started again, however often that happens."""


class StartedTraining(Protocol):
    """Handle of a started training."""

    def poll(self) -> int | None:
        """Return its exit code, minus the signal that killed it, or None while it runs.

        Raises Preempted if the cluster ended it.
        """

    def stop(self) -> None:
        """Ask it to end in good order, as SIGTERM does; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


class Launcher:
    """Base class of launchers."""

    Settings: ClassVar[type[StudyOptions]] = StudyOptions  # or a subclass with further settings of the launcher
    detached: bool = False  # True: trainings go on after this process, which finds them again; else they end with it

    def __init__(self, options: Any) -> None:
        """options: an instance of `Settings`. Raises UsageError if the launcher cannot work here."""
        self.options = options

    def resolve_device(self, config: Config) -> Config:
        """Return the config with the device and the number of processes of the place where it runs.

        They are part of a run's identity, so planning needs them. Raises UsageError if they are not available there.
        """
        raise NotImplementedError

    def capacity(self, config: Config) -> int:
        """Return how many trainings with this config fit at a time, for `workers=auto`."""
        raise NotImplementedError

    def start(self, command: TrainCommand) -> StartedTraining:
        """Start a training. If that fails, raises Failure, or its handle does when it is first polled."""
        raise NotImplementedError

    def ongoing(self, folder: Path) -> StartedTraining | None:
        """Return the training in this folder that an earlier process started, if it waits, runs or has just ended."""
        return None


REGISTRY = Registry(
    "launcher",
    {"local": "biasbed.studies.launchers.local:LocalLauncher"},
    base="biasbed.studies.launchers:Launcher",
)


def load(name: str) -> type[Launcher]:
    """Import and return the class of a launcher; UsageError if there is none with this name."""
    launcher: type[Launcher] = REGISTRY.load(name)
    return launcher


class CommandFlags(NamedTuple, Generic[S]):
    """Flags of a command that trains."""

    options: S  # the command's own, with those of its launcher
    others: dict[str, str]  # for the trainings


def read_options(cls: type[S], flags: Mapping[str, str]) -> CommandFlags[S]:
    """Split the flags of a command that trains into its own options and those of its trainings."""
    cls = combine_settings(cls, load(flags.get("launcher", StudyOptions.launcher)).Settings)
    names = specs(cls)
    options = build(cls, {name: value for name, value in flags.items() if name in names})
    return CommandFlags(options, {name: value for name, value in flags.items() if name not in names})


def open_launcher(options: StudyOptions) -> Launcher:
    """Make the launcher of a study. Raises UsageError if it cannot work here."""
    return load(options.launcher)(options)


# --- what launchers share ---------------------------------------------------------------------------------------------


def require_server(config: Config, where: str, remedy: str | None) -> None:
    """Raise UsageError if trainings elsewhere cannot write to the tracking server of the runs.

    where: the place of the trainings. remedy: advice on how to reach a server on this machine from there; None if they
    reach it.
    """
    if config.tracking != "on":
        return
    uri = resolve_uri()
    if database(uri) is not None:
        raise UsageError(
            f"{where} can't share the file {redaction.public_uri(uri)}: start `mlflow server --workers 1` and set "
            "MLFLOW_TRACKING_URI to it, or train with tracking=offline"
        )
    if remedy is not None and urlsplit(uri).hostname in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(f"{where} don't reach a server at {redaction.public_uri(uri)}: {remedy}")


def assign_devices(devices: Sequence[str], slot: int, count: int) -> list[str]:
    """Return the devices of a slot's training, one per process; slots share them if there are too few."""
    if not devices:
        return []
    return [devices[(slot * count + number) % len(devices)] for number in range(count)]
