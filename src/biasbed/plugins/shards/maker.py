"""Maker `unpacked`: writes Parquet or WebDataset shards as the image folder that they stand for."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from biasbed import record
from biasbed.data.listing import is_data, report_unreadable
from biasbed.errors import UsageError
from biasbed.options import PrepareOptions
from biasbed.plugins.shards.columns import ROLES, StatedColumns, has_suffix, suffix_of
from biasbed.plugins.shards.layout import READERS, ShardLayout, Shards, find_layout, find_shards
from biasbed.prepare.maker import Maker
from biasbed.settings import setting
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import LOCK, exclusive

PARTIAL = ".{}.{}.partial"  # name of a folder that is being written, hidden from whoever lists data sets
TABLE = "metadata.csv"  # of images with biases, as `train=<folder>` reads it


@dataclass(frozen=True)
class Unpacked:
    """Settings of an image folder that is made of shards."""

    into: str | None = setting(None, "folder that the images are written to")
    columns: tuple[str, ...] = setting(
        (),
        "columns that don't tell by name: label:fine_label,domain:hospital; roles: image, label, domain, bias, split",
    )

    def __post_init__(self) -> None:
        roles = [column.partition(":")[0] for column in self.columns]
        for column, role in zip(self.columns, roles, strict=True):
            if role not in ROLES or not column.partition(":")[2] or roles.count(role) > 1:
                raise ValueError(
                    f"unpacked.columns={column}: should be <role>:<column>, once for a role of {', '.join(ROLES)}"
                )


@dataclass(frozen=True)
class UnpackOptions(PrepareOptions):
    """Settings of unpacking."""

    unpacked: Unpacked = Unpacked()


class Unpack(Maker[UnpackOptions]):
    """Unpacking of all shards in `data_dir` and the folders below it."""

    Settings = UnpackOptions

    def run(self) -> Path:
        """Write the images; return their folder.

        Raises UsageError if there are no shards, one can't be read, or the folder is there already; Failure for a full
        disk.
        """
        source, into = self.config.data_dir, self.options.unpacked.into
        if source is None or into is None:
            raise UsageError("say what to unpack, and where to: data_dir=<folder of shards> unpacked.into=<folder>")
        root, target = Path(source).expanduser(), Path(into).expanduser()
        columns = StatedColumns.parse(self.options.unpacked.columns)
        folders = list(_find_shard_folders(root))
        if not folders:
            raise UsageError(f"{root} has no Parquet or WebDataset shards")
        for folder in folders:
            _unpack(folder, target / folder.relative_to(root), columns)
        return target


def _find_shard_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of shards at or below a folder."""
    with report_unreadable():
        if find_shards(folder) is not None:
            yield folder
            return
        names = sorted(item.name for item in os.scandir(folder) if item.is_dir() and is_data(item.name))
    for name in names:
        yield from _find_shard_folders(folder / name)


def _unpack(source: Path, target: Path, columns: StatedColumns) -> None:
    """Write the images of one folder of shards. The target is complete, or not there."""
    shards = find_shards(source)
    assert shards is not None
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already: remove it, or give another unpacked.into")
    states = _file_states(shards)
    layout = find_layout(shards, columns)
    # What an interrupted command has written stays only if the same images belong into the same places.
    partial = target.with_name(PARTIAL.format(target.name, record.digest([states, layout.paths])))
    with exclusive(partial, "unpacked"):
        count = _write_images(shards, partial, columns, layout)
        partial.rename(target)
        (target / LOCK).unlink()
    print(f"done: {count:,} images in {target}")


def _file_states(shards: Shards) -> list[tuple[str, int, int]]:
    """Return name, size and modification time of each shard."""
    states = [(path.name, path.stat()) for path in shards.paths()]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


def _write_images(shards: Shards, folder: Path, columns: StatedColumns, layout: ShardLayout) -> int:
    """Write the images of all shards, and their table if they have biases; return their number."""
    paths, written = iter(layout.paths), []
    with ProgressBar(len(shards.files), "shard") as bar:
        for shard in shards.paths():
            try:
                for content in READERS[shards.format].read_images(shard, columns):
                    path = next(paths, "")  # more of them: the shard has changed
                    written.append(_with_suffix(path, content) if path else "")
                    if path:
                        _write_image(folder / written[-1], content)
            except ValueError as error:
                raise UsageError(f"{shard}: {error}") from None
            bar.tick()
    images = list(filter(None, written))
    if len(set(images)) < len(images):
        raise UsageError(f"{shards.folder}: images have one name without their suffix, and would be one file")
    if layout.biases:
        with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("image", "class", "split", "bias"))
            writer.writerows((path, *row) for path, row in zip(written, layout.biases, strict=True) if path)
    return len(images)


def _with_suffix(path: str, content: bytes) -> str:
    """Return the path with the suffix of its content, unless it has one. Raises ValueError for unknown content."""
    if has_suffix(path):
        return path
    suffix = suffix_of(content[:16])
    if not suffix:
        raise ValueError(f"the image '{path}' is of no known form")
    return path + suffix


def _write_image(path: Path, content: bytes) -> None:
    """Write an image unless it is there from an interrupted run."""
    if path.is_file() and path.stat().st_size == len(content):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
