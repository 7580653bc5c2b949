"""File formats as models: study tables, search spaces, layouts, label maps, descriptions and manifests.

A format is a subclass of `Format`. Its fields are the entries of a file, with their types and meanings; checks,
messages and documentation follow from them. `read` reads a YAML file, `parse` and `check` take content that is read
already. A message is one line: the file, the place inside it, the problem, the nearest valid name.

Answers: How is a YAML or JSON file checked against its format?
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, model_validator

from biasbed.errors import UsageError, shown
from biasbed.settings import hint_near, nearest
from biasbed.system import strict_yaml
from biasbed.system.strict import parse_float

K = TypeVar("K")
T = TypeVar("T")
LONGEST_VALUE = 60  # characters of a wrong value in a message


class Format(BaseModel):
    """Mapping with the entries that its fields describe, and no others. An empty one may be left empty in YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, content: Any) -> Any:
        """Raise ValueError for unknown entries, with the nearest valid name, which pydantic would leave out."""
        content = {} if content is None else content
        names = tuple(cls.model_fields)
        if not isinstance(content, dict):
            raise ValueError(f"should have the entries {', '.join(names)}")
        for name in content:
            if name not in names:
                raise ValueError(f"unknown entry '{_shorten(name)}'{nearest(str(name), names)}")
        return content


def parsed_by(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Make a pydantic validator of a function that parses a value, and raises ValueError or UsageError."""

    def run(value: Any) -> Any:
        try:
            return parse(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(run)


def _as_names(value: Any) -> Any:
    if value is not None and not isinstance(value, dict):
        raise ValueError("should be names with values")
    for name in value or {}:
        if not isinstance(name, str):
            raise ValueError(f"'{name}' {strict_yaml.describe_unquoted(name)}")
    return value or {}


def _as_tuple(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError("should be a list")
    return tuple(value)


ByName = Annotated[dict[K, T], BeforeValidator(_as_names)]  # entries with names of the user's; may be empty
Listed = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(kind: type[T], path: Path, flag: str) -> T:
    """Read a YAML file of this format. flag: the setting that names it. Raises UsageError of one line."""
    return parse(kind, strict_yaml.read(path, flag), f"{flag}={path}")


def parse(kind: type[T], content: object, where: str) -> T:
    """Check the content of a YAML file and return it as this format. where: names the file in messages.

    Raises UsageError of one line.
    """
    try:
        return check(kind, content)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def check(kind: type[T], content: object) -> T:
    """Check content and return it as this format. Raises ValueError of one line, which names the place inside."""
    try:
        return _adapter(cast(Any, kind)).validate_python(content)
    except ValidationError as error:
        raise ValueError(_explain(error.errors(include_url=False)[0], content)) from None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def entries(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield (dotted entry, meaning) of each entry of a format; `<name>` is the user's choice, `[]` a list's place."""
    described = _adapter(kind).json_schema()
    yield from _entries(described, described.get("$defs", {}), "")


def _entries(part: Mapping[str, Any], definitions: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a part of a JSON schema. above: the dotted entry that it belongs to, with its dot."""
    if "$ref" in part:
        part = definitions[part["$ref"].rpartition("/")[2]]
    for name, field in part.get("properties", {}).items():
        yield f"{above}{name}", field["description"]
        yield from _entries(field, definitions, f"{above}{name}.")
    if isinstance(part.get("additionalProperties"), dict):
        values = part["additionalProperties"]
        for value in values.get("anyOf", [values]):
            if "description" in value:
                yield f"{above}<name>", value["description"]
        yield from _entries(part["additionalProperties"], definitions, f"{above}<name>.")
    if "items" in part:
        yield from _entries(part["items"], definitions, f"{above.removesuffix('.')}[].")
    for alternative in part.get("anyOf", ()):
        yield from _entries(alternative, definitions, above)


# --- messages ---------------------------------------------------------------------------------------------------------


def _explain(problem: Mapping[str, Any], content: object) -> str:
    """Return the message on an error of pydantic in one line: `place: name=value: what is wrong`."""
    keys = _locate(problem["loc"], content)
    value, cause = problem["input"], problem.get("ctx", {}).get("error")
    if problem["type"] == "missing":
        return _with_place(keys, f"'{problem['loc'][-1]}' is missing")
    last = len(keys) - 1
    while last > 0 and isinstance(keys[last], int):  # a place in a list has the list's name
        last -= 1
    parent, name = keys[: max(last, 0)], _format_place(keys[max(last, 0) :])
    if isinstance(cause, ValueError):  # of a validator of ours; a message that begins with the entry's name has it once
        is_named = bool(keys) and re.match(rf"'?{re.escape(name)}\b", str(cause)) is not None
        return _with_place(parent if is_named else keys, str(cause))
    if value in (None, "", [], (), {}):
        return _with_place(parent, f"'{name}' is empty" if keys else "is empty")
    if problem["type"] == "string_type" and not isinstance(value, list | dict):
        return _with_place(keys, f"{_shorten(value)} {strict_yaml.describe_unquoted(value)}")
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    if problem["type"] == "literal_error":
        message += hint_near(str(value), re.findall("'([^']*)'", problem["ctx"]["expected"]))
    text = f'"{_shorten(value)}"' if _is_quoted_number(value) else _shorten(value)
    return _with_place(parent, f"{name}={text}: {message}" if keys else f"'{_shorten(value)}': {message}")


def _is_quoted_number(value: object) -> bool:
    """Return True for text that would be a number without its quotes."""
    if not isinstance(value, str):
        return False
    try:
        parse_float(value)
    except ValueError:
        return False
    return True


def _locate(location: Sequence[str | int], content: object) -> list[str | int]:
    """Return the keys and positions of pydantic's location, without the names of types that it also contains."""
    keys: list[str | int] = []
    for part in location:
        is_key = isinstance(content, dict) and part in content
        is_position = isinstance(content, list | tuple) and isinstance(part, int)
        if is_key or is_position:
            content = content[part]  # type: ignore[index]
            keys.append(part)
    return keys


def _format_place(keys: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in keys)
    return text.removeprefix(".")


def _with_place(keys: Sequence[str | int], text: str) -> str:
    return f"{_shorten(_format_place(keys))}: {text}" if keys else text


def _shorten(value: object) -> str:
    return shown(str(value), LONGEST_VALUE)
