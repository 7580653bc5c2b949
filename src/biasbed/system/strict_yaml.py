"""Strict reading of users' YAML files: syntax, duplicate keys, aliases and size. `formats` checks their entries."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from biasbed.errors import UsageError
from biasbed.system.strict import open_text, refuse_values

MERGE = "tag:yaml.org,2002:merge"  # of the key <<, whose entries may be replaced
# Files are written by hand. A few lines of aliases of aliases could stand for more entries than any memory holds.
MOST_CHARACTERS, MOST_ENTRIES = 2**20, 100_000


def read(path: Path, flag: str) -> Any:
    """Read a YAML file. flag: the setting that names it, for the message.

    Raises OSError if it can't be opened, UsageError if it is invalid, has a key twice, refers to itself, or is too
    large.
    """
    try:
        with open_text(path) as file:
            text = file.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise _unreadable(f"{flag}={path}", error) from None
    return parse(text, f"{flag}={path}")


def parse(text: str, where: str) -> Any:
    """Parse the text of a YAML file. where: names the file in messages. Raises UsageError if it is invalid."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{where}: has more than {MOST_CHARACTERS} characters: is this the right file?")
    try:
        value = yaml.load(text, _Loader)
        refuse_values(value)
        return value
    except _PROBLEMS as error:
        raise _unreadable(where, error) from None


def describe_unquoted(value: object) -> str:
    """Return a message on a word without quotes that YAML reads as no text: `no` is false, `12` is a number."""
    meaning = "a number or date"
    if value is None:
        meaning = "nothing"
    elif isinstance(value, bool):
        meaning = str(value).lower()
    return f"without quotes is {meaning} in YAML: put it in quotes"


def _unreadable(where: str, error: Exception) -> UsageError:
    mark = getattr(error, "problem_mark", None)
    problem = str(error) if mark is None else f"line {mark.line + 1}: {getattr(error, 'problem', '')}"
    return UsageError(f"{where}: can't be read as YAML ({' '.join(problem.split())[:200]})")


# ValueError: no UTF-8, a date that there is not. The others come from values that are not of the type that they name
# (`!!bool maybe`, `!!timestamp then`).
_PROBLEMS = (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError, TypeError, ArithmeticError)


class _Loader(yaml.SafeLoader):
    """Refuses endless aliases, and a key that is there twice: YAML's own loader would silently take the last."""

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        _count_entries(node, {})
        return self.construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        nodes = [key for key, _ in node.value if key.tag != MERGE]
        keys = [self.construct_object(key, deep=True) for key in nodes]
        for key, value in zip(nodes, keys, strict=True):
            if value is None or isinstance(value, bool):
                problem = f"'{key.value}' {describe_unquoted(value)}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        seen = set()
        for key in keys:
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' is there twice", node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _count_entries(node: yaml.Node, counted: dict[yaml.Node, int | None]) -> int:
    """Return the number of entries in a node, counting an alias as often as it is used.

    counted: numbers of the nodes so far; None for those that are being counted. Raises YAMLError for too many entries,
    and for an alias that refers to a node that contains it.
    """
    if node in counted:
        count = counted[node]
        if count is None:
            raise yaml.constructor.ConstructorError(None, None, "an alias refers to what it is in", node.start_mark)
        return count
    counted[node] = None
    below = node.value if isinstance(node, yaml.CollectionNode) else ()
    count = 1
    for item in below:  # a mapping's are pairs
        for part in item if isinstance(item, tuple) else (item,):
            count += _count_entries(part, counted)
    if count > MOST_ENTRIES:
        raise yaml.constructor.ConstructorError(
            None, None, f"its aliases come to more than {MOST_ENTRIES} entries", node.start_mark
        )
    counted[node] = count
    return count
