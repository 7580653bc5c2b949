"""ImageNet and data sets that share its classes: stylized, distorted, natural adversarial examples and renditions.

Their class folders are named by WordNet id; a label is the id's position in the sorted list.
What each release holds is in `releases.yaml`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from biasbed.data.folders import FolderSource
from biasbed.data.listing import list_classes, report_unreadable, scan
from biasbed.datasets.base import DataSet, likely_cause
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import MissingData, UsageError, listed
from biasbed.system.strict import MANY_PARTS, read_json


class WordNetFolders(DataSet):
    """Class folders named by WordNet id."""

    subset = ""  # of ImageNet's classes: "a", "r" or all

    @property
    def classes(self) -> tuple[str, ...]:
        return imagenet_classes(self.subset)


class ImageNet(WordNetFolders):
    """ImageNet's validation images, of ILSVRC 2012 (Russakovsky et al. 2015)."""

    name = "imagenet"

    def flat_hint(self) -> str:
        return "the usual script valprep.sh sorts them into one folder per class, named by WordNet id"


class ImageNetTrain(WordNetFolders):
    """ImageNet's training images, of ILSVRC 2012."""

    name = "imagenet_train"


class StylizedImageNet(WordNetFolders):
    """ImageNet's validation images in the styles of paintings (Geirhos et al. 2019), 224 x 224 pixels."""

    name = "stylized_imagenet"


class StylizedImageNetTrain(WordNetFolders):
    """ImageNet's training images in the styles of paintings (Geirhos et al. 2019)."""

    name = "stylized_imagenet_train"


class ImageNetA(WordNetFolders):
    """Natural adversarial examples (Hendrycks et al. 2021)."""

    name = "imagenet_a"
    subset = "a"


class ImageNetR(WordNetFolders):
    """Renditions: art, cartoons, toys, ... (Hendrycks et al. 2021)."""

    name = "imagenet_r"
    subset = "r"


class CAECopies(WordNetFolders):
    """ImageNet's validation images distorted by DeepAugment's autoencoder (Hendrycks et al. 2021, section 4)."""

    name = "deepaug_cae"


class DeepAugCAETrain(WordNetFolders):
    """ImageNet's training images distorted by DeepAugment's autoencoder: what its authors published."""

    name = "deepaug_cae_train"


class EDSRCopies(WordNetFolders):
    """ImageNet's validation images distorted by DeepAugment's super-resolution network."""

    name = "deepaug_edsr"


class DeepAugEDSRTrain(WordNetFolders):
    """ImageNet's training images distorted by DeepAugment's super-resolution network: what its authors published."""

    name = "deepaug_edsr_train"


# --- other images of ImageNet's classes, or its validation images with other labels -----------------------------------


class ImageNet200(ImageNet):
    """ImageNet's validation images of ImageNet-R's classes, classified among these only (Hendrycks et al. 2021)."""

    name = "imagenet_200"
    subset = "r"

    def open(self, data_dir: Path) -> FolderSource:
        source = ImageNet().open(data_dir)
        number = np.full(len(source.classes), -1)
        number[[source.classes.index(wnid) for wnid in self.classes]] = np.arange(len(self.classes))
        part = source.subset(np.flatnonzero(number[source.y] >= 0), self.name)
        return replace(part, classes=self.classes, y=number[part.y])


class ImageNetV2(WordNetFolders):
    """ImageNet-V2, new images with the selection frequency of ImageNet's validation images (Recht et al. 2019).

    The folders are class numbers, which must not be sorted as words (0, 1, 10, 100).
    """

    name = "imagenet_v2"

    def layout(self, folder: Path) -> str:
        return self.release.layout if self._is_numbered(folder) else "class folders by WordNet id"

    def listing(self, folder: Path) -> tuple[list[str], np.ndarray]:
        if not self._is_numbered(folder):
            return super().listing(folder)
        ids, labels, empty = list_classes(folder, [str(number) for number in range(len(self.classes))])
        if empty:
            self.refuse(folder, f"no images in {listed(empty, 5)}")
        return ids, labels

    def _is_numbered(self, folder: Path) -> bool:
        return set(scan(folder).folders) == {str(number) for number in range(len(self.classes))}


class ImageNetV2Threshold(ImageNetV2):
    """ImageNet-V2's images that at least 70 % of people put into their class."""

    name = "imagenet_v2_threshold"


