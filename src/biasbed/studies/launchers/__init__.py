"""Launchers: where a study's trainings run. A launcher starts training commands; all else is the runner's."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from biasbed.config import Config

if TYPE_CHECKING:
    from biasbed.studies.options import StudyOptions


@dataclass(frozen=True)
class Command:
    """One training to be started."""

    name: str
    words: Mapping[str, str]  # the settings of `biasbed train`
    environment: Mapping[str, str]  # to be set besides the launcher's own: tracking server, parent run
    log: Path  # what the training prints is appended to this file
    slot: int  # which of the trainings at a time this is, from 0
    slots: int  # how many there are at a time
    processes: int  # that it trains with

    @property
    def arguments(self) -> list[str]:
        """The words after `biasbed`."""
        return ["train", *(word for name, value in self.words.items() for word in (f"--{name}", value))]


class Training(Protocol):
    """A training that was started."""

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None while it runs."""

    def stop(self) -> None:
        """Ask it to end in good order, as SIGTERM does; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


class Launcher(Protocol):
    """A way to run trainings."""

    def settle(self, config: Config) -> Config:
        """The config with the device and the number of processes that it has where it runs.

        They are part of a run's identity, so that planning must know them. UsageError where they can't be had.
        """

    def capacity(self, config: Config) -> int:
        """How many trainings like this one fit at a time, for `workers=auto`."""

    def start(self, command: Command) -> Training:
        """Start a training. It must end when this process does, however that ends."""


REGISTRY: Mapping[str, str] = {"local": "biasbed.studies.launchers.local:LocalLauncher"}


def open_launcher(options: StudyOptions) -> Launcher:
    """The launcher that a study asks for, imported only now. UsageError where it can't work here."""
    module, name = REGISTRY[options.launcher].split(":")
    return cast("Launcher", getattr(importlib.import_module(module), name)(options))
