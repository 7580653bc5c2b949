"""Evaluation sets in corrupted form, of any suite, made on the fly: `corrupted.sets=photos` tests `photos_c_generated`.

What stands for one is its mean error over all conditions. AlexNet's errors, which make ImageNet-C's mCE, are those on
the released files, and apply to nothing that is made here.
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
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.suites.corruption_errors import MEAN_ERROR, derivations
from biasbed.suites.sets import EvaluationSet

if TYPE_CHECKING:
    from biasbed.data.prepared import PreparedStore
    from biasbed.suites.suite import OpenSuite

SUFFIX = "_c_generated"  # never `_c`: what was released and what is made here share no column
WORDS = f"short side {SHORT}, centre {SIDE}, bilinear (Pillow), corrupted, JPEG of quality {QUALITY}"


def with_corrupted(suite: OpenSuite, config: Config) -> OpenSuite:
    """The suite with those of its sets that `corrupted.sets` names in corrupted form besides; UsageError for others."""
    from biasbed import record

    known = {entry.name: entry for entry in suite.sets}
    chosen = dict.fromkeys(config.corrupted.sets)
    for name in chosen:
        why_not = _why_not(known, name)
        if why_not:
            raise UsageError(f"corrupted.sets={name}: {why_not}")
    # A set and its corrupted form show the same photographs: they are no independent blocks.
    twins = {id(e): replace(e, source_images=e.source_images or e.name) for e in suite.sets if e.name in chosen}
    sets = [twins.get(id(entry), entry) for entry in suite.sets]
    made = [corrupted_set(twins[id(known[name])], config, suite.store) for name in chosen]
    return replace(
        suite,
        sets=(*sets, *made),
        validation=tuple(twins.get(id(entry), entry) for entry in suite.validation),
        derivations=(*suite.derivations, *(d for entry in made for d in derivations(entry.name, BENCHMARK))),
        fingerprint=record.digest([suite.fingerprint, *(entry.source.fingerprint() for entry in made)]),
    )


def corrupted_set(
    entry: EvaluationSet,
    config: Config,
    store: PreparedStore,
    corruptions: Sequence[str] = BENCHMARK,
    name: str | None = None,
) -> EvaluationSet:
    """A set's images under corruptions. UsageError where these lack what they need, as frost its photographs."""
    own = name or f"{entry.name}{SUFFIX}"
    settings, originals = config.corrupted, entry.source
    prepared = store.images(originals, PREPARED)
    source = generated(originals, own, corruptions, settings.seed, frost_folder(config), prepared)
    return replace(
        entry,
        name=own,
        source=source,
        transform=transforms.Exact(SIDE),
        measures=(),
        headline=MEAN_ERROR,
        preprocessing=WORDS,
        block=f"{entry.block}{SUFFIX}" if entry.block else "",
        aliases=entry.aliases if entry.domain else (),
        cadence="end",
    )


def frost_folder(config: Config) -> Path:
    """The folder of frost's photographs, whether it is there or not."""
    if config.corrupted.frost != "auto":
        return Path(config.corrupted.frost).expanduser()
    return Path(config.data_dir or "").expanduser() / "frost"


def _why_not(known: dict[str, EvaluationSet], name: str) -> str:
    """Why a set can't be had in corrupted form, in words; empty where it can."""
    if name not in known:
        return f"there is no evaluation set '{name}'{nearest(name, known)}"
    entry = known[name]
    if f"{name}{SUFFIX}" in known:
        return f"there is a set '{name}{SUFFIX}' already"
    if entry.task.several:
        return "its images have several labels, and errors under corruptions are of one"
    if entry.source.condition is not None:
        return f"its images are shown under {len(entry.source.conditions)} conditions already"
    if entry.source.channels != 3:
        return f"its images have {entry.source.channels} channels, and corruptions are of 3"
    made = entry.transform(transforms.example(entry.transform, 3)).shape[-2:]
    for height, width in (made, (entry.source.shape or made)[-2:]):
        if (height, width) != (SIDE, SIDE):
            fix = f"; image_size={SIDE} makes them so" if (height, width) == tuple(made) else ""
            here = f"images of {width} x {height}"
            return f"corruptions are defined for images of {SIDE} x {SIDE} pixels, and it has {here}{fix}"
    return ""
