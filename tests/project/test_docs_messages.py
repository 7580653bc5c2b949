"""Every message that docs/troubleshooting.md quotes is one that the program prints, in these words."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from helpers.commands import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
CODE = (ROOT / "src" / "biasbed", ROOT / "analysis")
QUOTED = re.compile(r"^- `((?:``|[^`\n])+)`:", re.M)
HOLE = "\0"  # what a message's own words stand around, when it is printed
FILLED = r"(?:<[^<>]*>)*"  # on the page: words in angles, or nothing


def quoted(text: str) -> list[str]:
    """The messages of a page; a pair of backticks in one is a backtick of the message."""
    return [message.replace("``", "`") for message in QUOTED.findall(text)]


def template(node: ast.expr) -> str:
    """The words of a text, with holes for what is only known when it is printed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return HOLE


@functools.cache
def templates() -> frozenset[str]:
    """Return the templates of all texts in the program's code."""
    trees = [ast.parse(path.read_text()) for folder in CODE for path in folder.rglob("*.py")]
    return frozenset(template(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr))


def is_printed(message: str, words: str) -> bool:
    """Return True if a message has the words of a template, and no others."""
    pieces = re.split(f"{HOLE}+", words)
    if not all(piece in message for piece in pieces):  # of almost all texts, before a pattern is made of them
        return False
    return re.fullmatch(FILLED.join(map(re.escape, pieces)), message) is not None


MESSAGES = quoted(PAGE.read_text())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_printed(message: str) -> None:
    assert any(is_printed(message, words) for words in templates())


def test_the_page_has_many_and_none_twice() -> None:
    assert 40 <= len(set(MESSAGES)) == len(MESSAGES) == PAGE.read_text().count("\n- ")


def test_another_word_is_noticed() -> None:
    made = template(ast.parse('f"init={init}: no such file" + hint', mode="eval").body)
    assert is_printed("init=<init>: no such file<hint>", made)
    assert is_printed("init=<init>: no such file", made)
    assert not is_printed("init=<init>: no such file; valid: scratch", made)
    assert not is_printed("init=<init>: there is no such file", made)
    assert not is_printed("init=<init>: no such", made)


def test_no_page_is_asked_to_say_less(tmp_path: Path) -> None:
    assert quoted("- `a ``b`` <c>`: d\n- `e`: `f`\ng `h`: i\n") == ["a `b` <c>", "e"]
