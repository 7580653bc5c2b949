"""Errors for unknown names in the public modules, with the name of the module as users type it."""

from __future__ import annotations

from collections.abc import Iterable


def make_error(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name that a public module lacks, with the nearest of its names.

    Python and its tools look for names in double underscores by themselves; no other name is suggested for these.
    """
    from biasbed.settings import nearest

    text = f"module '{module}' has no attribute '{name}'"
    if name.startswith("__"):
        return AttributeError(text, name=name)
    return AttributeError(f"{text}{nearest(name, names)}", name=name)
