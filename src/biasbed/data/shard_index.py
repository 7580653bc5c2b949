"""Index of a folder of Parquet or WebDataset shards: the image folder that they stand for.

Every image has a path, as its file would have in an image folder: `[split/][domain/]class/name`. Splits are told
apart by the names of the shards, and are folders only if there are several and no domains.
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
from typing import NamedTuple

import numpy as np

from biasbed.data import parquet_shards, tar_shards
from biasbed.data.decoding import EXTENSIONS
from biasbed.data.names import Names
from biasbed.data.shard_columns import (
    BIAS,
    DOMAIN,
    LABEL,
    SPLIT,
    ShardImages,
    StatedColumns,
    check_name,
    name_image,
    read_classes,
)
from biasbed.errors import UsageError, listed
from biasbed.system.terminal import ProgressBar

PARQUET, WEBDATASET = "parquet", "webdataset"
SUFFIXES = {PARQUET: ".parquet", WEBDATASET: ".tar"}
READERS = {PARQUET: parquet_shards.read_shard, WEBDATASET: tar_shards.read_shard}
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
    if tars and tar_shards.has_samples(folder / tars[0]) is False:  # archives; what is damaged the reader says
        tars = []
    if parquet and tars:
        raise UsageError(f"{folder} has shards of two formats, {parquet[0]} and {tars[0]}: move one of them away")
    if parquet or tars:
        return Shards(PARQUET if parquet else WEBDATASET, folder, tuple(parquet or tars))
    return None


def count_word(shards: Shards) -> str:
    """Return the noun for the number of shards."""
    return f"{SUFFIXES[shards.format]} file{'s' * (len(shards.files) > 1)}"


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


# --- index ------------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """Folder and name of an image."""

    folder: str
    name: str


def build_index(shards: Shards, columns: StatedColumns) -> dict[str, np.ndarray]:
    """Return the index of all images, sorted by path, as arrays.

    Raises UsageError, which names the shard, if one is damaged or an image does not fit.
    """
    _refuse_missing(shards)
    classes_file = read_classes((shards.folder, shards.folder.parent))
    classes = classes_file[1] if classes_file else ()
    images: list[ShardImages] = []
    with ProgressBar(len(shards.files), "shard") as bar:
        for path in shards.paths():
            try:
                images.append(READERS[shards.format](path, columns, classes))
            except (ValueError, OSError) as error:
                raise UsageError(f"{path}: {error}") from None
            bar.tick()
    splits = [_splits(shard, name) for shard, name in zip(images, shards.files, strict=True)]
    kept = _labelled_rows(shards, images, splits)
    return _arrays(shards, images, splits, kept)


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


def _arrays(
    shards: Shards, images: Sequence[ShardImages], splits: Sequence[Sequence[str]], kept: Sequence[bool]
) -> dict[str, np.ndarray]:
    """Return the columns of the index, sorted by path, of the images that are kept."""
    rows = _layout(images, splits, kept)
    paths = [f"{row.folder}/{row.name}" for row in rows]
    order = np.array(sorted(range(len(paths)), key=paths.__getitem__), dtype=np.int64)
    is_kept = np.array(kept)
    columns = {
        "shard": np.repeat(np.arange(len(images)), [len(shard.paths) for shard in images]),
        **{name: np.concatenate([getattr(shard, name) for shard in images]) for name in PLACES},
    }
    arrays = {name: column[is_kept][order] for name, column in columns.items()}
    arrays |= as_arrays("path", [paths[row] for row in order])
    if any(BIAS in shard.values for shard in images):
        table = _table(images, splits, paths, kept)
        for name, column in table.items():
            arrays |= as_arrays(name, [column[row] for row in order])
    return arrays


def _table(
    images: Sequence[ShardImages], splits: Sequence[Sequence[str]], paths: Sequence[str], kept: Sequence[bool]
) -> dict[str, list[str]]:
    """Return name in the shards, label, bias and split of each image that is kept. paths: names if those are unfit."""
    columns: dict[str, list[str]] = {name: [] for name in ("stored", LABEL, BIAS, SPLIT)}
    for shard, shard_splits in zip(images, splits, strict=True):
        columns["stored"] += shard.paths
        columns[SPLIT] += shard_splits
        for role in (LABEL, BIAS):
            values = shard.values.get(role, [None] * len(shard.paths))
            columns[role] += [value or "" for value in values]
    table = {name: list(itertools.compress(column, kept)) for name, column in columns.items()}
    if len(set(table["stored"])) < len(paths) or "" in table["stored"]:
        table["stored"] = list(paths)
    return table


PLACES = ("length", "offset", "group", "row")  # columns of an image's place in its shard


def _layout(images: Sequence[ShardImages], splits: Sequence[Sequence[str]], kept: Sequence[bool]) -> list[_Row]:
    """Return folder and name of each image that is kept. Names that occur twice in a folder get numbers."""
    has_domains = any(DOMAIN in shard.values for shard in images)
    has_splits = len(set(itertools.chain.from_iterable(splits))) > 1 and not has_domains
    rows: list[_Row] = []
    number = 0
    for shard, shard_splits in zip(images, splits, strict=True):
        domains = shard.values.get(DOMAIN, [""] * len(shard.paths))
        for at, path in enumerate(shard.paths):
            label = shard.values[LABEL][at]
            if kept[number]:
                assert label is not None
                parts = [shard_splits[at] or "train"] if has_splits else []
                parts += [check_name(str(domains[at] or "no_domain"), DOMAIN)] if has_domains else []
                name = name_image(path, label, number, shard.suffixes[at])
                rows.append(_Row("/".join((*parts, label)), name))
            number += 1
    if len(set(rows)) < len(rows):
        rows = [_Row(row.folder, _numbered(row.name, position)) for position, row in enumerate(rows)]
    return rows


def _numbered(name: str, number: int) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{number:08d}-{base}"


def as_arrays(name: str, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return texts as two arrays, which `as_names` reads."""
    content, ends = Names(texts).arrays(0, len(texts))
    return {f"{name}_bytes": content, f"{name}_ends": ends}


def as_names(arrays: Mapping[str, np.ndarray], name: str) -> Names:
    """Return the texts that `as_arrays` stored."""
    return Names.from_bytes(arrays[f"{name}_bytes"], arrays[f"{name}_ends"])
