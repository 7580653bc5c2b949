"""ImageNet's validation images under corruptions, in ImageNet-C's layout: `<corruption>/<severity>/<wnid>/<image>`.

A data set is one source whose images are shown under conditions, one for each corruption and severity; every condition
has the same images, or it is refused. Images are of 224 x 224 pixels as they were released: resizing them once more
costs one to three points of mCE.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from biasbed.data.decoding import open_file
from biasbed.data.folders import FolderSource
from biasbed.data.listing import images_below, reading, scan
from biasbed.data.names import Names
from biasbed.data.prepared import MANIFEST
from biasbed.data.source import Source
from biasbed.datasets.base import Contents, OnDisk, likely_cause, some
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import BAR, BENCHMARK, EXTRAS, GROUPS, IN_3D, SEVERITIES, conditions
from biasbed.datasets.imagenet import VAL
from biasbed.errors import CorruptImage

SIDE = 224  # pixels of released images
SMALL = 10  # images of each class, the first by name, in small sets


class Corrupted(OnDisk):
    """Images under each of `corruptions`, in five severities."""

    corruptions: tuple[str, ...]
    folders: Mapping[str, tuple[str, ...]] = {}  # of corruptions whose severities are not called 1 to 5: these folders
    small = False  # the first `SMALL` images of each class alone
    others: tuple[str, ...] = ()  # corruptions that may lie beside them
    packed_in: Mapping[str, tuple[str, ...]] = {}  # archive -> the corruptions in it
    kind = "<corruption>/<severity>/<wnid>"
    licence = "ImageNet's: non-commercial research"

    @property
    def images(self) -> int:  # type: ignore[override]
        return len(self.corruptions) * len(SEVERITIES) * (len(imagenet_classes()) * SMALL if self.small else VAL)

    @property
    def archives(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.packed_in)

    @property
    def num_classes(self) -> int:
        return len(imagenet_classes())

    def open(self, data_dir: Path) -> FolderSource:
        """All images, condition by condition.

        UsageError where the data set is not there, is not what was released, lacks a condition, where conditions have
        unlike images, or where the first image of one is not of 224 x 224 pixels. Fewer images, or classes, than the
        release's are no error here.
        """
        folder = self.folder(data_dir)
        if (folder / MANIFEST).is_file():
            self.refuse(folder, "its images are made by `prepare`, and never stand for those that were released")
        with reading():
            images = self._listed(folder)
        names = self._alike(folder, images)
        if self.small:
            names = _first_of_each(names, SMALL)
        classes = self._classes(folder, names)
        number = {wnid: label for label, wnid in enumerate(classes)}
        y = np.array([number[name.partition("/")[0]] for name in names], dtype=np.int64)
        places = list(images)
        codes = np.arange(len(places), dtype=np.uint8)
        self._refuse_sizes(folder, [f"{place}/{names[0]}" for place in places])
        return FolderSource(
            name=self.name,
            classes=classes,
            y=np.tile(y, len(places)),
            ids=below_each(places, names),
            root=folder,
            condition=np.repeat(codes, len(names)),
            conditions=conditions(self.corruptions),
        )

    def contents(self, data_dir: Path) -> Contents:
        source = self.open(data_dir)
        return Contents(
            source.root,
            source.ids,
            len(source),
            source.num_labels,
            source.fingerprint,
            differences=self.differences(source),
            side=SIDE,
        )

    def differences(self, source: Source) -> tuple[str, ...]:
        """From the release, in words; none where all of it is there."""
        classes, images = len(source.classes), len(source) // len(source.conditions)
        found = []
        if classes != self.num_classes:
            found.append(f"{classes} of {self.num_classes} classes")
        wanted = self.images // (len(self.corruptions) * len(SEVERITIES))
        if images != wanted:
            found.append(f"{images:,} images under each condition; the release has {wanted:,}")
        return tuple(found)

    # --- what is there ---

    def _is_in(self, folder: Path) -> bool:
        return not set(self.corruptions).isdisjoint(scan(folder)[0])

    def _listed(self, folder: Path) -> dict[str, list[str]]:
        """`<corruption>/<severity>` -> its images, with that before them, sorted; UsageError where one is not there."""
        there = set(scan(folder)[0])
        missing = [name for name in self.corruptions if name not in there]
        if missing:
            self.refuse(folder, self._lacking(folder, missing, there))
        wanted = [place for name in self.corruptions for place in self.severities(name)]
        known = [name for name in (*self.corruptions, *self.others) if name in there]  # one listing for all who ask
        severities = {f"{name}/{severity}" for name in known for severity in scan(folder / name)[0]}
        present = [place for name in known for place in self.severities(name) if place in severities]
        gone = [place for place in wanted if place not in present]
        if gone:
            count = len(wanted) - len(gone)
            self.refuse(folder, f"{count} of {len(wanted)} conditions are there, {some(gone)} missing")
        below = dict(zip(present, images_below(folder, present), strict=True))
        return {place: below[place] for place in wanted}

    def severities(self, corruption: str) -> list[str]:
        """The folders of a corruption in each severity, relative to the data set's."""
        return [f"{corruption}/{severity}" for severity in self.folders.get(corruption, SEVERITIES)]

    def _lacking(self, folder: Path, missing: Sequence[str], there: set[str]) -> str:
        """Why the data set is not whole, in words."""
        here = (len(self.corruptions) - len(missing)) * len(SEVERITIES)
        text = f"{here} of {len(self.corruptions) * len(SEVERITIES)} conditions are there, {some(missing)} missing"
        waiting = [name for name, held in self.packed_in.items() if set(held) & set(missing)]
        packed = [name for name in waiting if (folder / name).is_file() or (folder.parent / name).is_file()]
        if packed:
            return f"{text}; {some(packed)} {'is' if len(packed) == 1 else 'are'} there but not unpacked"
        grouped = [name for name in GROUPS if name in there]
        if grouped:
            return f"{text}; move the folders in {some(grouped)} up into {folder}"
        return f"{text}; unpack {some(waiting)}" if waiting else text

    def _alike(self, folder: Path, images: Mapping[str, list[str]]) -> list[str]:
        """The images of every condition, below its folder; UsageError where two have unlike ones, or none."""
        first, names = next(iter(images)), None
        for place, full in images.items():
            own = [name[len(place) + 1 :] for name in full]
            names = own if names is None else names
            if own != names:
                fewer, more = sorted(set(names) - set(own)), sorted(set(own) - set(names))
                words = [f"{w} {some(found, 2)}" for w, found in (("lacks", fewer), ("has besides", more)) if found]
                self.refuse(folder, f"{place} has other images than {first}: it {' and '.join(words)}")
        if not names:
            self.refuse(folder, f"{first} has no images")
        return names

    def _classes(self, folder: Path, names: Sequence[str]) -> tuple[str, ...]:
        """ImageNet's classes, or those of them that are there; UsageError for other folders."""
        found = {name.partition("/")[0] for name in names}
        unknown = sorted(found - set(imagenet_classes()))
        if unknown:
            cause = likely_cause(found, imagenet_classes())
            self.refuse(folder, "; ".join([f"unknown class folders {some(unknown)}", *cause]))
        return tuple(wnid for wnid in imagenet_classes() if wnid in found)

    def _refuse_sizes(self, folder: Path, ids: Sequence[str]) -> None:
        """UsageError where one of these images is of another size: a whole condition then is, or all are."""
        for name in ids:
            try:
                picture = open_file(folder / name)
            except CorruptImage:  # reported when it is tested on, or passed over if that is wanted
                continue
            if (picture.height, picture.width) != (SIDE, SIDE):
                self.refuse(folder, f"{name} is {picture.width} x {picture.height} pixels, not {SIDE} x {SIDE}")


