"""Phrases of the report: those of `templates/phrases.yaml`, and what plug-ins offer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from biasbed.plugin_loader import Joined
from biasbed.system import strict_yaml

FILE = Path(__file__).parent / "templates" / "phrases.yaml"


def say(phrase: str, /, **slots: object) -> str:
    """Return the phrase with its slots filled. phrase: its key; keys of several levels are joined by dots."""
    return phrases()[phrase].format(**slots)


@cache
def phrases() -> Mapping[str, str]:
    """Return all phrases by key."""
    return Joined("phrases", read(FILE))


def read(path: Path) -> Mapping[str, str]:
    """Read a file of phrases."""
    return dict(_flatten(strict_yaml.parse(path.read_text(encoding="utf-8"), path.name), ""))


def group(key: str) -> dict[str, str]:
    """Return the phrases of a group by the rest of their keys, in the order of the file."""
    prefix = f"{key}."
    return {name.removeprefix(prefix): text for name, text in phrases().items() if name.startswith(prefix)}


def _flatten(content: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            items += _flatten(value, f"{prefix}{name}.")
        else:
            items.append((f"{prefix}{name}", str(value)))
    return items