class ImageNetV2Top(ImageNetV2):
    """ImageNet-V2's images that most people put into their class."""

    name = "imagenet_v2_top"


class ImageNetSketch(WordNetFolders):
    """Black and white sketches of ImageNet's classes (Wang et al. 2019)."""

    name = "imagenet_sketch"


class RealBlurry(WordNetFolders):
    """Naturally blurry photographs of 100 of ImageNet's classes, classified among all 1000.

    Hendrycks et al. 2021, section 3. The folders say which classes these are.
    """

    name = "real_blurry"

    def open(self, data_dir: Path) -> FolderSource:
        folder = self.folder(data_dir)
        with report_unreadable():
            folders = scan(folder).folders
            unknown = sorted(set(folders) - set(imagenet_classes()))
            if unknown or not folders:
                reason = f"unknown class folders {listed(unknown, 5)}" if unknown else "no class folders"
                self.refuse(folder, "; ".join([reason, *likely_cause(folders, imagenet_classes())]))
            ids, labels, empty = list_classes(folder, folders)
        if empty:
            self.refuse(folder, f"no images in {listed(empty, 5)}")
        classes = self._candidates(folders)
        number = np.array([classes.index(wnid) for wnid in folders])
        return FolderSource(name=self.name, classes=classes, y=number[labels], ids=ids, root=folder)

    def _candidates(self, folders: list[str]) -> tuple[str, ...]:
        """Return the classes among which an image is classified."""
        return imagenet_classes()


class RealBlurry100(RealBlurry):
    """Naturally blurry photographs, classified among the classes that occur."""

    name = "real_blurry_100"

    def _candidates(self, folders: list[str]) -> tuple[str, ...]:
        return tuple(folders)


class ImageNetReaL(ImageNet):
    """ImageNet's validation images with reassessed labels (Beyer et al. 2020).

    An image may have several correct labels; images without a label are left out.
    """

    name = "imagenet_real"
    files = ("real.json", "imagenet/real.json", "imagenet/val/real.json", "reassessed-imagenet/real.json")

    def find(self, data_dir: Path) -> Path | None:
        return super().find(data_dir) if self._find_labels(data_dir) else None

    def describe_missing(self, data_dir: Path) -> str:
        if ImageNet().find(data_dir) is None:
            return ImageNet().describe_missing(data_dir).replace(f"'{ImageNet.name}'", f"'{self.name}'", 1)
        return f"'{self.name}' is not in {data_dir}: {self.files[0]} is missing; where to get it: {self.release.source}"

    def open(self, data_dir: Path) -> FolderSource:
        path = self._find_labels(data_dir)
        if path is None:
            raise MissingData(self.describe_missing(data_dir))
        labels = self._read_labels(path)
        source = ImageNet().open(data_dir)
        numbers = [self._find_number(name, len(labels), source.root) for name in source.ids]
        accepted = np.zeros((len(source), len(source.classes)), dtype=bool)
        for row, number in enumerate(numbers):
            accepted[row, labels[number]] = True
        first = np.array([(labels[number] or [0])[0] for number in numbers], dtype=np.int64)
        labelled_source = replace(source, accepted=accepted, y=first)
        return labelled_source.subset(np.flatnonzero(accepted.any(axis=1)), self.name)

    def _find_labels(self, data_dir: Path) -> Path | None:
        return next((data_dir / name for name in self.files if (data_dir / name).is_file()), None)

    def _read_labels(self, path: Path) -> list[list[int]]:
        """Read the list of labels of each validation image, by its number. Raises UsageError if the file has none."""
        valid = range(len(imagenet_classes()))
        try:
            labels = read_json(path, MANY_PARTS)
            are_lists = isinstance(labels, list) and all(isinstance(numbers, list) for numbers in labels)
            numbers = itertools.chain.from_iterable(labels) if are_lists else [None]
            if not all(isinstance(number, int) and number in valid for number in numbers):
                raise ValueError
        except (OSError, ValueError) as error:
            expected = f"it is no JSON with a list of the labels, 0 to {valid[-1]}, of each validation image"
            raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or expected}") from None
        return list(labels)

    def _find_number(self, name: str, count: int, folder: Path) -> int:
        """Return the index of a validation image in the list."""
        match = re.search(r"_val_(\d{8})\.", name)
        if match is None or not 1 <= int(match[1]) <= count:
            self.refuse(folder, f"'{name}' is none of the {count:,} images ILSVRC2012_val_<number> that have labels")
        return int(match[1]) - 1
