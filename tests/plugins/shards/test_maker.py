"""Unpacking of Parquet and WebDataset shards: the folder that was packed, and one line where they can't be read."""

from __future__ import annotations

import csv
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli
from biasbed.data import listing
from biasbed.data.folders import FolderSource, open_folder
from biasbed.datasets import biased
from biasbed.datasets.base import DataSet
from biasbed.datasets.domains import OwnDomains
from biasbed.datasets.metadata_csv import OwnTable
from biasbed.datasets.releases import Release
from biasbed.errors import MissingData, UsageError
from biasbed.plugins.shards import maker
from biasbed.plugins.shards.columns import StatedColumns
from biasbed.plugins.shards.layout import Shards, find_layout
from biasbed.plugins.shards.maker import Unpacked
from biasbed.prepare.run import prepare
from helpers.shards import Example, add_member, make_examples, write_folder, write_parquet, write_webdataset

CLASSES = ["b", "a", "b-c"]  # in another order than sorted, and "b-c/" sorts before "b/"


def unpack(source: Path, *columns: str) -> Path:
    """Unpack the shards below a folder; return the folder of images beside it."""
    into = source.with_name(source.name + "-images")
    prepare({"what": "unpacked", "data_dir": str(source), "unpacked.into": str(into), "unpacked.columns": columns})
    return into


def opened(source: Path, *columns: str) -> FolderSource:
    return open_folder(unpack(source, *columns), "x")


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
    assert shards.fingerprint() == files.fingerprint()
    assert [(shards.root / name).read_bytes() for name in shards.ids] == [
        (files.root / name).read_bytes() for name in files.ids
    ]


@pytest.mark.parametrize("form", WRITERS)
def test_domains_are_folders(tmp_path: Path, form: str) -> None:
    examples = make_examples(CLASSES, 3, domain="ink") + make_examples(CLASSES, 2, domain="photo")
    write_folder(tmp_path / "files" / "set", examples, "domain")
    WRITERS[form](tmp_path / "shards" / "set", examples[::-1], CLASSES)
    unpacked = unpack(tmp_path / "shards")
    files, shards = OwnDomains(tmp_path / "files" / "set"), OwnDomains(unpacked / "set")
    assert shards.fingerprint(unpacked) == files.fingerprint(tmp_path / "files")
    sources = shards.opened(unpacked)
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
    request = biased.DivisionRequest(severity=None, seed=0, image_size=32, frost=tmp_path)
    expected, division = (OwnTable(folder).parts(tmp_path, request) for folder in (files, unpack(shards)))
    for name in ("train", "validation", "test"):
        source, original = getattr(division, name), getattr(expected, name)
        assert source.fingerprint() == original.fingerprint()
        assert source.bias.tolist() == original.bias.tolist()


def test_splits_are_folders_and_one_without_labels_is_left_out(tmp_path: Path) -> None:
    examples = make_examples(CLASSES, 2)
    folder = tmp_path / "set" / "data"
    write_parquet(folder, examples, CLASSES, "train")
    write_parquet(folder, examples[:4], CLASSES, "validation", shards=1)
    write_parquet(folder, examples[:2], CLASSES, "test", shards=1, label=[-1, -1])
    unpacked = unpack(tmp_path / "set")
    assert listing.scan(unpacked).folders == ["train", "val"]
    assert len(open_folder(unpacked / "val", "x")) == 4


class Fruit(DataSet):
    """Published data set whose images are in the folder `val` of a folder."""

    name = "fruit"
    classes = ("a", "b", "b-c")
    release = Release(images=4, classes=3, places=("fruit-2/val",), source="https://example.org/fruit", licence="CC0")


