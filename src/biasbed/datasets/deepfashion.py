"""DeepFashion Remixed: clothes under shifts of size, occlusion, viewpoint and zoom (Hendrycks et al. 2021).

Made of the files of DeepFashion2 (Ge et al., CVPR 2019) alone: for each of nine splits, the images of which some
garment has the split's four attributes, with those of 13 kinds of garment as labels of which one does. Any other
garment that the image shows counts for nothing. Training images are frontal views, as in the authors' program and
table 3; their text says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.data import listing_cache
from biasbed.data.folders import FolderSource
from biasbed.data.listing import THREADS, reading, scan
from biasbed.datasets.base import Contents, OnDisk, some
from biasbed.errors import UsageError
from biasbed.system.strict import MANY_PARTS, parse_json

CLASSES = (
    *("short_sleeve_top", "long_sleeve_top", "short_sleeve_outwear", "long_sleeve_outwear", "vest", "sling", "shorts"),
    *("trousers", "skirt", "short_sleeve_dress", "long_sleeve_dress", "vest_dress", "sling_dress"),
)
TRAIN, TEST = "train", "validation"  # DeepFashion2's folders
IMAGES, ANNOTATIONS = "image", "annos"
ATTRIBUTES = ("scale", "occlusion", "viewpoint", "zoom_in")  # each 1 to 3 in DeepFashion2's files
KIND = "category_id"


class Shown(NamedTuple):
    """How a garment is shown, by DeepFashion2's numbers: as training images have it unless another is said."""

    scale: int = 2  # small, modest, large
    occlusion: int = 2  # slight, medium, heavy
    viewpoint: int = 2  # not worn, frontal, from the side or the back
    zoom_in: int = 1  # none, medium, large


IID = "iid"
# Each of the others differs from it in one attribute. Called as in the paper's table 3.
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
    """All garments of some images. ids: the images' paths; row [M]: whose each is; kind [M], from 0; shown [M,4]."""

    ids: Sequence[str]
    row: np.ndarray
    kind: np.ndarray
    shown: np.ndarray

    def labels(self, wanted: Shown) -> np.ndarray:
        """[images,13] int64 of 0 and 1: of which kinds an image shows a garment so."""
        found = np.zeros((len(self.ids), len(CLASSES)), dtype=np.int64)
        matches = (self.shown == np.array(wanted)).all(axis=1)
        found[self.row[matches], self.kind[matches]] = 1
        return found


class DeepFashionRemixed(OnDisk):
    """The splits of DeepFashion2's files, `<part>/image/NNNNNN.jpg` with `<part>/annos/NNNNNN.json`."""

    name = "deepfashion_remixed"
    images = 0  # of splits that are counted here: the paper's numbers are of batches
    places = ("deepfashion2", "DeepFashion2")
    archives = ("train.zip", "validation.zip")
    licence = "DeepFashion2's, by a form"
    source = "https://github.com/switchablenorms/DeepFashion2"
    kind = "images with annotations"

    @property
    def num_classes(self) -> int:
        return len(CLASSES)

    def train(self, folder: Path) -> FolderSource:
        """The images that train."""
        return self._split(folder, self.name, IID, TRAIN)

    def tests(self, folder: Path, joined: bool = False) -> dict[str, FolderSource]:
        """The nine splits by name, of the validation images.

        joined: for the eight shifts of the training images too, but for those of which a garment trains. Never for
        `iid`, whose training images are what is trained on.
        """
        return {
            name: self._split(folder, name, name, *((TEST,) if name == IID or not joined else (TEST, TRAIN)))
            for name in SPLITS
        }

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        whole = self._source(folder, self.name, *zip(*((g.ids, _all(g)) for g in self._parts(folder)), strict=True))
        sources = {"training": self.train(folder), **self.tests(folder)}
        remarks = tuple(f"{name} has {len(source):,} images" for name, source in sources.items())
        return Contents(folder, whole.ids, len(whole), whole.num_labels, whole.fingerprint, remarks=remarks)

    def listed(self, folder: Path) -> Iterable[Path]:
        return [folder / part / ANNOTATIONS for part in (TRAIN, TEST)]

    def _is_in(self, folder: Path) -> bool:
        return any((folder / part / ANNOTATIONS).is_dir() for part in (TRAIN, TEST))

    def _parts(self, folder: Path) -> list[Garments]:
        return [garments(folder, part) for part in (TRAIN, TEST)]

    def _split(self, folder: Path, name: str, split: str, *parts: str) -> FolderSource:
        """The images of a split in some parts; UsageError where there are none."""
        ids, labels = [], []
        for part in parts:
            found = garments(folder, part)
            y = found.labels(SPLITS[split])
            trains = part == TRAIN and split != IID
            rows = np.flatnonzero(y.any(axis=1) & ~(found.labels(SPLITS[IID]).any(axis=1) & trains))
            ids.append([found.ids[row] for row in rows.tolist()])
            labels.append(y[rows])
        if not any(ids):
            shown = ", ".join(f"{key} {value}" for key, value in SPLITS[split]._asdict().items())
            self.refuse(folder, f"no image in {' and '.join(parts)} has a garment of the split '{split}' ({shown})")
        return self._source(folder, name, ids, labels)

    def _source(self, folder: Path, name: str, ids: Sequence[Sequence[str]], y: Sequence[np.ndarray]) -> FolderSource:
        every = [identifier for own in ids for identifier in own]
        return FolderSource(name=name, classes=CLASSES, y=np.concatenate(y), ids=every, root=folder)


