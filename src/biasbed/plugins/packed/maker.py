"""Packing of a suite's images into Parquet shards: in several processes, resumable shard by shard.

`pack` describes the files and reads them.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import simplejpeg

from biasbed.config import LARGEST_SIDE
from biasbed.data import transforms
from biasbed.data.decoding import open_content
from biasbed.data.folders import FolderSource
from biasbed.data.image_store import ImageStore
from biasbed.data.source import Source
from biasbed.errors import CorruptImage, Failure, UsageError, listed
from biasbed.plugins.packed import index as pack_index
from biasbed.plugins.packed import pack as packed
from biasbed.plugins.packed.pack import WHOLE
from biasbed.prepare.images import PooledOptions, make_images
from biasbed.prepare.maker import Maker
from biasbed.settings import setting
from biasbed.suites import open_suite
from biasbed.system import files, places
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import exclusive

SHARD_BYTES = 2**28  # of images in a shard, about
RATIO = 1.5  # width by height of a photograph, for the size of raw pixels
JPEG_BYTES = 0.25  # per pixel, about, for the size of resized images


@dataclass(frozen=True)
class PackedForm:
    """Form of the packed images."""

    side: int | None = setting(
        None, "resize images to this short side (none: the files byte for byte)", ge=8, le=LARGEST_SIDE
    )
    quality: int | Literal["raw"] = setting(90, "of resized images: JPEG quality, or raw: uint8 pixels", ge=1, le=100)

    @property
    def name(self) -> str:
        """Name of the form, as `data.packed` takes it."""
        if self.side is None:
            return WHOLE
        return f"{self.side}-raw" if self.quality == "raw" else f"{self.side}-jpeg{self.quality}"


@dataclass(frozen=True)
class PackedOptions(PooledOptions):
    """Settings of packing."""

    packed: PackedForm = PackedForm()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.packed.side is None and self.packed.quality == "raw":
            raise ValueError("packed.quality=raw needs packed.side, as in packed.side=256")


class PackedImages(Maker[PackedOptions]):
    """Maker of packed images: of all image files that a suite opens with these settings."""

    Settings = PackedOptions

    def run(self) -> Path:
        """Pack each source that is not packed yet, and check those that are; return the folder of all packs.

        Raises UsageError if the suite has no image files or the disk is too small.
        """
        store = places.prepared_home(self.config.prepared_dir) / packed.STORE
        sources = self._sources()
        if not sources:
            raise UsageError(f"the suite '{self.config.suite}' computes its images: there are no files to pack")
        for fingerprint, source in sources.items():
            folder = packed.pack_folder(store, source.name, fingerprint, self.options.packed.name)
            with exclusive(folder, "packed"):
                processes = self.options.count_processes("cpu")
                pack(source, fingerprint, folder, self.options.packed, processes)
        return store

    def _sources(self) -> dict[str, FolderSource]:
        """Return the sources that the suite opens, keyed by fingerprint."""
        collecting = _Collecting()
        suite = open_suite(self.config, collecting)
        if suite.train_name in suite.training:
            suite.material()
        return _drop_copies(collecting.sources)


class _Collecting(ImageStore):
    """Store without packs, which notes the sources that a suite opens: those that could be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, FolderSource] = {}

    def bind(self, source: Source, folder: Path, fingerprint: Callable[[], str]) -> None:
        assert isinstance(source, FolderSource)  # no other has a folder
        if len(source):
            self.sources.setdefault(fingerprint(), source)


def pack(source: FolderSource, fingerprint: str, folder: Path, form: PackedForm, processes: int) -> None:
    """Write the shards of a source that are missing or damaged, and its index."""
    work = Packing.from_form(source, fingerprint, folder, form)
    damage, index = _remove_damaged(work), folder / packed.INDEX
    is_whole = all(map(work.is_there, range(len(work.names))))
    if is_whole and index.is_file():
        content = work.index()
        if index.stat().st_size == len(content) and index.read_bytes() == content:
            print(f"{folder} is complete already: {len(source):,} images", file=sys.stderr)
            return
        damage.append(index)
    if damage:
        print(f"warning: damaged: {listed(damage, 5)}; packed again now", file=sys.stderr)
    index.unlink(missing_ok=True)
    _refuse_full_disk(work)
    with ProgressBar(len(work.names), "shard") as bar:
        problems = make_images(work, processes, bar)
    if problems:
        raise Failure(next(iter(problems.values())))
    pack_index.write(index, work.index())
    print(f"done: {len(source):,} images in {len(work.names)} files in {folder}", file=sys.stderr)


