"""DeepFashion Remixed: clothes under shifts of size, occlusion, viewpoint and zoom (Hendrycks et al. 2021).

The nine splits are made of DeepFashion2's files (Ge et al., CVPR 2019). A split has the images with at least one
garment that has the split's four attributes; the labels are the kinds of these garments, out of 13. Other garments in
an image are ignored. Training images are frontal views, as in the authors' program and table 3; their text says
otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.folders import FolderSource
from biasbed.data.listing import THREADS, report_unreadable, scan
from biasbed.datasets.base import Contents, OnDisk
from biasbed.errors import UsageError, listed
from biasbed.system.files import atomic_file
from biasbed.system.strict import MANY_PARTS, read_json

CLASSES = (
    *("short_sleeve_top", "long_sleeve_top", "short_sleeve_outwear", "long_sleeve_outwear", "vest", "sling", "shorts"),
    *("trousers", "skirt", "short_sleeve_dress", "long_sleeve_dress", "vest_dress", "sling_dress"),
)
TRAIN, TEST = "train", "validation"  # DeepFashion2's folders
IMAGES, ANNOTATIONS = "image", "annos"
ATTRIBUTES = ("scale", "occlusion", "viewpoint", "zoom_in")  # each 1 to 3 in DeepFashion2's files
KIND = "category_id"


class Shown(NamedTuple):
    """Attributes of a garment in an image, by DeepFashion2's numbers; the defaults are those of training images."""

    scale: int = 2  # small, modest, large
    occlusion: int = 2  # slight, medium, heavy
    viewpoint: int = 2  # not worn, frontal, from the side or the back
    zoom_in: int = 1  # none, medium, large


IID = "iid"
# Each further split differs from it in one attribute. The names are those of the paper's table 3.
SPLITS: Mapping[str, Shown] = {
    IID: Shown(),
    "size_small": Shown(scale=1),
    "size_large": Shown(scale=3),
    "occlusion_slight": Shown(occlusion=1),
    "occlusion_heavy": Shown(occlusion=3),
    "viewpoint_no_wear": Shown(viewpoint=1),
    "viewpoint_side_back": Shown(viewpoint=3),
    "zoom_medium": Shown(zoom_in=2),
    "zoom_large": Shown(zoom_in=3),
}
SHIFTS = tuple(name for name in SPLITS if name != IID)


@dataclass(frozen=True, eq=False)
class Garments:
    """M garments in images.

    ids: paths of the images; row: image [M] of each garment; kind: [M] from 0; shown: [M,4].
    """

    ids: Sequence[str]
    row: np.ndarray
    kind: np.ndarray
    shown: np.ndarray

    def labels(self, attributes: Shown | None = None) -> np.ndarray:
        """Return the kinds of garments with these attributes, by default of all garments: [images,13] int64, 0 or 1."""
        labels = np.zeros((len(self.ids), len(CLASSES)), dtype=np.int64)
        matches = np.ones(len(self.kind), dtype=bool)
        if attributes is not None:
            matches = (self.shown == np.array(attributes)).all(axis=1)
        labels[self.row[matches], self.kind[matches]] = 1
        return labels


class DeepFashionRemixed(OnDisk):
    """Splits of DeepFashion2's files, `<part>/image/NNNNNN.jpg` with `<part>/annos/NNNNNN.json`."""

    name = "deepfashion_remixed"

    def train(self, folder: Path) -> FolderSource:
        """Open the training images."""
        return self._open_split(folder, self.name, IID, TRAIN)

    def tests(self, folder: Path, joined: bool = False) -> dict[str, FolderSource]:
        """Open the nine splits of the validation images, by name.

        joined: add to the eight shifts the training images that have no garment with the attributes of `iid`, which
        would train.
        """
        sources = {}
        for name in SPLITS:
            parts = (TEST, TRAIN) if joined and name != IID else (TEST,)
            sources[name] = self._open_split(folder, name, name, *parts)
        return sources

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        parts = [read_garments(folder, part) for part in (TRAIN, TEST)]
        source = self._make_source(folder, self.name, [part.ids for part in parts], [part.labels() for part in parts])
        sources = {"training": self.train(folder), **self.tests(folder)}
        remarks = tuple(f"{name} has {len(split):,} images" for name, split in sources.items())
        return Contents.from_source(source, folder, remarks=remarks)

    def listed_folders(self, folder: Path) -> Iterable[Path]:
        return [folder / part / ANNOTATIONS for part in (TRAIN, TEST)]

    def _is_in(self, folder: Path) -> bool:
        return any((folder / part / ANNOTATIONS).is_dir() for part in (TRAIN, TEST))

    def _open_split(self, folder: Path, name: str, split: str, *parts: str) -> FolderSource:
        """Open the images of a split in some parts. Raises UsageError if there are none."""
        ids, labels = [], []
        for part in parts:
            part_garments = read_garments(folder, part)
            y = part_garments.labels(SPLITS[split])
            is_chosen = y.any(axis=1)
            if part == TRAIN and split != IID:
                is_chosen &= ~part_garments.labels(SPLITS[IID]).any(axis=1)
            rows = np.flatnonzero(is_chosen)
            ids.append([part_garments.ids[row] for row in rows.tolist()])
            labels.append(y[rows])
        if not any(ids):
            shown = ", ".join(f"{key} {value}" for key, value in SPLITS[split]._asdict().items())
            self.refuse(folder, f"no image in {' and '.join(parts)} has a garment of the split '{split}' ({shown})")
        return self._make_source(folder, name, ids, labels)

    def _make_source(
        self, folder: Path, name: str, ids: Sequence[Sequence[str]], y: Sequence[np.ndarray]
    ) -> FolderSource:
        all_ids = list(itertools.chain.from_iterable(ids))
        return FolderSource(name=name, classes=CLASSES, y=np.concatenate(y), ids=all_ids, root=folder)


