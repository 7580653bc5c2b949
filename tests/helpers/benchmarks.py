"""The programs of `benchmarks/` as modules."""

from __future__ import annotations

import importlib
from types import ModuleType


def load(name: str) -> ModuleType:
    """By its own name, as the programs of that folder import one another."""
    return importlib.import_module(name)
