"""First sentences of the report: what its sections say first of all.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

from biasbed.analysis import sections
from biasbed.analysis.result import Analysis


def answer_sentences(analysis: Analysis, most: int | None = None) -> list[str]:
    """Return the answer. most: sentences of each section, all by default."""
    sentences: list[str] = []
    for answer in sections.answers(analysis):
        sentences += answer.sentences[:most]
    return sentences


def shows_difference(analysis: Analysis) -> bool:
    """Return True if any part of the answer is a difference that is shown."""
    return any(answer.is_shown for answer in sections.answers(analysis))
