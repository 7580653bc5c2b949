"""CONTRIBUTING's table of questions: every module that answers one says so in its own docstring."""

from __future__ import annotations

import ast
import re

from helpers.commands import ROOT
from project.test_house import modules

PAGE = ROOT / "CONTRIBUTING.md"
HEAD = "| question | file | subject |\n|---|---|---|\n"
ANSWERS = "Answers: "


def table() -> str:
    """Return the table, a row for each `Answers:` line of a module's docstring, in the order of files."""
    rows = []
    for _, path in sorted(modules().items()):
        subject, *lines = (ast.get_docstring(ast.parse(path.read_text())) or " ").splitlines()
        file = path.relative_to(ROOT).as_posix().removeprefix("src/biasbed/")
        questions = [line.removeprefix(ANSWERS) for line in lines if line.startswith(ANSWERS)]
        rows += [f"| {question} | `{file}` | {subject.removesuffix('.')} |" for question in questions]
    return HEAD + "\n".join(rows) + "\n"


def test_the_table_is_what_modules_say(renew: bool) -> None:
    """`pytest --renew` writes it."""
    page = PAGE.read_text()
    written = re.search(rf"{re.escape(HEAD)}(\|.*\n)*", page)
    assert written is not None, f"{PAGE.name} has no table that begins with {HEAD.splitlines()[0]}"
    if renew:
        PAGE.write_text(page.replace(written[0], table()))
    assert table() in PAGE.read_text()


def test_a_question_has_one_answer() -> None:
    questions = [row.split(" | ")[0] for row in table().splitlines()[2:]]
    assert len(questions) == len(set(questions)) >= 40