def _first_of_each(names: Sequence[str], count: int) -> list[str]:
    """The first so many of each class, of sorted ones."""
    per_class = itertools.groupby(names, key=lambda name: name.partition("/")[0])
    return [name for _, own in per_class for name in itertools.islice(own, count)]


def below_each(places: Sequence[str], names: Sequence[str]) -> Names:
    """Every name below every place: millions, of which no list is made."""
    encoded = [name.encode() for name in names]
    lengths = np.array([len(name) for name in encoded])
    content, ends = [], [np.zeros(1, dtype=np.int64)]
    for place in places:
        prefix = f"{place}/".encode()
        content.append(np.frombuffer(b"".join(prefix + name for name in encoded), dtype=np.uint8))
        ends.append(lengths + len(prefix))
    return Names.from_bytes(np.concatenate(content), np.cumsum(np.concatenate(ends)))


# --- data sets --------------------------------------------------------------------------------------------------------


class ImageNetC(Corrupted):
    """The 15 corruptions of ImageNet-C (Hendrycks & Dietterich 2019)."""

    name = "imagenet_c"
    corruptions: tuple[str, ...] = BENCHMARK
    others: tuple[str, ...] = EXTRAS
    places = ("imagenet-c", "imagenet/imagenet-c", "ImageNet-C/ImageNet-C")
    packed_in: Mapping[str, tuple[str, ...]] = {f"{group}.tar": names for group, names in GROUPS.items()}
    source = "https://zenodo.org/records/2235448"


class ImageNetCSmall(ImageNetC):
    """Of them, the first ten images of each class by name: for use during training, and never for mCE."""

    name = "imagenet_c_small"
    small = True


class ImageNetCExtra(ImageNetC):
    """The four corruptions that are there to validate on."""

    name = "imagenet_c_extra"
    corruptions = EXTRAS
    others = BENCHMARK
    packed_in: Mapping[str, tuple[str, ...]] = {"extra.tar": EXTRAS}


class ImageNetCBar(Corrupted):
    """Ten corruptions chosen to be unlike those of ImageNet-C (Mintun et al. 2021)."""

    name = "imagenet_c_bar"
    corruptions = tuple(BAR)
    folders = BAR
    places = ("imagenet-c-bar", "imagenet/imagenet-c-bar")
    packed_in: Mapping[str, tuple[str, ...]] = {"imagenet_c_bar.tar.gz": tuple(BAR), "imagenet_c_bar.tar": tuple(BAR)}
    source = "https://github.com/facebookresearch/augmentation-corruption"


class ImageNet3DCC(Corrupted):
    """Twelve corruptions that know of depth, or are those of cameras and video (Kar et al. 2022)."""

    name = "imagenet_3dcc"
    corruptions = IN_3D
    places = ("imagenet-3dcc", "imagenet/imagenet-3dcc")
    packed_in: Mapping[str, tuple[str, ...]] = {f"{name}.tar.gz": (name,) for name in IN_3D}
    source = "https://github.com/EPFL-VILAB/3DCommonCorruptions"
