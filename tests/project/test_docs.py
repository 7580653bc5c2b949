"""Every command and quoted message of README and docs is one that the program has; mkdocs checks links in CI."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed.cli import COMMANDS, parse
from helpers.commands import ROOT
from project.test_house import modules, nodes

LOOSE = (ROOT / "README.md", ROOT / "docker" / "README.md", ROOT / "CONTRIBUTING.md")
PAGES = sorted([*LOOSE, *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"```(?:bash|sh)\n(.*?)```", re.S)
INLINE = re.compile(r"`((?:mlflow run|biasbed) [^`\n]+)`")
ENDS = ("&&", "||", "|", ";", "&")


def lines_of(page: Path) -> Iterator[str]:
    """Shell lines of a page, continued ones as one; and whole commands within its text."""
    text = page.read_text()
    for block in BLOCK.findall(text):
        yield from (line.strip() for line in re.sub(r"\\\n\s*", " ", block).splitlines())
    yield from (command for command in INLINE.findall(BLOCK.sub("", text)) if " -e " in command or "--" in command)


def commands_in(line: str) -> Iterator[list[str]]:
    """Words of each `biasbed` or `mlflow run .` command of a line."""
    words = shlex.split(re.sub(r"<[^<>|&]+>", "X", line), comments=True)  # what a reader fills in
    for is_end, group in itertools.groupby(words, lambda word: word in ENDS):
        parts = list(group)
        for start, word in enumerate(parts):
            is_ours = word == "biasbed" and re.fullmatch("[a-z]+", "".join(parts[start + 1 : start + 2]))
            if not is_end and (is_ours or parts[start : start + 2] == ["mlflow", "run"]):
                yield parts[start:]
                break


def as_ours(words: list[str]) -> tuple[str, list[str]]:
    """(entry, the flags) of a command."""
    if words[0] == "biasbed":
        return words[1], words[2:]
    command, flags = "main", []
    rest = words[3:]  # after the project
    while rest:
        option, *rest = rest
        if option in ("-e", "--entry-point"):
            command = rest.pop(0)
        elif option in ("-P", "--param-list"):
            name, _, value = rest.pop(0).partition("=")
            flags += [f"--{name}", value]
        elif option.startswith("-") and rest and not rest[0].startswith("-"):
            rest.pop(0)  # of mlflow's own
    return command, flags


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page as (entry, flags), but those of suites whose settings are their own."""
    commands = []
    for line in lines_of(page):
        for words in commands_in(line):
            if "..." not in " ".join(words) and not re.search(r"suite[= ]\S+\.py:", line):
                commands.append(as_ours(words))
    return commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_and_their_settings_are_there(page: Path) -> None:
    for command, flags in commands_of(page):
        assert command in COMMANDS
        if "--help" in flags:
            continue
        shared_flags = [re.sub(r"^\S*\.py:\S+$", "erm", flag) for flag in flags]  # a reader's own file
        settings = parse(command, [re.sub(r",\S+\.py:\S+", "", flag) for flag in shared_flags])
        for positional in COMMANDS[command].positional:
            if f"--{positional}" not in flags:
                settings.pop(positional, None)
        typed = {flag.removeprefix("--").partition("=")[0] for flag in flags if flag.startswith("--")}
        assert set(settings) == typed, (command, flags)


TROUBLES = ROOT / "docs" / "troubleshooting.md"
QUOTED = re.compile(r"^- `((?:``|[^`\n])+)`:", re.M)
HOLE = "\0"  # what a message's own words stand around, when it is printed
FILLED = r"(?:<[^<>]*>)*"  # on the page: words in angles, or nothing


def quoted(text: str) -> list[str]:
    """Return the messages of a page; a pair of backticks in one is a backtick of the message."""
    return [message.replace("``", "`") for message in QUOTED.findall(text)]


def template(node: ast.expr) -> str:
    """Return the words of a text, with holes for what is only known when it is printed."""
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
    texts: set[str] = set()
    for path in modules().values():
        texts.update(template(node) for node in nodes(path) if isinstance(node, ast.expr))
    return frozenset(texts)


def is_printed(message: str, words: str) -> bool:
    """Return True if a message has the words of a template, and no others."""
    pieces = re.split(f"{HOLE}+", words)
    if not all(piece in message for piece in pieces):  # of almost all texts, before a pattern is made of them
        return False
    return re.fullmatch(FILLED.join(map(re.escape, pieces)), message) is not None


MESSAGES = quoted(TROUBLES.read_text())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_printed(message: str) -> None:
    assert any(is_printed(message, words) for words in templates())


def test_the_page_has_many_and_none_twice() -> None:
    assert 40 <= len(set(MESSAGES)) == len(MESSAGES) == TROUBLES.read_text().count("\n- ")


def test_another_word_is_noticed() -> None:
    made = template(ast.parse('f"init={init}: no such file" + hint', mode="eval").body)
    assert is_printed("init=<init>: no such file<hint>", made)
    assert is_printed("init=<init>: no such file", made)
    assert not is_printed("init=<init>: no such file; valid: scratch", made)
    assert not is_printed("init=<init>: there is no such file", made)
    assert not is_printed("init=<init>: no such", made)
