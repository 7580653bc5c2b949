"""Waterbirds, composed of birds that are cut out and put before backgrounds (Sagawa et al. 2020, appendix C.1)."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from biasbed import suites
from biasbed.data.decoding import open_file
from biasbed.data.folders import FolderSource
from biasbed.data.prepared import ImagesManifest
from biasbed.datasets.biased import DATA_SETS
from biasbed.datasets.metadata_csv import refuse_missing
from biasbed.errors import CorruptImage, UsageError
from biasbed.plugins.waterbirds.birds import CLASSES, CUB, Composed, Places, assign, find_originals
from biasbed.plugins.waterbirds.data_set import SEVERITY, ComposedWaterbirds, composition
from biasbed.prepare.images import (
    PooledOptions,
    SingleFiles,
    has_missing,
    make_missing,
    refuse_foreign_folder,
    remove_other_images,
)
from biasbed.prepare.maker import Maker, WrittenOptions
from biasbed.settings import setting
from biasbed.suites.debiasing import DebiasingSettings
from biasbed.system.files import write_whole
from biasbed.tracking.folder import exclusive

COLUMNS = ("img_id", "img_filename", "y", "split", "place", "place_filename")  # of the table that the authors give out


@dataclass(frozen=True)
class WaterbirdsOptions(PooledOptions, WrittenOptions):
    """Settings of the composer. Severity and seed are `data.severity` and `data.seed`."""

    cub: str = setting("auto", "folder of CUB-200-2011, with segmentations in it or beside it (auto: below data_dir)")
    places: str = setting("auto", "folder of Places365's training images (auto: below data_dir)")
    format: Literal["jpg", "png"] = setting("jpg", "of the images: jpg at quality 95, png without loss")


@dataclass(frozen=True)
class Composition(SingleFiles):
    """Images to be made of one severity and seed."""

    rows: Sequence[Composed]
    birds: Path  # folders of the originals, which paths are relative to
    masks: Path
    scenes: Path
    folder: Path  # of the composed images
    format: str

    @property
    def names(self) -> list[str]:
        return [str(PurePosixPath(row.bird.image).with_suffix(f".{self.format}")) for row in self.rows]

    def path(self, row: int) -> Path:
        return self.folder / PurePosixPath(self.rows[row].bird.image).with_suffix(f".{self.format}")

    def make_renderer(self) -> Callable[[int], Tensor]:
        return self.compose

    def compose(self, row: int) -> Tensor:
        """Return the image of a row [3,H,W] uint8. Raises CorruptImage if one of its three originals can't be read."""
        image = self.rows[row]
        bird, scene = _read_pixels(self.birds / image.bird.image), _read_pixels(self.scenes / image.scene)
        path = self.masks / mask_of(image.bird.image)
        mask = _read_pixels(path)
        if mask.shape != bird.shape:
            sizes = [f"{pixels.shape[1]} x {pixels.shape[0]}" for pixels in (mask, bird)]
            raise CorruptImage(f"the segmentation {path} is {sizes[0]} pixels large, its bird {sizes[1]}")
        return torch.from_numpy(blend(bird, mask, cover(scene, bird.shape[1], bird.shape[0]))).permute(2, 0, 1)

    def table(self, skipped: Sequence[str]) -> str:
        """Return the text of `metadata.csv`, without the images that were skipped."""
        left_out, text = set(skipped), io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        for name, row in zip(self.names, self.rows, strict=True):
            if name not in left_out:
                table.writerow([row.bird.number, name, row.bird.y, row.split, row.kind, f"/{row.scene}"])
        return text.getvalue()

    def manifest(self, maker: str, severity: float, seed: int) -> ImagesManifest:
        """Return the manifest of the images, with fingerprints of all originals."""
        y = np.array([row.bird.y for row in self.rows], dtype=np.int64)
        images = {
            "birds": (self.birds, [row.bird.image for row in self.rows]),
            "segmentations": (self.masks, [mask_of(row.bird.image) for row in self.rows]),
            "places": (self.scenes, [row.scene for row in self.rows]),
        }
        settings: dict[str, Any] = {"severity": severity, "seed": seed}
        for name, (root, ids) in images.items():
            settings[name] = FolderSource(name=name, classes=CLASSES, y=y, ids=ids, root=root).fingerprint()
        return ImagesManifest(maker, CUB.name, settings["birds"], len(self.rows), self.format, settings)


