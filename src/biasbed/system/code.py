"""What a run's numbers came from besides its settings: code, git state, environment."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import os
import platform
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# Rooms whose code makes numbers. What else a training imports says where it runs, what it is told and what it records.
ROOMS = (
    *("algorithms", "compute", "data", "datasets", "evaluation", "networks", "suites", "training"),
    *("batch", "config", "measures", "tasks"),
)
LOOP = "training/train.py"
# Which methods and suites there are: another one changes no number of this one.
NAMES = ("algorithms/__init__.py", "suites/__init__.py")


def git_state() -> tuple[str, str]:
    """(commit, "true" | "false" for uncommitted changes) of this source tree.

    In an image, which has no repository, the commit it was built from; else empty strings. A repository around us that
    does not track our files says nothing of them: the user's own, with a virtual environment inside.
    """
    commit = _git("rev-parse", "HEAD") if is_tracked() else ""
    if not commit:
        return os.environ.get("BIASBED_GIT_COMMIT", ""), ""
    return commit, str(bool(_git("status", "--porcelain"))).lower()


def code_hash(algorithm: type, suite: type) -> str:
    """16 hex digits of the source that makes the numbers: all that the method, the suite and the loop import.

    Only of the rooms that make numbers, so that a data set that a training doesn't use changes nothing.
    """
    classes = [cls for cls in (*algorithm.__mro__, *suite.__mro__) if cls.__module__ not in sys.stdlib_module_names]
    files = [Path(inspect.getfile(cls)) for cls in classes]
    files = [path for path in files if "torch" not in path.parts]
    names = {PACKAGE / name for name in NAMES}
    waiting, found = [*files, PACKAGE / LOOP], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in found and path not in names:
            found.add(path)
            waiting += imported(path)
    sha = hashlib.sha256()
    for path in sorted(found, key=_place):
        sha.update(path.name.encode() + path.read_bytes())
    return sha.hexdigest()[:16]


def _place(path: Path) -> tuple[bool, str]:
    """Where a file comes in the hash: a user's by its name alone, wherever it lies."""
    is_ours = path.is_relative_to(PACKAGE)
    return is_ours, path.relative_to(PACKAGE).as_posix() if is_ours else path.name


def imported(path: Path) -> set[Path]:
    """The files of `ROOMS` that a file imports, wherever in it; a package's own file with what is in it."""
    parts = [name.split(".")[1:] for name in _imports(path)]
    stems = {PACKAGE.joinpath(*part[:end]) for part in parts if part[0] in ROOMS for end in range(1, len(part) + 1)}
    return {file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()}


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    """What of ours a file imports, by dotted names, some of which may be those of functions and classes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(name for name in names if name.startswith("biasbed."))


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
    return "\n".join([*lines, *sorted(distributions())]) + "\n"


@functools.cache
def distributions() -> frozenset[str]:
    """Every installed one, as `<name>==<version>`."""
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
