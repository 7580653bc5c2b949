"""Cue data sets of ImageNet's classes: images that isolate shape, texture, background, watermark and factors.

ImageNet-9, ImageNet-W, ImageNet-X, REFINED-BIAS and LAION-C. Classes of several sets combine some of ImageNet's:
`outputs` returns which. What each release holds is in `releases.yaml` here.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from biasbed.data.folders import FolderSource
from biasbed.data.names import without_condition
from biasbed.data.source import Source
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import expand_ranges, imagenet_classes
from biasbed.datasets.imagenet import ImageNet
from biasbed.datasets.imagenet_c import Corrupted
from biasbed.errors import MissingData, UsageError, first_line, listed
from biasbed.plugins.cues.classes import (
    CARTON,
    DISTORTIONS,
    FACTORS,
    IMAGENET_9,
    INTENSITIES,
    SHAPES,
    SUPERCLASSES,
    TEXTURES,
)
from biasbed.plugins.cues.derivations import NO_FACTOR
from biasbed.system import formats
from biasbed.system.strict import MANY_PARTS, parse_json, read_json, read_text

Outputs = tuple[tuple[int, ...], ...]  # of each class, the positions of its ImageNet classes


class HasOutputs(Protocol):
    """Data set each of whose classes stands for several of ImageNet's."""

    name: str

    def outputs(self, data_dir: Path) -> Outputs:
        """Return the ImageNet classes of each class."""


def positions(wnids: Iterable[str]) -> tuple[int, ...]:
    """Return the positions of WordNet ids among ImageNet's classes."""
    classes = imagenet_classes()
    return tuple(classes.index(wnid) for wnid in wnids)


# --- background -------------------------------------------------------------------------------------------------------

IN9_MAP = "in_to_in9.json"  # ImageNet's class number -> number of the class of ImageNet-9, -1 for none
ClassNumber = Annotated[int, Field(ge=-1, lt=len(IMAGENET_9))]


class ImageNet9(DataSet):
    """ImageNet-9: objects of nine coarse classes with their backgrounds (Xiao et al., ICLR 2021, section 2)."""

    name = "imagenet_9"

    @property
    def classes(self) -> tuple[str, ...]:
        return IMAGENET_9

    def find(self, data_dir: Path) -> Path | None:
        folder = super().find(data_dir)
        return folder if folder is not None and self._find_map(data_dir, folder) is not None else None

    def describe_missing(self, data_dir: Path) -> str:
        folder = super().find(data_dir)
        if folder is None:
            return super().describe_missing(data_dir)
        return (
            f"'{self.name}' in {folder} needs {IN9_MAP}, which says which of ImageNet's classes are in which of the "
            f"nine: put it into {folder.parent.parent}; where to get it: {self.release.source}"
        )

    def outputs(self, data_dir: Path) -> Outputs:
        """Return the ImageNet classes of each class. Raises UsageError if the release's map is damaged."""
        path = self._find_map(data_dir, self.folder(data_dir))
        assert path is not None
        members: list[list[int]] = [[] for _ in self.classes]
        try:
            numbers = formats.check(dict[str, ClassNumber], read_json(path, MANY_PARTS))
            for position in range(len(imagenet_classes())):
                number = numbers.get(str(position), -1)
                if number >= 0:
                    members[number].append(position)
            empty = [name for name, positions in zip(self.classes, members, strict=True) if not positions]
            if empty:
                raise ValueError(f"it gives no ImageNet class to {listed(empty, 5)}")
        except (OSError, ValueError) as error:
            raise UsageError(f"can't read {path}: {first_line(error)}; get it again") from None
        return tuple(map(tuple, members))

    def _find_map(self, data_dir: Path, folder: Path) -> Path | None:
        paths = (parent / IN9_MAP for parent in (folder.parent.parent, folder.parent, data_dir))
        return next((path for path in paths if path.is_file()), None)


class MixedSame(ImageNet9):
    """ImageNet-9 with the background of another image of the same class."""

    name = "imagenet_9_mixed_same"


class MixedRand(ImageNet9):
    """ImageNet-9 with the background of an image of a random class."""

    name = "imagenet_9_mixed_rand"


class OnlyForeground(ImageNet9):
    """ImageNet-9 on black: the object alone."""

    name = "imagenet_9_only_fg"


class OnlyBackground(ImageNet9):
    """ImageNet-9 without the object, whose box is filled with background (`Only-BG-T`)."""

    name = "imagenet_9_only_bg_t"


