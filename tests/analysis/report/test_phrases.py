"""Every phrase of the report is said somewhere, with exactly its slots."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

from biasbed.analysis.report import phrases
from helpers.commands import ROOT

REPORT = ROOT / "analysis" / "report"
SPEAKING = (REPORT, ROOT / "analysis" / "sections", ROOT / "src" / "biasbed" / "plugins")
GROUPS = ("terms.", "cell_terms.", "files.")


def slots_of(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}


def sources() -> dict[Path, str]:
    files = [path for folder in SPEAKING for path in folder.rglob("*.py")]
    return {path: path.read_text() for path in files if path.name != "phrases.py"}


def said(texts: Mapping[Path, str]) -> Iterator[tuple[str, set[str]]]:
    """Yield (key, slots) of every `say("key", slot=...)` whose slots are all written out."""
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                key, names = node.args[0], [keyword.arg for keyword in node.keywords]
                if isinstance(key, ast.Constant) and None not in names:
                    yield str(key.value), {name for name in names if name}


def template_keys() -> set[str]:
    """Return the keys that the page's templates may say: their strings, and those of figures and headings."""
    strings: set[str] = set()
    for template in (REPORT / "templates").glob("*.html"):
        strings |= set(re.findall(r'"([\w.-]+)"', template.read_text()))
    of_figures = {f"figures.{name}.{part}" for name in strings for part in ("alt", "caption")}
    return strings | of_figures | {f"headings.{name}" for name in strings}


def test_every_phrase_is_said() -> None:
    strings = template_keys()
    for text in sources().values():
        strings |= {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert {key for key in phrases.phrases() if key not in strings and not key.startswith(GROUPS)} == set()


def test_every_slot_is_filled_and_no_other() -> None:
    calls = list(said(sources()))
    assert len(calls) > 50
    for key, names in calls:
        assert names == slots_of(phrases.phrases()[key]), key