def read_garments(folder: Path, part: str) -> Garments:
    """Read all garments of a part of DeepFashion2, its images in order; cached until a file is added or removed.

    Raises UsageError if images and annotations don't match, and for an incomplete annotation.
    """
    part_folder = folder / part
    with report_unreadable():
        table = _read_cached_table(part_folder / ANNOTATIONS)
        images = scan(part_folder / IMAGES).images
    files = {Path(name).stem: name for name in images}
    stems = table["stems"].tolist()
    for kind, lost in (("image", set(stems) - set(files)), ("annotation", set(files) - set(stems))):
        if lost:
            raise UsageError(f"{part_folder}: {len(lost)} have no {kind}: {listed(sorted(lost), 3)}")
    ids = [f"{part}/{IMAGES}/{files[stem]}" for stem in stems]
    return Garments(ids, table["row"], table["kind"], table["shown"])


def _read_cached_table(annotations: Path) -> dict[str, np.ndarray]:
    """Return what `_read_table` does; cached until a file is added, removed or renamed, as there are 200,000."""
    try:
        path = listing_cache.cache_path(annotations).with_suffix(".npz")
    except RuntimeError:  # there is no home
        return _read_table(annotations)
    stamp = listing_cache.stamp(os.stat(annotations))
    with contextlib.suppress(Exception), np.load(path) as cached:  # a damaged file may raise nearly anything
        if str(cached["stamp"]) == str(stamp):
            return dict(cached)
    table = _read_table(annotations)
    if max(stamp[1:]) < (time.time() - listing_cache.SETTLED) * 1e9:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path, durable=False) as temporary, temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, stamp=str(stamp), **table)
    return table


def _read_table(annotations: Path) -> dict[str, np.ndarray]:
    """Read all annotations in a folder: stems [N] of the files; row, kind and shown of each garment."""
    paths = [path for path in annotations.iterdir() if path.suffix == ".json"]
    files = sorted(path for path in paths if not path.name.startswith("."))
    with ThreadPoolExecutor(THREADS) as pool:
        per_image = list(pool.map(_read_annotation, files))
    rows: list[tuple[int, ...]] = []
    for row, garments in enumerate(per_image):
        rows += [(row, garment.kind, *garment.shown) for garment in garments]
    table = np.array(rows, dtype=np.int64).reshape(-1, 2 + len(ATTRIBUTES))
    stems = np.array([path.stem for path in files], dtype=str)
    return {"stems": stems, "row": table[:, 0], "kind": table[:, 1], "shown": table[:, 2:]}


class _Garment(NamedTuple):
    """Garment in an image."""

    kind: int  # place in `CLASSES`
    shown: tuple[int, ...]  # of each of `ATTRIBUTES`, from 1 to 3


def _read_annotation(file: Path) -> list[_Garment]:
    """Read the garments of an image."""
    try:
        content = read_json(file, MANY_PARTS)
        items = [value for key, value in content.items() if key.startswith("item")]
        garments_of_image = [[int(item[name]) for name in (KIND, *ATTRIBUTES)] for item in items]
        for kind, *shown in garments_of_image:
            if not 1 <= kind <= len(CLASSES) or not all(1 <= value <= 3 for value in shown):
                raise ValueError(f"a garment of kind {kind}, shown {shown}: expected 1 to 13, and 1 to 3 each")
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(f"{file}: is no annotation of DeepFashion2 ({type(error).__name__}: {error})") from None
    return [_Garment(kind - 1, tuple(shown)) for kind, *shown in garments_of_image]
