"""Corrupted images of any source, made on the fly: the pixels that `prepare` would write.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019, made
like the released files (`data/corruptions/released.py`). If `prepare what=corruptions` has written an image, its file
is read. The source has the same names, order, fingerprint and pixels either way, and in any process.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbed.data.corruptions import SIDE, Corruption, corrupt, find
from biasbed.data.corruptions.released import QUALITY, clean, released_names, round_trip
from biasbed.data.decoding import as_pillow_decodes, open_file
from biasbed.data.image_store import ImageStore
from biasbed.data.prepared import MANIFEST, ImagesManifest
from biasbed.data.source import Decoded, Picture, Source
from biasbed.datasets.corruption_benchmarks import SEVERITIES, conditions
from biasbed.datasets.imagenet_c import below_each

HELD = 256  # clean images of 150 kB that a process keeps, because all images come again under each condition
PREPARED = "corruptions"  # name under which `prepare` keeps the files


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedSource(Source):
    """Images of `originals` under corruptions in five severities, condition by condition.

    row: row [N] int32 of each image's original. files: folder of images that were written with the same seed and
    quality, which may be incomplete; None if there is none.
    """

    originals: Source
    corruptions: tuple[str, ...]
    seed: int
    frost: Path | None = None  # folder of frost's photographs; None if they are not needed
    files: Path | None = None
    row: np.ndarray
    _clean: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def open(self, row: int) -> Picture:
        """Read or make an image. Raises CorruptImage if the original can't be decoded."""
        path = None if self.files is None else self.files / self.ids[row]
        if path is not None and path.is_file():
            return Decoded(as_pillow_decodes(open_file(path)))
        assert self.condition is not None
        number, severity = divmod(int(self.condition[row]), len(SEVERITIES))
        corruption = _load(self.corruptions[number], self.frost)
        original = int(self.row[row])
        image = corrupt(self._original(original), corruption, severity + 1, self.seed, self.originals.ids[original])
        return Decoded(torch.from_numpy(np.array(round_trip(image))).permute(2, 0, 1))

    def version(self, row: int) -> int:
        return self.originals.version(int(self.row[row]))

    def fingerprint(self) -> str:
        """Hash the originals and the corruptions; written files have the same pixels and do not count."""
        return self._hash(self.originals.fingerprint(), self.row.tobytes(), np.asarray(self.condition).tobytes())

    def reading_from(self, images: ImageStore) -> Source:
        return replace(self, originals=images.attach(self.originals), _clean={})

    def _hash(self, *parts: str | bytes) -> str:
        """Hash the corruptions and descriptions of their inputs: 16 hex digits."""
        sha = hashlib.sha256(repr((self.corruptions, self.seed, QUALITY)).encode())
        for part in parts:
            sha.update(part.encode() if isinstance(part, str) else part)
        return sha.hexdigest()[:16]

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "row"

    def _original(self, row: int) -> np.ndarray:
        """Return an original, cropped: uint8 [224,224,3]."""
        if row in self._clean:
            return self._clean[row]
        image = clean(self.originals.open(row))
        if len(self._clean) < HELD:
            self._clean[row] = image
        return image


def generated(
    originals: Source, name: str, corruptions: Sequence[str], seed: int, frost: Path, prepared: Path | None = None
) -> GeneratedSource:
    """Make the source of the images of `originals` under each of the corruptions.

    frost: folder of frost's photographs, if frost is one of the corruptions. prepared: folder in which `prepare` may
    have written images. Raises UsageError if a corruption lacks its files or packages, and if two images would get one
    name.
    """
    photographs = frost if "frost" in corruptions else None
    for corruption in corruptions:  # reports missing files and packages at once
        corrupt(np.full((SIDE, SIDE, 3), 128, np.uint8), _load(corruption, photographs), 1, seed, "")
    names, shown = released_names(originals.ids, originals.name), conditions(corruptions)
    count = len(shown)
    folders = [f"{corruption}/{severity}" for corruption, severity in itertools.product(corruptions, SEVERITIES)]
    columns: dict[str, Any] = {}
    for column in ("y", "domain", "bias", "group", "accepted"):
        values = getattr(originals, column)
        columns[column] = None if values is None else np.concatenate([values] * count)
    source = GeneratedSource(
        name=name,
        classes=originals.classes,
        ids=below_each(folders, names),
        domains=originals.domains,
        roles=originals.roles,
        condition=np.repeat(np.arange(count, dtype=np.uint8), len(names)),
        conditions=shown,
        originals=originals,
        corruptions=tuple(corruptions),
        seed=seed,
        frost=photographs,
        files=_files(prepared, originals, seed),
        row=np.tile(np.arange(len(names), dtype=np.int32), count),
        **columns,
    )
    return replace(source, origin=source._hash(originals.origin)) if originals.origin else source


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
