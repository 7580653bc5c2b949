"""What `sweep` can be told. Light: `--help` imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from biasbed.config import Config
from biasbed.settings import Spec, setting, specs
from biasbed.studies.options import OWN, Auto, StudyOptions

Samplers = Literal["tpe", "random", "gp", "qmc", "brute_force"]
Pruners = Literal["median", "hyperband", "successive_halving", "none"]

# What `auto` stands for. DomainBed (Gulrajani & Lopez-Paz 2021, section 5.1): a random search of 20 trials, repeated
# three times with other random choices throughout.
SEARCHES: Mapping[str, Mapping[str, str | int]] = {
    "auto": {"sampler": "tpe", "pruner": "median", "trials": 20, "repeats": 1},
    "domainbed": {"sampler": "random", "pruner": "none", "trials": 20, "repeats": 3},
}


@dataclass(frozen=True)
class SweepOptions(StudyOptions):
    """A search per method; its other flags are those of `train`, for every trial."""

    suite: str = setting(Config.suite, "protocol: demo, folders, biasbed")
    algorithms: tuple[str, ...] = setting(("erm",), "methods, separated by commas: each is searched by itself")
    trials: int | Auto = setting("auto", "trainings per method and repeat (auto: 20)")
    repeats: int | Auto = setting("auto", "times that the search is made, with other seeds (auto: 1; domainbed 3)")
    search: Literal["auto", "domainbed"] = setting("auto", "domainbed: its random search of 20 trials, three times")
    sampler: Samplers | Auto = setting("auto", "how the next parameters are chosen (auto: tpe; domainbed random)")
    pruner: Pruners | Auto = setting("auto", "which trials are ended early (auto: median; domainbed none)")
    space: str = setting("auto", "search space, a YAML (auto: sweeps/<algorithm>.yaml)")
    objective: str = setting("auto", "metric whose best epoch counts (auto: the suite's monitor)")
    oracle: bool = setting(False, "allow an objective on test sets; its numbers are marked everywhere")
    storage: str = setting("auto", "postgresql://.., or sqlite:////<path> (auto: $BIASBED_STORAGE, else a local file)")
    study: str = setting("sweep", "name that the trials are filed under")
    seed: int = setting(0, "of the search and of the trainings; each repeat has the next one", ge=0, le=2**30)
    heartbeat: int = setting(60, "seconds between a worker's signs of life; without two it counts as dead", ge=1)
    loader_workers: int | Auto = setting("auto", "loader processes per training process (the `workers` of train)")
    dry_run: bool = setting(False, "say what is done and what is left; start nothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trials", "repeats"):
            value = getattr(self, name)
            if value != "auto" and int(value) < 1:
                raise ValueError(f"{name}={value}: should be at least 1")
        if not self.algorithms:
            raise ValueError("algorithms: name at least one method")

    def settled(self, name: str) -> str | int:
        """`trials`, `repeats`, `sampler` or `pruner` as given, else as the kind of search has it."""
        given = getattr(self, name)
        return SEARCHES[self.search][name] if given == "auto" else given


def sweep_settings() -> Mapping[str, Spec]:
    """Every setting of `sweep` by its dotted name."""
    return {**specs(SweepOptions), **{name: spec for name, spec in specs(Config).items() if name not in OWN}}
