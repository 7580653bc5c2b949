"""Git state and environment that a run's numbers came from."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def git_state() -> tuple[str, str]:
    """Return (commit, "true" | "false" for uncommitted changes) of this source tree.

    In an image, which has no repository, the commit it was built from; else empty strings. A repository around us that
    does not track our files says nothing of them: the user's own, with a virtual environment inside.
    """
    commit = _git("rev-parse", "HEAD") if is_tracked() else ""
    if not commit:
        return os.environ.get("BIASBED_GIT_COMMIT", ""), ""
    return commit, str(bool(_git("status", "--porcelain"))).lower()


def environment() -> str:
    """Return Python, machine, torch build and every installed distribution, for `environment.txt`."""
    import torch

    lines = [
        f"python {platform.python_version()} on {platform.platform()}",
        f"processor {platform.processor() or platform.machine()}, torch threads {torch.get_num_threads()}",
        f"cuda {torch.version.cuda} cudnn {torch.backends.cudnn.version()} devices {_devices()}",
        f"cpu capability {torch.backends.cpu.get_cpu_capability()}",
        "",
    ]
    return "\n".join([*lines, *sorted(distributions())]) + "\n"


@functools.cache
def distributions() -> frozenset[str]:
    """Return every installed distribution, as `<name>==<version>`."""
    every = (distribution.metadata for distribution in importlib.metadata.distributions())  # each access parses a file
    return frozenset(f"{metadata['Name']}=={metadata['Version']}" for metadata in every if metadata["Name"])


def _devices() -> str:
    import torch

    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the folder of this package. It finds the repository that lies around it, whatever `GIT_DIR` says.

    Raises OSError if git is missing.
    """
    named = {name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")}
    variables = {name: value for name, value in os.environ.items() if name not in named}
    return subprocess.run(
        ["git", *arguments], cwd=PACKAGE, env=variables, capture_output=True, text=True, check=False, timeout=300
    )


def is_tracked() -> bool:
    """Return True if the repository around this package has its files: a user's own repository may lie around it."""
    return bool(_git("ls-files", "--", "__init__.py"))


def _git(*arguments: str) -> str:
    try:
        done = git(*arguments)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
