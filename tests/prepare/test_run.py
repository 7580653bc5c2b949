"""The command `prepare`: images that depend on nothing but their settings, made once, found again by methods."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed.data.prepared import ImagesManifest
from biasbed.errors import Failure, UsageError
from biasbed.networks import frozen
from biasbed.networks.style import StyleTransfer
from biasbed.plugins.deepaug.cae import CAE
from biasbed.prepare.images import find_redraws
from biasbed.prepare.run import prepare
from biasbed.suites import open_suite
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers.children import Command


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    return tmp_path / "home"


@pytest.fixture
def flags(image_root: Path) -> dict[str, Any]:
    """Flags of the training images. The networks that make copies of them are there, at random weights."""
    found = {"suite": "folders", "data_dir": str(image_root), "train": "photo", "device": "cpu"}
    suite = open_suite(resolve(found))
    assert suite.store is not None
    torch.manual_seed(0)
    networks = {"cae": CAE(size=24, width=8), "style": StyleTransfer(width=4, size=24)}
    for kind, network in networks.items():
        frozen.save(suite.store.network(suite.material(), kind), kind, network, {"from": "a test"})
    return {**found, "processes": 1}


def shared(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that other commands take, too."""
    return {name: flags[name] for name in ("suite", "data_dir", "train", "device")}


def own_images(flags: dict[str, Any], folder: Path, change: Callable[[Path], object]) -> tuple[dict[str, Any], Path]:
    """Return flags for a copy of the images with one picture changed, and the picture. Its network is there."""
    shutil.copytree(flags["data_dir"], folder)
    picture = next((folder / "photo" / "cross").glob("*.png"))
    change(picture)
    own = {**flags, "data_dir": str(folder)}
    suite = open_suite(resolve(shared(own)))
    assert suite.store is not None
    frozen.save(suite.store.network(suite.material(), "cae"), "cae", CAE(size=24, width=8), {})
    return own, picture


