"""Image folders as Parquet and WebDataset shards: the same as the folder, and one line where they can't be read."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from biasbed import cli
from biasbed.data import listing, shard_trees
from biasbed.data.folders import FolderSource, open_folder
from biasbed.data.shard_columns import StatedColumns
from biasbed.data.shard_index import Shards, build_index
from biasbed.data.shard_trees import UnpackedShards
from biasbed.datasets import biased
from biasbed.datasets.base import DataSet
from biasbed.datasets.domains import OwnDomains
from biasbed.datasets.metadata_csv import OwnTable
from biasbed.datasets.releases import Release
from biasbed.errors import UnfitImage, UsageError
from biasbed.prepare.doctor import examine
from biasbed.prepare.packed_images import PackedForm
from biasbed.prepare.shard_reading import ShardReader, list_images
from helpers.commands import small_training
from helpers.shards import Example, add_member, make_examples, write_folder, write_parquet, write_webdataset

CLASSES = ["b", "a", "b-c"]  # in another order than sorted, and "b-c/" sorts before "b/"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")  # not in the folder of the shards
    monkeypatch.setenv("BIASBED_HOME", str(home))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    return home


def opened(folder: Path, *columns: str) -> FolderSource:
    """The images of a folder of shards, which are listed first."""
    list_images(folder, columns)
    return open_folder(folder, "x")


def content(reader: ShardReader, source: FolderSource, row: int) -> bytes:
    """An image as packing reads it."""
    position = shard_trees.find(source.root, source.ids[row])
    assert position is not None
    return reader.content(*position)


def write_plain(folder: Path, examples: list[Example], names: list[str]) -> None:
    write_parquet(folder / "data", examples, names, compression="none")


def write_snapshot(folder: Path, examples: list[Example], names: list[str]) -> None:
    write_parquet(folder / "data", examples, names)
    (folder / "README.md").write_text("as downloaded")


WRITERS: dict[str, Callable[[Path, list[Example], list[str]], None]] = {
    "parquet": write_snapshot,
    "uncompressed": write_plain,
    "webdataset": write_webdataset,
}


# --- the same as from the folder --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", WRITERS)
def test_names_labels_fingerprint_and_contents_are_those_of_the_folder(tmp_path: Path, form: str) -> None:
    examples = make_examples(CLASSES, 4)
    write_folder(tmp_path / "files", examples)
    WRITERS[form](tmp_path / "shards", examples, CLASSES)
    files, shards = open_folder(tmp_path / "files", "x"), opened(tmp_path / "shards")
    assert shards.classes == files.classes == ("a", "b", "b-c")
    assert list(shards.ids) == list(files.ids)
    assert shards.y.tolist() == files.y.tolist()
    assert shards.fingerprint() == files.fingerprint()
    rows = np.random.default_rng(0).permutation(len(files)).tolist()
    reader = ShardReader()
    assert [content(reader, shards, row) for row in rows] == [
        (files.root / files.ids[row]).read_bytes() for row in rows
    ]


def test_a_row_group_too_large_for_memory_is_read_by_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = make_examples(CLASSES, 4)
    write_parquet(tmp_path, examples, CLASSES, shards=1)
    (path,) = tmp_path.glob("*.parquet")
    parquet.write_table(parquet.read_table(path), path)  # one row group
    monkeypatch.setattr("biasbed.data.parquet_shards.BATCH", 2)
    source, reader = opened(tmp_path), ShardReader()
    contents = {f"{example.label}/{example.name}": example.content for example in examples}
    for row in (7, 0, 11, 6, 6):
        assert content(reader, source, row) == contents[source.ids[row]]
    assert reader._group is not None
    assert len(reader._group._contents) == 2


@pytest.mark.parametrize("form", WRITERS)
def test_domains_are_folders(tmp_path: Path, form: str) -> None:
    examples = make_examples(CLASSES, 3, domain="ink") + make_examples(CLASSES, 2, domain="photo")
    write_folder(tmp_path / "files" / "set", examples, "domain")
    WRITERS[form](tmp_path / "shards" / "set", examples[::-1], CLASSES)
    list_images(tmp_path / "shards" / "set", ())
    files, shards = (OwnDomains(tmp_path / name / "set") for name in ("files", "shards"))
    assert shards.fingerprint(tmp_path / "shards") == files.fingerprint(tmp_path / "files")
    sources = shards.opened(tmp_path / "shards")
    assert {name: len(source) for name, source in sources.items()} == {"ink": 9, "photo": 6}


@pytest.mark.parametrize("form", ["parquet", "webdataset"])
def test_biases_are_those_of_a_table(tmp_path: Path, form: str) -> None:
    examples = [
        example._replace(bias=bias, name=f"{split}{example.name}", split=split)
        for split, bias in (("train", "a"), ("val", "b"), ("test", "a"))
        for example in make_examples(["a", "b"], 2)
    ]
    files, shards = tmp_path / "files", tmp_path / "shards"
    files.mkdir()
    with (files / "metadata.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "class", "split", "bias"])
        for example in examples:
            (files / example.name).write_bytes(example.content)
            writer.writerow([example.name, example.label, example.split, example.bias])
    for split in ("train", "val", "test"):
        part = [example for example in examples if example.split == split]
        if form == "parquet":
            write_parquet(shards / "data", part, ["b", "a"], split={"val": "validation"}.get(split, split), shards=1)
        else:
            write_webdataset(shards, part, ["b", "a"], shards=1)
            (shards / "000000.tar").rename(shards / f"{split}-000000.tar")
    list_images(shards, ())
    request = biased.DivisionRequest(severity=None, seed=0, image_size=32, frost=tmp_path)
    expected, division = (OwnTable(folder).parts(tmp_path, request) for folder in (files, shards))
    for name in ("train", "validation", "test"):
        source, original = getattr(division, name), getattr(expected, name)
        assert source.fingerprint() == original.fingerprint()
        assert source.bias.tolist() == original.bias.tolist()


def test_splits_are_folders_and_one_without_labels_is_left_out(tmp_path: Path) -> None:
    examples = make_examples(CLASSES, 2)
    write_parquet(tmp_path / "data", examples, CLASSES, "train")
    write_parquet(tmp_path / "data", examples[:4], CLASSES, "validation", shards=1)
    write_parquet(tmp_path / "data", examples[:2], CLASSES, "test", shards=1, label=[-1, -1])
    list_images(tmp_path, ())
    assert listing.scan(tmp_path)[0] == ["train", "val"]
    assert len(open_folder(tmp_path / "val", "x")) == 4


class Fruit(DataSet):
    """Published data set whose images are in the folder `val` of a folder."""

    name = "fruit"
    classes = ("a", "b", "b-c")
    release = Release(images=4, classes=3, places=("fruit-2/val",), source="https://example.org/fruit", licence="CC0")


def test_a_published_data_set_is_where_its_folder_would_be(tmp_path: Path) -> None:
    write_parquet(tmp_path / "Fruit_2" / "data", make_examples(CLASSES, 2), CLASSES, "train")
    write_parquet(tmp_path / "Fruit_2" / "data", make_examples(CLASSES, 1), CLASSES, "validation")
    assert "are read once they are packed: run biasbed prepare --what packed" in examine(Fruit(), tmp_path).problem
    list_images(tmp_path / "Fruit_2", ())
    finding = examine(Fruit(), tmp_path)
    assert finding.folder == tmp_path / "Fruit_2" / "val"
    assert finding.contents is not None
    assert finding.contents.differences == ("3 images; the release has 4",)
    (tmp_path / "Fruit_2" / "classes.txt").write_text("b\na\nc\n")
    list_images(tmp_path / "Fruit_2", ())
    with pytest.raises(UsageError, match=r"unknown class folders c; 1 of 3 class folders missing: b-c"):
        Fruit().open(tmp_path)


def test_changed_shards_are_refused_until_they_are_packed_again(tmp_path: Path) -> None:
    examples = make_examples(CLASSES, 3)
    write_webdataset(tmp_path, examples, CLASSES, shards=1)
    with pytest.raises(
        UnpackedShards, match=rf"the images in {tmp_path} are Parquet or WebDataset shards, and are read"
    ):
        open_folder(tmp_path, "x")
    before = opened(tmp_path)
    fingerprint, position = before.fingerprint(), shard_trees.find(tmp_path, before.ids[0])
    write_webdataset(tmp_path, examples[3:], CLASSES, shards=1)
    with pytest.raises(UnpackedShards):
        open_folder(tmp_path, "x")
    assert len(opened(tmp_path)) == 6
    assert opened(tmp_path).fingerprint() != fingerprint
    (tmp_path / "000000.tar").write_bytes(b"")
    assert position is not None
    with pytest.raises(UnfitImage, match=r"000000.tar has changed since it was opened"):
        ShardReader().content(*position)


def test_a_damaged_list_of_shards_is_none(tmp_path: Path, home: Path) -> None:
    write_webdataset(tmp_path / "set", make_examples(CLASSES, 2), CLASSES)
    opened(tmp_path / "set")
    (path,) = (home / "shards").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    shard_trees._read.cache_clear()
    with pytest.raises(UnpackedShards):
        open_folder(tmp_path / "set", "x")


@pytest.mark.parametrize("form", ["parquet", "webdataset"])
def test_a_training_is_the_same_to_the_bit_after_the_command_that_the_refusal_names(
    tmp_path: Path, home: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(data: Path) -> list[tuple[str, float]]:
        assert cli.main(small_training(data, "erm", "--output_dir", str(data / ".runs"), epochs=1)) == 0
        (journal,) = (data / ".runs").rglob("metrics.jsonl")
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        metrics = [pair for record in records for pair in record["metrics"].items()]
        return [(key, value) for key, value in metrics if key.startswith(("train/", "val/", "test/"))]

    for name, count in (("photo", 6), ("ink", 3)):
        write_folder(tmp_path / "files" / name, make_examples(["a", "b"], count))
        WRITERS[form](tmp_path / "shards" / name, make_examples(["a", "b"], count), ["b", "a"])
    capsys.readouterr()
    assert cli.main(small_training(tmp_path / "shards", "erm", "--output_dir", str(tmp_path / ".runs"))) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    command = re.search(r"run biasbed (prepare --what packed .*), then repeat this command", line)
    assert command is not None
    assert cli.main([*shlex.split(command[1]), "--processes", "1"]) == 0
    assert trained(tmp_path / "shards") == trained(tmp_path / "files")
    shutil.rmtree(home / "prepared")  # the list alone has no pictures
    assert cli.main(small_training(tmp_path / "shards", "erm", "--output_dir", str(tmp_path / ".more"))) == 2


# --- settings ---------------------------------------------------------------------------------------------------------


def test_columns_are_named_where_two_could_be_the_label(tmp_path: Path) -> None:
    examples = make_examples(["a", "b"], 2)
    write_parquet(tmp_path, examples, ["a", "b"], shards=1, fine_label=["x", "y", "x", "y"])
    with pytest.raises(
        UsageError, match=r"its label could be label or fine_label: say which with packed.columns=label:"
    ):
        opened(tmp_path)
    assert opened(tmp_path, "label:fine_label").classes == ("x", "y")
    with pytest.raises(ValueError, match=r"packed.columns=colour:c: should be <role>:<column>"):
        PackedForm(columns=("colour:c",))


# --- refused ----------------------------------------------------------------------------------------------------------

Column = Callable[[list[Example]], Any]
REFUSED_COLUMNS: dict[str, tuple[dict[str, Column], str]] = {
    "no image": ({"image": lambda _: None}, r"has no image column \(it has label\)"),
    "null image": ({"image": lambda rows: [None, *(row.content for row in rows[1:])]}, "row 0: it has no image"),
    "outside": ({"image": lambda rows: [{"bytes": row.content, "path": "../x"} for row in rows]}, "leads out of its"),
    "null label": ({"label": lambda rows: ["a", *[None] * (len(rows) - 1)]}, "row 1: it has no label"),
    "numbers alone": ({"label": lambda rows: [0] * len(rows)}, "no names of the classes are there: write classes.txt"),
}


@pytest.mark.parametrize("case", REFUSED_COLUMNS)
def test_a_parquet_file_that_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    examples = make_examples(["a", "b"], 2)
    columns, message = REFUSED_COLUMNS[case]
    replaced = {name: make(examples) for name, make in columns.items()}
    write_parquet(tmp_path, examples, ["a", "b"], shards=1, **replaced)
    with pytest.raises(UsageError, match=message) as refused:
        opened(tmp_path)
    assert str(tmp_path / "train-00000-of-00001.parquet") in str(refused.value)


@pytest.mark.parametrize("form", WRITERS)
def test_a_shard_that_is_cut_off_is_named(tmp_path: Path, form: str) -> None:
    WRITERS[form](tmp_path, make_examples(CLASSES, 4), CLASSES)
    path = sorted([*tmp_path.rglob("*.parquet"), *tmp_path.rglob("*.tar")])[-1]
    content = path.read_bytes()
    for size in (len(content) // 2, 0):
        path.write_bytes(content[:size])
        with pytest.raises(UsageError, match=f"{path.name}: it is"):
            opened(tmp_path)


def test_a_tar_file_that_ends_between_two_files_is_named(tmp_path: Path) -> None:
    write_webdataset(tmp_path, make_examples(["a"], 2), ["a"], shards=1)
    path = tmp_path / "000000.tar"
    with tarfile.open(path) as archive:
        second = archive.getmembers()[2].offset
    path.write_bytes(path.read_bytes()[:second])
    with pytest.raises(UsageError, match=rf"000000.tar: it is cut off or damaged at byte {second:,}"):
        opened(tmp_path)


REFUSED_MEMBERS = {
    "link": (("1.jpg", "1.cls"), tarfile.SYMTYPE, "its member '1.jpg' is not a file: links and devices"),
    "outside": (("../1.jpg", "../1.cls"), tarfile.REGTYPE, "the name '../1.jpg' leads out of its folder"),
    "no image": (("1.txt", "1.cls"), tarfile.REGTYPE, r"sample '1': it has no image column \(it has txt, cls\)"),
    "no label": (("1.jpg", "1.txt"), tarfile.REGTYPE, "row 0: it has no label"),
}


@pytest.mark.parametrize("case", REFUSED_MEMBERS)
def test_a_tar_file_that_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    names, kind, message = REFUSED_MEMBERS[case]
    (tmp_path / "classes.txt").write_text("a\n")
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        for name in names:
            if name.endswith(("jpg", "png")):
                add_member(archive, name, b"\xff\xd8\xff" * (kind == tarfile.REGTYPE), kind)
            else:
                add_member(archive, name, b"0")
    with pytest.raises(UsageError, match=message):
        build_index(Shards("webdataset", tmp_path, ("0.tar",)), StatedColumns())
