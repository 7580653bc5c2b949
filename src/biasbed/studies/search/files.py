"""Which files have the search space of a method: biasbed's own in `sweeps/spaces/`, and one beside a user's method."""

from __future__ import annotations

from pathlib import Path

from biasbed import algorithms, record, suites
from biasbed.datasets import domains as domain_data
from biasbed.errors import UsageError
from biasbed.studies.table import Words

EVERY_METHOD = "every_method"  # of a suite: what is searched over whatever the method
OPTIMIZER = "optimizer"  # of a suite: what is searched over of `optim`, in place of what the methods' own files say
SPACES = Path(__file__).resolve().parents[2] / "sweeps" / "spaces"


def of_optimizer(words: Words, backbone: str) -> list[Path]:
    """The suite's own file for the optimizer, if it has one: of those for this network and for all the first."""
    suite = SPACES / suites.identifier(words["suite"])
    files = (folder / f"{OPTIMIZER}.yaml" for folder in (suite / record.slug(backbone), suite))
    return [path for path in files if path.exists()][:1]


def included(words: Words) -> list[Path]:
    """The files that come with biasbed, or with a user's method; of two that have a setting the last one's counts.

    Where a suite has a file for every method, that and the method's own there, if it has one; else the method's own. Of
    files for suite and data set, for the suite, and for all, the first counts. `<file>.py:<Class>` has its own beside
    its file, as `<class>.yaml`.
    """
    suite, algorithm = suites.identifier(words["suite"]), words["algorithm"]
    of_suite = [SPACES / suite / domain_data.DATA_SETS.identifier(words.get("train", "")), SPACES / suite]

    def nearest_of(name: str, *folders: Path) -> list[Path]:
        files = [folder / f"{name}.yaml" for folder in folders]
        return [path for path in files if path.exists()][:1]

    shared = nearest_of(EVERY_METHOD, *of_suite)
    own, name = Path(algorithm.rpartition(":")[0]), algorithms.identifier(algorithm)
    if algorithm in algorithms.REGISTRY:
        places = [*of_suite, *([] if shared else [SPACES])]
    else:
        places = [own.parent] if own.suffix == ".py" else []
    found = shared + nearest_of(name, *places)
    if not found:
        beside = f", or put {name}.yaml beside its file" if own.suffix == ".py" else ""
        raise UsageError(f"{algorithm} has no search space among biasbed's: give one with space=<file>{beside}")
    return found
