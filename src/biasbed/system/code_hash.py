"""Hash of the code that makes a run's numbers, without comments and layout.

Answers: Which code changes the numbers (`code_hash`)?
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

from biasbed.system.garbage import without_collection

PACKAGE = Path(__file__).resolve().parents[1]
# Packages and modules whose code changes numbers. Others that a training imports are about settings, machine, records.
ROOMS = (
    *("algorithms", "compute", "data", "datasets", "evaluation", "networks", "plugins", "suites", "training"),
    *("batch", "config", "derived_values", "measures", "tasks"),
)
LOOP = "training/train.py"
LEFT_OUT = ("algorithms/__init__.py", "suites/__init__.py")  # registries: another method changes no number


def code_hash(algorithm: type, suite: type) -> str:
    """Return 16 hex digits of the code that the method, the suite and the training loop import.

    Covers the files of `ROOMS` without `LEFT_OUT`, so that a data set that a training does not use changes nothing.
    Comments and layout change nothing either.
    """
    left_out = {PACKAGE / name for name in LEFT_OUT}
    waiting = [PACKAGE / LOOP, *_class_files(algorithm), *_class_files(suite)]
    files: set[Path] = set()
    names: set[str] = set()  # imported by one of the files
    while waiting:
        path = waiting.pop()
        if path in files or path in left_out:
            continue
        files.add(path)
        new_names = _read_source(path.read_bytes()).imports - names
        names |= new_names
        for name in new_names:
            waiting += _imported_files(name)
    sha = hashlib.sha256()
    for path in sorted(files, key=_sort_key):
        sha.update(path.name.encode())
        sha.update(_read_source(path.read_bytes()).tree)
    return sha.hexdigest()[:16]


def _imported_files(name: str) -> list[Path]:
    """Return the files of `ROOMS` that an import of the name runs, lazy or not: with `__init__.py` of its packages."""
    parts = name.split(".")[1:]
    if parts[0] not in ROOMS:
        return []
    files: list[Path] = []
    for end in range(1, len(parts) + 1):
        stem = PACKAGE.joinpath(*parts[:end])
        files += stem.with_suffix(".py"), stem / "__init__.py"
    return [file for file in files if file.is_file()]


def _class_files(cls: type) -> list[Path]:
    """Return the files of a class and its bases, without those of torch and the standard library."""
    bases = [base for base in cls.__mro__ if base.__module__ not in sys.stdlib_module_names]
    files = [Path(inspect.getfile(base)) for base in bases]
    return [path for path in files if "torch" not in path.parts]


def _sort_key(path: Path) -> tuple[bool, str]:
    """Return the key that orders the files of the hash: by path in the package; users' files first, by name alone."""
    is_ours = path.is_relative_to(PACKAGE)
    return is_ours, path.relative_to(PACKAGE).as_posix() if is_ours else path.name


@dataclass(frozen=True)
class _Source:
    imports: frozenset[str]  # dotted names of biasbed's modules, and of functions and classes in them
    tree: bytes  # digest of the syntax tree, which has neither comments nor layout


@functools.cache
def _read_source(source: bytes) -> _Source:
    """Parse a source file."""
    with without_collection():
        tree = ast.parse(source)
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        digest = hashlib.sha256(ast.dump(tree).encode()).digest()
    return _Source(frozenset(name for name in names if name.startswith("biasbed.")), digest)
