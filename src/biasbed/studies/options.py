"""What `benchmark` and `main` can be told. Light: `--help` imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from biasbed.config import Config
from biasbed.settings import Spec, setting, specs

Auto = Literal["auto"]
Workers = int | Auto


@dataclass(frozen=True)
class StudyOptions:
    """How the trainings of a study are carried out."""

    workers: Workers = setting("auto", "trainings at a time (auto: as many as GPUs or cores allow)")
    retries: int = setting(2, "how often a failed training is started again, from its last checkpoint", ge=0)
    launcher: Literal["local"] = setting("local", "where trainings run: as processes of this machine")

    def __post_init__(self) -> None:
        if self.workers != "auto" and int(self.workers) < 1:
            raise ValueError(f"workers={self.workers}: should be at least 1")


@dataclass(frozen=True)
class BenchmarkOptions(StudyOptions):
    """A study of methods and seeds; its other flags are those of `train`, for every run."""

    table: str = setting("none", "the study's YAML: a name in sweeps/ (biasbed_paper), or a file of yours")
    from_study: str = setting("none", "name of a sweep whose best settings are trained with fresh seeds")
    suite: str = setting("auto", "protocol (auto: the table's, else demo)")
    algorithms: tuple[str, ...] | Auto = setting("auto", "methods, separated by commas (auto: the table's)")
    seeds: str = setting("auto", "seeds of each method: 0..9 or 0,1,5 (auto: the table's, else 0..2)")
    study: str = setting("auto", "name that the runs are filed under (auto: the table's, else benchmark)")
    loader_workers: int | Auto = setting("auto", "loader processes per training process (the `workers` of train)")
    dry_run: bool = setting(False, "list what is done, unfinished and to do, and estimate what is left; start nothing")


@dataclass(frozen=True)
class MainOptions(StudyOptions):
    """The whole story on the embedded suite."""

    seeds: str = setting("auto", "seeds of each method: 0,1 or 0..4 (auto: those of sweeps/main.yaml)")
    output_dir: str = setting("auto", "folder of runs and of the report")


# Settings of `train` that a study has in another form; the others it passes on.
OWN = ("algorithm", "seed", "resume", "workers", "suite", "study")


def benchmark_settings() -> Mapping[str, Spec]:
    """Every setting of `benchmark` by its dotted name."""
    return {**specs(BenchmarkOptions), **{name: spec for name, spec in specs(Config).items() if name not in OWN}}
