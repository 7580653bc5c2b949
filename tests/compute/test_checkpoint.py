"""Checkpoints that are damaged, odd or lost: one line each, and nothing ends well that lacks its best weights."""

from __future__ import annotations

import io
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed.algorithms.make import from_checkpoint
from biasbed.compute import checkpoint
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import models
from biasbed.tracking import server
from helpers import children
from helpers.runs import run_folders

EPOCHS, KILLED_AT = 4, 3


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> list[str]:
    return [
        *("train", "--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "16"),
        *("--epochs", str(EPOCHS), "--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.02", "--workers", "0", "--device", "cpu", "--log_model", "false", "--tracking", "offline"),
    ]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> Path:
    """The output folder of a training that was killed after its third evaluation."""
    home = tmp_path_factory.mktemp("killed")
    done = children.run([*words, "--output_dir", str(home)], kill=("saved", KILLED_AT, "SIGKILL"))
    assert done.returncode == -9, done.stderr
    return home


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    """Copy the run folder for one test."""
    return run_folders(Path(shutil.copytree(killed, tmp_path / "out")))[0]


def resumed(folder: Path, words: list[str], *more: str, **options: Any) -> children.Done:
    done = children.run([*words, "--output_dir", str(folder.parents[1]), *more], **options)
    assert "Traceback" not in done.stderr
    return done


def change(path: Path, **parts: Any) -> None:
    """Parts of a checkpoint written otherwise; None leaves one out."""
    state = {**torch.load(path, weights_only=True), **parts}
    torch.save({name: value for name, value in state.items() if value is not None}, path)


# --- whole ------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    kinds = {**checkpoint.DESCRIPTION, **checkpoint.PROGRESS}
    empty = {name: None if name == "best" else kind() for name, kind in kinds.items()}  # type: ignore[operator]
    assert checkpoint.load_last(tmp_path) is None
    checkpoint.save(tmp_path / "last.ckpt", {**empty, "algorithm": {"weight": torch.full((1000,), 3.0)}})
    state = checkpoint.load_last(tmp_path)
    assert state is not None
    assert state["algorithm"]["weight"].unique().tolist() == [3.0]
    content = bytearray((tmp_path / "last.ckpt").read_bytes())
    at = content.index(torch.full((8,), 3.0).numpy().tobytes())
    content[at] ^= 0xFF
    (tmp_path / "last.ckpt").write_bytes(content)
    with pytest.raises(Failure, match=r"last\.ckpt can't be read.*resume=never starts anew"):
        checkpoint.load_last(tmp_path)


# --- odd content ------------------------------------------------------------------------------------------------------


def archive(path: Path, pickled: bytes) -> None:
    """A checkpoint as torch writes one, around other pickled bytes."""
    buffer = io.BytesIO()
    torch.save({}, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as made:
        for name in source.namelist():
            made.writestr(name, pickled if name.endswith("data.pkl") else source.read(name))


ODD = {
    "TypeError": b"\x80\x02}}K\x01s.",
    "KeyError": b"\x80\x02h\x05.",
    "IndexError": b"\x80\x02s.",
    "nothing to pop": b"\x80\x020.",
    "UnicodeDecodeError": b"\x80\x02X\x01\x00\x00\x00\xff.",
}


@pytest.mark.parametrize("pickled", ODD.values(), ids=ODD.keys())
def test_bytes_that_torch_s_unpickler_stumbles_over(tmp_path: Path, pickled: bytes) -> None:
    archive(tmp_path / "odd.ckpt", pickled)
    with pytest.raises(Failure, match=r"odd.ckpt (can't be read|holds more than)") as caught:
        checkpoint.load(tmp_path / "odd.ckpt")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", [3, None, torch.zeros(2), ["config"], "config"])
def test_content_that_is_no_mapping(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "odd.ckpt")
    with pytest.raises(Failure, match="not a dict of parts"):
        from_checkpoint(tmp_path / "odd.ckpt")


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('ran', 'w')",)


def test_a_pickle_with_code_is_refused_in_our_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / "evil.ckpt", pickle.dumps(Code(), protocol=2))
    with pytest.raises(Failure) as caught:
        checkpoint.load(tmp_path / "evil.ckpt")
    assert str(caught.value).endswith("evil.ckpt holds more than values and tensors; nothing in it was run")
    assert not Path("ran").exists()


def test_a_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "testzip", lambda self: pytest.fail("read"))
    with zipfile.ZipFile(tmp_path / "packed.ckpt", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/data.pkl", bytes(10_000_000))
    with zipfile.ZipFile(tmp_path / "overlap.ckpt", "w") as made:
        made.writestr("archive/data.pkl", bytes(1000))
        made.filelist *= 3  # three names for the same bytes
    for name in ("packed", "overlap"):
        with pytest.raises(Failure, match="its parts are packed"):
            checkpoint.load(tmp_path / f"{name}.ckpt")


@pytest.mark.parametrize(
    "parts",
    [
        {"config": {}},
        {"config": {"algorithm": "erm", "epochs": "x"}},
        {"config": {"algorithm": "erm", None: 1}},
        {"classes": None},
        {"classes": ["circle"]},
        {"train_data": {"x": 1}},
        {"train_data": {"num_examples": 9, "num_classes": -3, "num_domains": 1}},
        {"train_data": {"num_examples": 9, "num_classes": "3", "num_domains": 1}},
        {"algorithm": {"x": 1}},
    ],
    ids=str,
)
def test_parts_of_another_kind(folder: Path, parts: dict[str, Any]) -> None:
    change(folder / "best.ckpt", **parts)
    with pytest.raises((Failure, UsageError)) as caught:
        from_checkpoint(folder / "best.ckpt")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("harm", ["bytes", "part", "method", "foreign"])
def test_of_a_tracked_run_messages_name_the_run(folder: Path, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is fetched into a folder that nobody will ever see."""
    path, read = folder / "best.ckpt", checkpoint.load
    config = checkpoint.load(path)["config"]
    if harm == "bytes":
        path.write_bytes(path.read_bytes()[:3000])
    elif harm == "foreign":
        torch.save({"x": 1}, path)
    else:
        change(path, **({"classes": 3} if harm == "part" else {"config": {**config, "algorithm": "own.py:Mine"}}))
    reads = []
    monkeypatch.setattr(server, "download_checkpoint", lambda run_id, folder: path)
    monkeypatch.setattr(checkpoint, "load", lambda *words, **more: reads.append(words) or read(*words, **more))
    with pytest.raises((Failure, UsageError), match=f"run {'a' * 32} ") as caught:
        models.find("a" * 32)
    assert str(path.parent) not in str(caught.value)
    assert len(reads) == 1


def test_a_training_does_not_go_on_from_odd_content(folder: Path, words: list[str]) -> None:
    for spoil in (
        lambda: shutil.copy(folder / "best.ckpt", folder / "last.ckpt"),
        lambda: archive(folder / "last.ckpt", ODD["KeyError"]),
        lambda: torch.save([1], folder / "last.ckpt"),
    ):
        spoil()
        with pytest.raises(Failure, match="resume=never starts anew"):
            checkpoint.load_last(folder)
    assert resumed(folder, words).returncode == 1


def test_parts_that_are_not_the_training_s_are_one_line(folder: Path, words: list[str]) -> None:
    change(folder / "last.ckpt", tallies=[3], optimizers={"main": [1]})
    done = resumed(folder, words)
    assert done.returncode == 1
    assert "was written by other code" in done.stderr
