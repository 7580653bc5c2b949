"""Corrupted images on disk: the release's layout, what decides them, going on, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed.data.corruptions import CORRUPTIONS, corrupt
from biasbed.data.corruptions.released import crop_clean, round_trip
from biasbed.data.decoding import open_file
from biasbed.data.prepared import ImagesManifest
from biasbed.errors import UsageError
from biasbed.prepare.run import prepare

FEW = "gaussian_noise,brightness"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, Any]:
    """A folder of two classes of two images, one of them a JPEG file that has to be enlarged."""
    rng = np.random.default_rng(0)
    for name, shape in (("a/1.png", (300, 260)), ("a/2.jpg", (40, 50)), ("b/1.png", (230, 700)), ("b/2.png", (9, 9))):
        path = tmp_path / "data" / "photo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(path)
    shutil.copytree(tmp_path / "data" / "photo", tmp_path / "data" / "ink")
    found = {"suite": "folders", "data_dir": str(tmp_path / "data"), "train": "ink", "split": "photo"}
    return {**found, "what": "corruptions", "corruptions": FEW, "processes": 1}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.JPEG"))}


def test_the_layout_and_the_pixels_are_those_of_corrupting_each_image(flags: dict[str, Any], tmp_path: Path) -> None:
    folder = prepare(flags)
    assert folder is not None
    names = [f"{c}/{s}/{i}.JPEG" for c in FEW.split(",") for s in range(1, 6) for i in ("a/1", "a/2", "b/1", "b/2")]
    assert sorted(contents(folder)) == sorted(names)
    image = crop_clean(open_file(tmp_path / "data" / "photo" / "a" / "2.jpg"))
    expected = round_trip(corrupt(image, CORRUPTIONS["gaussian_noise"], 4, 0, "a/2.jpg"))
    with Image.open(folder / "gaussian_noise" / "4" / "a" / "2.JPEG") as found:
        assert np.array_equal(np.asarray(found), expected)


def test_it_goes_on_and_more_may_be_added(flags: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    folder = prepare(flags)
    assert folder is not None
    made = contents(folder)
    shutil.rmtree(folder / "brightness" / "3")  # as if it had been cut off
    manifest = ImagesManifest.read(folder)
    assert manifest is not None
    ImagesManifest(**{**vars(manifest), "complete": False}).write(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.JPEG")}
    prepare(flags)
    assert contents(folder) == made
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    prepare(flags)
    assert "complete already: 4 images" in capsys.readouterr().err
    prepare({**flags, "corruptions": "contrast"})
    assert (
        contents(folder).keys() - made.keys() == {name.replace("brightness", "contrast") for name in made} - made.keys()
    )
    with pytest.raises(UsageError, match=r"was made with seed=0: overwrite=true makes it anew"):
        prepare({**flags, "seed": 1})


@pytest.mark.slow
def test_files_don_t_depend_on_the_processes(flags: dict[str, Any]) -> None:
    without = ",".join(name for name in CORRUPTIONS if name not in ("frost", "spatter"))  # which need what others bring
    made = []
    for processes in (1, 2):
        folder = prepare({**flags, "corruptions": without, "processes": processes})
        assert folder is not None
        made.append(contents(folder))
        shutil.rmtree(folder)
    assert made[0] == made[1]
    assert len(made[0]) == 17 * 5 * 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"corruptions": "gausian_noise"}, "corruptions=gausian_noise: there is no such corruption.*gaussian_noise"),
        ({"corruptions": "benchmark"}, "data/frost/frost1.png; the five photographs of frost are in"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_written(
    flags: dict[str, Any], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        prepare({**flags, **more})
    assert not list((tmp_path / "home").rglob("*.JPEG"))


def test_images_that_would_become_one_file_are_refused(flags: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "data" / "photo" / "a"
    shutil.copy(folder / "1.png", folder / "1.webp")
    with pytest.raises(UsageError, match=r"a/1\.png and a/1\.webp of 'photo' would both be a/1\.JPEG"):
        prepare(flags)
