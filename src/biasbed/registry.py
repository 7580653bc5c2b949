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
from types import ModuleType
from typing import Any, TypeVar

from biasbed.errors import UsageError, shown
from biasbed.record import slug
from biasbed.settings import Spec, nearest, specs

T = TypeVar("T")


class Registry(Mapping[str, str]):
    """Names of one kind of thing, and where each is: `module:Class`, or `module` where that is the thing."""

    def __init__(self, what: str, entries: Mapping[str, str], takes_own: bool = False, kind: str = "") -> None:
        """what: the setting that names one. takes_own: `<file>.py:<Class>` and `<module>:<Class>` of a user's, too.

        kind: what it is, where the setting is not called so.
        """
        self.what, self.entries, self.takes_own, self.kind = what, entries, takes_own, kind or what

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
        try:
            return _load(self.get(name, name))
        except Exception as error:  # a user's file may hold anything
            if name in self:
                raise
            raise UsageError(f"{self.what}={name} can't be imported: {type(error).__name__}: {error}") from None

    def refuse_unknown(self, name: str) -> None:
        """UsageError for a name that leads nowhere; nothing is imported."""
        if name not in self and not (self.takes_own and ":" in name):
            own = ", or <file>.py:<Class> of your own" if self.takes_own else ""
            raise UsageError(f"unknown {self.kind} '{shown(name)}'{nearest(name, self)}{own}")

    def load_class(self, name: str, base: type[T]) -> type[T]:
        """The class of this name; UsageError where it is none of `base`'s, or is called as one of biasbed's is."""
        found = self.load(name)
        if not (isinstance(found, type) and issubclass(found, base)):
            place = f"{base.__module__}.{base.__name__}"
            raise UsageError(f"{self.what}={name} can't be one: it has to be a subclass of {place}")
        if name not in self and self.identifier(name) in self:
            raise UsageError(
                f"{self.what}={name}: call the class otherwise, '{self.identifier(name)}' is one of biasbed's own"
            )
        return found

    def own_settings(self, name: str) -> Mapping[str, Spec]:
        """The settings that a choice brings, besides those that every one of its kind has, by dotted name."""
        found = self.load(name)
        root = next(cls for cls in reversed(found.__mro__) if "Settings" in vars(cls))
        general = specs(root.Settings)
        return {name: spec for name, spec in specs(found.Settings).items() if name not in general}

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
