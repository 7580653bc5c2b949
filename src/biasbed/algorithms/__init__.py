"""Training methods by name. An entry is text, so that listing names imports no method and none of its libraries."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.algorithms.base import Algorithm

REGISTRY: Mapping[str, str] = {
    "erm": "biasbed.algorithms.erm:ERM",
    "infodrop": "biasbed.algorithms.infodrop:InfoDrop",
    "padain": "biasbed.algorithms.padain:PAdaIN",
}


def names() -> list[str]:
    """The methods, in the order of the registry."""
    return list(REGISTRY)


def load(name: str) -> type[Algorithm]:
    """The class of a method: of the registry, or `<module>:<Class>` of your own that Python can import.

    Raises UsageError with the nearest valid name where there is none of that name.
    """
    if name not in REGISTRY and ":" not in name:
        raise UsageError(f"unknown algorithm '{name}'{nearest(name, REGISTRY)}, or <module>:<Class> of your own")
    module, _, attribute = REGISTRY.get(name, name).partition(":")
    try:
        found: type[Algorithm] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        if name in REGISTRY:
            raise
        raise UsageError(f"algorithm={name} can't be imported: {error}") from None
    return found