def _refuse_full_disk(work: Packing) -> None:
    """Raise UsageError if the missing shards take more than the free disk space, as estimated."""
    rows = [work.rows(shard) for shard in range(len(work.names)) if not work.is_there(shard)]
    needed = sum(work.image_bytes * len(chosen) for chosen in rows)
    free = shutil.disk_usage(work.folder).free
    if needed > free:
        raise UsageError(
            f"the packed images of '{work.source.name}' take about {needed / 2**30:.1f} GiB, and {work.folder} has "
            f"{free / 2**30:.1f} GiB left: prepared_dir= elsewhere"
        )


def _drop_copies(sources: Mapping[str, FolderSource]) -> dict[str, FolderSource]:
    """Return the sources, keyed by fingerprint, without those whose files are all in sources before them."""
    chosen: dict[str, FolderSource] = {}
    paths: set[str] = set()
    for fingerprint, source in sources.items():
        of_source = {os.path.join(source.root, name) for name in source.ids}
        if not of_source <= paths:
            chosen[fingerprint] = source
            paths |= of_source
    return chosen


def _remove_damaged(work: Packing) -> list[Path]:
    """Remove the shards whose bytes are not those that were written, and return them. Reads each shard once."""
    damaged = []
    with ProgressBar(len(work.names), "shard") as bar:
        for shard in range(len(work.names)):
            if work.is_there(shard) and work.is_damaged(shard):
                work.path(shard).unlink()
                damaged.append(work.path(shard))
            bar.tick()
    return damaged


