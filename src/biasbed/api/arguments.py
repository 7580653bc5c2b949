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
from numbers import Integral, Real
from types import UnionType
from typing import Any, NamedTuple, TypeVar

from biasbed.errors import UsageError
from biasbed.settings import Spec

F = TypeVar("F", bound=Callable[..., Any])


class PlainType(NamedTuple):
    """Type of a plain argument, as `isinstance` takes it, and its name in messages."""

    types: Any
    name: str


# Annotation -> the type that is checked; arguments of other types are checked where they are used.
PLAIN_TYPES = {
    "int": PlainType(Integral, "a whole number"),
    "float": PlainType(Real, "a number"),
    "bool": PlainType(bool, "True or False"),
    "str": PlainType(str, "text"),
    "str | Path": PlainType((str, os.PathLike), "a path"),
    "str | os.PathLike[str]": PlainType((str, os.PathLike), "a path"),
}


class _Usual:
    """Default of a setting that suites, methods and presets choose."""

    def __repr__(self) -> str:
        return "..."


def public(settings: Mapping[str, Spec] | None = None, is_open: bool = True) -> Callable[[F], F]:
    """Return a decorator that checks the types of a public function's plain arguments, and completes its signature.

    settings: settings that the function takes by `**`; each becomes an argument of the signature, or of a group such as
    `optim`. is_open: it also takes settings of suites and methods, on which the defaults of others depend.
    """

    def decorate(function: F) -> F:
        """Return the function with checks of its arguments, which raise UsageError of one line."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                _refuse_other_type(name, str(signature.parameters[name].annotation), value)
            return function(*args, **kwargs)

        if settings is not None:
            setattr(checked, "__signature__", _with_settings(signature, settings, is_open))  # noqa: B010
        return typing.cast(F, checked)

    return decorate


def _refuse_other_type(name: str, annotation: str, value: Any) -> None:
    """Raise UsageError if a plain argument has another type than its annotation. True is no number."""
    kind = PLAIN_TYPES.get(annotation.removesuffix(" | None"))
    if kind is None or (value is None and annotation.endswith(" | None")):
        return
    if not isinstance(value, kind.types) or (isinstance(value, bool) and kind.types is not bool):
        raise UsageError(f"{name}={value!r}: should be {kind.name}")


def _with_settings(signature: inspect.Signature, settings: Mapping[str, Spec], is_open: bool) -> inspect.Signature:
    """Return the signature with an argument for each setting or group in place of `**`; if open, `**` stays last."""
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
