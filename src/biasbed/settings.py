"""Settings as frozen dataclasses: typed, ranged, documented, and refused with one line when wrong.

The general config, every method's `HParams` and the options of each command are declared with `setting` and built by
`build`, so that a flag, a YAML entry and a default all pass the same checks.

Answers: How is a setting checked, and the nearest name found?
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
import os
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from biasbed.errors import UsageError, find_other_form, listed
from biasbed.redaction import UNRECORDED, has_secret, public_setting

T = TypeVar("T")


def setting(
    default: Any,
    help: str,
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    identity: bool = True,
    optional: bool = False,
    cell: bool = False,
) -> Any:
    """Declare a dataclass field with its default, one line of help, and the range of its number or numbers.

    identity: False for a setting that changes no number, as it says where or how a run is carried out; it is not
    hashed.
    optional: a preset may omit it, as most recipes do; at its default a training does without it.
    cell: it tells the runs of one configuration apart, so that it enters `run_key` and not `config_hash`.
    """
    bounds = {name: bound for name, bound in dict(gt=gt, ge=ge, lt=lt, le=le).items() if bound is not None}
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "bounds": bounds,
            "identity": identity and not cell,
            "optional": optional,
            "cell": cell,
        },
    )


@dataclass(frozen=True)
class Spec:
    """One setting of a (possibly nested) settings class."""

    name: str  # dotted
    type: Any
    default: Any
    help: str
    bounds: Mapping[str, float]
    identity: bool
    optional: bool
    cell: bool

    @property
    def makes_cells(self) -> bool:
        """True if a study may be given several values, each of which is a cell."""
        return self.cell and all(typing.get_origin(kind) is not tuple for kind in _alternatives(self.type))


@functools.cache
def _type_hints(cls: Any) -> Mapping[str, Any]:
    """Return the types of a class's fields by name."""
    return typing.get_type_hints(cls)


def specs(cls: type) -> Mapping[str, Spec]:
    """Return every setting of a settings class by its dotted name; those of a nested class as `<field>.<name>`."""
    return _specs(cls)  # mypy takes no class as an argument of a cached function


@functools.cache
def _specs(cls: Any) -> Mapping[str, Spec]:
    hints = _type_hints(cls)
    members: dict[str, Spec] = {}
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            nested = specs(typing.cast(type, kind))
            for inner, spec in nested.items():
                name = f"{field.name}.{inner}"
                members[name] = dataclasses.replace(spec, name=name)
        elif field.metadata:
            meta = field.metadata
            facts = {name: meta[name] for name in ("help", "bounds", "identity", "optional", "cell")}
            members[field.name] = Spec(field.name, kind, field.default, **facts)
    return members


def combine_settings(base: type[T], derived: type) -> type[T]:
    """Return a settings class with the fields of both classes, whose instances pass the checks of both.

    The classes have a common base, and a check is a `__post_init__`.
    """
    if issubclass(base, derived):
        return base
    bases = (derived,) if issubclass(derived, base) else (derived, base)
    checks = [cls.__post_init__ for cls in (base, derived) if hasattr(cls, "__post_init__")]

    def check_all(self: Any) -> None:
        for check_one in checks:
            check_one(self)

    return dataclasses.make_dataclass(
        base.__name__, [], bases=bases, frozen=True, namespace={"__post_init__": check_all}
    )


