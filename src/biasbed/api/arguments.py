"""Arguments of the public functions: one for each setting, visible to `help()`, tab completion and editors.

`src/biasbed/__init__.pyi` tells type checkers the same (`pytest --renew tests/api/test_arguments.py` writes it).
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar

from biasbed.settings import Spec

F = TypeVar("F", bound=Callable[..., Any])


class _Usual:
    """Default of a setting that suites, methods and presets choose."""

    def __repr__(self) -> str:
        return "..."


def with_settings(settings: Mapping[str, Spec], is_open: bool = True) -> Callable[[F], F]:
    """Return a decorator that shows an argument for each setting in place of a function's `**`; a group is one.

    is_open: the function takes further ones, those of suites and methods, and its defaults depend on them.
    """

    def decorate(function: F) -> F:
        signature = _add_settings(inspect.signature(function), settings, is_open)
        setattr(function, "__signature__", signature)  # noqa: B010
        return function

    return decorate


def _add_settings(signature: inspect.Signature, settings: Mapping[str, Spec], is_open: bool) -> inspect.Signature:
    parameters = dict(signature.parameters)
    rest = parameters.popitem()[1]
    for name, spec in settings.items():
        group, dot, _ = name.partition(".")
        annotation = Mapping[str, Any] if dot else _input_type(name, spec.type)
        default = _Usual() if is_open or dot else spec.default
        argument = inspect.Parameter(group, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        parameters.setdefault(group, argument)
    return signature.replace(parameters=[*parameters.values(), *([rest] if is_open else [])])


def _input_type(name: str, kind: Any) -> Any:
    """Return the type of values that a setting takes: any sequence for a tuple, and a path for a folder's name."""
    if typing.get_origin(kind) in (UnionType, typing.Union):
        parts = typing.get_args(kind)
        if str in parts:  # its words are text, too
            parts = tuple(part for part in parts if typing.get_origin(part) is not typing.Literal)
        return functools.reduce(operator.or_, [_input_type(name, part) for part in parts])
    if typing.get_origin(kind) is tuple:
        return Sequence[typing.get_args(kind)[0]]  # type: ignore[misc]
    return kind | os.PathLike[str] if kind is str and name.endswith("_dir") else kind
