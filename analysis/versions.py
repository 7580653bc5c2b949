"""What computed the numbers: this program and the libraries behind its statistics."""

from __future__ import annotations

import importlib.metadata
import platform

import biasbed

LIBRARIES = ("mlflow", "pandas", "scipy", "scikit-posthocs", "matplotlib")


def versions() -> dict[str, str]:
    """Name -> version."""
    found = {"biasbed": biasbed.__version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in LIBRARIES}
