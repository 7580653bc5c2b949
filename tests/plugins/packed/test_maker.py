"""Packed images: the same batches and numbers as from the folder, and one line where a pack is damaged or too old."""

from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from biasbed import cli
from biasbed.batch import MAIN
from biasbed.config import Augment
from biasbed.data import transforms
from biasbed.data.folders import FolderSource, open_folder
from biasbed.data.loading import TrainLoader
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.errors import UnfitImage, UsageError
from biasbed.plugins.packed import index as pack_index
from biasbed.plugins.packed import maker as packed_images
from biasbed.plugins.packed import pack as packed
from biasbed.plugins.packed import store as pack_store
from biasbed.plugins.packed.store import PackStore
from biasbed.prepare.run import _build_suite_config, prepare
from biasbed.suites import open_suite
from biasbed.system import files
from helpers.commands import small_training


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.setattr(packed_images, "SHARD_BYTES", 8000)  # so that a few images make several shards
    pack_store._warned.clear()
    return tmp_path / "home"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two folders of two classes of JPEG and PNG files of the same names, which are not in the order of bytes."""
    generator = np.random.default_rng(0)
    for folder, count in (("photo", 6), ("ink", 3)):
        for label in ("a", "b"):
            (tmp_path / "data" / folder / label).mkdir(parents=True)
            for number in range(count):
                suffix = "png" if number == 2 else "jpg"
                shape = (40 + 7 * number, 60, 3)
                image = Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8))
                image.save(tmp_path / "data" / folder / label / f"é{number}.{suffix}")
    return tmp_path / "data"


@pytest.fixture
def flags(data: Path) -> dict[str, Any]:
    return {"what": "packed", "suite": "folders", "data_dir": str(data), "train": "photo", "processes": 1}


def pack_of(home: Path, source: str = "photo", form: str = "whole") -> Path:
    (folder,) = (home / "prepared" / packed.STORE).glob(f"{source}-*-{form}")
    return folder


def opened(data: Path, home: Path, form: str = "whole") -> FolderSource:
    """The training folder as suites open it, reading from packs."""
    store = PackStore(home / "prepared" / packed.STORE, form)
    return open_folder(data / "photo", "photo").with_store(store)


def first_epoch(source: FolderSource, workers: int = 0) -> list[torch.Tensor]:
    stream = Stream((Part(source, 1.0, transforms.TrainingTransform(24, Augment())),), 4)
    loader = TrainLoader(BatchPlan({MAIN: stream}, 7), workers, False)
    batches = [batch.x for _, _, batch, _ in loader.from_step(0, stream.steps_per_epoch)]
    loader.close()
    return batches


def remove_images(folder: Path) -> None:
    """Empty the image files, which keeps names but no content: whatever is read afterwards comes from a pack."""
    for path in folder.rglob("*.*"):
        path.write_bytes(b"")


# --- the same as from the folder --------------------------------------------------------------------------------------


def test_fingerprint_and_batches_are_those_of_the_folder(data: Path, home: Path, flags: dict[str, Any]) -> None:
    plain = open_folder(data / "photo", "photo")
    fingerprint, batches = plain.fingerprint(), first_epoch(plain)
    prepare(flags)
    source = opened(data, home)
    assert source.fingerprint() == fingerprint
    pack = packed.Pack(pack_of(home))
    assert len(pack.about.shards) > 2
    remove_images(data / "photo")
    assert all(torch.equal(a, b) for a, b in zip(first_epoch(source), batches, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first_epoch(source, workers=2), batches, strict=True))
    part = pickle.loads(pickle.dumps(source.subset([5, 3], "part")))
    assert torch.equal(part.load(0), source.load(5))


def test_a_training_is_the_same_to_the_bit(data: Path, tmp_path: Path, flags: dict[str, Any]) -> None:
    def trained(name: str) -> list[tuple[str, float]]:
        words = small_training(data, "erm", "--output_dir", str(tmp_path / name), epochs=1)
        assert cli.main(words) == 0
        (journal,) = (tmp_path / name).rglob("metrics.jsonl")
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        metrics = [pair for record in records for pair in record["metrics"].items()]
        return [(key, value) for key, value in metrics if key.startswith(("train/", "val/", "test/"))]

    expected = trained("files")
    prepare(flags)
    opened_files: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("biasbed.data.folders.open_file", lambda path: opened_files.append(path))
        assert trained("packed") == expected
    assert not opened_files


def test_a_shard_is_a_parquet_file_with_the_columns_of_the_hub(data: Path, home: Path, flags: dict[str, Any]) -> None:
    prepare(flags)
    table = parquet.read_table(sorted(pack_of(home).glob("*.parquet")))
    source = open_folder(data / "photo", "photo")
    rows = table.to_pylist()
    assert [row["image"]["path"] for row in rows] == list(source.ids)
    assert [row["label"] for row in rows] == source.y.tolist()
    assert all(row["image"]["bytes"] == (source.root / row["image"]["path"]).read_bytes() for row in rows)
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"]["names"] == ["a", "b"]


# --- resized ----------------------------------------------------------------------------------------------------------


def test_raw_images_are_the_resized_ones_and_have_another_fingerprint(
    data: Path, home: Path, flags: dict[str, Any]
) -> None:
    prepare({**flags, "packed.side": 32, "packed.quality": "raw"})
    plain, source = open_folder(data / "photo", "photo"), opened(data, home, "32-raw")
    assert source.fingerprint() not in (plain.fingerprint(), opened(data, home).fingerprint())
    for row in range(len(plain)):
        expected = transforms.shrink(plain.load(row), 32)
        assert torch.equal(source.load(row), expected)
        picture = source.open(row)
        assert (picture.height, picture.width) == expected.shape[1:]
        assert torch.equal(picture.pixels(rows=5), expected[:, :5])


# --- damage -----------------------------------------------------------------------------------------------------------


def printed_by(capsys: pytest.CaptureFixture[str], work: Callable[[], object]) -> str:
    """Return the text that a piece of work prints for the user."""
    capsys.readouterr()
    work()
    return capsys.readouterr().err


def assert_is_whole(data: Path, home: Path) -> None:
    """Every image of the pack is there, with the pixels of its file."""
    source, plain = opened(data, home), open_folder(data / "photo", "photo")
    source.fingerprint()
    for row, name in enumerate(plain.ids):
        assert source.images.open(source.root, name) is not None
        assert torch.equal(source.load(row), plain.load(row))


def test_a_flipped_byte_is_named_and_never_passed_over(
    data: Path, home: Path, flags: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(flags)
    source = opened(data, home)
    source.fingerprint()
    shard = pack_of(home) / "images-00000.parquet"
    content = bytearray(shard.read_bytes())
    content[content.index(b"\xff\xd8\xff") + 300] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UnfitImage, match=rf"{shard} are damaged \(found at .*é0.jpg\); prepare what=packed again"):
        source.open(0)
    with pytest.raises(UnfitImage, match=r"images-00000.parquet are damaged"):
        first_epoch(source)
    assert f"warning: damaged: {shard}; packed again now" in printed_by(capsys, lambda: prepare(flags))
    assert_is_whole(data, home)
    assert "warning" not in printed_by(capsys, lambda: prepare(flags))


@pytest.mark.parametrize("name", [packed.INDEX, "images-00000.parquet.index"])
def test_a_flipped_bit_of_an_index_or_a_part_is_named_and_mended(
    data: Path, home: Path, flags: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    prepare(flags)
    index = pack_of(home) / name
    content = index.read_bytes()
    for bit in range(0, 8 * len(content), 7):  # each position in a byte, all over the file
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        index.write_bytes(flipped)
        with pytest.raises(
            UsageError, match=rf"the index {index} of packed images is damaged \(its checksum is another\)"
        ):
            pack_index.read(index)
    for broken in (b"", content[:-1], content + b"x", None):
        index.unlink()
        if broken is None:
            index.symlink_to(data / "photo" / "a" / "é0.jpg")
        else:
            index.write_bytes(broken)
        assert "warning: damaged: " in printed_by(capsys, lambda: prepare(flags))
        assert index.read_bytes() == content
        assert_is_whole(data, home)
    assert "complete already" in printed_by(capsys, lambda: prepare(flags))
    assert (data / "photo" / "a" / "é0.jpg").stat().st_size > 0


def test_no_file_outside_of_a_pack_is_touched(data: Path, home: Path, flags: dict[str, Any], tmp_path: Path) -> None:
    """A pack may be a stranger's: its files may be links, and an index may name another file, with a valid checksum."""
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("precious")
    prepare(flags)
    folder = pack_of(home)
    index = folder / "images-00000.parquet.index"
    about, columns = pack_index.read(index)
    other = dataclasses.replace(about, shards=(pack_index.Shard(2**40, "../thesis.tex"),))
    index.write_bytes(pack_index.encode(other, [columns]))
    for name in ("images-00000.parquet", "images-00001.parquet", "images-00002.parquet.index", packed.INDEX):
        (folder / name).unlink()
        (folder / name).symlink_to(thesis)
    prepare(flags)
    assert thesis.read_text() == "precious"
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert_is_whole(data, home)


