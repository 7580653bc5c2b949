"""What is found by name: methods, suites, launchers, prepared networks; of biasbed, or in a user's own file.

An entry is text, so that listing names imports nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from biasbed.errors import UsageError, shown
from biasbed.settings import nearest


class Registry(Mapping[str, str]):
    """Names of one kind of thing, and where each is: `module:Class`, or `module` where that is the thing."""

    def __init__(self, what: str, entries: Mapping[str, str], takes_own: bool = False) -> None:
        """what: the setting that names one. takes_own: `<file>.py:<Class>` and `<module>:<Class>` of a user's, too."""
        self.what, self.entries, self.takes_own = what, entries, takes_own

    def __getitem__(self, name: str) -> str:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def load(self, name: str) -> Any:
        """The class or module of this name. Raises UsageError with the nearest valid name where there is none."""
        if name not in self and not (self.takes_own and ":" in name):
            own = ", or <file>.py:<Class> of your own" if self.takes_own else ""
            raise UsageError(f"unknown {self.what} '{shown(name)}'{nearest(name, self)}{own}")
        try:
            return _load(self.get(name, name))
        except Exception as error:  # a user's file may hold anything
            if name in self:
                raise
            raise UsageError(f"{self.what}={name} can't be imported: {type(error).__name__}: {error}") from None


def _load(entry: str) -> Any:
    place, _, attribute = entry.rpartition(":") if ":" in entry else (entry, "", "")
    module = from_file(Path(place).expanduser()) if place.endswith(".py") else importlib.import_module(place)
    return getattr(module, attribute) if attribute else module


def from_file(path: Path) -> ModuleType:
    """The module in a user's file, imported once. Raises whatever the file raises, and OSError where there is none."""
    key = f"biasbed_user_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}_{path.stem}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[key]
            raise
    return sys.modules[key]