# --- ImageNet's images with a further part ----------------------------------------------------------------------------


class ImageNetWith(ImageNet):
    """ImageNet's validation images, and something else that is found apart from them."""

    def part(self, data_dir: Path) -> Path | None:
        """Return where the further part is; None if it is missing."""
        raise NotImplementedError

    def missing_part(self, data_dir: Path) -> str:
        """Say what the further part is, and where to put it."""
        raise NotImplementedError

    def find(self, data_dir: Path) -> Path | None:
        return super().find(data_dir) if self.part(data_dir) else None

    def describe_missing(self, data_dir: Path) -> str:
        images = ImageNet()
        if images.find(data_dir) is None:
            return images.describe_missing(data_dir).replace(f"'{images.name}'", f"'{self.name}'", 1)
        return self.missing_part(data_dir)

    def found_part(self, data_dir: Path) -> Path:
        """Return where the further part is. Raises MissingData if it is missing."""
        path = self.part(data_dir)
        if path is None:
            raise MissingData(self.describe_missing(data_dir))
        return path


# --- watermark --------------------------------------------------------------------------------------------------------

FONT = "SourceHanSerifSC-ExtraLight.otf"


@dataclass(frozen=True, eq=False, kw_only=True)
class WatermarkedSource(FolderSource):
    """Images that a watermark is drawn on after they are cropped. font: its file."""

    font: Path

    def _further_content(self) -> tuple[bytes, ...]:
        return (*super()._further_content(), hashlib.sha256(self.font.read_bytes()).digest())


class ImageNetW(ImageNetWith):
    """ImageNet-W: a watermark on ImageNet's validation images (Li et al., CVPR 2023, section 3.2).

    The watermark is drawn on the cropped image (`watermark`), in a font that is not part of biasbed. The class
    that it suggests is the images' bias.
    """

    name = "imagenet_w"
    font_folders = (".", "imagenet_w", "imagenet-w", "fonts")

    def missing_part(self, data_dir: Path) -> str:
        return (
            f"'{self.name}' draws a watermark in a font that is not in {data_dir}: put {FONT} there or into "
            f"imagenet_w; where to get it: {self.release.source}"
        )

    def open(self, data_dir: Path) -> WatermarkedSource:
        font = self.found_part(data_dir)
        source = super().open(data_dir)
        return WatermarkedSource(
            name=self.name,
            classes=source.classes,
            y=source.y,
            ids=source.ids,
            root=source.root,
            bias=source.bias,
            font=font,
        )

    def part(self, data_dir: Path) -> Path | None:
        """Return the path of the font's file; None if it is missing."""
        paths = (data_dir / name / FONT for name in self.font_folders)
        return next((path for path in paths if path.is_file()), None)

    def bias(self, ids: Sequence[str], folder: Path) -> np.ndarray:
        return np.full(len(ids), self.classes.index(CARTON), dtype=np.int64)


# --- factors ----------------------------------------------------------------------------------------------------------

ANNOTATIONS, PROTOTYPES = "imagenet_x_val_top_factor.jsonl", "prototypical_paths.csv"
PACKAGE = "imagenet_x"


class ImageNetX(ImageNetWith):
    """ImageNet-X: ImageNet's validation images, grouped by the factor that sets each apart from typical ones.

    People chose one factor of 16 for each image (Idrissi et al., ICLR 2023, section 2). The images are those that the
    authors' package counts by default: with an annotation, and not among the typical ones that people compared with.
    """

    name = "imagenet_x"
    annotation_folders = ("imagenet_x", "imagenet-x", "imagenet_x/annotations", ".")

    def missing_part(self, data_dir: Path) -> str:
        return (
            f"'{self.name}' needs its annotations: pip install imagenet-x, or put {ANNOTATIONS} and {PROTOTYPES} of "
            f"that package into {data_dir / self.annotation_folders[0]}"
        )

    def open(self, data_dir: Path) -> FolderSource:
        source = ImageNet().open(data_dir)
        folder = self.found_part(data_dir)
        annotations = read_factors(folder)
        rows, factors = [], []
        for row, name in enumerate(source.ids):
            annotation = annotations.get(name.rpartition("/")[2])
            if annotation is None:
                continue
            if annotation.label != source.y[row]:
                self.refuse(
                    source.root,
                    f"{name} is in class {source.y[row]}, and {folder / ANNOTATIONS} says {annotation.label}",
                )
            rows.append(row)
            factors.append(annotation.factor)
        if not rows:
            self.refuse(source.root, "none of its images is annotated: they should be called ILSVRC2012_val_<number>")
        return replace(source.subset(np.array(rows), self.name), group=np.array(factors))

    def part(self, data_dir: Path) -> Path | None:
        """Return the folder with the annotations: below data_dir, else in the installed package; None without any."""
        folders = [data_dir / name for name in self.annotation_folders]
        spec = find_spec(PACKAGE)
        if spec is not None:
            folders += [Path(location) / "annotations" for location in spec.submodule_search_locations or ()]
        for folder in folders:
            if (folder / ANNOTATIONS).is_file() and (folder / PROTOTYPES).is_file():
                return folder
        return None