def test_a_source_that_changed_is_read_from_its_files(
    data: Path, home: Path, flags: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    prepare(flags)
    path = data / "photo" / "b" / "é0.jpg"
    Image.new("RGB", (30, 20), "red").save(path)
    source = opened(data, home)
    source.fingerprint()
    source.fingerprint()
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"'photo' in {data / 'photo'} has changed since it was packed" in message
    assert torch.equal(source.load(6), open_folder(data / "photo", "photo").load(6))


def test_two_images_of_one_name_are_refused(data: Path, home: Path, flags: dict[str, Any]) -> None:
    """Each would be read as the other."""
    prepare(flags)
    about, columns = pack_index.read(pack_of(home) / packed.INDEX)
    with pytest.raises(UsageError, match="two images of 'photo' have the same name"):
        pack_index.encode(about, [{**columns, "key": np.zeros_like(columns["key"])}])


def test_a_suite_without_files_is_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the suite 'demo' computes its images: there are no files to pack"):
        prepare({"what": "packed", "suite": "demo"})


# --- packing that is disturbed ----------------------------------------------------------------------------------------


def _pack_and_die(flags: dict[str, Any]) -> None:
    """Pack as a process that is killed while it writes the second shard."""
    write = packed_images.write_parquet

    def write_one(path: Path, *arguments: Any) -> None:
        if "00001" in path.name:
            path.write_bytes(b"half")
            os._exit(9)
        write(path, *arguments)

    packed_images.SHARD_BYTES = 8000
    packed_images.write_parquet = write_one
    prepare(flags)


def test_packing_that_was_killed_continues(data: Path, home: Path, flags: dict[str, Any]) -> None:
    process = multiprocessing.get_context("fork").Process(target=_pack_and_die, args=(flags,))
    process.start()
    process.join()
    assert process.exitcode == 9
    (folder,) = (home / "prepared" / packed.STORE).iterdir()
    first = (folder / "images-00000.parquet").stat()
    assert not (folder / packed.INDEX).exists()
    opened(data, home).fingerprint()  # half a pack is none
    prepare(flags)
    assert (pack_of(home, folder.name.split("-")[0]) / "images-00000.parquet").stat().st_mtime_ns == first.st_mtime_ns
    assert not list(folder.glob("*.tmp"))
    for pack in (home / "prepared" / packed.STORE).iterdir():
        packed.Pack(pack)


def test_a_full_disk_is_said_in_a_line(
    flags: dict[str, Any], home: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**9, 10**9 - 10, 10)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(UsageError, match=r"take about .* GiB, and .* has 0.0 GiB left: prepared_dir= elsewhere"):
            prepare(flags)

    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "flush_to_disk", refuse)
        with pytest.raises(OSError, match="No space left on device"):
            prepare(flags)
    assert not list(home.rglob("*.parquet*"))
    prepare(flags)
    assert opened(data, home).fingerprint() == open_folder(data / "photo", "photo").fingerprint()


def test_the_suites_of_domains_read_all_parts_from_packs(data: Path, home: Path, flags: dict[str, Any]) -> None:
    """A source of several domains, in folders of their own, is read from the domains' packs."""
    shutil.move(data, data.parent / "all")
    shutil.move(data.parent / "all", data / "letters")
    chosen = {"suite": "domains", "data_dir": str(data), "train": "letters", "test_domains": "ink"}
    expected = open_suite(_build_suite_config(chosen))
    images = [expected.material().load(row) for row in range(len(expected.material()))]
    prepare({"what": "packed", "processes": 1, **chosen})
    assert len(list((home / "prepared" / packed.STORE).iterdir())) == 2  # one for each domain, none for all of them
    suite = open_suite(_build_suite_config(chosen))
    assert suite.fingerprint == expected.fingerprint
    remove_images(data)
    assert all(torch.equal(suite.material().load(row), image) for row, image in enumerate(images))
    without = open_suite(_build_suite_config({**chosen, "data.packed": "no"}))
    material = without.material()
    assert isinstance(material, FolderSource)
    assert material.images.checksum(material.root, material.ids[0]) is None
