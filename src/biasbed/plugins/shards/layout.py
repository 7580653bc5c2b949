"""Image folder that a folder of Parquet or WebDataset shards stands for.

Every image has a path `[split/][domain/]class/name`. Splits are told apart by the names of the shards, and are folders
only if there are several and no domains.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from biasbed.data.decoding import EXTENSIONS
from biasbed.errors import UsageError, listed
from biasbed.plugins.shards import parquet, webdataset
from biasbed.plugins.shards.columns import (
    BIAS,
    DOMAIN,
    LABEL,
    SPLIT,
    ShardImages,
    StatedColumns,
    has_suffix,
    name_image,
    read_classes,
)

PARQUET, WEBDATASET = "parquet", "webdataset"
FORMATS = {".parquet": PARQUET, ".tar": WEBDATASET}  # by suffix
READERS: Mapping[str, Any] = {PARQUET: parquet, WEBDATASET: webdataset}  # modules
SNAPSHOT = "data"  # folder of the shards in most repositories of the hub
# Words in the names of shards that tell the split, as on the hub, and the name of its folder.
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SPLIT = re.compile(rf"(?:^|[-._ ])({'|'.join(SPLITS)})(?=[-._ \d]|$)", re.I)
_NUMBERED = re.compile(r"(?:|.*[-_.])\d+\.tar", re.I)  # tar files that are shards rather than archives of a release
_OF = re.compile(r"(?P<before>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<after>.*)")
log = logging.getLogger(__name__)


class Shards(NamedTuple):
    """Shards of one format in a folder."""

    format: str
    folder: Path
    files: tuple[str, ...]

    def paths(self) -> list[Path]:
        return [self.folder / name for name in self.files]


@dataclass(frozen=True)
class _Listed:
    """Contents of a folder, without hidden files."""

    shards: Mapping[str, list[str]]  # by format
    folders: list[str]
    has_images: bool


def find_shards(folder: Path) -> Shards | None:
    """Return the shards that a folder, or `data` in it, is made of; None if it has anything else that may be images.

    Raises UsageError if it has shards of both formats.
    """
    contents = _list_folder(folder)
    if not any(contents.shards.values()) and contents.folders == [SNAPSHOT] and not contents.has_images:
        inner = folder / SNAPSHOT
        return None if _list_folder(inner).folders else find_shards(inner)
    if contents.has_images or contents.folders:
        return None
    parquet = contents.shards[PARQUET]
    tars = [name for name in contents.shards[WEBDATASET] if _NUMBERED.fullmatch(name)]
    if tars and webdataset.has_samples(folder / tars[0]) is False:  # archives; what is damaged the reader says
        tars = []
    if parquet and tars:
        raise UsageError(f"{folder} has shards of two formats, {parquet[0]} and {tars[0]}: move one of them away")
    if parquet or tars:
        return Shards(PARQUET if parquet else WEBDATASET, folder, tuple(parquet or tars))
    return None


def _list_folder(folder: Path) -> _Listed:
    """Return what a folder holds, without what is below it."""
    shards: dict[str, list[str]] = {name: [] for name in FORMATS.values()}
    folders, has_images = [], False
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith((".", "__")):
                continue
            suffix = os.path.splitext(item.name)[1].lower()
            if item.is_dir():
                folders.append(item.name)
            elif suffix in EXTENSIONS:
                has_images = True
            elif suffix in FORMATS and item.is_file():
                shards[FORMATS[suffix]].append(item.name)
    sorted_shards = {name: sorted(files) for name, files in shards.items()}
    return _Listed(shards=sorted_shards, folders=folders, has_images=has_images)


# --- names of images --------------------------------------------------------------------------------------------------


class ShardImage(NamedTuple):
    """Image of a shard, without its content."""

    path: str  # name that the shard has for it; empty without one
    label: str | None  # None: not labelled
    split: str  # empty without one
    domain: str | None
    bias: str | None


class _Location(NamedTuple):
    """Folder of an image, and its name there."""

    folder: str
    name: str


class BiasRow(NamedTuple):
    """Values of an image in a data set with biases."""

    label: str
    split: str
    bias: str


class ShardLayout(NamedTuple):
    """Place of each image in the order of the shards."""

    paths: list[str]  # below the data set's folder, without a suffix if the shard has none; empty: left out
    biases: list[BiasRow]  # of every image; empty if there are no biases


def find_layout(shards: Shards, columns: StatedColumns) -> ShardLayout:
    """Read the labels of all shards and return where their images belong.

    Raises UsageError, which names the shard, if one is damaged or an image does not fit.
    """
    _refuse_missing_shards(shards)
    classes = read_classes((shards.folder, shards.folder.parent))
    images: list[ShardImage] = []
    for path in shards.paths():
        try:
            columns_of_shard = READERS[shards.format].read_shard(path, columns, classes)
        except (ValueError, OSError) as error:
            raise UsageError(f"{path}: {error}") from None
        images += _list_images(columns_of_shard, path.stem)
    _refuse_unlabelled(shards.folder, images)
    if all(image.bias is None for image in images):
        return ShardLayout(_place_by_class(images), [])
    biases = [BiasRow(image.label or "", image.split or "train", image.bias or "") for image in images]
    paths = [image.path for image in images]
    if len(set(paths)) < len(paths) or not all(has_suffix(path) and not os.path.isabs(path) for path in paths):
        return ShardLayout(_place_by_class(images), biases)
    return ShardLayout(["" if image.label is None else image.path for image in images], biases)


def _refuse_missing_shards(shards: Shards) -> None:
    """Raise UsageError if the names of the shards say that others belong to them, which are missing."""
    for name in shards.files:
        match = _OF.fullmatch(name)
        if match is None:
            continue
        before, total, after = match["before"], int(match["total"]), match["after"]
        every = [f"{before}-{number:05}-of-{total:05}{after}" for number in range(total)]
        missing = [shard for shard in every if shard not in shards.files]
        if missing:
            raise UsageError(f"{shards.folder} lacks {len(missing)} of {total} shards: {listed(missing, 3)}")


def _list_images(shard: ShardImages, shard_name: str) -> Iterator[ShardImage]:
    """Yield a shard's images. The split is that of their column, else the one that the shard's name tells."""
    match = _SPLIT.search(shard_name)
    usual = SPLITS[match[1].lower()] if match else ""
    unknown: Sequence[str | None] = [None] * len(shard.paths)
    columns = [shard.values.get(role, unknown) for role in (LABEL, SPLIT, DOMAIN, BIAS)]
    for path, label, split, domain, bias in zip(shard.paths, *columns, strict=True):
        split = usual if SPLIT not in shard.values else SPLITS.get(str(split).lower(), str(split))
        yield ShardImage(path, label, split, domain, bias)


def _refuse_unlabelled(folder: Path, images: Sequence[ShardImage]) -> None:
    """Raise UsageError if only some images of a split are labelled, or none of any.

    Warns about splits without any label, which are left out.
    """
    labelled = {image.split for image in images if image.label is not None}
    unlabelled = dict.fromkeys(image.split for image in images if image.label is None)
    if not labelled:
        raise UsageError(f"{folder}: it has no images with labels")
    for split in unlabelled:
        if split in labelled:
            number = sum(image.split == split and image.label is None for image in images)
            raise UsageError(f"{folder}: {number} images of '{split}' have the label -1 (none), and others have labels")
    if unlabelled:
        log.warning("%s: images without labels are left out: %s", folder, listed(unlabelled))


def _place_by_class(images: Sequence[ShardImage]) -> list[str]:
    """Return the path of each image, empty if it has no label. Names that occur twice in a folder get numbers."""
    has_domains = any(image.domain is not None for image in images)
    has_splits = len({image.split for image in images}) > 1 and not has_domains
    locations: list[_Location | None] = []
    for number, image in enumerate(images):
        if image.label is None:
            locations.append(None)
            continue
        folders = [image.split or "train"] if has_splits else []
        if has_domains:
            folders.append(image.domain or "no_domain")
        folder = "/".join((*folders, image.label))
        locations.append(_Location(folder, name_image(image.path, image.label, number)))
    placed = [location for location in locations if location is not None]
    if len(set(placed)) < len(placed):
        numbers = iter(range(len(placed)))
        locations = [
            location and _Location(location.folder, _numbered(location.name, next(numbers))) for location in locations
        ]
    return ["" if location is None else f"{location.folder}/{location.name}" for location in locations]


def _numbered(name: str, number: int) -> str:
    """Return a name with a number before its last part: `a/00000003-b.jpg`."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{number:08d}-{base}"
