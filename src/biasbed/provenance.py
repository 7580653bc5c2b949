"""What a run's numbers came from besides its settings: code, git state, environment."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CORE = (
    *("engine", "evaluate", "label_maps", "cues", "decisions", "schedules", "tasks", "batch", "distributed"),
    *("precision", "measures"),
)


def git_state() -> tuple[str, str]:
    """(commit, "true" | "false" for uncommitted changes) of this source tree.

    In an image, which has no repository, the commit it was built from; else empty strings.
    """
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return os.environ.get("BIASBED_GIT_COMMIT", ""), ""
    return commit, str(bool(_git("status", "--porcelain"))).lower()


def code_hash(algorithm: type, suite: str) -> str:
    """16 hex digits of the source that makes the numbers: method, networks, data, suite, loop and evaluation."""
    files = [Path(inspect.getfile(cls)) for cls in algorithm.__mro__ if cls.__module__ not in sys.stdlib_module_names]
    files = [path for path in files if "torch" not in path.parts] + [PACKAGE / "suites" / f"{suite}.py"]
    files += [PACKAGE / f"{name}.py" for name in CORE]
    files += [PACKAGE / "algorithms" / "draws.py", PACKAGE / "suites" / "__init__.py"]
    files += [*(PACKAGE / "networks").glob("*.py"), *(PACKAGE / "data").glob("*.py")]
    sha = hashlib.sha256()
    for path in sorted(set(files), key=lambda path: (path.parent.name, path.name)):
        sha.update(path.name.encode() + path.read_bytes())
    return sha.hexdigest()[:16]


def environment() -> str:
    """Python, machine, torch build and every installed distribution, for `environment.txt`."""
    import torch

    lines = [
        f"python {platform.python_version()} on {platform.platform()}",
        f"processor {platform.processor() or platform.machine()}, torch threads {torch.get_num_threads()}",
        f"cuda {torch.version.cuda} cudnn {torch.backends.cudnn.version()} devices {_devices()}",
        f"cpu capability {torch.backends.cpu.get_cpu_capability()}",
        "",
    ]
    return "\n".join([*lines, *sorted(_distributions())]) + "\n"


def _distributions() -> Iterable[str]:
    every = (distribution.metadata for distribution in importlib.metadata.distributions())  # each access parses a file
    return {f"{metadata['Name']}=={metadata['Version']}" for metadata in every if metadata["Name"]}


def _devices() -> str:
    import torch

    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
