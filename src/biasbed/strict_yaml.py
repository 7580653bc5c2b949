"""YAML files of a user's own, read strictly: whatever is wrong with one is a single line."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from biasbed.errors import UsageError

MERGE = "tag:yaml.org,2002:merge"  # of the key <<, whose entries may be replaced


def read(path: Path, flag: str) -> Any:
    """What is in the file. flag: the setting that names it, for the message.

    Raises UsageError where it can't be read, is no YAML, or has a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UsageError(f"{flag}={path}: can't be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, a date that there is not
        mark = getattr(error, "problem_mark", None)
        what = str(error) if mark is None else f"line {mark.line + 1}: {getattr(error, 'problem', '')}"
        reason = " ".join(what.split())
        raise UsageError(f"{flag}={path}: can't be read as YAML ({reason[:200]})") from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML's own loader would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        twice = [key for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"'{twice[0]}' is there twice", node.start_mark)
        return super().construct_mapping(node, deep)
