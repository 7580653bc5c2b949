"""Wrong names are refused with the nearest right one."""

from __future__ import annotations

import pytest

from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import UsageError
from helpers.toy_runs import THREE, Recorder, fill

WRONG = [
    ({"selection": "best_validaton"}, "selection=best_validaton: .*did you mean 'best_validation'"),
    ({"suite": "tpy"}, "suite=tpy: .*did you mean 'toy'"),
    ({"algorithms": "erm,infodrp"}, "algorithms=erm,infodrp: .*'infodrp'; did you mean 'infodrop'"),
    ({"algorithms": "my_methd"}, "did you mean 'my_method'"),
    ({"control": "emr"}, "control=emr: .*did you mean 'erm'"),
    ({"sets": "plain,egde"}, "sets=plain,egde: .*'egde'; did you mean 'edge'"),
]


def test_an_unknown_name_is_refused_with_the_nearest(recorder: Recorder) -> None:
    fill(recorder, {**THREE, "my_method": (0.5,) * 6}, seeds=1)
    for options, message in WRONG:
        with pytest.raises(UsageError, match=message):
            compute(RunStore(recorder.uri), recorder.options(**options))
