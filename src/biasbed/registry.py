"""What is found by name: methods, suites, makers, launchers, rules; of biasbed, or in a user's own file.

An entry is text, so that listing names imports nothing. What is found may bring settings of its own, as a class
`Settings` with those of the command that names it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from biasbed.errors import UsageError, shown
from biasbed.record import slug
from biasbed.settings import Spec, nearest, specs

OWN = "biasbed_user_"  # what modules from users' files are called, and their path's hash


class Registry(Mapping[str, str]):
    """Names of one kind of thing, and where each is: `module:Class`, or `module` where that is the thing."""

    def __init__(self, what: str, entries: Mapping[str, str], base: str = "", kind: str = "") -> None:
        """what: the setting that names one. kind: what it is, where the setting is not called so.

        base: `module:Class` of which all are subclasses, so that a user's own are taken too, as `<file>.py:<Class>` or
        `<module>:<Class>`.
        """
        self.what, self.entries, self.base, self.kind = what, entries, base, kind or what

    def __getitem__(self, name: str) -> str:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def load(self, name: str) -> Any:
        """The class or module of this name. Raises UsageError with the nearest valid name where there is none.

        Of a user's own the file is executed: `name` has to be the user's word (see `vouched`).
        """
        self.refuse_unknown(name)
        if name in self:
            return resolve_name(self[name])
        try:
            found = _load(name)
        except (Exception, SystemExit) as error:  # a user's file may hold anything
            raise UsageError(f"{self.what}={name} can't be imported: {type(error).__name__}: {error}") from None
        self._refuse_other(name, found)
        return found

    def _refuse_other(self, name: str, found: Any) -> None:
        """UsageError for what is no `base`, has no settings like it, or is called as one of biasbed's."""
        base = resolve_name(self.base)
        if not (isinstance(found, type) and issubclass(found, base)):
            place = self.base.replace(":", ".")
            raise UsageError(f"{self.what}={name} is no {self.kind}: it has to be a subclass of {place}")
        settings = getattr(found, "Settings", None)
        if hasattr(base, "Settings") and not (isinstance(settings, type) and issubclass(settings, base.Settings)):
            raise UsageError(f"{self.what}={name}: its Settings have to be a subclass of {base.Settings.__name__}")
        if self.identifier(name) in self:
            raise UsageError(
                f"{self.what}={name}: call the class otherwise, '{self.identifier(name)}' is one of biasbed's own"
            )

    def refuse_unknown(self, name: str) -> None:
        """UsageError for a name that leads nowhere; nothing is imported."""
        if name not in self and not (self.base and ":" in name):
            own = ", or <file>.py:<Class> of your own" if self.base else ""
            raise UsageError(f"unknown {self.kind} '{shown(name)}'{nearest(name, self)}{own}")

    def own_settings(self, name: str) -> Mapping[str, Spec]:
        """The settings that a choice brings, besides those that every one of its kind has, by dotted name."""
        general = specs(resolve_name(self.base).Settings)
        return {name: spec for name, spec in specs(self.load(name).Settings).items() if name not in general}

    def identifier(self, name: str) -> str:
        """What runs are filed under: the name in the registry, or the class's name."""
        return name if name in self else slug(name.rpartition(":")[2])

    def vouched(self, recorded: Any, named: str, where: str, remedy: str = "") -> str:
        """The name to load where a file or a server says `recorded`: one of biasbed's, else the one the user named.

        What is read is only ever compared with names: no file and no server chooses which code is imported. named:
        the word that the user gave on the command line, or `auto`. Raises UsageError where one has to be given, as in
        `remedy`.
        """
        if not isinstance(recorded, str):
            raise UsageError(f"{where} names no {self.what}")
        if named == "auto":
            if recorded not in self and ":" in recorded:
                raise UsageError(
                    f"the {self.what} of {where} is {shown(recorded)}, which is not one of biasbed's: name it "
                    f"yourself, {remedy or f'{self.what}={self.by_hand(recorded)}'}, if you trust that file"
                )
            return recorded
        if self.identifier(named) != self.identifier(recorded):
            raise UsageError(f"{self.what}={named}: the {self.what} of {where} is {shown(recorded)}")
        return settled(named)

    def by_hand(self, recorded: str) -> str:
        """How a user names what a file or a server names: where its own file lies, only the user knows."""
        attribute = recorded.rpartition(":")[2]
        own = f"<file>.py:{attribute if attribute.isidentifier() else '<Class>'}"
        return recorded if recorded in self else shown(own)


def settled(name: str) -> str:
    """The name with a file's whole path, so that it means the same in any folder."""
    place, _, attribute = name.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{attribute}" if place.endswith(".py") else name


def _load(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        return getattr(from_file(Path(place).expanduser()), attribute)
    return getattr(importlib.import_module(place), attribute)


def user_files() -> list[str]:
    """The files of the user's that this process has imported and that are still there, for another to import too."""
    files = [str(module.__file__) for name, module in sys.modules.items() if name.startswith(OWN)]
    return [file for file in files if Path(file).exists()]


def from_file(path: Path) -> ModuleType:
    """The module in a user's file, imported once. Raises whatever the file raises, and OSError where there is none."""
    key = f"{OWN}{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}_{path.stem}"
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