def _all(found: Garments) -> np.ndarray:
    """Labels of all garments, however they are shown."""
    y = np.zeros((len(found.ids), len(CLASSES)), dtype=np.int64)
    y[found.row, found.kind] = 1
    return y


def garments(folder: Path, part: str) -> Garments:
    """All garments of a part of DeepFashion2, its images in order; remembered as long as no file comes or goes.

    UsageError for images and annotations that don't go together, and for an annotation that lacks something.
    """
    own = folder / part
    for name in (IMAGES, ANNOTATIONS):
        if not (own / name).is_dir():
            raise UsageError(f"{folder} doesn't fit 'deepfashion_remixed': there is no folder {part}/{name}")
    with reading():
        table = listing_cache.cached_table(own / ANNOTATIONS, lambda: _read(own))
        images = scan(own / IMAGES)[1]
    stems = {Path(name).stem: name for name in images}
    known = table["stems"].tolist()
    for what, lost in (("image", set(known) - set(stems)), ("annotation", set(stems) - set(known))):
        if lost:
            raise UsageError(f"{own}: {len(lost)} have no {what}: {some(sorted(lost), 3)}")
    ids = [f"{part}/{IMAGES}/{stems[stem]}" for stem in known]
    return Garments(ids, table["row"], table["kind"], table["shown"])


def _read(own: Path) -> dict[str, np.ndarray]:
    """stems [N], and of every garment row, kind and shown, of all annotations of a part."""
    files = sorted(name for name in _names(own / ANNOTATIONS) if name.endswith(".json"))
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda name: list(_garments_in(own / ANNOTATIONS / name)), files))
    flat = np.array([(row, *one) for row, own in enumerate(found) for one in own], dtype=np.int64)
    flat = flat.reshape(-1, 2 + len(ATTRIBUTES))
    stems = np.array([name.removesuffix(".json") for name in files], dtype=str)
    return {"stems": stems, "row": flat[:, 0], "kind": flat[:, 1], "shown": flat[:, 2:]}


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def _garments_in(file: Path) -> Iterator[tuple[int, ...]]:
    """(kind, and the four attributes) of each garment of an image."""
    try:
        content = parse_json(file.read_bytes(), MANY_PARTS)
        items = [value for key, value in content.items() if key.startswith("item")]
        found = [tuple(int(item[name]) for name in (KIND, *ATTRIBUTES)) for item in items]
    except KeyError as error:
        raise UsageError(f"{file}: a garment has no {error}") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(f"{file}: is no annotation of DeepFashion2 ({error})") from None
    for kind, *shown in found:
        if not 1 <= kind <= len(CLASSES) or not all(1 <= value <= 3 for value in shown):
            raise UsageError(f"{file}: a garment of kind {kind}, shown {shown}: expected 1 to 13, and 1 to 3 each")
        yield kind - 1, *shown
