"""First sentences of the report: the verdict over the sets, over images, and on texture.

Answers: What does the report say first, and why?
"""

from __future__ import annotations

from biasbed.analysis.report.further_findings import texture_sentences
from biasbed.analysis.report.verdicts import main
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks.conclusions import verdict
from biasbed.analysis.sections.single_runs import SCOPE, SINGLE_RUNS, pairs_apart


def answer_sentences(analysis: Analysis, most: int | None = None) -> list[str]:
    """Return the answer: which algorithm is better, over sets and over images, and which relies less on texture.

    What is shown comes first. most: sets of cue conflicts that are told of, all by default.
    """
    texture = texture_sentences(analysis.texture, analysis.alpha, analysis.label)[:most]
    comparison = main(analysis)
    is_texture_shown = analysis.texture["significant"].astype(bool).any()
    parts = [
        (comparison.significant and not comparison.skipped, [verdict(analysis)]),
        (True, [] if comparison.skipped else _apart_over_images(analysis)),  # else the verdict says it
        (is_texture_shown, texture),
    ]
    answer: list[str] = []
    for _, sentences in sorted(parts, key=lambda part: not part[0]):  # stable
        answer += sentences
    return answer


def _apart_over_images(analysis: Analysis) -> list[str]:
    """Return what tests over images tell apart, and how far that holds; empty if they tell nothing apart."""
    compared = analysis.data(SINGLE_RUNS)
    if not compared.table["significant"].astype(bool).any():
        return []
    return [pairs_apart(compared, analysis.alpha, analysis.label), SCOPE]
