"""Build of the simulated card's library, and Pythons that run with it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.commands import command_environment

SOURCE = Path(__file__).with_name("cudart.c")
HEADERS = ("nvidia/cu13/include", "triton/backends/nvidia/include")  # in site-packages, of torch's own requirements


def missing() -> str | None:
    """Return why there can be no simulated card here; None if there can."""
    if not sys.platform.startswith("linux"):
        return "the simulated card is preloaded by Linux's loader"
    if shutil.which("gcc") is None:
        return "the simulated card is built by gcc, which is not here"
    absent = [str(path) for path in _headers() if not path.is_dir()]
    return f"torch is no CUDA 13 build: no {absent[0]}" if absent else None


def _headers() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    return [Path(str(spec.origin)).parents[1] / name for name in HEADERS]


def build(folder: Path) -> Path:
    """Compile the library into a folder. It answers for the driver's library, too, which PyTorch opens by this name."""
    library = folder / "libcuda.so.1"
    includes = [f"-I{path}" for path in _headers()]
    options = ["-O2", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *includes]
    subprocess.run(["gcc", *options, str(SOURCE), "-o", str(library), "-ldl", "-lpthread"], check=True)
    return library


def run(library: Path, *programs: Sequence[str], timeout: float = 800) -> list[list[dict[str, Any]]]:
    """Run modules of this package, each with its words, in one Python that finds the card; return the rows of each."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = command_environment({**threads, "LD_PRELOAD": str(library), "CARD": str(library)})
    command = [sys.executable, "-m", "helpers.card", json.dumps(programs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    rows: list[list[dict[str, Any]]] = [[] for _ in programs]
    for line in done.stdout.splitlines():
        number, row = json.loads(line)
        rows[number].append(row)
    return rows
