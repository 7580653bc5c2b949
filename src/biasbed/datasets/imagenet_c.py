"""Released corruptions of ImageNet's validation images, as files `<corruption>/<severity>/<wnid>/<image>`.

A data set is one source with a condition for each corruption and severity; all conditions must have the same images.
Images must have the released 224 x 224 pixels, because another resize costs one to three points of mCE.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from biasbed.data.decoding import open_file
from biasbed.data.folders import FolderSource
from biasbed.data.listing import images_below, report_unreadable, scan
from biasbed.data.names import Names
from biasbed.data.prepared import MANIFEST
from biasbed.data.source import Source
from biasbed.datasets.base import Contents, OnDisk, likely_cause
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import BAR, BENCHMARK, EXTRAS, IN_3D, SEVERITIES, conditions
from biasbed.errors import CorruptImage, listed

SIDE = 224  # pixels of released images
SMALL = 10  # images of each class in small sets, the first ones by name


class Corrupted(OnDisk):
    """Released images under each of `corruptions`, in five severities."""

    corruptions: tuple[str, ...]
    folders: Mapping[str, tuple[str, ...]] = {}  # corruption -> folders of its severities, if not 1 to 5
    small = False  # True to use only the first `SMALL` images of each class
    others: tuple[str, ...] = ()  # further corruptions that may be in the same folder

    def open(self, data_dir: Path) -> FolderSource:
        """Open all images, condition by condition.

        Raises UsageError if the data set is missing, is not the release, lacks a condition, has conditions with
        different images or other classes, or if the first image of a condition does not have 224 x 224 pixels. Fewer
        images than in the release are no error here.
        """
        folder = self.folder(data_dir)
        if (folder / MANIFEST).is_file():
            self.refuse(folder, "its images are made by `prepare`, and never stand for those that were released")
        with report_unreadable():
            images = self._list_conditions(folder)
        names = self._common_names(folder, images)
        if self.small:
            names = _first_of_each(names, SMALL)
        classes = self._classes(folder, names)
        number = {name: label for label, name in enumerate(classes)}
        y = np.array([number[name.partition("/")[0]] for name in names], dtype=np.int64)
        ids = self._ids(images, names)
        self._refuse_sizes(folder, [ids[first] for first in range(0, len(ids), len(names))])
        return FolderSource(
            name=self.name,
            classes=classes,
            y=np.tile(y, len(images)),
            ids=ids,
            root=folder,
            condition=np.repeat(np.arange(len(images), dtype=np.uint8), len(names)),
            conditions=conditions(self.corruptions),
        )

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        return Contents.from_source(source, source.root, differences=self.differences(source), side=SIDE)

    def differences(self, source: Source) -> tuple[str, ...]:
        """Describe the differences from the release."""
        classes, images = len(source.classes), len(source) // len(source.conditions)
        differences = []
        if classes != self.release.classes:
            differences.append(f"{classes} of {self.release.classes} classes")
        released = self.release.images // self.release.conditions
        if images != released:
            differences.append(f"{images:,} images under each condition; the release has {released:,}")
        return tuple(differences)

    # --- files ---

    def _is_in(self, folder: Path) -> bool:
        return not set(self.corruptions).isdisjoint(scan(folder).folders)

    def _list_conditions(self, folder: Path) -> dict[str, list[str]]:
        """List the images of each `<corruption>/<severity>`, sorted, as paths relative to the data set's folder.

        Lists all corruptions in the folder, so that the data sets in it share one cached listing. Raises UsageError if
        a condition is missing.
        """
        existing = set(scan(folder).folders)
        present: list[str] = []
        for name in (*self.corruptions, *self.others):
            if name in existing:
                severities = [f"{name}/{severity}" for severity in scan(folder / name).folders]
                present += [path for path in self.severities(name) if path in severities]
        expected = list(itertools.chain.from_iterable(map(self.severities, self.corruptions)))
        missing = [path for path in expected if path not in present]
        if missing:
            self.refuse(folder, self._describe_missing(folder, missing))
        images = dict(zip(present, images_below(folder, present), strict=True))
        return {path: images[path] for path in expected}

    def severities(self, corruption: str) -> list[str]:
        """Return the folders of a corruption's severities, relative to the data set's folder."""
        return [f"{corruption}/{severity}" for severity in self.folders.get(corruption, SEVERITIES)]

    def _describe_missing(self, folder: Path, missing: Sequence[str]) -> str:
        """Describe which conditions are missing. A corruption without any condition is named once."""
        names: list[str] = []
        number = 0
        for corruption in self.corruptions:
            severities = self.severities(corruption)
            lacking = [path for path in severities if path in missing]
            names += [corruption] if lacking == severities else lacking
            number += len(severities)
        return (
            f"{number - len(missing)} of {number} conditions are there, {listed(names, 5)} missing; unpack the "
            f"archives so that {folder} has a folder for each corruption"
        )

    def _common_names(self, folder: Path, images: Mapping[str, list[str]]) -> list[str]:
        """Return the images that every condition shows. Raises UsageError if conditions differ or have none."""
        first, names = next(iter(images)), None
        for (condition, paths), shown in zip(images.items(), conditions(self.corruptions), strict=True):
            start = len(condition) + 1
            condition_names = self._common([path[start:] for path in paths], shown)
            if names is None:
                names = condition_names
            if condition_names != names:
                lacking, more = sorted(set(names) - set(condition_names)), sorted(set(condition_names) - set(names))
                differences = [f"lacks {listed(lacking, 2)}"] if lacking else []
                differences += [f"has besides {listed(more, 2)}"] if more else []
                self.refuse(folder, f"{condition} has other images than {first}: it {' and '.join(differences)}")
        if not names:
            self.refuse(folder, f"{first} has no images")
        return names

    def _common(self, names: list[str], condition: str) -> list[str]:
        """Return the images' names under all conditions. names: below the folder of this one, named as in metrics."""
        return names

    def _ids(self, images: Mapping[str, list[str]], names: Sequence[str]) -> Sequence[str]:
        """Return the paths of all images, condition by condition. names: the common ones of those that are used."""
        return join_each(list(images), names)

    def _classes(self, folder: Path, names: Sequence[str]) -> tuple[str, ...]:
        """Return the classes of ImageNet that occur. Raises UsageError for other folders."""
        folders = {name.partition("/")[0] for name in names}
        unknown = sorted(folders - set(imagenet_classes()))
        if unknown:
            cause = likely_cause(folders, imagenet_classes())
            self.refuse(folder, "; ".join([f"unknown class folders {listed(unknown, 5)}", *cause]))
        return tuple(wnid for wnid in imagenet_classes() if wnid in folders)

    def _refuse_sizes(self, folder: Path, ids: Sequence[str]) -> None:
        """Raise UsageError if the images, one of each condition, do not have the released size."""
        for name in ids:
            try:
                picture = open_file(folder / name)
            except CorruptImage:  # the test reports it, or skips it with corrupt=skip
                continue
            if (picture.height, picture.width) != (SIDE, SIDE):
                self.refuse(folder, f"{name} is {picture.width} x {picture.height} pixels, not {SIDE} x {SIDE}")


