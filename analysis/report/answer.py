"""Answer of an analysis: the first sentences of the report, and those below its scores.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

from biasbed.analysis import sections
from biasbed.analysis.result import Analysis


def answer_sentences(analysis: Analysis) -> list[str]:
    """Return the first sentence of each section that answers; sections that show a difference come first."""
    return [answer.sentences[0] for answer in sections.answers(analysis)]


def answer_paragraphs(analysis: Analysis) -> list[str]:
    """Return all sentences of each section that answers, as one text; sections that show a difference come first."""
    return [" ".join(answer.sentences) for answer in sections.answers(analysis)]


def further_sentences(analysis: Analysis) -> list[str]:
    """Return the sentences below the scores: the further ones of the same sections, and those that limit the answer."""
    sentences: list[str] = []
    for answer in sections.answers(analysis):
        sentences += answer.sentences[1:]
    return [*sentences, *sections.caveats(analysis)]


def shows_difference(analysis: Analysis) -> bool:
    """Return True if any section shows a difference."""
    return any(answer.is_shown for answer in sections.answers(analysis))
