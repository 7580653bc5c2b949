"""CONTRIBUTING's table of questions: every module that answers one says so in its own docstring."""

from __future__ import annotations

import ast
import functools
import re

from helpers.commands import ROOT
from project.test_house import modules

PAGE = ROOT / "CONTRIBUTING.md"
HEAD = "| question | file | subject |\n|---|---|---|\n"
ANSWERS = "Answers: "


@functools.cache
def table() -> str:
    """Return the table, a row for each `Answers:` line of a module's docstring, in the order of files."""
    rows = []
    for _, path in sorted(modules().items()):
        text = path.read_text()
        if ANSWERS not in text:
            continue
        subject, *lines = (ast.get_docstring(ast.parse(text)) or " ").splitlines()
        file = path.relative_to(ROOT).as_posix().removeprefix("src/biasbed/")
        questions = [line.removeprefix(ANSWERS) for line in lines if line.startswith(ANSWERS)]
        rows += [f"| {question} | `{file}` | {subject.removesuffix('.')} |" for question in questions]
    return HEAD + "\n".join(rows) + "\n"


def written_table() -> str:
    written = re.search(rf"{re.escape(HEAD)}(\|.*\n)*", PAGE.read_text())
    assert written is not None, f"{PAGE.name} has no table that begins with {HEAD.splitlines()[0]}"
    return written[0]


def test_the_table_is_what_modules_say(renew: bool) -> None:
    """`pytest --renew` writes it."""
    if renew:
        PAGE.write_text(PAGE.read_text().replace(written_table(), table()))
    assert written_table() == table()


def test_a_question_has_one_answer() -> None:
    questions = [row.split(" | ")[0] for row in table().splitlines()[2:]]
    assert len(questions) == len(set(questions)) >= 40
