"""Cost of packed images beside torchvision's reference pipeline on the same files, and beside other formats.

    PYTHONPATH=src python benchmarks/all.py packed

The sides are those of benchmarks/loading.py: ours reads from a pack, the reference from the folder that was packed. The
index of a data set of ImageNet's size is opened, its source found and one image looked up. Formats: the bytes of every
image at random, without decoding, from our Parquet shards by offset, from the same shards by pyarrow, from a tar file
by offset and from the files. One thread, processor time; all is in the page cache.
"""

from __future__ import annotations

import os
import random
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from loading import compared, found_images, memory, reference_side
from pyarrow import parquet
from sides import Goal, Row, interleaved, ratios
from torchvision import transforms as reference

from biasbed.config import Augment, Preprocess
from biasbed.data import transforms
from biasbed.data.folders import FolderSource, open_folder
from biasbed.datasets.releases import read_releases
from biasbed.plugins.packed import index as pack_index
from biasbed.plugins.packed import pack as packed
from biasbed.plugins.packed.maker import PackedForm, pack
from biasbed.plugins.packed.pack import WHOLE
from biasbed.plugins.packed.store import PackStore
from biasbed.plugins.test_images.image_cache import CachedSet

TITLE = "Packed images"
HOW = (
    "`benchmarks/packed.py`: times as fast as torchvision's reference pipeline (Pillow, ToTensor, Normalize) on the "
    "files that were packed, one thread, processor time."
)
IMAGENET = read_releases()["imagenet_train"].images
FORMS = (PackedForm(), PackedForm(256, 90), PackedForm(256, "raw"))
GOALS = (None, Goal(2.6, at_least=True), Goal(6, at_least=True))


def packed_source(folder: Path, store: Path, form: PackedForm) -> FolderSource:
    """Return the folder's images, read from a pack."""
    plain = open_folder(folder, "images")
    target = packed.pack_folder(store, plain.name, plain.fingerprint(), form.name)
    target.mkdir(parents=True, exist_ok=True)
    pack(plain, plain.fingerprint(), target, form, processes=1)
    return plain.with_store(PackStore(store, form.name))


def against_reference(folder: Path, store: Path, rounds: int) -> list[Row]:
    crop, flip = reference.RandomResizedCrop(224), reference.RandomHorizontalFlip()
    plain = reference_side(reference.Resize(256), reference.CenterCrop(224))
    training = transforms.TrainingTransform(224, Augment())
    evaluation = transforms.make_photo_transform(224, Preprocess())[0]
    all_rows = []
    for form, goal in zip(FORMS, GOALS, strict=True):
        source = packed_source(folder, store, form)
        rows = {source.root / name: row for row, name in enumerate(source.ids)}
        for name, transform, theirs, row_goal in (
            ("training", training, reference_side(crop, flip), goal),
            ("evaluation", evaluation, plain, None),
        ):
            ours = lambda path, source=source, rows=rows, transform=transform: transform(source.open(rows[path]))  # noqa: E731
            all_rows.append(compared(f"{name}, packed {form.name}", ours, theirs, list(rows), rounds, row_goal))
    return all_rows


def cached(folder: Path, rounds: int) -> Row:
    """Test images that were decoded before, beside the reference, which decodes them."""
    source, size = open_folder(folder, "images"), 224
    transform = transforms.make_photo_transform(size, Preprocess())[0]
    images = CachedSet(folder / "tests", len(source), (3, size, size), True)
    assert images.open()
    for row in range(len(source)):
        images.write(row, source.version(row), transform(source.open(row)))
    rows = {source.root / name: row for row, name in enumerate(source.ids)}
    plain = reference_side(reference.Resize(256), reference.CenterCrop(224))

    def read(path: Path) -> torch.Tensor:
        image = images.read(rows[path], source.version(rows[path]))
        assert image is not None
        return image

    goal = Goal(12, at_least=True)
    return compared("evaluation, decoded images of an earlier test", read, plain, list(rows), rounds, goal)


