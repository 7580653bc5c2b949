"""Files that are the ones that were meant."""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from biasbed.errors import Failure, UsageError
from biasbed.evaluation import models
from biasbed.networks.weights import find_weights_file
from biasbed.system import files
from helpers.commands import ROOT, command_environment


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "augmix.pth"
    path.write_bytes(b"what the authors published")
    return path


def test_a_file_with_its_checksum_is_that_file(weights: Path) -> None:
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    word = f"augmix.pth#sha256={checksum}"
    assert files.find_file(word, "init") == files.find_file("augmix.pth", "init") == Path("augmix.pth")
    assert files.find_file(word.replace(checksum, checksum.upper()), "init") == Path("augmix.pth")
    assert find_weights_file(word) == Path("augmix.pth")
    assert files.with_absolute_path(word) == f"{weights}#sha256={checksum}"


def test_what_names_no_file_is_left_alone(weights: Path) -> None:
    assert files.find_file("IMAGENET1K_V1", "weights") is None
    assert files.with_absolute_path("IMAGENET1K_V1") == "IMAGENET1K_V1"


READERS: dict[str, Callable[[str], object]] = {
    "init": find_weights_file,
    "model": models.find,
    "weights": partial(models.find, "torchvision:resnet18"),
}


@pytest.mark.parametrize("option", READERS)
@pytest.mark.parametrize("checksum", ["0" * 64, "12ab", ""])
def test_another_file_of_that_name_is_refused(weights: Path, option: str, checksum: str) -> None:
    message = rf"{option}=augmix\.pth: its SHA-256 is [0-9a-f]{{64}}, not {checksum}.*another file"
    with pytest.raises(UsageError, match=message):
        READERS[option](f"augmix.pth#sha256={checksum}")


# --- locks ------------------------------------------------------------------------------------------------------------


def _count(path: Path, times: int) -> None:
    """Adds to a number in a file, as nobody may who is not alone."""
    for _ in range(times):
        with files.locked(path / "lock"):
            before = int((path / "count").read_text())
            time.sleep(0.0002)  # here another one would read the same
            (path / "count").write_text(str(before + 1))


def test_one_process_at_a_time_is_in_a_locked_block_and_no_file_stays(tmp_path: Path) -> None:
    """However often the file is removed and made anew under those who wait for it."""
    (tmp_path / "count").write_text("0")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_count, args=(tmp_path, 150)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "600"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_a_lock_file_that_a_kill_left_is_taken_over_and_an_error_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with pytest.raises(ValueError, match="inside"), files.locked(tmp_path / "lock"):
        raise ValueError("inside")
    assert not list(tmp_path.iterdir())


# --- what kills leave -------------------------------------------------------------------------------------------------

WRITES = """
import sys, time
from pathlib import Path
from biasbed.system.files import atomic_file
with atomic_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_left_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITES, str(tmp_path / "out.zip")]
    writers = [subprocess.Popen(words, env=command_environment(), stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
    killed, alive = writers
    killed.kill()
    killed.wait()
    (tmp_path / "other.zip.1.tmp").write_text("of another file")
    (tmp_path / "out.zip.old.tmp").write_text("not ours")
    files._leftovers_in.cache_clear()
    files.write_whole(tmp_path / "out.zip", "whole")
    alive.kill()
    alive.wait()
    kept = {"out.zip", f"out.zip.{alive.pid}.tmp", "other.zip.1.tmp", "out.zip.old.tmp"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (tmp_path / "out.zip").read_text() == "whole"


def _hold(path: Path, seconds: float) -> None:
    with files.locked(path):
        time.sleep(seconds)


def test_who_holds_a_lock_is_told_and_waiting_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lock"
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path, 60))
    process.start()
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    monkeypatch.setattr(files, "WARN_AFTER", 0.05)
    monkeypatch.setattr(files, "GIVE_UP_AFTER", 0.5)
    holder = f"process {process.pid} on "
    with pytest.raises(Failure, match=f"the lock {path} is held by {holder}"), files.locked(path):
        pass
    assert f"waiting for the lock {path}, held by {holder}" in capsys.readouterr().err
    process.kill()
    process.join()
    with files.locked(path):
        pass


def test_a_new_file_never_replaces_one_that_somebody_has_made_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with files.new_file(path) as first:
        first.write_text("first")
        with files.new_file(path) as second:
            second.write_text("second")
    assert path.read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_no_lock_and_no_name_that_others_can_guess_lies_in_the_temporary_folder() -> None:
    """There anybody could hold the lock, or plant a link in its place."""
    # These look for what our processes left, make a folder with a random name, and ask which disk is full.
    users = {"device.py", "files.py", "loader_queues.py", "errors.py"}
    others = [source for source in (ROOT / "src").rglob("*.py") if source.name not in users]
    assert len(others) > 300
    for source in others:
        text = source.read_text()
        assert "gettempdir" not in text, source
        assert '"/tmp' not in text, source
