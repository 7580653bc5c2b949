"""Corrupted copies of a suite's evaluation sets, made on the fly: `corrupted.sets=photos` tests `photos_c_generated`.

Their headline is the mean error over all conditions. mCE does not apply: AlexNet's errors are those on the released
files of ImageNet-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed.config import Config
from biasbed.data import transforms
from biasbed.data.corruptions import BENCHMARK, SIDE
from biasbed.data.corruptions.released import QUALITY, SHORT
from biasbed.datasets.on_the_fly import PREPARED, generated
from biasbed.suites.changed_copies import ChangedCopies, find_common_problem
from biasbed.suites.corruption_errors import MEAN_ERROR, derivations
from biasbed.suites.sets import EvaluationSet

if TYPE_CHECKING:
    from biasbed.data.prepared import PreparedStore
    from biasbed.suites.suite import OpenSuite

SUFFIX = "_c_generated"  # never `_c`: released and generated images share no column
PREPROCESSING = f"short side {SHORT}, centre {SIDE}, bilinear (Pillow), corrupted, JPEG of quality {QUALITY}"


def with_corrupted(suite: OpenSuite, config: Config) -> OpenSuite:
    """Return the suite with corrupted copies of the sets that `corrupted.sets` names.

    Raises UsageError for an unknown set, or one that can't be corrupted.
    """
    copies = ChangedCopies(
        "corrupted.sets",
        SUFFIX,
        _problem,
        make=lambda original: corrupted_set(original, config, suite.store),
        derive=lambda copy: derivations(copy.name, BENCHMARK),
    )
    return copies.add(suite, config.corrupted.sets)


def corrupted_set(
    original: EvaluationSet,
    config: Config,
    store: PreparedStore,
    corruptions: Sequence[str] = BENCHMARK,
    name: str | None = None,
) -> EvaluationSet:
    """Return a set of the original's images under corruptions.

    Raises UsageError if a corruption lacks what it needs, as frost its photographs.
    """
    name = name or f"{original.name}{SUFFIX}"
    prepared = store.images(original.source, PREPARED)
    frost = frost_folder(config)
    return replace(
        original,
        name=name,
        source=generated(original.source, name, corruptions, config.corrupted.seed, frost, prepared),
        transform=transforms.Exact(SIDE),
        measures=(),
        headline=MEAN_ERROR,
        preprocessing=PREPROCESSING,
        block=f"{original.block}{SUFFIX}" if original.block else "",
        aliases=original.aliases if original.domain else (),
        cadence="end",
    )


def frost_folder(config: Config) -> Path:
    """Return the folder of frost's photographs, which need not exist."""
    if config.corrupted.frost != "auto":
        return Path(config.corrupted.frost).expanduser()
    return Path(config.data_dir or "").expanduser() / "frost"


def _problem(original: EvaluationSet) -> str:
    """Return why a set's images can't be corrupted, as text; empty if they can."""
    if original.task.several:
        return "its images have several labels, and errors under corruptions are of one"
    problem = find_common_problem(original, "corruptions are of 3")
    if problem:
        return problem
    fed = original.transform(transforms.make_example(original.transform, 3)).shape[-2:]
    for height, width in (fed, (original.source.shape or fed)[-2:]):
        if (height, width) != (SIDE, SIDE):
            fix = f"; image_size={SIDE} makes them so" if (height, width) == tuple(fed) else ""
            return (
                f"corruptions are defined for images of {SIDE} x {SIDE} pixels, "
                f"and it has images of {width} x {height}{fix}"
            )
    return ""
