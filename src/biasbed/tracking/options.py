"""What `export` can be told. Light: `--help` imports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from biasbed.errors import UsageError
from biasbed.settings import setting


@dataclass(frozen=True)
class ExportOptions:
    """Which runs, and the file."""

    file: str = setting("none", "the file to write, <name>.zip")
    run: Literal["none"] | tuple[str, ...] = setting("none", "ids of runs, separated by commas")
    study: str = setting("none", "a study, all runs of which are meant")
    checkpoints: bool = setting(False, "also checkpoints and models, which are most of a run's bytes")

    def __post_init__(self) -> None:
        if not self.file.endswith(".zip"):
            raise UsageError(f"file={self.file}: give a name that ends in .zip")
        if (self.run == "none") == (self.study == "none"):
            raise UsageError("say what to export: run=<id>,... or study=<name>, one of both")
