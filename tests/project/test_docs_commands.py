"""Every command in README and docs is one that the program takes: its entry and its settings are there."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed.cli import COMMANDS, parse
from helpers.commands import ROOT

LOOSE = (ROOT / "README.md", ROOT / "docker" / "README.md", ROOT / "CONTRIBUTING.md")
PAGES = sorted([*LOOSE, *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"```(?:bash|sh)\n(.*?)```", re.S)
INLINE = re.compile(r"`((?:mlflow run|biasbed) [^`\n]+)`")
CHECKOUT = ["mlflow", "run", "."]
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
        found = list(group)
        for start, word in enumerate(found):
            is_ours = word == "biasbed" and re.fullmatch("[a-z]+", "".join(found[start + 1 : start + 2]))
            if not is_end and (is_ours or found[start : start + 2] == ["mlflow", "run"]):
                yield found[start:]
                break


def as_ours(words: list[str]) -> tuple[str, list[str]]:
    """(entry, the flags) of a command."""
    if words[0] == "biasbed":
        return words[1], words[2:]
    entry, flags = "main", []
    rest = words[3:]  # after the project
    while rest:
        option, *rest = rest
        if option in ("-e", "--entry-point"):
            entry = rest.pop(0)
        elif option in ("-P", "--param-list"):
            name, _, value = rest.pop(0).partition("=")
            flags += [f"--{name}", value]
        elif option.startswith("-") and rest and not rest[0].startswith("-"):
            rest.pop(0)  # of mlflow's own
    return entry, flags


FOUND = [
    pytest.param(*as_ours(words), id=f"{page.relative_to(ROOT)}-{' '.join(words)[:60]}")
    for page in PAGES
    for line in lines_of(page)
    for words in commands_in(line)
    if "..." not in " ".join(words) and not re.search(r"suite[= ]\S+\.py:", line)  # whose settings are its own
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_through_mlflow_says_how_its_environment_is_made(page: Path) -> None:
    """Without it MLflow asks for conda, which few have. A project of Docker has its environment in the image."""
    commands = [(words, line) for line in lines_of(page) for words in commands_in(line) if words[:3] == CHECKOUT]
    assert [line for words, line in commands if "--env-manager" not in words] == []


def test_commands_are_found() -> None:
    assert len(FOUND) > 100


@pytest.mark.parametrize(("entry", "flags"), FOUND)
def test_a_command_of_the_docs_is_one(entry: str, flags: list[str]) -> None:
    assert entry in COMMANDS
    if "--help" in flags:
        return
    own = [re.sub(r"^\S*\.py:\S+$", "erm", flag) for flag in flags]  # a reader's own file
    given = parse(entry, [re.sub(r",\S+\.py:\S+", "", flag) for flag in own])
    for positional in COMMANDS[entry].positional:
        if f"--{positional}" not in flags:
            given.pop(positional, None)
    assert set(given) == {flag.removeprefix("--").partition("=")[0] for flag in flags if flag.startswith("--")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_line_that_installs_the_command_stands_before_its_first_use(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    uses = [
        found.start(1) + first.start()
        for found in BLOCK.finditer(text)
        if (first := re.search(r"^\s*biasbed [a-z]", found.group(1), re.M))
    ]
    assert not uses or "pip install" in text[: uses[0]]
