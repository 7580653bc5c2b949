"""Git state and environment that a run's numbers came from."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

from biasbed import record

PACKAGE = Path(__file__).resolve().parents[1]


class GitState(NamedTuple):
    """Commit of the source tree; both are empty if unknown."""

    commit: str
    has_changes: str  # `true` if there are uncommitted changes, else `false`


def git_state() -> GitState:
    """Return the commit of this source tree; in a container image, which has no repository, that of its build."""
    commit = _git("rev-parse", "HEAD") if is_tracked() else ""
    if not commit:
        return GitState(os.environ.get("BIASBED_GIT_COMMIT", ""), "")
    return GitState(commit, str(bool(_git("status", "--porcelain"))).lower())


def git_tags() -> dict[str, str]:
    """Return the tags of a run that name the commit of its code."""
    state = git_state()
    return {record.GIT_COMMIT: state.commit, record.GIT_DIRTY: state.has_changes}


def environment() -> str:
    """Return the text of `environment.txt`: Python, machine, torch build and every installed distribution."""
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
    names = set()
    for distribution in importlib.metadata.distributions():
        metadata = distribution.metadata  # each access parses a file
        if metadata["Name"]:
            names.add(f"{metadata['Name']}=={metadata['Version']}")
    return frozenset(names)


def _devices() -> str:
    import torch

    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the folder of this package, on the repository around it, whatever `GIT_DIR` says.

    Raises OSError if git is missing.
    """
    variables = {}
    for name, value in os.environ.items():
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG"):
            variables[name] = value
    return subprocess.run(
        ["git", *arguments], cwd=PACKAGE, env=variables, capture_output=True, text=True, check=False, timeout=300
    )


def is_tracked() -> bool:
    """Return True if the repository around this package tracks its files.

    A user's own repository, around a virtual environment, does not.
    """
    return bool(_git("ls-files", "--", "__init__.py"))


def _git(*arguments: str) -> str:
    """Return the output of git; empty if it fails."""
    try:
        done = git(*arguments)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
