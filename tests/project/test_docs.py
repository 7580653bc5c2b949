"""Every command, link and quoted message of README and docs is one that the program and the pages have."""

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
    for entry, flags in commands_of(page):
        assert entry in COMMANDS
        if "--help" in flags:
            continue
        own = [re.sub(r"^\S*\.py:\S+$", "erm", flag) for flag in flags]  # a reader's own file
        given = parse(entry, [re.sub(r",\S+\.py:\S+", "", flag) for flag in own])
        for positional in COMMANDS[entry].positional:
            if f"--{positional}" not in flags:
                given.pop(positional, None)
        typed = {flag.removeprefix("--").partition("=")[0] for flag in flags if flag.startswith("--")}
        assert set(given) == typed, (entry, flags)


CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"\]\(([^()\s]+)\)")
LINKING = [*PAGES, ROOT / "CHANGELOG.md"]


def without_code(text: str) -> str:
    return CODE.sub(lambda code: "" if code.group().startswith("```") else code.group().strip("`"), text)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings: lower case, blanks as hyphens, no other punctuation."""
    found: set[str] = set()
    for line in re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(LINK, "]", line).lower()).replace(" ", "-")
        same = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in found)
        found.add(f"{name}-{same}" if same else name)
    return found


def fault_of(page: Path, target: str) -> str | None:
    """Why a link of a page leads nowhere, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: there is no such file"
    if anchor and anchor not in anchors_of(file):
        return f"{target}: no heading there is called so"
    return None


def links_of(page: Path) -> list[str]:
    found = LINK.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [fault for target in links_of(page) if (fault := fault_of(page, target))] == []


def test_a_reader_of_the_readme_comes_to_every_page() -> None:
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        seen.add(page)
        linked = {(page.parent / target.partition("#")[0]).resolve() for target in links_of(page) if target[0] != "#"}
        ahead += [other for other in linked - seen if other.suffix == ".md"]
    assert sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - seen) == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, `two.csv` and 3\n\n[a](#one-twocsv-and-3) [b](#one) [c](other.md) [d](page.md#no)\n")
    assert [fault_of(page, target) is None for target in links_of(page)] == [True, False, False, False]


TROUBLES = ROOT / "docs" / "troubleshooting.md"
PROGRAM_FOLDERS = (ROOT / "src" / "biasbed", ROOT / "analysis")
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
    trees = [ast.parse(path.read_text()) for folder in PROGRAM_FOLDERS for path in folder.rglob("*.py")]
    return frozenset(template(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr))


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
