"""Devices and numbers of processes, as they follow from settings and GPUs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from biasbed.compute.device import choose_device, resolve_device, set_arithmetic
from biasbed.errors import UsageError
from helpers.commands import command_environment


@pytest.mark.parametrize(
    ("device", "nproc", "gpus", "expected"),
    [
        ("auto", "auto", 0, ("cpu", 1)),
        ("auto", "auto", 4, ("cuda", 4)),
        ("auto", 2, 4, ("cuda", 2)),
        ("cuda", 4, 4, ("cuda", 4)),
        ("cuda", "auto", 1, ("cuda", 1)),
        ("cpu", "auto", 4, ("cpu", 1)),  # one process has all cores
        ("cpu", 8, 4, ("cpu", 8)),
        ("auto", "3", 0, ("cpu", 3)),
    ],
)
def test_a_process_for_each_gpu_and_one_without(
    device: str, nproc: int | str, gpus: int, expected: tuple[str, int]
) -> None:
    assert resolve_device(device, nproc, gpus) == expected


@pytest.mark.parametrize(
    ("nproc", "gpus", "message"), [(1, 0, "there is no GPU here"), (5, 4, "nproc=5: there are 4 GPUs here")]
)
def test_gpus_that_are_not_there_are_refused(nproc: int, gpus: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_device("cuda", nproc, gpus)


def test_torchrun_says_how_many_processes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one of them, whatever the setting: all GPUs are another's business."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("cpu", 7) == ("cpu", 3)


def test_kernels_are_deterministic() -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(False)
        set_arithmetic(torch.device("cpu"))
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled(), "a method may use what has no such kernel"
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_memory_that_is_kept_needs_no_fresh_pages() -> None:
    program = """
import resource, sys
import numpy as np
from biasbed.compute.device import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "kept":
    keep_freed_memory()
np.ones(2**23)
before = faults()
for _ in range(4):
    np.ones(2**23)
print(faults() - before)
"""
    counts = {}
    for word in ("kept", "returned"):
        done = subprocess.run(
            [sys.executable, "-c", program, word], env=command_environment(), capture_output=True, text=True, check=True
        )
        counts[word] = int(done.stdout)
    assert counts["kept"] < 100
    assert counts["returned"] > 4 * counts["kept"]
