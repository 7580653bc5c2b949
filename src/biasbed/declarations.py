"""Classes of methods and suites without torch: settings, defaults and presets, read from the files that train.

A wrong command is refused by what a method or a suite declares, and importing torch for that takes seconds. So their
files are executed as copies, in which torch and its libraries are placeholders: what is declared is there, and nothing
computes. Nothing declares twice, and no file knows of it.

Answers: How is a wrong setting of a method refused before torch is imported?
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

HEAVY = ("torch", "torchvision", "timm")
COPY = "declared."  # before the names of copied modules: dataclasses look their module up by name
ROOT = Path(__file__).parent


def is_needed() -> bool:
    """Return True if torch is not imported yet, so that declarations are found faster than the classes."""
    return "torch" not in sys.modules


class Placeholder:
    """Stand-in for everything in a heavy library: its attributes, calls and items are itself, as a base it is none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Placeholder:
        return self

    def __getitem__(self, key: Any) -> Placeholder:
        return self

    def __or__(self, kind: Any) -> Placeholder:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


def declared(name: str) -> Any:
    """Return the copy of `module:attribute`, whose functions must not compute."""
    module, _, attribute = name.partition(":")
    return getattr(_module(module), attribute) if attribute else _module(module)


def _module(name: str) -> ModuleType:
    """Return a module of biasbed: itself if it is imported already, else its copy."""
    copy = COPY + name
    if name in sys.modules or copy in sys.modules:
        return sys.modules.get(name) or sys.modules[copy]
    path = _file(name)
    assert path is not None, name
    module = ModuleType(copy)
    module.__file__ = str(path)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    code = SourceFileLoader(name, str(path)).get_code(name)
    assert code is not None
    sys.modules[copy] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[copy]
        raise
    return module


def _file(name: str) -> Path | None:
    """Return the file of a module of biasbed, None if there is none. Imports nothing, unlike `find_spec`."""
    path = ROOT.joinpath(*name.split(".")[1:])
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import for a copy: placeholders for heavy libraries, copies of biasbed's modules, all others as usual."""
    top = name.partition(".")[0]
    if top in HEAVY:
        return Placeholder()
    if top != "biasbed" or not fromlist:
        return importlib.__import__(name, globals, locals, fromlist or (), level)
    namespace = ModuleType(name)
    for attribute in fromlist:
        member = f"{name}.{attribute}"
        value = _module(member) if _file(member) is not None else getattr(_module(name), attribute)
        setattr(namespace, attribute, value)
    return namespace
