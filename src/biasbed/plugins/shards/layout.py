"""Image folder that a folder of Parquet or WebDataset shards stands for.

Every image has a path `[split/][domain/]class/name`. Splits are told apart by the names of the shards, and are folders
only if there are several and no domains.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    check_name,
    has_suffix,
    name_image,
    read_classes,
)

PARQUET, WEBDATASET = "parquet", "webdataset"
SUFFIXES = {PARQUET: ".parquet", WEBDATASET: ".tar"}
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
    contents = _list(folder)
    if not any(contents.shards.values()) and contents.folders == [SNAPSHOT] and not contents.has_images:
        inner = folder / SNAPSHOT
        return None if _list(inner).folders else find_shards(inner)
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


def _list(folder: Path) -> _Listed:
    shards: dict[str, list[str]] = {name: [] for name in SUFFIXES}
    folders, has_images = [], False
    with os.scandir(folder) as items:
        for item in items:
            suffix = os.path.splitext(item.name)[1].lower()
            if item.name.startswith((".", "__")):
                continue
            if item.is_dir():
                folders.append(item.name)
            elif suffix in EXTENSIONS:
                has_images = True
            for name, shard_suffix in SUFFIXES.items():
                if suffix == shard_suffix and item.is_file():
                    shards[name].append(item.name)
    return _Listed({name: sorted(files) for name, files in shards.items()}, folders, has_images)


# --- names of images --------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
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
    _refuse_missing(shards)
    classes = read_classes((shards.folder, shards.folder.parent))
    images: list[ShardImages] = []
    for path in shards.paths():
        try:
            images.append(READERS[shards.format].read_shard(path, columns, classes))
        except (ValueError, OSError) as error:
            raise UsageError(f"{path}: {error}") from None
    splits = [_splits(shard, name) for shard, name in zip(images, shards.files, strict=True)]
    kept = _labelled_rows(shards, images, splits)
    paths = _paths(images, splits, kept)
    if not any(BIAS in shard.values for shard in images):
        return ShardLayout(paths, [])
    stored = list(itertools.chain.from_iterable(shard.paths for shard in images))
    if len(set(stored)) == len(stored) and all(has_suffix(name) and not os.path.isabs(name) for name in stored):
        paths = [name if is_kept else "" for name, is_kept in zip(stored, kept, strict=True)]
    return ShardLayout(paths, _bias_rows(images, splits))


def _refuse_missing(shards: Shards) -> None:
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


def _splits(shard: ShardImages, name: str) -> Sequence[str]:
    """Return the split of each image: of its column, or as the shard's name has it; empty without one."""
    if SPLIT in shard.values:
        return [SPLITS.get(str(word).lower(), str(word)) for word in shard.values[SPLIT]]
    match = _SPLIT.search(Path(name).stem)
    return [SPLITS[match[1].lower()] if match else ""] * len(shard.paths)


def _labelled_rows(shards: Shards, images: Sequence[ShardImages], splits: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each image of all shards whether it has a label. A split without any label is left out.

    Raises UsageError if only some images of a split are labelled, or no image of any.
    """
    labelled: Counter[str] = Counter()
    first: dict[str, str] = {}  # split -> image without a label
    kept = []
    for shard, shard_splits, file in zip(images, splits, shards.files, strict=True):
        for row, (label, split) in enumerate(zip(shard.values[LABEL], shard_splits, strict=True)):
            kept.append(label is not None)
            labelled[split] += label is not None
            if label is None:
                first.setdefault(split, f"{shards.folder / file}: row {row}")
    for split, where in first.items():
        if labelled[split]:
            raise UsageError(f"{where}: its label is -1 (no label), and other images of this split have labels")
    if not any(kept):
        reason = "its images have no labels" if kept else "it has no images"
        raise UsageError(f"{shards.folder}: {reason}")
    if first:
        log.warning("%s: images without labels are left out: %s", shards.folder, listed(first))
    return kept


def _bias_rows(images: Sequence[ShardImages], splits: Sequence[Sequence[str]]) -> list[BiasRow]:
    rows = []
    for shard, shard_splits in zip(images, splits, strict=True):
        biases = shard.values.get(BIAS, [None] * len(shard.paths))
        for label, split, bias in zip(shard.values[LABEL], shard_splits, biases, strict=True):
            rows.append(BiasRow(label or "", split or "train", bias or ""))
    return rows


def _paths(images: Sequence[ShardImages], splits: Sequence[Sequence[str]], kept: Sequence[bool]) -> list[str]:
    """Return the path of each image, empty if it is left out. Names that occur twice in a folder get numbers."""
    has_domains = any(DOMAIN in shard.values for shard in images)
    has_splits = len(set(itertools.chain.from_iterable(splits))) > 1 and not has_domains
    names: list[_Name | None] = []
    for shard, shard_splits in zip(images, splits, strict=True):
        domains = shard.values.get(DOMAIN, [""] * len(shard.paths))
        for at, path in enumerate(shard.paths):
            label = shard.values[LABEL][at]
            if label is None:
                names.append(None)
                continue
            parts = [shard_splits[at] or "train"] if has_splits else []
            parts += [check_name(str(domains[at] or "no_domain"), DOMAIN)] if has_domains else []
            names.append(_Name("/".join((*parts, label)), name_image(path, label, len(names))))
    placed = [name for name in names if name is not None]
    if len(set(placed)) < len(placed):
        numbers = iter(range(len(placed)))
        names = [name and _Name(name.folder, _numbered(name.name, next(numbers))) for name in names]
    return [f"{name.folder}/{name.name}" if name else "" for name in names]


def _numbered(name: str, number: int) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{number:08d}-{base}"
