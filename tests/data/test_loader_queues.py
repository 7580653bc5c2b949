"""Batches from a loader's processes: one that can't be sent ends the training in a line, and never hangs it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from biasbed.data.loader_queues import UnsentBatch, receive
from biasbed.data.loading import loader_options, unchanged
from biasbed.errors import os_reason
from helpers.children import Command, one_line
from helpers.commands import command_environment


class Unsendable:
    """Object that fails when it is pickled, in the thread that sends."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


class Third(Dataset[Any]):
    """Five batches, of which the third can't be sent."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 5

    def __getitem__(self, at: int) -> Any:
        return Unsendable(self.error) if at == 2 else torch.tensor(at)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("AF_UNIX path too long"), "could not send a batch: AF_UNIX path too long"),
        (OSError(errno.ENOSPC, "No space left on device"), "/dev/shm, the shared memory, is full or too small"),
        (RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space"), "/dev/shm"),
        (OSError(errno.EMFILE, "Too many open files"), "allow more open files"),
        (ValueError("anything else"), "could not send a batch: anything else"),
    ],
)
def test_a_batch_that_can_t_be_sent_is_an_error_in_its_place(error: Exception, message: str) -> None:
    loader = DataLoader(Third(error), batch_size=None, collate_fn=unchanged, **loader_options(2, False))
    batches = receive(loader)
    assert [int(next(batches)) for _ in range(2)] == [0, 1]
    with pytest.raises(UnsentBatch, match=message):
        next(batches)


def test_a_full_disk_that_nobody_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a semaphore can't be made, which lies in shared memory."""
    full, usual = os.statvfs_result((4096, 4096, 16, 0, 0, 1, 1, 1, 0, 255)), os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda place: full if place == "/dev/shm" else usual(place))
    assert os_reason(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device: /dev/shm"


def test_a_long_temporary_folder_does_not_matter(biasbed: Command, train_flags: list[str], tmp_path: Path) -> None:
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    words = [*train_flags, "--epochs", "1", "--workers", "2", "--tracking", "offline"]
    done = biasbed("train", *words, env={"TMPDIR": str(folder), "BIASBED_HOME": str(tmp_path / "home")})
    assert "done: " in done.stderr


@pytest.mark.slow
def test_full_shared_memory_is_named(train_flags: list[str], tmp_path: Path) -> None:
    mounted = 'mount -t tmpfs -o size={} none /dev/shm && exec "$@"'
    inside = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*inside, mounted.format("1m"), "_", "true"], check=False).returncode
    ):
        pytest.skip("this machine allows no mount namespace")
    words = [*train_flags, "--epochs", "1", "--workers", "2", "--tracking", "offline", "--image_size", "224"]
    command = [sys.executable, "-m", "biasbed", "train", *words]
    for size in ("4k", "300k"):
        done = subprocess.run(
            [*inside, mounted.format(size), "_", *command],
            env=command_environment({"BIASBED_HOME": str(tmp_path / size)}),
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
        assert done.returncode == 1, done.stderr
        assert "/dev/shm, the shared memory, is full or too small" in one_line(done.stderr)
    assert os.path.isdir("/dev/shm")
