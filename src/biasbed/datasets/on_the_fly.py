"""Images of any source under corruptions, made when they are asked for: the pixels that `prepare` would have written.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019, made
as the released files were (`data/corruptions/released.py`). Where `prepare what=corruptions` has written an image, the
file is read. Either way it is the same source, by name, order and fingerprint, whatever process makes which images.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbed.data.corruptions import SIDE, Corruption, corrupt, find
from biasbed.data.corruptions.released import QUALITY, clean, released_names, round_trip
from biasbed.data.decoding import as_pillow_decodes, open_file
from biasbed.data.prepared import MANIFEST, ImagesManifest
from biasbed.data.source import Decoded, Picture, Source
from biasbed.datasets.corruption_benchmarks import SEVERITIES, conditions
from biasbed.datasets.imagenet_c import below_each

HELD = 256  # clean images of 150 kB that a process keeps: it is asked for all of them under each condition in turn
PREPARED = "corruptions"  # as which `prepare` keeps the files


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedSource(Source):
    """The images of `originals` under corruptions in five severities, condition by condition.

    `row` [N] int32: of each image that of its original. `files`: the folder in which some may lie, written with the
    same seed and quality; None where there is none.
    """

    originals: Source
    corruptions: tuple[str, ...]
    seed: int
    frost: Path | None = None  # where frost's photographs are; None where they aren't needed
    files: Path | None = None
    row: np.ndarray
    _clean: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def open(self, row: int) -> Picture:
        """`CorruptImage` where the original can't be decoded."""
        path = None if self.files is None else self.files / self.ids[row]
        if path is not None and path.is_file():
            return Decoded(as_pillow_decodes(open_file(path)))
        assert self.condition is not None
        number, severity = divmod(int(self.condition[row]), len(SEVERITIES))
        corruption = _found(self.corruptions[number], self.frost)
        original = int(self.row[row])
        made = corrupt(self._original(original), corruption, severity + 1, self.seed, self.originals.ids[original])
        return Decoded(torch.from_numpy(np.array(round_trip(made))).permute(2, 0, 1))

    def fingerprint(self) -> str:
        """Of the originals and of what is done to them; files, which hold the same pixels, don't matter."""
        return self._made_of(self.originals.fingerprint(), self.row.tobytes(), np.asarray(self.condition).tobytes())

    def _made_of(self, *parts: str | bytes) -> str:
        """16 hex digits of images that corruptions make of what these describe."""
        sha = hashlib.sha256(repr((self.corruptions, self.seed, QUALITY)).encode())
        for part in parts:
            sha.update(part.encode() if isinstance(part, str) else part)
        return sha.hexdigest()[:16]

    def _columns(self) -> tuple[str, ...]:
        return *super()._columns(), "row"

    def _original(self, row: int) -> np.ndarray:
        """uint8 [224,224,3] of an original."""
        if row in self._clean:
            return self._clean[row]
        image = clean(self.originals.open(row))
        if len(self._clean) < HELD:
            self._clean[row] = image
        return image


def generated(
    originals: Source, name: str, corruptions: Sequence[str], seed: int, frost: Path, prepared: Path | None = None
) -> GeneratedSource:
    """The images of `originals` under each of the corruptions.

    frost: the folder of frost's photographs, if that is one of them. prepared: where `prepare` may have written images.
    UsageError where a corruption lacks what it needs, and for two images that would have one name.
    """
    photographs = frost if "frost" in corruptions else None
    for corruption in corruptions:  # what is missing shows at once
        corrupt(np.full((SIDE, SIDE, 3), 128, np.uint8), _found(corruption, photographs), 1, seed, "")
    names, shown = released_names(originals.ids, originals.name), conditions(corruptions)
    count = len(shown)
    places = [f"{corruption}/{severity}" for corruption in corruptions for severity in SEVERITIES]
    columns = {own: getattr(originals, own) for own in ("y", "domain", "bias", "group", "accepted")}
    tiled: dict[str, Any] = {
        own: None if part is None else np.concatenate([part] * count) for own, part in columns.items()
    }
    made = GeneratedSource(
        name=name,
        classes=originals.classes,
        ids=below_each(places, names),
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
        **tiled,
    )
    return replace(made, origin=made._made_of(originals.origin)) if originals.origin else made


@functools.lru_cache(maxsize=64)
def _found(name: str, frost: Path | None) -> Corruption:
    """A corruption, whose photographs are read once in each process."""
    return find(name, frost)


def _files(folder: Path | None, originals: Source, seed: int) -> Path | None:
    """The folder if what was prepared there is made of these images, with this seed; else None."""
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    manifest = ImagesManifest.read(folder)
    wanted = {"seed": seed, "quality": QUALITY}
    if manifest is None or manifest.settings != wanted or manifest.source_fingerprint != originals.fingerprint():
        return None
    return folder
