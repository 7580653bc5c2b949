"""The data doctor: what it prints about data sets that are whole, missing, damaged or others, and its exit code."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed import cli, suites
from biasbed.datasets import base, cifar, geirhos, imagenet, mnist
from biasbed.datasets.base import DataSet
from biasbed.datasets.releases import Release, read_releases
from biasbed.errors import Failure
from biasbed.prepare.doctor import examine
from biasbed.prepare.run import prepare
from helpers.cifar_files import make_batches
from helpers.domain_tree import data_set, make_domains
from helpers.mnist_files import make_mnist

SUITE = "biasbed"


class Fruit(DataSet):
    """Smallest data set that a user can add."""

    name = "fruit"
    release = Release(
        images=6,
        classes=2,
        places=("fruit", "fruit-v2"),
        archives=("fruit.zip",),
        source="https://example.org/fruit",
        licence="CC0",
    )

    @property
    def classes(self) -> tuple[str, ...]:
        return "apple", "pear"


class Nuts(Fruit):
    """Another one."""

    name = "nuts"
    release = Release(images=6, classes=2, places=("nuts",), source="https://example.org/fruit", licence="CC0")


def image(seed: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `fruit`, whole: three PNG and three JPEG files."""
    monkeypatch.setattr(suites.load("biasbed"), "data_sets", lambda suite: (Fruit(), Nuts()))
    for number in range(3):
        for kind, path in (("PNG", f"apple/{number}.png"), ("JPEG", f"pear/{number}.jpg")):
            (tmp_path / "fruit" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "fruit" / path).write_bytes(image(number, kind))
    return tmp_path