def _first_of_each(names: Sequence[str], count: int) -> list[str]:
    """Return the first `count` names of each class; names are sorted."""
    first: list[str] = []
    for _, class_names in itertools.groupby(names, key=lambda name: name.partition("/")[0]):
        first += itertools.islice(class_names, count)
    return first


def join_each(folders: Sequence[str], names: Sequence[str]) -> Names:
    """Join each folder and each name, folder by folder, without a list of these millions of strings."""
    encoded = [name.encode() for name in names]
    lengths = np.array([len(name) for name in encoded])
    content, ends = [], [np.zeros(1, dtype=np.int64)]
    for folder in folders:
        prefix = f"{folder}/".encode()
        content.append(np.frombuffer(b"".join(prefix + name for name in encoded), dtype=np.uint8))
        ends.append(lengths + len(prefix))
    return Names.from_bytes(np.concatenate(content), np.cumsum(np.concatenate(ends)))


# --- data sets --------------------------------------------------------------------------------------------------------


class ImageNetC(Corrupted):
    """ImageNet-C: the 15 corruptions of the benchmark (Hendrycks & Dietterich 2019)."""

    name = "imagenet_c"
    corruptions: tuple[str, ...] = BENCHMARK
    others: tuple[str, ...] = EXTRAS


class ImageNetCSmall(ImageNetC):
    """ImageNet-C's first ten images of each class by name: for use during training, never for mCE."""

    name = "imagenet_c_small"
    small = True


class ImageNetCExtra(ImageNetC):
    """ImageNet-C's four extra corruptions, meant for validation."""

    name = "imagenet_c_extra"
    corruptions = EXTRAS
    others = BENCHMARK


class ImageNetCBar(Corrupted):
    """ImageNet-C-bar: ten corruptions unlike those of ImageNet-C (Mintun et al. 2021)."""

    name = "imagenet_c_bar"
    corruptions = tuple(BAR)
    folders = BAR


class ImageNet3DCC(Corrupted):
    """ImageNet-3DCC: twelve corruptions that use depth, or imitate cameras and video (Kar et al. 2022)."""

    name = "imagenet_3dcc"
    corruptions = IN_3D
