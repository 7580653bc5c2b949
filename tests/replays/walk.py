"""Every vector that is there, its replay, and what a change of one per cent does to it."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from helpers.commands import ROOT, SHARED
from replays import Case

OWN = ROOT / "tests" / "vectors"
# Replays of plug-ins, which the core can be without, and their vectors.
OF_PLUGINS = {"debiasing_birds": ("debiasing/waterbirds_composition*",), "deepaugment": ("cae_*", "edsr_*")}
ABSENT = {} if importlib.util.find_spec("biasbed.plugins") else OF_PLUGINS
MODULES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "walk", *ABSENT)
)

# Compared by data/test_released.py, evaluation/test_calibration.py and plugins/deepfashion/test_suite.py.
_CORRUPTIONS = ("corruption_draws", "corruptions", "elastic_exact_warp", "helpers", "images", "jpeg85")
ELSEWHERE = tuple(f"robustness/{name}" for name in (*_CORRUPTIONS, "calibration", "multilabel"))
# Which images DomainBed's program holds out, which ours draws by another generator.
UNCOMPARED = (*ELSEWHERE, "domainbed/splits")


def files() -> dict[str, Path]:
    """By name, which has the folder if there is one; our own copies, and whatever else lies beside the checkout."""
    named = ((path.relative_to(SHARED / "vectors").with_suffix("").as_posix(), path) for path in _beside())
    paths = [
        (SHARED / "vectors", path) for name, path in named if not any(fnmatch.fnmatch(name, p) for p in UNCOMPARED)
    ]
    paths += [(OWN, path) for path in OWN.rglob("*.npz")]
    by_name = {path.relative_to(folder).with_suffix("").as_posix(): path for folder, path in paths}
    return {name: by_name[name] for name in sorted(by_name) if not _is_absent(name)}


def _is_absent(name: str) -> bool:
    """Return True for a vector of a plug-in that is not there."""
    return any(fnmatch.fnmatch(name, pattern) for patterns in ABSENT.values() for pattern in patterns)


def _beside() -> Iterator[Path]:
    return (SHARED / "vectors").rglob("*.npz")


def replay_of(name: str) -> tuple[Callable[[Case], None], dict[str, str]]:
    """Return the replay of a file and its uncompared keys; LookupError for a file that nothing compares."""
    for module in MODULES:
        replays = importlib.import_module(f"replays.{module}")
        for pattern, function in replays.REPLAYS.items():
            if fnmatch.fnmatch(name, pattern):
                return function, replays.UNCOMPARED.get(pattern, {})
    raise LookupError(f"no replay in tests/replays/ compares {name}.npz")


def changed(case: Case, key: str) -> Case:
    """Return a copy with one key larger by one per cent, whole numbers by at least 1."""
    value = case[key]
    more = np.maximum(1, np.abs(value) // 100) if value.dtype.kind in "iu" else value * 0.01
    return {**case, key: np.asarray(value + more).astype(value.dtype)}


def compared_keys(case: Case, uncompared: dict[str, str]) -> Iterator[str]:
    """Yield keys that hold numbers; whole ones (draws, sizes, seeds, mostly) only where there is nothing else.

    One per cent more of 0, of NaN or of infinity is what it was.
    """
    for kinds in ("f", "iu"):
        arrays = {key: value for key, value in case.items() if key not in uncompared and value.dtype.kind in kinds}
        keys = [key for key, value in arrays.items() if np.any(value[np.isfinite(value)])]
        if keys:
            yield from keys
            return


def fails(replay: Callable[[Case], None], case: Case) -> bool:
    try:
        replay(case)
    except AssertionError:
        return True
    return False
