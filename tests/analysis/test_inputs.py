"""A wrong name is refused at once, with the nearest right one; a name that only the server knows is right."""

from __future__ import annotations

from typing import Any

import pytest

from biasbed.analysis.inputs import refuse_unknown
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.cli import main
from biasbed.errors import UsageError
from helpers.toy_runs import THREE, Recorder, fill, make_protocol

WRONG = [
    ({"selection": "best_validaton"}, "selection=best_validaton: .*did you mean 'best_validation'"),
    ({"suite": "dmeo"}, "suite=dmeo: .*did you mean 'demo'"),
    ({"suite": "tpy"}, "suite=tpy: .*did you mean 'toy'"),
    ({"algorithms": "erm,infodrp"}, "algorithms=erm,infodrp: .*'infodrp'; did you mean 'infodrop'"),
    ({"algorithms": "my_methd"}, "did you mean 'my_method'"),
    ({"control": "emr"}, "control=emr: .*did you mean 'erm'"),
    ({"sets": "plain,egde"}, "sets=plain,egde: .*'egde'; did you mean 'edge'"),
]


class Unread(RunStore):
    """Any look for runs fails the test."""

    def runs(self, kind: str) -> list[Any]:
        raise AssertionError("it looked for runs")


@pytest.fixture
def filled(recorder: Recorder) -> Recorder:
    fill(recorder, {**THREE, "my_method": (0.5,) * 6}, seeds=1)
    recorder.train("erm", protocol=make_protocol(["somebody_s_set"], suite="theirs"), scores=[0.5])
    return recorder


def test_an_unknown_name_is_refused_before_runs_are_looked_for(filled: Recorder) -> None:
    for options, message in WRONG:
        with pytest.raises(UsageError, match=message):
            compute(Unread(filled.uri), filled.options(**options))
    for name in ("er'm", 'er"m', "er\\m", "er` = '1' OR"):  # quotes break no question
        with pytest.raises(UsageError, match="neither biasbed nor any run knows"):
            refuse_unknown(Unread(filled.uri), filled.options(algorithms=name))


def test_without_any_run_too_and_with_exit_code_2(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--algorithms", "erm,infodrp", "--tracking_uri", recorder.uri]) == 2
    assert "nothing to analyse" not in capsys.readouterr().err


def test_what_a_registry_or_any_run_knows_is_let_through(filled: Recorder) -> None:
    settings: list[dict[str, str]] = [
        {"suite": "theirs"},
        {"suite": "demo"},  # known, though no run has it: that is said later
        {"algorithms": "my_method,erm", "control": "my_method"},
        {"algorithms": "erm,erm@biasbed"},
        {"sets": "edge,somebody_s_set"},
        {"selection": "my_rules.py:Mine"},
        {"selection": "best_epoch_per_run"},
    ]
    for options in settings:
        refuse_unknown(Unread(filled.uri), filled.options(**options))
