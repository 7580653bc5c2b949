"""Questions that modules answer (`git grep "Answers:"`): each stands in one docstring."""

from __future__ import annotations

from project.test_house import modules

ANSWERS = "Answers: "


def test_a_question_has_one_answer() -> None:
    lines = [line for path in modules().values() for line in path.read_text().splitlines()]
    questions = [line for line in lines if line.startswith(ANSWERS)]
    assert len(questions) == len(set(questions)) >= 40