def test_a_published_data_set_is_where_its_folder_would_be(tmp_path: Path) -> None:
    data = tmp_path / "hub" / "Fruit_2"
    write_parquet(data / "data", make_examples(CLASSES, 2), CLASSES, "train")
    write_parquet(data / "data", make_examples(CLASSES, 1), CLASSES, "validation")
    with pytest.raises(MissingData, match=rf"{data}: unpack its Parquet or WebDataset files: biasbed prepare"):
        Fruit().open(tmp_path / "hub")
    assert Fruit().contents(unpack(tmp_path / "hub")).differences == ("3 images; the release has 4",)
    (data / "classes.txt").write_text("b\na\nc\n")
    renamed = tmp_path / "again"
    prepare({"what": "unpacked", "data_dir": str(tmp_path / "hub"), "unpacked.into": str(renamed)})
    with pytest.raises(UsageError, match=r"unknown class folders c; 1 of 3 class folders missing: b-c"):
        Fruit().open(renamed)


@pytest.mark.parametrize("form", WRITERS)
def test_a_command_that_meets_shards_says_what_unpacks_them(tmp_path: Path, form: str) -> None:
    WRITERS[form](tmp_path / "set", make_examples(CLASSES, 2), CLASSES)
    with pytest.raises(UsageError, match=r"has no class folders.*; unpack its Parquet or WebDataset files"):
        open_folder(tmp_path / "set", "x")
    with pytest.raises(UsageError, match=r"has no metadata.csv.*; unpack its Parquet or WebDataset files"):
        raise MissingData(OwnTable(tmp_path / "set").describe_missing(tmp_path))


def test_an_interrupted_command_goes_on_and_a_finished_folder_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_webdataset(tmp_path / "set", make_examples(CLASSES, 3), CLASSES)
    written: list[Path] = []
    write = maker._write_image

    def interrupted(path: Path, content: bytes) -> None:
        if len(written) == 4:
            path.write_bytes(content[:10])
            raise KeyboardInterrupt
        written.append(path)
        write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(maker, "_write_image", interrupted)
        with pytest.raises(KeyboardInterrupt):
            unpack(tmp_path / "set")
    assert not (tmp_path / "set-images").exists()
    states = {path.name: path.stat().st_mtime_ns for path in written}
    source = opened(tmp_path / "set")
    assert len(source) == 9
    assert sorted(path.name for path in source.root.iterdir()) == ["a", "b", "b-c"]
    assert {path.name: (source.root / path.parent.name / path.name).stat().st_mtime_ns for path in written} == states
    with pytest.raises(UsageError, match=r"set-images is there already: remove it"):
        unpack(tmp_path / "set")


def test_what_was_written_by_other_columns_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = make_examples(["a", "b"], 2)
    write_parquet(tmp_path / "set", examples, ["a", "b"], shards=1, coarse=["x", "y", "x", "y"])

    def failing(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if path.parent.name == "b":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(maker, "_write_image", failing)
        with pytest.raises(KeyboardInterrupt):
            unpack(tmp_path / "set")
    source = opened(tmp_path / "set", "label:coarse")
    assert (source.classes, len(source)) == (("x", "y"), 4)


def test_the_command_takes_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_parquet(tmp_path / "set", make_examples(["a", "b"], 1), ["a", "b"])
    flags = ["--what", "unpacked", "--data_dir", str(tmp_path / "set"), "--unpacked.columns", "label:label"]
    assert cli.main(["prepare", *flags]) == 2
    assert "say what to unpack, and where to" in capsys.readouterr().err
    assert cli.main(["prepare", *flags, "--unpacked.into", str(tmp_path / "images")]) == 0
    assert f"done: 2 images in {tmp_path / 'images'}" in capsys.readouterr().out


# --- settings ---------------------------------------------------------------------------------------------------------


def test_columns_are_named_where_two_could_be_the_label(tmp_path: Path) -> None:
    examples = make_examples(["a", "b"], 2)
    folder = tmp_path / "set"
    write_parquet(folder, examples, ["a", "b"], shards=1, fine_label=["x", "y", "x", "y"])
    with pytest.raises(
        UsageError, match=r"its label could be label or fine_label: say which with unpacked.columns=label:"
    ):
        opened(folder)
    assert opened(folder, "label:fine_label").classes == ("x", "y")
    with pytest.raises(ValueError, match=r"unpacked.columns=colour:c: should be <role>:<column>"):
        Unpacked(columns=("colour:c",))


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
        find_layout(Shards("webdataset", tmp_path, ("0.tar",)), StatedColumns())
