"""Language of the code, as far as it can be counted: first words of docstrings, vague names, packed expressions."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import ROOT
from project.test_house import modules, nodes

# Docstrings that begin so do not say what a function does.
FIRST_WORDS = {"How", "Its", "Of", "That", "Those", "What", "Where", "Whether", "Which"}
VAGUE_NAMES = {
    *("along", "asked", "entry", "found", "given", "known", "of_table", "one", "other", "over", "own", "place"),
    *("taken", "told", "wanted", "what", "whole", "words"),
}
# Words that users type, which are fields in code: settings, and keys of files.
TYPED_BY_USERS = {
    "biasbed.plugins.layouts.layout_file": {"over"},
    "biasbed.options": {"what", "words"},
}
DENSEST_FILE, DENSEST_WHOLE = 15.0, 6.0  # comprehensions, conditional expressions and lambdas per 100 lines
PACKED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.Lambda)

FILES = modules()


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, docstring) of a module, its classes and functions."""
    for node in nodes(path):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), text


def poor_docstrings(path: Path) -> list[str]:
    """Return the docstrings whose first word says nothing, as `name: first line`."""
    lines = []
    for name, text in docstrings(path):
        first = re.split(r"\W", text.lstrip("`'\""))[0]
        if first in FIRST_WORDS:
            lines.append(f"{name}: {text.splitlines()[0]}")
    return lines


def vague_names(path: Path) -> Counter[str]:
    """Count the bindings of names that do not say what they hold: variables, parameters and functions."""
    names: Counter[str] = Counter()
    for node in nodes(path):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = node.name.lstrip("_")
        if name in VAGUE_NAMES or (name == "of" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            names[name] += 1
    return names


def packed_expressions(path: Path) -> int:
    return sum(isinstance(node, PACKED) for node in nodes(path))


def tangled_expressions(path: Path) -> list[int]:
    """Return the lines with a comprehension of two loops or conditions, or a conditional expression inside another."""
    lines = []
    for node in nodes(path):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if len(node.generators) > 1 or len(node.generators[0].ifs) > 1:
                lines.append(node.lineno)
        elif isinstance(node, ast.IfExp) and any(isinstance(part, ast.IfExp) for part in (node.body, node.orelse)):
            lines.append(node.lineno)
    return lines


def test_docstrings_begin_with_what_is_done() -> None:
    poor = {module: poor_docstrings(path) for module, path in FILES.items()}
    assert not {module: lines for module, lines in poor.items() if lines}


@pytest.mark.parametrize("folder", ["benchmarks", "tests"])
def test_docstrings_of_tests_and_benchmarks_begin_with_what_is_done(folder: str) -> None:
    paths = (ROOT / folder).rglob("*.py")
    poor = {str(path.relative_to(ROOT)): poor_docstrings(path) for path in paths}
    assert not {path: lines for path, lines in poor.items() if lines}


def test_names_say_what_they_hold() -> None:
    vague = {module: vague_names(path) for module, path in FILES.items()}
    assert not {module: names for module, names in vague.items() if set(names) - TYPED_BY_USERS.get(module, set())}


def test_one_step_a_line() -> None:
    tangled, dense = {}, {}
    for module, path in FILES.items():
        tangled[module] = tangled_expressions(path)
        lines = path.read_text().count("\n")
        dense[module] = 100 * packed_expressions(path) / lines if lines > 40 else 0.0
    assert not {module: lines for module, lines in tangled.items() if lines}
    assert not {module: density for module, density in dense.items() if density > DENSEST_FILE}


def test_expressions_are_loose_over_the_whole() -> None:
    lines = sum(path.read_text().count("\n") for path in FILES.values())
    assert 100 * sum(map(packed_expressions, FILES.values())) <= DENSEST_WHOLE * lines


def test_poor_language_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "poor.py"
    path.write_text('''"""What this is."""
def told(found):
    """Of these the mean."""
    one = [a for b in found for a in b]
    return 1 if one else 2 if found else 3
''')
    assert poor_docstrings(path) == ["module: What this is.", "told: Of these the mean."]
    assert vague_names(path) == {"told": 1, "found": 1, "one": 1}
    assert tangled_expressions(path) == [4, 5]
    assert packed_expressions(path) == 3