def build(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Build an instance from dotted names and values, which may be words from a command line.

    Raises UsageError for an unknown name (with the nearest valid one), a wrong type and a value out of range. `prefix`
    stands before names in messages.
    """
    valid_specs = specs(cls)
    for name in values:
        refuse_unknown(name, valid_specs, f"unknown setting '{prefix}{name}'")
    checked = {name: check(valid_specs[name], value, prefix) for name, value in values.items()}
    return _make_instance(cls, checked)


def replace_values(instance: T, **values: Any) -> T:
    """Return the settings with these checked values in place of theirs. Raises UsageError if values contradict."""
    return _make_instance(type(instance), {**flatten(instance), **values})


def check(spec: Spec, value: Any, prefix: str = "") -> Any:
    """Return the value as the setting's type. Raises UsageError, which says what would be right."""
    typed = _prepare_value(spec.type, value)
    for part in typed if isinstance(typed, list | tuple) else [typed]:
        if isinstance(part, str):
            _refuse_unwritable(f"{prefix}{spec.name}", part)
    try:
        return _make_checker(spec.type, tuple(spec.bounds.items())).validate_python(typed)
    except ValidationError as error:
        message = " or ".join(dict.fromkeys(_describe_problem(problem, spec.type) for problem in error.errors()))
        if spec.makes_cells and "," in str(value):
            message = "a training has one of these; several are for the cells of `benchmark` and `sweep`"
        raise UsageError(f"{prefix}{spec.name}={value}: {message}{_nearest_word(spec.type, value)}") from None


def _refuse_unwritable(name: str, text: str) -> None:
    """Raise UsageError for text that must not be recorded (a password), or cannot be (no UTF-8, a NUL)."""
    if name != UNRECORDED and has_secret(text):
        raise UsageError(
            f"{name}={public_setting(text)}: has a password or token, and settings are recorded: leave it out"
        )
    if not is_text(text) or "\0" in text:
        raise UsageError(f"{name}={text!a}: has characters that no file or server takes")


@functools.cache  # a plan of a large study checks the same settings a thousand times
def _make_checker(kind: Any, bounds: tuple[tuple[str, float], ...]) -> TypeAdapter[Any]:
    """Return a checker of values of a type within bounds; no number may be infinite."""
    return TypeAdapter(_bounded(kind, dict(bounds)))


def _bounded(kind: Any, bounds: Mapping[str, Any]) -> Any:
    """Return the type with its numbers within bounds, also those in a list or in a union with words or none."""
    if kind is float:
        return Annotated[kind, Field(allow_inf_nan=False, **bounds)]
    if kind is int and bounds:
        return Annotated[kind, Field(**bounds)]
    origin = typing.get_origin(kind)
    if not bounds or origin not in (tuple, typing.Union, UnionType):
        return kind
    parts: Any = tuple(part if part is ... else _bounded(part, bounds) for part in typing.get_args(kind))
    return tuple[parts] if origin is tuple else functools.reduce(operator.or_, parts)


def flatten(instance: Any, keep: Callable[[dataclasses.Field[Any]], bool] | None = None) -> dict[str, Any]:
    """Return dotted names and values of a settings object, as `build` takes them; only those that `keep` accepts."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value):
            result |= {f"{field.name}.{name}": v for name, v in flatten(value, keep).items()}
        elif keep is None or keep(field):
            result[field.name] = value
    return result


def flatten_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of Python as settings by dotted name: `optim={"lr": 0.1}` becomes `optim.lr`."""
    settings: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            settings |= {f"{name}.{inner}": part for inner, part in flatten_arguments(value).items()}
        else:
            settings[name] = to_plain(value)
    return settings


def to_plain(value: Any) -> Any:
    """Return a value of Python as YAML would hold it: paths as text; arrays, tensors and tuples as lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: to_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    return value


def word(value: Any) -> str:
    """Return a setting's value as it is typed on the command line: `true`, `none`, `0.3,0.6`."""
    if isinstance(value, list | tuple):
        return ",".join(map(word, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as words of a command line, `--name=value`: so a value may begin with dashes itself."""
    return [f"--{name}={word(value)}" for name, value in settings.items()]


def is_text(word: str) -> bool:
    """Return False for a word or file name with bytes that are no UTF-8, which Python decodes as surrogates."""
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


MOST_LISTED = 60  # names in a message
FIRST_LISTED = 10  # names of a longer list
CUT = " more"  # end of a list that is cut


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or the list of valid names if none is near.

    A long list is cut. Of a dotted name whose group exists, only that group is listed.
    """
    names = list(names)
    lookalike = find_other_form(name, names)
    if lookalike:
        return f"; '{lookalike}' looks the same, in another Unicode form (NFC or NFD): write both in one"
    hint = hint_near(name, names)
    if hint:
        return hint
    valid = _in_group(name, names) or names
    return f"; valid: {listed(valid, FIRST_LISTED if len(valid) > MOST_LISTED else MOST_LISTED)}"


def refuse_unknown(name: str, names: Collection[str], problem: str) -> None:
    """Raise UsageError if a name is not among `names`. problem: the message, to which the nearest name is added."""
    if name not in names:
        raise UsageError(f"{problem}{nearest(name, names)}")


def hint_near(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing if no name is near."""
    close = find_near_name(name, names)
    return "" if close is None else f"; did you mean '{close}'?"


def find_near_name(name: str, names: Iterable[str]) -> str | None:
    """Return the valid name that was probably meant, None if none is near.

    Within an existing group of dotted names (`optim.`) the last parts are compared: the common start would make any two
    of them alike. A name more than twice as long is near only if it contains the other. If none is near, a name without
    its group (`lr`) means the one dotted name that ends with it (`optim.lr`).
    """
    names = list(names)
    group = _in_group(name, names)
    start = f"{name.rpartition('.')[0]}." if group else ""
    choices = [candidate.removeprefix(start) for candidate in group or names]
    part = name.removeprefix(start)
    transposed = [choice for choice in choices if sorted(choice) == sorted(part)]
    if transposed:
        return start + transposed[0]
    close = difflib.get_close_matches(part, choices, n=3)
    for candidate in close:
        if len(candidate) <= 2 * len(part) or part in candidate:
            return start + candidate
    grouped = [candidate for candidate in names if candidate.endswith(f".{name}")]
    return grouped[0] if len(grouped) == 1 else None


def _in_group(name: str, names: Sequence[str]) -> list[str]:
    """Return the names with the same group as a dotted name; none if it has no group, or an unknown one."""
    group = name.rpartition(".")[0]
    return [candidate for candidate in names if group and candidate.rpartition(".")[0] == group]


def _make_instance(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make an instance of checked values by dotted name. Raises UsageError if they contradict each other."""
    hints = _type_hints(typing.cast(Any, cls))
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            prefix = f"{field.name}."
            nested = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
            arguments[field.name] = _make_instance(typing.cast(type, kind), nested)
        elif field.name in values:
            arguments[field.name] = values[field.name]
    try:
        return cls(**arguments)
    except ValueError as error:  # a __post_init__ that checks settings against each other
        raise UsageError(str(error)) from None


def _describe_problem(problem: Any, kind: Any) -> str:
    """Return pydantic's message; for a list that is too short, the number of values that it should have."""
    if problem["type"] == "missing":
        return f"should be {len(typing.get_args(kind))} values, separated by commas"
    return str(problem["msg"][:1].lower() + problem["msg"][1:])


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) not in (None, tuple, typing.Literal) else (kind,)


def _prepare_value(kind: Any, value: Any) -> Any:
    """Convert a value to a form that pydantic accepts for the type.

    `none` becomes None, or an empty list of numbers; `a,b,c` becomes a list, as does a single number of Python. True
    becomes a word, as pydantic would take it for the number 1.
    """
    kinds = _alternatives(kind)
    if value is None and NoneType not in kinds:
        value = "none"
    if isinstance(value, bool) and bool not in kinds:
        value = word(value)
    if isinstance(value, int | float) and any(typing.get_origin(k) is tuple for k in kinds):
        return [value]
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and NoneType in kinds:
        return None
    if value.lower() == "none" and any(_is_list_of_numbers(k) for k in kinds):
        return []
    if any(typing.get_origin(k) is tuple for k in kinds) and not _is_literal(kinds, value):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _is_list_of_numbers(kind: Any) -> bool:
    """Return True for a list of any number of numbers. In a list of names, `none` could be a name."""
    inner = typing.get_args(kind)
    return typing.get_origin(kind) is tuple and inner[1:] == (...,) and inner[0] is not str


def _is_literal(kinds: Iterable[Any], value: str) -> bool:
    return any(value in typing.get_args(k) for k in kinds if typing.get_origin(k) is typing.Literal)


def _nearest_word(kind: Any, value: Any) -> str:
    """Return `; did you mean 'x'?` if a value is near one of the type's words, else nothing."""
    choices: list[str] = []
    for alternative in _alternatives(kind):
        if typing.get_origin(alternative) is typing.Literal:
            choices.extend(map(str, typing.get_args(alternative)))
    close = difflib.get_close_matches(str(value), choices, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
