"""Import of biasbed's own modules with mocks in place of torch, to read what methods and suites declare.

A wrong command is refused by the settings, defaults and presets in the classes of methods and suites, and importing
torch for that takes seconds. So their modules are executed as copies in which torch and its libraries are mocks: class
attributes have their values, and calls of torch return mocks. The modules themselves know nothing of it.

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

MOCKED = ("torch", "torchvision", "timm")
PREFIX = "mocked."  # of the copies in `sys.modules`, where dataclasses look their module up by name
ROOT = Path(__file__).parent


def is_faster() -> bool:
    """Return True if torch is not imported yet, so that a copy loads faster than the module itself."""
    return "torch" not in sys.modules


class Mock:
    """Stand-in for everything in a mocked library. Its attributes, calls and items are itself; a base is left out."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Mock:
        return self

    def __getitem__(self, key: Any) -> Mock:
        return self

    def __or__(self, kind: Any) -> Mock:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


def load(name: str) -> Any:
    """Return the module `name`, or the attribute that `module:attribute` names, from a copy with mocks.

    Use its class attributes only: its functions can't compute.
    """
    module_name, _, attribute = name.partition(":")
    module = _load_module(module_name)
    return getattr(module, attribute) if attribute else module


def _load_module(name: str) -> ModuleType:
    """Return the copy of a module of biasbed, or the module itself if that is imported already."""
    copy_name = PREFIX + name
    if name in sys.modules:
        return sys.modules[name]
    if copy_name in sys.modules:
        return sys.modules[copy_name]
    path = _find_file(name)
    assert path is not None, name
    module = ModuleType(copy_name)
    module.__file__ = str(path)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    code = SourceFileLoader(name, str(path)).get_code(name)
    assert code is not None
    sys.modules[copy_name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[copy_name]
        raise
    return module


def _find_file(name: str) -> Path | None:
    """Return the file of a module of biasbed; None if there is none. Imports nothing, unlike `find_spec`."""
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
    """Import for a copy: a mock for a mocked library, copies of biasbed's modules, any other module as usual."""
    top = name.partition(".")[0]
    if top in MOCKED:
        return Mock()
    if top != "biasbed" or not fromlist:
        return importlib.__import__(name, globals, locals, fromlist or (), level)
    namespace = ModuleType(name)
    for attribute in fromlist:
        member = f"{name}.{attribute}"
        is_module = _find_file(member) is not None
        value = _load_module(member) if is_module else getattr(_load_module(name), attribute)
        setattr(namespace, attribute, value)
    return namespace
