"""Registries of methods, suites, makers, launchers and rules: biasbed's and plug-ins' by name, a user's own by file.

An entry is text, so that listing names imports nothing. A thing may have settings of its own, as a class `Settings`
that extends those of the command.
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

from biasbed import mock_imports, plugin_loader
from biasbed.errors import UsageError, shown
from biasbed.record import slug
from biasbed.settings import Spec, nearest, specs

USER_MODULE = "biasbed_user_"  # beginning of the names of modules from users' files; a hash of the path follows


class Registry(Mapping[str, str]):
    """Mapping from the names of one kind of thing to `module:Class`, or to `module` if the thing is a module.

    The names are those of `entries`, then those of plug-ins, which are only looked up when they are needed.
    """

    def __init__(
        self, setting: str, entries: Mapping[str, str], base: str = "", kind: str = "", offered_as: str = ""
    ) -> None:
        """setting: the setting that names such a thing.

        base: `module:Class` of which all are subclasses. If it is given, users may name classes of their own, as
        `<file>.py:<Class>` or `<module>:<Class>`.
        kind: word for such a thing in messages; defaults to the setting.
        offered_as: kind under which plug-ins offer such things; defaults to the setting.
        """
        self.setting, self.entries, self.base, self.kind = setting, entries, base, kind or setting
        self.offered_as = offered_as or setting

    def __getitem__(self, name: str) -> str:
        return self.entries[name] if name in self.entries else plugin_loader.offers(self.offered_as)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.entries
        yield from (name for name in plugin_loader.offers(self.offered_as) if name not in self.entries)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def load(self, name: str) -> Any:
        """Return the class or module of this name. Raises UsageError with the nearest valid name if there is none.

        For `<file>.py:<Class>` the file is executed, so the name has to come from the user (see `name_to_load`).
        """
        self.refuse_unknown(name)
        if name in self:
            return resolve_name(self[name])
        try:
            loaded = _import_user_class(name)
        except (Exception, SystemExit) as error:  # a user's file may hold anything
            raise UsageError(f"{self.setting}={name} can't be imported: {type(error).__name__}: {error}") from None
        self._check_user_class(name, loaded)
        return loaded

    def declare(self, name: str) -> Any:
        """Return what `load` does or, before torch is imported, a copy to read class attributes of (`mock_imports`).

        A user's own file and a plug-in of another package are loaded.
        """
        self.refuse_unknown(name)
        if name in self and self[name].startswith("biasbed.") and mock_imports.is_faster():
            return mock_imports.load(self[name])
        return self.load(name)

    def _check_user_class(self, name: str, loaded: Any) -> None:
        """Raise UsageError unless a user's class has the base and a name of its own."""
        base = resolve_name(self.base)
        if not (isinstance(loaded, type) and issubclass(loaded, base)):
            base_name = self.base.replace(":", ".")
            raise UsageError(f"{self.setting}={name} is no {self.kind}: it has to be a subclass of {base_name}")
        if self.identifier(name) in self:
            raise UsageError(
                f"{self.setting}={name}: call the class otherwise, '{self.identifier(name)}' is one of biasbed's own"
            )

    def refuse_unknown(self, name: str) -> None:
        """Raise UsageError for an unknown name. Imports nothing."""
        if name not in self and not (self.base and ":" in name):
            advice = " (or <file>.py:<Class> of your own)" if self.base else ""
            raise UsageError(f"unknown {self.kind} '{shown(name)}'{nearest(name, self)}{advice}")

    def own_settings(self, name: str) -> Mapping[str, Spec]:
        """Return the settings of one thing that its base does not have, by dotted name."""
        general = specs(resolve_name(self.base).Settings)
        return {name: spec for name, spec in specs(self.declare(name).Settings).items() if name not in general}

    def identifier(self, name: str) -> str:
        """Return the name in tags and tables: the one in the registry, or that of a user's class."""
        return name if name in self else slug(name.rpartition(":")[2])

    def name_to_load(self, recorded: Any, named: str, where: str, remedy: str = "") -> str:
        """Return the name to load for the name that a file or a server has recorded.

        It is a name of biasbed's, or the one that the user gave: a file or a server never chooses which code is
        imported. named: the user's word on the command line, or `auto`. Raises UsageError if the user has to give a
        name, or gave another than the recorded one. where: the file or server, in messages. remedy: what to type.
        """
        if not isinstance(recorded, str):
            raise UsageError(f"{where} names no {self.setting}")
        if named == "auto":
            if recorded not in self and ":" in recorded:
                advice = remedy or f"{self.setting}={self.spell_for_user(recorded)}"
                raise UsageError(
                    f"the {self.setting} of {where} is {shown(recorded)}, which is not one of biasbed's: name it "
                    f"yourself, {advice}, if you trust that file"
                )
            return recorded
        if self.identifier(named) != self.identifier(recorded):
            raise UsageError(f"{self.setting}={named}: the {self.setting} of {where} is {shown(recorded)}")
        return with_whole_path(named)

    def spell_for_user(self, recorded: str) -> str:
        """Return how a user types a recorded name: `<file>.py:<Class>` for a class of their own, in whatever file."""
        attribute = recorded.rpartition(":")[2]
        word = f"<file>.py:{attribute if attribute.isidentifier() else '<Class>'}"
        return recorded if recorded in self else shown(word)


def with_whole_path(name: str) -> str:
    """Return the name with a file's whole path, so that it means the same in any folder."""
    file, _, attribute = name.rpartition(":")
    return f"{Path(file).expanduser().resolve()}:{attribute}" if file.endswith(".py") else name


def _import_user_class(name: str) -> Any:
    """Import `<file>.py:<Class>` or `<module>:<Class>` and return the class."""
    module, _, attribute = name.rpartition(":")
    if module.endswith(".py"):
        return getattr(from_file(Path(module).expanduser()), attribute)
    return getattr(importlib.import_module(module), attribute)


def user_files() -> list[str]:
    """Return the user's files that this process has imported and that still exist, for another process to import."""
    files = [str(module.__file__) for name, module in sys.modules.items() if name.startswith(USER_MODULE)]
    return [file for file in files if Path(file).exists()]


def from_file(path: Path) -> ModuleType:
    """Import a user's file once and return its module. Raises what the file raises, and OSError if there is none."""
    key = f"{USER_MODULE}{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}_{path.stem}"
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
