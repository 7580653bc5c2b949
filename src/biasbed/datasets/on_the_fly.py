"""Corrupted images of any source, made on the fly: the pixels that `prepare` would write.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019, made
like the released files (`data/corruptions/released.py`). If `prepare what=corruptions` has written an image, its file
is read. The source has the same names, order, fingerprint and pixels either way, and in any process.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed.data.corruptions import SIDE, Corruption, corrupt, find
from biasbed.data.corruptions.released import QUALITY, crop_clean, released_names, round_trip
from biasbed.data.decoding import as_pillow_decodes, open_file
from biasbed.data.prepared import MANIFEST, ImagesManifest
from biasbed.data.source import Decoded, Picture, Source
from biasbed.datasets.corruption_benchmarks import SEVERITIES, conditions
from biasbed.datasets.imagenet_c import join_each
from biasbed.datasets.repeated import RepeatedSource, repeated_columns

PREPARED = "corruptions"  # name under which `prepare` keeps the files


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedSource(RepeatedSource):
    """Images of `originals` under corruptions in five severities, condition by condition.

    files: folder of images that were written with the same seed and quality, which may be incomplete; None if there is
    none. Written files have the same pixels, and do not count in the fingerprint.
    """

    most_held: ClassVar[int] = 256

    corruptions: tuple[str, ...]
    seed: int
    frost: Path | None = None  # folder of frost's photographs; None if they are not needed
    files: Path | None = None

    @property
    def description(self) -> tuple[Any, ...]:
        return self.corruptions, self.seed, QUALITY

    def prepare(self, picture: Picture) -> np.ndarray:
        """Return an original, cropped: uint8 [224,224,3]."""
        return crop_clean(picture)

    def show(self, image: np.ndarray, condition: int, image_id: str) -> np.ndarray:
        """Return the corrupted image, as a released file has it."""
        number, severity = divmod(condition, len(SEVERITIES))
        corruption = _load(self.corruptions[number], self.frost)
        return round_trip(corrupt(image, corruption, severity + 1, self.seed, image_id))

    def open(self, row: int) -> Picture:
        """Read or make an image. Raises CorruptImage if the original can't be decoded."""
        path = None if self.files is None else self.files / self.ids[row]
        if path is not None and path.is_file():
            return Decoded(as_pillow_decodes(open_file(path)))
        return super().open(row)


def generated(
    originals: Source, name: str, corruptions: Sequence[str], seed: int, frost: Path, prepared: Path | None = None
) -> Source:
    """Make the source of the images of `originals` under each of the corruptions.

    frost: folder of frost's photographs, if frost is one of the corruptions. prepared: folder in which `prepare` may
    have written images. Raises UsageError if a corruption lacks its files or packages, and if two images would get one
    name.
    """
    photographs = frost if "frost" in corruptions else None
    for corruption in corruptions:  # reports missing files and packages at once
        corrupt(np.full((SIDE, SIDE, 3), 128, np.uint8), _load(corruption, photographs), 1, seed, "")
    folders = [f"{corruption}/{severity}" for corruption, severity in itertools.product(corruptions, SEVERITIES)]
    return GeneratedSource(
        name=name,
        ids=join_each(folders, released_names(originals.ids, originals.name)),
        corruptions=tuple(corruptions),
        seed=seed,
        frost=photographs,
        files=_files(prepared, originals, seed),
        **repeated_columns(originals, conditions(corruptions)),
    ).with_origin()


@functools.lru_cache(maxsize=64)
def _load(name: str, frost: Path | None) -> Corruption:
    """Return a corruption; a process reads its photographs only once."""
    return find(name, frost)


def _files(folder: Path | None, originals: Source, seed: int) -> Path | None:
    """Return the folder if its images were made of these originals with this seed; else None."""
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    manifest = ImagesManifest.read(folder)
    settings = {"seed": seed, "quality": QUALITY}
    if manifest is None or manifest.settings != settings or manifest.source_fingerprint != originals.fingerprint():
        return None
    return folder
