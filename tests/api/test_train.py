"""`biasbed.train`: the command's run, as frames, and the caller's signal handlers as they were."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pandas as pd

import biasbed
from helpers.commands import ROOT
from helpers.runs import all_runs, stored

SHADES = f"{ROOT / 'tests/helpers/toy_suite.py'}:Shades"


def test_it_trains_as_the_command_does(tracking: str, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    run = biasbed.train(suite=SHADES, algorithm="erm", seed=3, optim={"lr": 0.02}, device="cpu", study="mine")
    assert signal.getsignal(signal.SIGTERM) is handler
    (tracked,) = all_runs(tracking, kind="train")
    assert (tracked.info.run_id, tracked.info.status) == (run.id, "FINISHED")
    assert (tracked.data.params["config/optim.lr"], tracked.data.tags["biasbed.seed"]) == ("0.02", "3")
    history = stored(tracking, run.id)
    frame = biasbed.runs(study="mine")
    assert set(frame.columns[:7]) == {"run", "row", "seed", "set", "epoch", "metric", "value"}
    for row in frame.dropna().itertuples():
        assert history[row.epoch][f"{row.metric}/{row.set}"] == row.value
    own = run.metrics.merge(frame, on=["set", "epoch", "metric"])
    assert len(own) == len(frame) > 0
    np.testing.assert_array_equal(own.value_x, own.value_y)
    pd.testing.assert_frame_equal(run.predictions("shades_test"), biasbed.predictions(run.id, "shades_test"))
    settings = {"seed": 3, "optim": {"lr": 0.02}, "device": "cpu", "study": "mine"}
    assert biasbed.train(suite=SHADES, algorithm="erm", resume="once", **settings) == run
