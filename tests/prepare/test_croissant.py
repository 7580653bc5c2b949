"""Descriptions of prepared data sets: every file with its checksum, and records that mlcroissant reads alike."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from biasbed.data.source import MemorySource
from biasbed.datasets.releases import read_releases
from biasbed.prepare import croissant
from biasbed.prepare.corrupted_images import CorruptionsMaker, CorruptionsOptions
from biasbed.prepare.croissant import DataDescription
from biasbed.prepare.run import prepare
from biasbed.training.resolve import resolve

READER = """
import hashlib, json, sys
import mlcroissant
data = mlcroissant.Dataset(sys.argv[1])
rows = []
for record in data.records("images"):
    row = {}
    for name, value in record.items():
        if hasattr(value, "tobytes"):
            value = hashlib.sha256(value.convert("RGB").tobytes()).hexdigest()
        row[name.partition("/")[2]] = value.decode() if isinstance(value, bytes) else value
    rows.append(row)
json.dump({"rows": rows, "errors": sorted(data.metadata.ctx.issues.errors)}, sys.stdout)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))


@pytest.fixture
def flags(image_root: Path) -> dict[str, Any]:
    return {"suite": "folders", "data_dir": str(image_root), "train": "photo", "sets": "ink"}


def read(folder: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((folder / croissant.DESCRIPTION).read_text())
    return description


def pixels(content: bytes) -> str:
    with Image.open(io.BytesIO(content)) as image:
        return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


def corrupted(flags: dict[str, Any], names: str = "fog") -> Path:
    folder = prepare({**flags, "what": "corruptions", "split": "ink", "corruptions": names})
    assert folder is not None
    return folder


def packs(flags: dict[str, Any], **form: str) -> list[Path]:
    store = prepare({**flags, "what": "packed", **form})
    assert store is not None
    return sorted(path.parent for path in store.glob(f"*/{croissant.DESCRIPTION}"))


def refuse_wrong_checksums(folder: Path) -> None:
    for entry in read(folder)["distribution"]:
        if entry["@type"] == "cr:FileObject":
            content = (folder / entry["contentUrl"]).read_bytes()
            assert entry["sha256"] == hashlib.sha256(content).hexdigest()
            assert entry["contentSize"] == f"{len(content)} B"


def test_every_image_is_in_the_table_with_its_label_and_checksum(flags: dict[str, Any], image_root: Path) -> None:
    folder = corrupted(flags)
    refuse_wrong_checksums(folder)
    table = pd.read_parquet(folder / croissant.TABLE)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.JPEG")}
    assert set(table.file) == files
    assert len(files) == 15 * 5
    for row in table.itertuples():
        assert row.sha256 == hashlib.sha256((folder / row.file).read_bytes()).hexdigest()
        assert row.file == f"{row.corruption}/{row.severity}/{Path(row.original).with_suffix('.JPEG')}"
        assert row.label == Path(row.original).parent.name
    description = read(folder)
    assert "Hendrycks" in description["citeAs"]
    assert "biasbed" in description["description"]


def test_what_is_added_is_described_too(flags: dict[str, Any]) -> None:
    corrupted(flags)
    folder = corrupted(flags, "brightness")
    refuse_wrong_checksums(folder)
    assert set(pd.read_parquet(folder / croissant.TABLE).corruption) == {"fog", "brightness"}


def test_a_description_that_is_missing_is_written_and_may_be_left_out(flags: dict[str, Any]) -> None:
    folder = corrupted(flags)
    (folder / croissant.DESCRIPTION).unlink()
    prepare({**flags, "what": "corruptions", "split": "ink", "corruptions": "fog", "croissant": "no"})
    assert not (folder / croissant.DESCRIPTION).exists()
    corrupted(flags)
    assert (folder / croissant.DESCRIPTION).exists()


def test_shards_have_the_checksums_of_the_index(flags: dict[str, Any]) -> None:
    folders = packs(flags)
    assert len(folders) == 2
    for folder in folders:
        refuse_wrong_checksums(folder)
    for folder in packs(flags, **{"packed.side": "16", "packed.quality": "raw"}):
        fields = {field["name"] for field in read(folder)["recordSet"][0]["field"]}
        assert ("images/image" in fields) == folder.name.endswith("-whole")  # raw pixels are no image file


def test_licences_and_addresses_are_those_of_the_releases(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    rows = read_releases()
    sources = {"cub": rows["cub"], "places365": rows["places365"], "my_own": None}
    about = DataDescription("birds", "Birds.", sources, "Somebody 2020")
    croissant.describe_images(tmp_path, about, ["a.png"], {"label": ["001"]})
    description = read(tmp_path)
    assert description["license"] == [f"{name}: {rows[name].licence}" for name in ("cub", "places365")]
    assert description["url"] == rows["cub"].source
    assert description["isBasedOn"] == [rows["cub"].source, rows["places365"].source, "my_own"]
    assert description["citeAs"] == "Somebody 2020"


@pytest.mark.parametrize("what", ["corruptions", "packed"])
def test_own_images_in_a_folder_named_like_a_release_have_no_licence(
    image_root: Path, tmp_path: Path, what: str
) -> None:
    shutil.copytree(image_root / "photo", tmp_path / "own/photo")
    shutil.copytree(image_root / "ink", tmp_path / "own/sketch")
    assert "sketch" in read_releases()
    flags = {"suite": "folders", "data_dir": str(tmp_path / "own"), "train": "photo", "sets": "sketch", "what": what}
    further = {} if what == "packed" else {"split": "sketch"}
    if what == "corruptions":
        further["corruptions"] = "fog"
    folder = prepare({**flags, **further})
    assert folder is not None
    descriptions = [json.loads(path.read_text()) for path in folder.rglob(croissant.DESCRIPTION)]
    of_sketch = [description for description in descriptions if description["isBasedOn"] == ["sketch"]]
    assert len(of_sketch) == 1
    assert not {"license", "url"} & of_sketch[0].keys()


def test_images_of_a_suite_with_published_data_have_their_licence(tmp_path: Path) -> None:
    maker = CorruptionsMaker(CorruptionsOptions(what="corruptions"), resolve({"suite": "biasbed"}))
    release = maker.find_release(MemorySource(name="sketch", classes=(), y=np.empty(0), ids=[], images=np.empty(0)))
    assert release == read_releases()["sketch"]
    assert maker.find_release(MemorySource(name="ink", classes=(), y=np.empty(0), ids=[], images=np.empty(0))) is None


# --- read by mlcroissant ----------------------------------------------------------------------------------------------


@pytest.fixture
def mlcroissant() -> Any:
    """Reads a folder's records by mlcroissant, in a Python of its own."""
    python = os.environ.get("BIASBED_VALIDATORS", "")
    if not python:
        pytest.skip("BIASBED_VALIDATORS=<python with mlcroissant and pyarrow> is not set")

    def records(folder: Path) -> list[dict[str, Any]]:
        command = [python, "-c", READER, str(folder / croissant.DESCRIPTION)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["errors"] == []
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    return records


@pytest.mark.slow
def test_mlcroissant_reads_the_images_and_columns(flags: dict[str, Any], mlcroissant: Any) -> None:
    folder = corrupted(flags)
    table = pd.read_parquet(folder / croissant.TABLE).set_index("file")
    rows = mlcroissant(folder)
    assert sorted(row["file"] for row in rows) == sorted(table.index)
    for row in rows:
        assert row["image"] == pixels((folder / row["file"]).read_bytes())
        for name in table.columns:
            assert row[name] == table.loc[row["file"], name]


@pytest.mark.slow
def test_mlcroissant_reads_labels_as_they_are_written(tmp_path: Path, mlcroissant: Any) -> None:
    """Classes are called `001`, `NA` or `null`, which readers of CSV take for numbers and gaps."""
    labels = ["001", "NA", "null", "1e5"]
    names = []
    for number, label in enumerate(labels):
        name = f"images/{label}/{number}.png" if number else f"images/{number}.png"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / name)
        names.append(name)
    croissant.describe_images(tmp_path, DataDescription("x", "X."), names, {"label": labels})
    assert {row["file"]: row["label"] for row in mlcroissant(tmp_path)} == dict(zip(names, labels, strict=True))


@pytest.mark.slow
def test_mlcroissant_reads_packed_images(flags: dict[str, Any], image_root: Path, mlcroissant: Any) -> None:
    for folder in packs(flags):
        name = folder.name.partition("-")[0]
        rows = mlcroissant(folder)
        root = image_root / name
        files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.*") if path.is_file())
        assert sorted(row["file"] for row in rows) == files
        classes = sorted({Path(file).parts[0] for file in files})
        for row in rows:
            assert row["image"] == pixels((root / row["file"]).read_bytes())
            assert classes[row["label"]] == Path(row["file"]).parts[0]


@pytest.mark.slow
def test_mlcroissant_notices_a_table_that_was_changed(flags: dict[str, Any], mlcroissant: Any) -> None:
    folder = corrupted(flags)
    table = folder / croissant.TABLE
    table.write_bytes(table.read_bytes() + b" ")
    with pytest.raises(AssertionError, match="not identical"):
        mlcroissant(folder)
