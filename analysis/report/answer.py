"""First sentences of the report: the verdict over the sets, and what sections say first of all.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

from biasbed.analysis import sections
from biasbed.analysis.report.verdicts import main
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks.conclusions import verdict
from biasbed.analysis.sections.section import SectionAnswer


def answer_sentences(analysis: Analysis, most: int | None = None) -> list[str]:
    """Return the answer; what is shown comes first. most: sentences of each section, all by default."""
    sentences: list[str] = []
    for part in sorted(_parts(analysis), key=lambda part: not part.is_shown):  # stable
        sentences += part.sentences[:most]
    return sentences


def shows_difference(analysis: Analysis) -> bool:
    """Return True if any part of the answer is a difference that is shown."""
    return any(part.is_shown for part in _parts(analysis))


def _parts(analysis: Analysis) -> list[SectionAnswer]:
    comparison = main(analysis)
    over_sets = SectionAnswer((verdict(analysis),), comparison.significant and not comparison.skipped)
    return [over_sets, *sections.answers(analysis)]