@pytest.fixture
def doctor(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(data_dir, capsys)


class Doctor:
    """Runs the command; `fails` is the message with which it ended."""

    def __init__(self, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data_dir, self.capsys = data_dir, capsys

    def __call__(self, fails: str | None = None, **flags: str) -> str:
        """Return the text printed on stdout."""
        given = {"what": "check", "suite": SUITE, "data_dir": str(self.data_dir), **flags}
        if fails is None:
            assert prepare(given) is None
        else:
            with pytest.raises(Failure) as caught:
                prepare(given)
            assert str(caught.value) == fails
        return self.capsys.readouterr().out


def cells(printed: str, name: str) -> Mapping[str, str]:
    """The row of a data set by the names of the columns."""
    heads, *rows = (re.split(r"  +", line) for line in printed.splitlines())
    return dict(zip(heads, next(row for row in rows if row[0] == name), strict=True))


def test_a_data_set_that_is_whole(doctor: Doctor) -> None:
    printed = doctor()
    row = dict(cells(printed, "fruit"))
    files = sorted((doctor.data_dir / "fruit").rglob("*.*g"))
    assert row.pop("fingerprint") == Fruit().open(doctor.data_dir).fingerprint()
    assert row == {
        "data set": "fruit",
        "found in": "fruit",
        "layout": "class folders",
        "images": "6 / 6",
        "classes": "2 / 2",
        "unreadable": "0",
        "size": f"{sum(path.stat().st_size for path in files):,}",
        "licence": "CC0",
    }
    assert doctor(sets="fruit") != printed  # which also says that nuts are missing


def test_what_is_missing_is_an_error_only_if_it_was_asked_for(doctor: Doctor) -> None:
    printed = doctor()
    assert cells(printed, "nuts")["found in"] == "not found"
    assert cells(printed, "nuts")["images"] == "- / 6"
    assert f"'nuts' is not in {doctor.data_dir}: expected nuts" in printed
    assert "where to get it: https://example.org/fruit" in printed
    for sets in ("all", "nuts,fruit", "nuts"):
        doctor("nuts not found, or a part of it is missing", sets=sets)
    assert "nuts" not in doctor(sets="fruit")


@pytest.mark.parametrize("extra", [True, False])
def test_another_number_of_images(doctor: Doctor, extra: bool) -> None:
    if extra:
        (doctor.data_dir / "fruit" / "apple" / "9.png").write_bytes(image(9))
    else:
        (doctor.data_dir / "fruit" / "apple" / "0.png").unlink()
    printed = doctor("fruit not as released")
    count = 7 if extra else 5
    assert cells(printed, "fruit")["images"] == f"{count} / 6"
    assert f"fruit: {count} images; the release has 6" in printed


def test_files_that_can_not_be_read_are_named_with_the_reason(doctor: Doctor) -> None:
    folder = doctor.data_dir / "fruit"
    (folder / "apple" / "0.png").write_bytes(b"")
    (folder / "apple" / "1.png").write_text("<html>404</html>")
    (folder / "pear" / "0.jpg").unlink()
    (folder / "pear" / "0.jpg").symlink_to(folder / "nowhere.jpg")
    printed = doctor("fruit not as released")
    assert cells(printed, "fruit")["unreadable"] == "3"
    assert cells(printed, "fruit")["fingerprint"] == "-"
    reasons = "apple/0.png (is empty), apple/1.png (is no image), pear/0.jpg (No such file or directory)"
    assert f"fruit: 3 unreadable: {reasons}" in printed


@pytest.mark.parametrize("name", ["apple/1.png", "pear/1.jpg"])
def test_only_reading_it_all_finds_a_file_that_was_cut(doctor: Doctor, name: str) -> None:
    path = doctor.data_dir / "fruit" / name
    path.write_bytes(path.read_bytes()[:-300])
    doctor()
    printed = doctor("fruit not as released", hash="true")
    assert f"fruit: 1 unreadable: {name} (" in printed


def test_the_hash_is_that_of_all_contents_one_after_the_other(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `cat` and `sha256sum` give it, however the files are split between threads; the names don't count."""
    names = Fruit().open(doctor.data_dir).ids
    expected = hashlib.sha256(b"".join((doctor.data_dir / "fruit" / name).read_bytes() for name in names)).hexdigest()
    assert f"fruit: SHA-256 of all files {expected}\n" in doctor(hash="true")
    assert "SHA-256" not in doctor()
    monkeypatch.setattr("biasbed.prepare.doctor.CHUNK", 2)
    (doctor.data_dir / "fruit").rename(doctor.data_dir / "Fruit_v2")
    assert examine(Fruit(), doctor.data_dir, full=True).sha256 == expected
    path = doctor.data_dir / "Fruit_v2" / "apple" / "0.png"
    path.write_bytes(image(77))
    assert examine(Fruit(), doctor.data_dir, full=True).sha256 != expected


def test_exit_codes(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command line ends: 0 with the table on stdout; 1 and 2 with one line on stderr."""
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    words = ["prepare", "--what", "check", "--suite", SUITE]
    assert cli.main([*words, "--data_dir", str(doctor.data_dir)]) == 0
    assert doctor.capsys.readouterr().out.startswith("data set")
    (doctor.data_dir / "fruit" / "pear" / "0.jpg").unlink()
    assert cli.main([*words, "--data_dir", str(doctor.data_dir)]) == 1
    assert doctor.capsys.readouterr().err == "biasbed: fruit not as released\n"
    assert cli.main(words) == 2
    assert doctor.capsys.readouterr().err.count("\n") == 1


# --- data sets of several domains -------------------------------------------------------------------------------------


@pytest.fixture
def of_domains(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """A doctor of a tiny Terra Incognita with two releases, of MNIST and of a user's own domains."""
    rows = dict(read_releases())
    terra = dict.fromkeys(rows["terra_incognita"].parts, 4)
    changes: Mapping[str, dict[str, Any]] = {
        "terra_incognita": dict(
            images=16, classes=2, parts=terra, version="as published", versions={"as it is now": (4, 4, 2, 4)}
        ),
        "mnist": dict(images=90, parts={"train": 60, "t10k": 30}),
        "colored_mnist": dict(images=90),
    }
    for name, values in changes.items():
        rows[name] = replace(rows[name], **values)
    for module in (base, mnist):
        monkeypatch.setattr(module, "read_releases", lambda: rows)
    root = doctor.data_dir
    make_domains(root / "terra_incognita", [f"location_{n}" for n in (100, 38, 43, 46)], images=2, size=4)
    make_mnist(root / "MNIST" / "raw")
    make_domains(root / "mine", images=1, size=4)
    data_sets = tuple(data_set(name, root) for name in ("terra_incognita", "colored_mnist", "mine"))
    monkeypatch.setattr(suites.load("biasbed"), "data_sets", lambda suite: data_sets)
    return doctor


def test_domains_that_are_whole(of_domains: Doctor) -> None:
    printed = of_domains()
    terra, digits, own = (cells(printed, name) for name in ("terra_incognita", "colored_mnist", "mine"))
    assert [row["images"] for row in (terra, digits, own)] == ["16 / 16", "90 / 90", "6 / any"]
    assert [row["classes"] for row in (terra, digits, own)] == ["2 / 2", "2 / 2", "2 / any"]
    assert [row["found in"] for row in (terra, digits, own)] == ["terra_incognita", "MNIST/raw", "mine"]
    assert [row["layout"] for row in (terra, digits)] == ["domain/class folders", "IDX files"]
    assert "terra_incognita: 16 images, as published\n" in printed
    root = of_domains.data_dir
    for name, row in (("terra_incognita", terra), ("colored_mnist", digits)):
        assert row["fingerprint"] == data_set(name, root).fingerprint(root)
    files = [
        root / "MNIST" / "raw" / f"{part}-ubyte"
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    ]
    assert digits["size"] == f"{sum(path.stat().st_size for path in files):,}"
    expected = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert f"colored_mnist: SHA-256 of all files {expected}\n" in of_domains(hash="true")


def test_what_differs_is_said_by_domain(of_domains: Doctor) -> None:
    root = of_domains.data_dir
    (root / "terra_incognita" / "location_46" / "cat" / "1.png").unlink()
    for name in ("cat", "dog"):
        (root / "terra_incognita" / "location_43" / name / "1.png").unlink()
    (root / "terra_incognita" / "location_38" / "cat" / "0.png").write_bytes(b"")
    make_mnist(root / "MNIST" / "raw", 59)
    printed = of_domains("terra_incognita, colored_mnist not as released")
    assert "terra_incognita: location_46 has 3 images; the release has 4\n" in printed
    assert "terra_incognita: location_43 has 2 images, as it is now; the release has 4\n" in printed
    assert "terra_incognita: 1 unreadable: location_38/cat/0.png (is empty)\n" in printed
    assert "location_100 has" not in printed
    assert "colored_mnist: train has 59 images; the release has 60\n" in printed


def test_files_are_compared_with_published_checksums(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `hash=true` reads them."""
    folder = doctor.data_dir / "cifar-10-batches-py"
    make_batches(doctor.data_dir, "cifar10")
    monkeypatch.setattr(suites.load("biasbed"), "data_sets", lambda suite: (cifar.CIFAR10Train(),))
    batches = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.glob("data_batch_*")}
    release = replace(read_releases()["cifar10_train"], images=0, md5=batches)
    monkeypatch.setattr(cifar.CIFAR10Train, "release", release)
    assert "MD5" not in doctor(hash="true")
    monkeypatch.setattr(cifar.CIFAR10Train, "release", replace(release, md5={**batches, "data_batch_2": "0" * 32}))
    assert "MD5" not in doctor()
    other = f"data_batch_2 is not the released file: its MD5 is {batches['data_batch_2']}, not {'0' * 32}\n"
    assert f"cifar10_train: {other}" in doctor("cifar10_train not as released", hash="true")


@pytest.mark.real_data
def test_real_images(shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data_sets = (imagenet.ImageNet(), geirhos.Edge(), geirhos.Silhouette(), geirhos.CueConflict())
    monkeypatch.setattr(suites.load("biasbed"), "data_sets", lambda suite: data_sets)
    flags = {"what": "check", "suite": SUITE, "data_dir": str(shared / "data"), "hash": "true"}
    prepare({**flags, "sets": "edge,silhouette"})
    printed = capsys.readouterr().out
    assert [cells(printed, name)["images"] for name in ("edge", "silhouette")] == ["160 / 160"] * 2
    assert [cells(printed, name)["unreadable"] for name in ("edge", "silhouette")] == ["0"] * 2
    with pytest.raises(Failure, match="cue_conflict not as released"):
        prepare(flags)
    assert "cue_conflict: 320 images; the release has 1,280" in capsys.readouterr().out