def unpooled(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags for a network, which no pool of processes makes."""
    return {name: value for name, value in flags.items() if name != "processes"}


def contents(folder: Path) -> dict[str, bytes]:
    images = folder / "images"
    return {path.relative_to(images).as_posix(): path.read_bytes() for path in sorted(images.rglob("*.png"))}


def test_images_depend_neither_on_the_processes_nor_on_a_cut(flags: dict[str, Any], tmp_path: Path) -> None:
    folder = prepare({**flags, "what": "deepaug_cae"})
    whole = contents(folder)
    assert len(whole) == 51
    shutil.copytree(folder, tmp_path / "whole")
    for name in list(whole)[7:30]:  # as a kill would leave it: some are missing, the manifest is not complete
        (folder / "images" / name).unlink()
    manifest = ImagesManifest.read(folder)
    assert manifest is not None
    ImagesManifest(**{**vars(manifest), "complete": False}).write(folder)
    times = {name: (folder / "images" / name).stat().st_mtime_ns for name in list(whole)[:7]}
    prepare({**flags, "what": "deepaug_cae", "processes": 2})
    assert contents(folder) == whole
    assert all((folder / "images" / name).stat().st_mtime_ns == time for name, time in times.items())
    assert not list(folder.rglob(".*.png"))


def test_other_settings_are_refused_and_the_same_are_done(flags: dict[str, Any], capsys: Any) -> None:
    folder = prepare({**flags, "what": "stylized"})
    before = contents(folder)
    prepare({**flags, "what": "stylized"})
    assert "complete already" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"was made with alpha=1.0: overwrite=true"):
        prepare({**flags, "what": "stylized", "alpha": 0.5})
    assert contents(folder) == before


def test_the_weights_distortion_changes_with_the_given_probability() -> None:
    rows = find_redraws(20_000, 0.05, seed=3)
    assert rows[0] == 0
    assert (rows <= np.arange(20_000)).all()
    assert (np.diff(rows) >= 0).all()
    assert len(set(rows.tolist())) == pytest.approx(1000, rel=0.1)
    assert np.array_equal(rows[:500], find_redraws(20_000, 0.05, seed=3)[:500])
    assert (find_redraws(50, 0.0, seed=3) == 0).all()


def test_methods_train_on_copies_of_training_images_alone(flags: dict[str, Any]) -> None:
    """Images held out for validation, which follow the seed of the run, have copies too: these are left out."""
    prepare({**flags, "what": "deepaug_cae"})
    seen = []
    for seed in (0, 1):
        planned = job.plan(resolve({**shared(flags), "algorithm": "deepaug_cae", "seed": seed}))
        suite = planned.suite
        assert planned.training_data == {"photo": 0.5, "deepaug_cae": 0.5}
        clean, copies = suite.source("photo"), suite.source("deepaug_cae")
        assert list(copies.ids) == [f"{name}.png" for name in clean.ids]
        assert np.array_equal(clean.y, copies.y)
        held_out = suite.validation[0].source
        assert not {f"{name}.png" for name in held_out.ids} & set(copies.ids)
        assert copies.load(0).shape == (3, 24, 24)
        seen.append(set(copies.ids))
    assert seen[0] != seen[1]


def test_a_training_on_copies(flags: dict[str, Any], biasbed: Command, train_flags: list[str]) -> None:
    done = biasbed("train", *train_flags, "--algorithm", "deepaug_cae", "--tracking", "offline", check=False)
    assert done.returncode == 2
    assert "biasbed prepare --what deepaug_cae --suite folders --data_dir" in done.stderr
    (flags_home,) = Path(os.environ["BIASBED_HOME"]).glob("prepared")
    assert flags_home.is_dir()
    prepare({**flags, "what": "deepaug_cae"})
    biasbed("train", *train_flags, "--algorithm", "deepaug_cae", "--tracking", "offline", "--epochs", "1")


def test_a_network_in_the_fingerprint(flags: dict[str, Any]) -> None:
    """Another style network is another experiment."""
    keys = [job.plan(resolve({**shared(flags), "algorithm": "debiased"})).run_key]
    suite = open_suite(resolve(shared(flags)))
    frozen.save(suite.network("style"), "style", StyleTransfer(width=4, size=24), {})
    keys.append(job.plan(resolve({**shared(flags), "algorithm": "debiased"})).run_key)
    assert keys[0] != keys[1]


def test_unreadable_images(flags: dict[str, Any], tmp_path: Path) -> None:
    own, broken = own_images(flags, tmp_path / "images", lambda path: path.write_bytes(path.read_bytes()[:40]))
    suite = open_suite(resolve(shared(own)))
    assert suite.store is not None
    with pytest.raises(Failure, match=rf"{broken.name}.*corrupt=skip"):
        prepare({**own, "what": "deepaug_cae"})
    folder = prepare({**own, "what": "deepaug_cae", "corrupt": "skip"})
    assert len(contents(folder)) == 50
    manifest = ImagesManifest.read(folder)
    assert manifest is not None
    assert manifest.skipped == (f"cross/{broken.name}",)
    assert len(suite.store.open_images(suite.material(), "deepaug_cae", suite.material())) == 50


def test_images_of_an_evaluation_set(flags: dict[str, Any]) -> None:
    folder = prepare({**flags, "what": "deepaug_cae", "split": "ink"})
    assert len(contents(folder)) == 15
    assert folder.parent.name.startswith("ink-")
    with pytest.raises(UsageError, match="has no such images; did you mean 'ink'"):
        prepare({**flags, "what": "deepaug_cae", "split": "inc"})


def test_weights_of_the_authors_are_taken_over(flags: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    network = CAE(size=512)
    torch.save(network.state_dict(), tmp_path / "cae.pt")
    words = {**unpooled(flags), "what": "cae_network", "weights": str(tmp_path / "cae.pt"), "overwrite": True}
    path = prepare(words)
    import hashlib

    assert hashlib.sha256((tmp_path / "cae.pt").read_bytes()).hexdigest() in capsys.readouterr().out
    loaded = frozen.load(path, "cae")
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in network.state_dict().items())
    assert loaded.size == 512
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(UsageError, match="not a weights file"):
        prepare({**words, "weights": str(tmp_path / "text.pt")})
    with pytest.raises(UsageError, match="style_network takes encoder=<file> and decoder=<file>"):
        prepare({**unpooled(flags), "what": "style_network", "decoder": str(tmp_path / "cae.pt"), "overwrite": True})


def test_a_small_network_is_trained_where_no_file_is_given(flags: dict[str, Any]) -> None:
    words = {**unpooled(flags), "what": "edsr_network", "steps": 3, "width": 4, "size": 24}
    path = prepare(words)
    first = frozen.fingerprint(path)
    path.unlink()
    assert frozen.fingerprint(prepare(words)) == first
    assert not list(path.parent.glob("*.partial*"))


def test_a_second_command_waits_for_nobody(flags: dict[str, Any]) -> None:
    from biasbed.tracking.folder import exclusive

    suite = open_suite(resolve(shared(flags)))
    assert suite.store is not None
    with (
        exclusive(suite.store.folder(suite.material()), "prepared"),
        pytest.raises(Failure, match="is being prepared by process"),
    ):
        prepare({**flags, "what": "stylized"})


def test_images_that_nothing_vouches_for_are_not_kept(flags: dict[str, Any]) -> None:
    """As an interrupted removal may leave them: images of other settings without their manifest."""
    folder = prepare({**flags, "what": "deepaug_cae", "seed": 1})
    first = contents(folder)
    (folder / "manifest.json").unlink()
    second = contents(prepare({**flags, "what": "deepaug_cae", "seed": 2}))
    assert first.keys() == second.keys()
    assert first != second
