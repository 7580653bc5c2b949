"""Time limits of the tests' own: a loaded machine must not decide whether a test passes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis

ROOT = Path(__file__).resolve().parents[2]
SHORTEST = 600  # seconds
CLOCKS = {"monotonic", "time", "perf_counter"}
WAITS = {"wait", "join", "wait_for", "wait_until"}
HYPOTHESIS = {"deadline", "suppress_health_check", "derandomize", "database"}
PROFILE = "tests/conftest.py"  # sets Hypothesis' limits for all tests
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


def other_limits(source: str) -> list[int]:
    """Return the lines that set anything of Hypothesis but the number of examples."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    limited = (call for call in calls if {keyword.arg for keyword in call.keywords} & HYPOTHESIS)
    return sorted(call.lineno for call in limited)


def sources() -> Mapping[str, str]:
    """Return the text of every Python file of the tests by its path."""
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}


def test_no_test_waits_for_less_than_ten_minutes() -> None:
    lines = {name: short_limits(source) for name, source in sources().items()}
    assert {name: numbers for name, numbers in lines.items() if numbers} == {}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert int(settings["timeout"]) >= 3 * SHORTEST  # a test's several waits, each with a message of its own


def test_one_profile_of_hypothesis_has_no_deadline_and_no_test_another() -> None:
    lines = {name: other_limits(source) for name, source in sources().items() if name != PROFILE}
    assert {name: numbers for name, numbers in lines.items() if numbers} == {}
    assert hypothesis.settings().deadline is None
    assert hypothesis.settings().derandomize
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check


def test_short_limits_are_seen() -> None:
    source = (
        "def wait(condition, seconds=30.0):\n    end = time.monotonic() + 60\n    p.wait(20)\n    run(timeout=300)\n"
    )
    assert short_limits(source) == [1, 2, 3, 4]
    assert not short_limits("p.wait(600)\n', '.join(names)\nurlopen(address, timeout=1)\n")
    assert other_limits("settings(max_examples=3)\nsettings(deadline=None)\nsettings(derandomize=True)\n") == [2, 3]