class Annotation(NamedTuple):
    """Annotation of an image."""

    label: int  # number of its class
    factor: str  # that sets it apart most


@functools.lru_cache(maxsize=2)
def read_factors(folder: Path) -> Mapping[str, Annotation]:
    """Return the annotation of each image that is not a prototype, by its file's name.

    Raises UsageError with the line of an annotation that is damaged.
    """
    with (folder / PROTOTYPES).open(newline="", encoding="utf-8") as file:
        prototypes = {row.get("file_name") for row in csv.DictReader(file)}
    annotations = {}
    path = folder / ANNOTATIONS
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            values = parse_json(line)
            chosen = [factor for factor in FACTORS if values[factor]]
            (factor,) = chosen or [NO_FACTOR]
            name, label = values["file_name"], values["class"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{path}, line {number}: no annotation with the 16 factors, of which one may be true; get it again"
            ) from None
        if name not in prototypes:
            annotations[name] = Annotation(label, factor)
    return annotations


# --- shape and texture ------------------------------------------------------------------------------------------------


class PureCue(DataSet):
    """Images with one cue alone; the class is searched among all 1000 (REFINED-BIAS)."""

    members: Mapping[str, tuple[str, ...]]

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.members)

    def outputs(self, data_dir: Path) -> Outputs:
        """Return the ImageNet classes of each class."""
        return tuple(map(positions, self.members.values()))


class RefinedShape(PureCue):
    """REFINED-BIAS: shapes without their texture (Kim et al. 2026)."""

    name = "refined_bias_shape"
    members = SHAPES


class RefinedTexture(PureCue):
    """REFINED-BIAS: textures without a shape (Kim et al. 2026)."""

    name = "refined_bias_texture"
    members = TEXTURES


# --- distortions ------------------------------------------------------------------------------------------------------

FOLDERS = tuple(f"intensity_level_{level}" for level in INTENSITIES)


class LaionC(Corrupted):
    """LAION-C: six distortions that web-scale training data lack, in five intensities (Li et al., ICML 2025).

    Names of images end with distortion and intensity, so those of two conditions are compared without.
    """

    name = "laion_c"
    corruptions = DISTORTIONS
    folders: Mapping[str, tuple[str, ...]] = dict.fromkeys(DISTORTIONS, FOLDERS)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(SUPERCLASSES)

    def outputs(self, data_dir: Path) -> Outputs:
        """Return the ImageNet classes of each class."""
        return tuple(map(expand_ranges, SUPERCLASSES.values()))

    def differences(self, source: Source) -> tuple[str, ...]:
        return ()  # how many images the release has was not published

    def _common(self, names: list[str], condition: str) -> list[str]:
        return [without_condition(name, condition) for name in names]

    def _ids(self, images: Mapping[str, list[str]], names: Sequence[str]) -> Sequence[str]:
        return list(itertools.chain.from_iterable(images.values()))

    def _classes(self, folder: Path, names: Sequence[str]) -> tuple[str, ...]:
        """Return the classes, all of which must be there. Raises UsageError for other folders."""
        folders = {name.partition("/")[0] for name in names}
        if folders != set(self.classes):
            self.refuse(folder, self._other_classes(folders))
        return self.classes

    def _other_classes(self, folders: Collection[str]) -> str:
        """Describe how the class folders differ from this data set's."""
        unknown, lacking = sorted(set(folders) - set(self.classes)), sorted(set(self.classes) - set(folders))
        parts = [f"unknown class folders {listed(unknown, 5)}"] if unknown else []
        if lacking:
            parts.append(f"{len(lacking)} of {len(self.classes)} class folders missing: {listed(lacking, 5)}")
        return "; ".join(parts)
