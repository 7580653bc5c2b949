"""What `benchmark` and `main` can be told. Light: `--help` imports it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Literal

from biasbed.config import Config
from biasbed.settings import Spec, setting, specs

Auto = Literal["auto"]
Workers = int | Auto


@dataclass(frozen=True)
class Docker:
    """Trainings in containers (launcher=docker)."""

    image: str = setting("biasbed", "image to train in; docker/README.md builds it")
    gpus: int | Auto = setting("auto", "GPUs of the engine to be used, 0: none (auto: all)")
    shm_size: str = setting("8g", "most memory that a training's loader processes hand images over through")
    network: str = setting("bridge", "Docker's network; host: for a tracking server on this machine")
    mounts: tuple[str, ...] | None = setting(None, "more folders that trainings read, at the same paths as here")

    def __post_init__(self) -> None:
        if self.gpus != "auto" and int(self.gpus) < 0:
            raise ValueError(f"docker.gpus={self.gpus}: should be at least 0")


@dataclass(frozen=True)
class Slurm:
    """Trainings as jobs of a cluster (launcher=slurm)."""

    partition: str | None = setting(None, "partition (none: the cluster's usual one; so for the next two)")
    account: str | None = setting(None, "account that is charged")
    qos: str | None = setting(None, "quality of service")
    minutes: int = setting(720, "time limit of a job; a training that needs longer is queued again and goes on", ge=1)
    timeouts: int = setting(100, "how often a training may reach that limit", ge=0)
    warning: int = setting(120, "seconds that a training has for its last checkpoint before the limit", ge=1)
    nodes: int = setting(1, "nodes of a training", ge=1)
    gpus_per_node: int = setting(1, "GPUs of a training on each node, one process each; 0: it runs on CPUs", ge=0)
    cpus_per_task: int = setting(8, "cores of a training on each node", ge=1)
    mem_gb: float | None = setting(None, "memory in GB on each node", gt=0)
    array_parallelism: int = setting(256, "jobs of an array that run at a time", ge=1)
    setup: str | None = setting(None, "shell command that each job begins with: module load cuda")
    parameters: tuple[str, ...] | None = setting(None, "other options of sbatch, by commas: gres=gpu:a100:1,exclusive")
    cluster: Literal["slurm", "local"] = setting(
        "slurm", "local: try it without a cluster, as processes of this machine"
    )


@dataclass(frozen=True)
class StudyOptions:
    """How the trainings of a study are carried out."""

    workers: Workers = setting("auto", "trainings at a time (auto: as many as GPUs or cores allow)")
    retries: int = setting(2, "how often a failed training is started again, from its last checkpoint", ge=0)
    launcher: Literal["local", "docker", "slurm"] = setting(
        "local", "where trainings run: as processes of this machine, in containers, as jobs of a cluster"
    )
    docker: Docker = Docker()
    slurm: Slurm = Slurm()

    def __post_init__(self) -> None:
        if self.workers != "auto" and int(self.workers) < 1:
            raise ValueError(f"workers={self.workers}: should be at least 1")
        for name, usual in (("docker", Docker()), ("slurm", Slurm())):
            if getattr(self, name) != usual and self.launcher != name:
                raise ValueError(f"{name}.* are settings of launcher={name}, and this is launcher={self.launcher}")


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


def of_trainings(flags: Mapping[str, str], own: Container[str], loader_workers: int | Auto) -> dict[str, str]:
    """The flags that go on to every training. own: names of those that are the command's."""
    settings = {name: value for name, value in flags.items() if name not in own and value != "auto"}
    return settings if loader_workers == "auto" else {**settings, "workers": str(loader_workers)}


def benchmark_settings() -> Mapping[str, Spec]:
    """Every setting of `benchmark` by its dotted name."""
    return {**specs(BenchmarkOptions), **{name: spec for name, spec in specs(Config).items() if name not in OWN}}
