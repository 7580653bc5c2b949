"""Wrong names are refused with the nearest right one; derived measures take numbers of training images."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from biasbed import record
from biasbed.analysis import load
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import UsageError
from helpers.toy_runs import THREE, Recorder, fill, make_protocol

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


GROUPS = ("cow-aligned", "cow-conflicting")
COUNTS = {"herds-1": (990, 10), "herds-20": (990, 200)}  # training images of each group, by severity


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_accuracy_is_adjusted_to_each_severity_s_training(recorder: Recorder) -> None:
    """The groups' accuracies at the chosen epoch, weighted by the training images that each run has counted."""
    inputs = [name for group in GROUPS for name in (f"test/accuracy/herds:{group}", f"train/images/herds:{group}")]
    adjusted = record.Derived("test", "adjusted_accuracy", "herds", "weighted_mean", tuple(inputs))
    herds = record.SetRecord("herds", "accuracy", 400, 2, 0.5, groups=dict.fromkeys(GROUPS, 200), block="herds")
    protocol = make_protocol(sets=(), derived=(adjusted,))
    protocol = replace(protocol, sets=(herds,))
    accuracies = {GROUPS[0]: [0.9, 0.8, 0.7, 0.6], GROUPS[1]: [0.1, 0.2, 0.4, 0.3]}
    metrics = {f"test/accuracy/herds:{group}": curve for group, curve in accuracies.items()}
    for algorithm in ("erm", "lff"):
        for cell, counts in COUNTS.items():
            fingerprint = {record.DATA_FINGERPRINT: cell}
            run = recorder.train(
                *(algorithm, 0, {"herds": [0.5] * 4}),
                monitor=(0.1, 0.2, 0.9, 0.3),
                protocol=protocol,
                metrics=metrics,
                cell=cell,
                study="severities",
                **fingerprint,
            )
            images = {f"train/images/herds:{group}": count for group, count in zip(GROUPS, counts, strict=True)}
            recorder.client.log_text(run, json.dumps(images), record.COUNTS_FILE)
    rows = load(recorder.uri, n=3, bootstrap=200, measure="adjusted_accuracy").runs
    assert len(rows) == 4
    for row in rows.to_dict("records"):
        aligned, conflicting = COUNTS[row["dataset"]]
        expected = (aligned * 0.7 + conflicting * 0.4) / (aligned + conflicting)
        assert row["score"] == pytest.approx(100 * expected)