def formats(folder: Path, store: Path, rounds: int) -> list[Row]:
    """Return the seconds of reading every image's bytes in a random order, by those of reading the files."""
    source = open_folder(folder, "images")
    (pack_folder,) = store.glob(f"*-{WHOLE}")
    pack_of_files = packed.Pack(pack_folder)
    order = random.Random(0).sample(range(len(source)), len(source))
    archive = store / "images.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for name in source.ids:
            tar.add(source.root / name, name)
        members = {member.name: member for member in tar.getmembers()}
    shard = parquet.ParquetFile(next(pack_folder.glob("*.parquet")))
    tar_file = archive.open("rb")

    def read(name: str) -> int:
        at = pack_of_files.find(name)
        assert at is not None
        return len(bytes(pack_of_files.content(at, source.root / name)))

    def by_offset() -> int:
        return sum(read(source.ids[row]) for row in order)

    def by_files() -> int:
        return sum(len((source.root / source.ids[row]).read_bytes()) for row in order)

    def by_tar() -> int:
        total = 0
        for row in order:
            member = members[source.ids[row]]
            tar_file.seek(member.offset_data)
            total += len(tar_file.read(member.size))
        return total

    def by_pyarrow() -> int:
        return sum(len(shard.read_row_group(0, ["image.bytes"])["image"][row]["bytes"].as_py()) for row in order[:5])

    assert by_offset() == by_files() == by_tar()
    sides = {"files": by_files, "offset": by_offset, "tar": by_tar, "pyarrow": by_pyarrow}
    times = interleaved(sides, rounds)
    times["pyarrow"] = [took * len(order) / 5 for took in times["pyarrow"]]
    return [
        Row.of("bytes, Parquet by offset / files", ratios(times, "offset", "files")),
        Row.of("bytes, tar by offset / files", ratios(times, "tar", "files"), None, "without a checksum"),
        Row.of("bytes, Parquet by pyarrow / files", ratios(times, "pyarrow", "files"), None, "a row group per image"),
    ]


def opening(store: Path, count: int) -> Row:
    """The seconds of opening a pack of `count` images, and of finding and checking the names of one in a thousand."""
    names = [f"n{number // 1300:08}/n{number // 1300:08}_{number}.JPEG" for number in range(count)]
    generator = np.random.default_rng(0)
    lengths = generator.integers(60_000, 160_000, count)
    part = {
        "key": np.array([pack_index.name_key(name) for name in names], dtype=np.uint64),
        "shard": np.zeros(count, dtype=np.int32),
        "offset": np.cumsum(lengths) - lengths,
        "length": lengths,
        "crc": np.zeros(count, dtype=np.uint32),
        "height": np.zeros(count, dtype=np.int32),
        "width": np.zeros(count, dtype=np.int32),
    }
    folder = packed.pack_folder(store, "big", "0" * 16, WHOLE)
    folder.mkdir()
    shard, size = folder / pack_index.shard_name(0), int(lengths.sum())
    shard.touch()
    os.truncate(shard, size)  # a file of holes: no image is read
    about = pack_index.About("big", "/big", "0" * 16, WHOLE, count, (pack_index.Shard(size, ""),))
    pack_index.write(folder / packed.INDEX, pack_index.encode(about, [part]))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        opened = packed.Pack(folder)
        assert all(opened.find(name) is not None for name in names[::1000])
        times.append(time.perf_counter() - began)
    return Row.of("opening the pack of ImageNet's training set", times, Goal(1), f"{count:,} images, wall clock", "s")


def rows(quick: bool = False, *, folder: Path | None = None, rounds: int = 5) -> list[Row]:
    torch.set_num_threads(1)
    rounds = 1 if quick else rounds
    with tempfile.TemporaryDirectory() as name:
        root = found_images(folder, Path(name))
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        chosen = linked(paths[:4] if quick else paths, Path(name) / "chosen")
        store = Path(name) / "packs"
        all_rows = against_reference(chosen, store, rounds)
        all_rows.append(cached(chosen, rounds))
        all_rows += formats(chosen, store, rounds)
        all_rows.append(opening(store, 1000 if quick else IMAGENET))
        if not quick:
            raw = packed_source(chosen, store, FORMS[-1])
            all_rows.append(memory(raw, 4, "memory of workers, packed 256-raw"))
    return all_rows


def linked(paths: Sequence[Path], folder: Path) -> Path:
    """Return a folder with one class of these files."""
    (folder / "images").mkdir(parents=True)
    for number, path in enumerate(paths):
        (folder / "images" / f"{number}{path.suffix}").symlink_to(path.resolve())
    return folder
