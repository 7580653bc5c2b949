"""The headlines over epochs, as the figure of epochs takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.pools import History


def table(histories: Mapping[str, History], runs: Sequence[Run], sets: Sequence[Column]) -> pd.DataFrame:
    """The headline of every run and set at every step, as shown: algorithm, run_id, dataset, step, score.

    There may be millions of rows: names are categories.
    """
    of_columns = [entry.cell for entry in sets]
    found = [
        (run, entry, histories[run.id].curve(entry.metric))
        for run in runs
        for entry in sets
        if entry.cell in run.among(of_columns)
    ]
    about = pd.DataFrame(
        [(run.algorithm, run.id, entry.name, entry.scale) for run, entry, _ in found],
        columns=["algorithm", "run_id", "dataset", "scale"],
    ).astype(dict.fromkeys(["algorithm", "run_id", "dataset"], "category"))
    frame = about.loc[about.index.repeat([len(curve) for *_, curve in found])].reset_index(drop=True)
    frame["step"] = np.fromiter((step for *_, curve in found for step in curve), "int64", len(frame))
    values = np.fromiter((value for *_, curve in found for value in curve.values()), "float64", len(frame))
    return frame.assign(score=values * frame["scale"]).drop(columns="scale")
