"""Time limits of the tests' own: a loaded machine must not decide whether a test passes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHORTEST = 300  # seconds
CLOCKS = {"monotonic", "time", "perf_counter"}
WAITS = {"wait", "join", "wait_for", "wait_until"}
# Attempts that are repeated until a longer limit, or databases that must not wait.
ATTEMPTS = {"urlopen", "connect", "HTTPConnection", "create_connection"}


def short_limits(source: str) -> list[int]:
    """Return the lines with a time limit below SHORTEST."""
    nodes = (limit for node in ast.walk(ast.parse(source)) for limit in _limits(node))
    return sorted(node.lineno for node in nodes if _is_short(node))


def _limits(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a node that say how long something may take."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in ATTEMPTS:
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "timeout")
        if name in WAITS or ast.unparse(node.func) == "pytest.mark.timeout":
            yield from node.args if isinstance(node.func, ast.Attribute) else node.args[1:]  # first what it waits for
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Call):
        if getattr(node.left.func, "attr", "") in CLOCKS:
            yield node.right
    elif isinstance(node, ast.FunctionDef) and node.name != "linger":  # which slows a training down
        names = [argument.arg for argument in node.args.args[len(node.args.args) - len(node.args.defaults) :]]
        defaults = dict(zip(names, node.args.defaults, strict=True))
        yield from (defaults[name] for name in ("seconds", "timeout") if name in defaults)


def _is_short(node: ast.expr) -> bool:
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return is_number and node.value < SHORTEST  # type: ignore[attr-defined,no-any-return]


def test_no_test_waits_for_less_than_five_minutes() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix(): short_limits(path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert int(settings["timeout"]) >= 3 * SHORTEST  # a test's several waits, each with a message of its own


def test_short_limits_are_seen() -> None:
    source = (
        "def wait(condition, seconds=30.0):\n    end = time.monotonic() + 60\n    p.wait(20)\n    run(timeout=100)\n"
    )
    assert short_limits(source) == [1, 2, 3, 4]
    assert not short_limits("p.wait(300)\n', '.join(names)\nurlopen(address, timeout=1)\n")
