"""Plug-ins: packages that offer methods, launchers, sections, commands and more to biasbed's registries.

A plug-in is one mapping `OFFERS`: kind -> name -> `module:name`. The kind is the setting that chooses among such things
(`algorithm`, `launcher`, `suite`, `format`), or another of docs/plugins.md (`command`, `section`, `source` ...).
biasbed's own plug-ins are the packages in `plugins/`; others name theirs as an entry point of the group
`biasbed.plugins`.

Answers: How is a plug-in found, and what can it offer?
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

GROUP = "biasbed.plugins"
FOLDER = Path(__file__).parent / "plugins"

Offers = Mapping[str, Mapping[str, str]]
T = TypeVar("T")


class Offered(Mapping[str, T]):
    """Mapping of things of one kind by name: the core's, then those of plug-ins, each imported when it is looked up."""

    def __init__(self, kind: str, core: Mapping[str, T] | None = None) -> None:
        self.kind, self.core = kind, core or {}

    def __getitem__(self, name: str) -> T:
        if name in self.core:
            return self.core[name]
        thing: T = pkgutil.resolve_name(offers(self.kind)[name])
        return thing

    def __iter__(self) -> Iterator[str]:
        yield from self.core
        yield from (name for name in offers(self.kind) if name not in self.core)

    def __len__(self) -> int:
        return len(list(iter(self)))


class Joined(Mapping[str, T]):
    """Mapping of things by name: the core's, then those in the mappings that plug-ins offer, imported all at once."""

    def __init__(self, kind: str, core: Mapping[str, T]) -> None:
        self.kind, self.core = kind, core

    def __getitem__(self, name: str) -> T:
        return self.core[name] if name in self.core else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @functools.cached_property
    def _all(self) -> Mapping[str, T]:
        things = dict(self.core)
        mappings: Offered[Mapping[str, T]] = Offered(self.kind)
        for mapping in mappings.values():
            things |= {name: thing for name, thing in mapping.items() if name not in things}
        return things


def with_offered(name: str, core: type[T], kind: str) -> type[T]:
    """Return a frozen dataclass of this name with the fields of `core` and of the classes that plug-ins offer."""
    offered: Offered[type] = Offered(kind)
    members = {"__doc__": core.__doc__, "__module__": core.__module__}
    return dataclass(frozen=True)(type(name, (*offered.values(), core), members))


@functools.cache
def offers(kind: str) -> Mapping[str, str]:
    """Return `module:name` by name of all that plug-ins offer of a kind. Of two with the same name the first stays."""
    places: dict[str, str] = {}
    for plugin, plugin_offers in _read_plugins().items():
        for name, target in plugin_offers.get(kind, {}).items():
            if name in places:
                _warn(plugin, f"its {kind} '{name}' is left out, as {places[name]} has the same name")
            places.setdefault(name, target)
    return places


@functools.cache
def _read_plugins() -> Mapping[str, Offers]:
    """Return the offers of each plug-in: biasbed's own, then those of entry points by name."""
    plugins: dict[str, Offers] = {}
    for module in sorted(pkgutil.iter_modules([str(FOLDER)]), key=lambda module: module.name):
        plugins[module.name] = importlib.import_module(f"{GROUP}.{module.name}").OFFERS
    for entry_point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            plugins[f"{entry_point.name} ({entry_point.value})"] = entry_point.load()
        except Exception as error:  # somebody else's package, which must not stop a command that does without it
            _warn(entry_point.value, f"can't be imported: {type(error).__name__}: {error}")
    return plugins


def _warn(plugin: str, problem: str) -> None:
    print(f"biasbed: warning: plug-in {plugin}: {problem}", file=sys.stderr)
