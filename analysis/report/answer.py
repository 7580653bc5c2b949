"""First sentences of the report: what its sections say first of all, and what stands below the scores.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

from biasbed.analysis import sections
from biasbed.analysis.result import Analysis


def answer_sentences(analysis: Analysis) -> list[str]:
    """Return the first sentence of each section that answers; what is shown comes first."""
    return [answer.sentences[0] for answer in sections.answers(analysis)]


def answer_paragraphs(analysis: Analysis) -> list[str]:
    """Return all sentences of each section that answers, joined; what is shown comes first."""
    return [" ".join(answer.sentences) for answer in sections.answers(analysis)]


def further_sentences(analysis: Analysis) -> list[str]:
    """Return what stands below the scores: further sentences of the same sections, and what limits the answer."""
    sentences: list[str] = []
    for answer in sections.answers(analysis):
        sentences += answer.sentences[1:]
    return [*sentences, *sections.caveats(analysis)]


def shows_difference(analysis: Analysis) -> bool:
    """Return True if any part of the answer is a difference that is shown."""
    return any(answer.is_shown for answer in sections.answers(analysis))