# --- shards -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packing:
    """Work of packing a source; its items are shards."""

    source: FolderSource
    fingerprint: str
    folder: Path
    form: PackedForm
    image_bytes: float  # of an image in a shard, about

    @classmethod
    def from_form(cls, source: FolderSource, fingerprint: str, folder: Path, form: PackedForm) -> Packing:
        """Return the work, with shards of about `SHARD_BYTES`."""
        if form.side is None:
            sizes = source.sizes
            return cls(source, fingerprint, folder, form, max(1.0, float(sizes.mean())))
        pixels = RATIO * form.side**2
        return cls(source, fingerprint, folder, form, pixels * (3 if form.quality == "raw" else JPEG_BYTES))

    @property
    def names(self) -> list[str]:
        """Names of the shards."""
        per_shard = self._per_shard
        return [pack_index.shard_name(number) for number in range(-(-len(self.source) // per_shard))]

    @property
    def _per_shard(self) -> int:
        return max(1, round(SHARD_BYTES / self.image_bytes))

    def rows(self, shard: int) -> Sequence[int]:
        """Return the rows of the source that a shard has."""
        start = shard * self._per_shard
        return range(start, min(start + self._per_shard, len(self.source)))

    def path(self, shard: int) -> Path:
        return self.folder / self.names[shard]

    def part_path(self, shard: int) -> Path:
        """Return the path of a shard's part of the index."""
        return self.folder / f"{self.names[shard]}.index"

    def is_there(self, shard: int) -> bool:
        """Return True if a shard and its part of the index exist."""
        return self.path(shard).is_file() and self.part_path(shard).is_file()

    def is_damaged(self, shard: int) -> bool:
        """Return True if a shard or its part of the index is not what was written."""
        try:
            part = pack_index.read(self.part_path(shard))
        except UsageError:
            return True
        names = [self.source.ids[row] for row in self.rows(shard)]
        keys = np.sort(np.array([pack_index.name_key(name) for name in names], dtype=np.uint64))
        sha256 = files.sha256(self.path(shard))
        return not np.array_equal(part.columns["key"], keys) or [sha256] != [
            shard.sha256 for shard in part.about.shards
        ]

    def index(self) -> bytes:
        """Return the index of the pack, from the parts of its shards."""
        parts = [pack_index.read(self.part_path(shard)) for shard in range(len(self.names))]
        columns = [
            {**part.columns, "shard": np.full(part.about.images, shard, dtype=np.int32)}
            for shard, part in enumerate(parts)
        ]
        return pack_index.encode(
            self._describe_contents([part.about.shards[0] for part in parts], len(self.source)), columns
        )

    def _describe_contents(self, shards: Sequence[pack_index.Shard], images: int) -> pack_index.About:
        root = os.path.abspath(self.source.root)
        return pack_index.About(self.source.name, root, self.fingerprint, self.form.name, images, tuple(shards))

    def make_writer(self) -> Callable[[int], None]:
        return self._write_shard

    def _write_shard(self, shard: int) -> None:
        """Write a shard, and then its part of the index."""
        if self.is_there(shard):
            return
        path = self.folder / self.names[shard]
        images = [self._pack_image(row) for row in self.rows(shard)]
        contents = [image.content for image in images]
        with files.atomic_file(path) as temporary:
            write_parquet(temporary, self.source, self.rows(shard), contents)
            offsets = find_offsets(temporary, contents)
            written = pack_index.Shard(temporary.stat().st_size, files.sha256(temporary))
        names = [self.source.ids[row] for row in self.rows(shard)]
        columns = {
            "key": [pack_index.name_key(name) for name in names],
            "shard": [0] * len(images),
            "offset": offsets,
            "length": [len(content) for content in contents],
            "crc": [zlib.crc32(content) for content in contents],
            "height": [image.height for image in images],
            "width": [image.width for image in images],
        }
        arrays = {name: np.array(columns[name], kind) for name, kind in pack_index.COLUMNS.items()}
        pack_index.write(
            self.part_path(shard), pack_index.encode(self._describe_contents([written], len(images)), [arrays])
        )

    def _read_file(self, row: int) -> bytes:
        """Return the bytes of an image's file. Raises OSError if it can't be read."""
        return (self.source.root / self.source.ids[row]).read_bytes()

    def _pack_image(self, row: int) -> EncodedImage:
        """Read an image, and resize it if that is asked for. One that can't be decoded is packed as it is."""
        if self.form.side is None:
            return EncodedImage(self._read_file(row))
        try:
            content = self._read_file(row)
        except FileNotFoundError:
            return EncodedImage(b"")
        try:
            path = self.source.root / self.source.ids[row]
            pixels = transforms.shrink(open_content(path, content).pixels(), self.form.side)
        except CorruptImage:
            return EncodedImage(content)
        image = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
        if self.form.quality == "raw":
            return EncodedImage(image.tobytes(), *image.shape[:2])
        return EncodedImage(simplejpeg.encode_jpeg(image, int(self.form.quality), "RGB", "420"))


@dataclass(frozen=True)
class EncodedImage:
    """Image as it is packed. height and width: of raw pixels, else 0."""

    content: bytes
    height: int = 0
    width: int = 0


def write_parquet(path: Path, source: FolderSource, rows: Sequence[int], contents: Sequence[bytes]) -> None:
    """Write images and their columns as a Parquet file whose images are neither compressed nor encoded."""
    import pyarrow
    from pyarrow import parquet

    chosen = list(rows)
    names = [source.ids[row] for row in chosen]
    images = pyarrow.StructArray.from_arrays([pyarrow.array(contents, pyarrow.binary()), names], ["bytes", "path"])
    y = source.y[chosen]
    columns: dict[str, Any] = {"image": images, "label": list(y) if y.ndim > 1 else y}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    if y.ndim == 1:
        features["label"] = {"names": list(source.classes), "_type": "ClassLabel"}
    for name, column in (("domain", source.domain), ("bias", source.bias)):
        if column is not None:
            columns[name] = column[chosen]
    for name in set(columns) - set(features):
        features[name] = _describe_column(columns[name])
    table = pyarrow.table(columns)
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    table = table.replace_schema_metadata(about)
    parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)


def _describe_column(column: Any) -> Any:
    """Return the description of a column of numbers, or of lists of numbers, as the hub's data sets have it."""
    first = np.asarray(column[0])
    value = {"dtype": str(first.dtype), "_type": "Value"}
    return value if first.ndim == 0 else {"feature": value, "_type": "Sequence"}


def find_offsets(path: Path, contents: Sequence[bytes]) -> list[int]:
    """Return the offset of each image in a Parquet file: behind its length, in the order of the images."""
    offsets, end = [], 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for content in contents:
            at = mapped.find(len(content).to_bytes(4, "little") + content, end)
            if at < 0:
                raise Failure(f"{path.name}: pyarrow wrote the images in a form that can't be mapped into memory")
            offsets.append(at + 4)
            end = at + 4 + len(content)
    return offsets
