"""Keyword arguments of the public functions as settings of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed.settings import word


def to_flags(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return keyword arguments as a command takes its settings: dotted names to words.

    A dict holds settings of a group: `optim={"lr": 0.1}` is `optim.lr=0.1`, and so is `**{"optim.lr": 0.1}`.
    """
    flags = {}
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            for inner, text in to_flags(value).items():
                flags[f"{name}.{inner}"] = text
        else:
            flags[name] = word(value)
    return flags


def without_none(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}
