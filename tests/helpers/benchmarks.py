"""The programs of `benchmarks/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from helpers.commands import ROOT


def load(name: str) -> ModuleType:
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:  # they import one another, as programs in one folder do
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module