class WaterbirdsMaker(Maker[WaterbirdsOptions]):
    """Maker of the data set `waterbirds_ac` at one severity, in the folder where its reader looks for it."""

    Settings = WaterbirdsOptions

    def run(self) -> Path:
        """Compose the missing images and return their folder.

        Raises UsageError if originals are missing, Failure if some can't be read.
        """
        suite = suites.make_suite(self.config)
        train = DATA_SETS.identifier(self.config.train)
        if not isinstance(self.config, DebiasingSettings) or train not in ("auto", ComposedWaterbirds.name):
            raise UsageError(f"what={self.name} composes train={ComposedWaterbirds.name} of suite=debiasing, no other")
        data = self.config.data
        severity = SEVERITY if data.severity == "auto" else float(data.severity)
        folder = composition(suite.data_root, severity, data.seed)
        work = self._plan_composition(suite.data_root, folder, severity, data.seed)
        with exclusive(folder.parent, "composed"):
            return self._compose_missing(work, work.manifest(self.name, severity, data.seed))

    def _plan_composition(self, data_dir: Path, folder: Path, severity: float, seed: int) -> Composition:
        """Return the images to be made from the originals; nothing is written."""
        cub, places = CUB(), Places()
        birds = find_originals(cub, "cub", self.options.cub, data_dir)
        scenes = find_originals(places, "places", self.options.places, data_dir)
        rows = assign(cub.birds(birds), places.scenes(scenes), severity, seed)
        masks = cub.segmentations(birds)
        refuse_missing(birds / "images", [row.bird.image for row in rows], "images of images.txt")
        refuse_missing(masks, [mask_of(row.bird.image) for row in rows], "birds' segmentations")
        return Composition(rows, birds / "images", masks, scenes, folder, self.options.format)

    def _compose_missing(self, work: Composition, manifest: ImagesManifest) -> Path:
        folder, table = work.folder, work.folder / ComposedWaterbirds.file
        refuse_foreign_folder(folder)
        existing = remove_other_images(folder, manifest, self.options.overwrite)
        if existing is not None and table.is_file() and not has_missing(work, existing.skipped):
            print(f"{folder} is complete already: {existing.images} images", file=sys.stderr)
            return folder
        processes = self.options.count_processes("cpu")
        done = make_missing(work, manifest, folder, processes, may_skip=self.config.corrupt != "stop")
        write_whole(table, work.table(done.skipped))
        print(f"done: {done.images} images in {folder}", file=sys.stderr)
        return folder


def mask_of(image: str) -> str:
    """Return the path of a bird's segmentation: that of its image with another suffix."""
    return str(PurePosixPath(image).with_suffix(".png"))


def blend(bird: np.ndarray, mask: np.ndarray, scene: np.ndarray) -> np.ndarray:
    """Return the bird before the scene: each is weighted by the soft mask and rounded. All [H,W,3] uint8."""
    share = mask / 255
    # Both parts together would pass 255 if each were rounded up from a half. None is a half: 2 x bird x mask is even,
    # and no odd multiple of 255 is.
    return np.round(bird * share).astype(np.uint8) + np.round(scene * (1 - share)).astype(np.uint8)


def cover(scene: np.ndarray, width: int, height: int) -> np.ndarray:
    """Return the largest central crop of this aspect ratio, resized (Lanczos): [height,width,3].

    A scene that is too small either way is enlarged first, in whole pixels. scene: [h,w,3] uint8.
    """
    image = Image.fromarray(scene)
    if image.width < width or image.height < height:
        image = image.resize(_covering_size(image.width, image.height, width, height), Image.Resampling.LANCZOS)
    left = top = 0
    if image.width / image.height > width / height:
        left = (image.width - int(width / height * image.height)) // 2
    else:
        top = (image.height - int(image.width / (width / height))) // 2
    middle = image.crop((left, top, image.width - left, image.height - top))
    return np.asarray(middle.resize((width, height), Image.Resampling.LANCZOS))


def _covering_size(old_width: int, old_height: int, width: int, height: int) -> tuple[int, int]:
    """Return the smallest size of the old aspect ratio that covers the new size."""
    by_width = int(width / old_width * old_height)
    if by_width >= height:
        return width, by_width
    return max(width, int(height / old_height * old_width)), height


def _read_pixels(path: Path) -> np.ndarray:
    """Return an image file's pixels [H,W,3] uint8. Raises CorruptImage if it can't be read."""
    return np.ascontiguousarray(open_file(path).pixels().permute(1, 2, 0).numpy())
