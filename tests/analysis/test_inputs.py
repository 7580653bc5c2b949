"""Wrong names are refused with the nearest right one; derived measures take numbers of training images."""

from __future__ import annotations

import pandas as pd
import pytest

from biasbed.analysis import load
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import UsageError
from helpers import biased_runs
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


@pytest.mark.usefixtures("few_draws")
def test_accuracy_is_adjusted_to_each_severity_s_training(recorder: Recorder) -> None:
    """By hand, at the epoch that was chosen: 99 % and 1 % of each class, or five to one."""
    biased_runs.fill(recorder)
    usual = load(recorder.uri, n=3, bootstrap=200).runs
    adjusted = load(recorder.uri, n=3, bootstrap=200, measure="adjusted_accuracy").runs
    both = pd.merge(adjusted, usual, on=["algorithm", "seed", "dataset"], suffixes=("", "_usual"))
    assert len(both) == 12
    for row in both.to_dict("records"):
        curves = biased_runs.curves(row["dataset"], 0.1 * (row["algorithm"] == "lff"), int(row["seed"]))
        at = {k: curves[f"test/{k}_accuracy/herds_test"][row["first_step"]] for k in biased_runs.KINDS}
        share = 10 / 1000 if row["dataset"] == "herds-1" else 200 / 1190
        expected = (1 - share) * at["aligned"] + share * at["conflicting"]
        assert row["score"] == pytest.approx(100 * expected)
        assert row["score_usual"] == pytest.approx(100 * (at["aligned"] + at["conflicting"]) / 2)
