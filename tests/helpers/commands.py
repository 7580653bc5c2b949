"""This checkout's code in a Python of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def command_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a new Python that runs this checkout, and finds these helpers."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": path, **(extra or {})}


def small_training(image_root: Path, algorithm: str, *more: str, epochs: int = 2) -> list[str]:
    """Return a training of some seconds that no server hears of, for processes that are started anew."""
    return [
        *("train", "--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "32"),
        *("--epochs", str(epochs), "--batch_size", "12", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--workers", "0", "--optim.lr", "0.05", "--device", "cpu", "--tracking", "offline"),
        *("--algorithm", algorithm, *more),
    ]


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """`biasbed <words>` in a Python that is started anew, as a user starts it, however it ends."""
    return subprocess.run(
        [sys.executable, "-m", "biasbed", *words],
        env=command_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
