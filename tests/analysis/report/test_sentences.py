"""No sentence of the report without its evidence: constructed studies, and every sentence recomputed."""

from __future__ import annotations

import pytest

from biasbed.analysis.report import html
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from helpers.sentences import (  # noqa: F401  (they enter sentences)
    claims,
    claims_of_changes,
    claims_of_design,
    claims_of_size,
    claims_of_tables,
)
from helpers.sentences.facts import Facts
from helpers.sentences.page import Piece, pieces
from helpers.sentences.studies import ALL, Study
from helpers.toy_runs import Recorder

QUICK = ("a_winner_of_two_with_a_lower_mean", "mixed_units", "data_sets_of_several_columns")
CASES = [pytest.param(s, id=s.name, marks=[] if s.name in QUICK else [pytest.mark.slow]) for s in ALL]


def rendered(study: Study, recorder: Recorder) -> list[Piece]:
    """What a reader reads, without figures."""
    study.log(recorder)
    analysis = compute(RunStore(recorder.uri), recorder.options(**{"names": "none"} | study.options))
    html.write(analysis, recorder.folder)
    return pieces((recorder.folder / html.REPORT).read_text(encoding="utf-8"))


@pytest.mark.parametrize("study", CASES)
def test_every_sentence_is_true(study: Study, recorder: Recorder) -> None:
    facts, wrong = Facts(study), []
    for piece in rendered(study, recorder):
        try:
            claims.check(piece.text, claims.Place(facts, piece.setting))
        except Exception as error:
            wrong.append(f"{piece.section} ({piece.setting}): {piece.text}\n    {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a_sentence_that_nobody_checks_fails() -> None:
    at = claims.Place(Facts(ALL[0]), "all")
    for text in ("a is clearly the best.", "Over these 6 sets the algorithms differ: a wins."):
        with pytest.raises(AssertionError):
            claims.check(text, at)


def test_there_are_twenty_studies() -> None:
    assert len({study.name for study in ALL}) == len(ALL) >= 20
