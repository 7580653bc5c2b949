"""Shape bias by category of the shape, from stored decisions: what Geirhos et al. (2019) draw in figure 4.

A file is fetched for every run of the rows that are drawn, and those are few: the reference and the rows with the
highest shape bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from biasbed import measures
from biasbed.analysis.runs.predictions import cues_of, steps_of
from biasbed.analysis.runs.run import Collection, Run
from biasbed.errors import Failure
from biasbed.published.shape_bias_figure import MOST
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

# shape, texture: decisions for either cue of `num_runs` runs together; shape_bias: in percent.
COLUMNS = ("dataset", "algorithm", "category", "shape", "texture", "shape_bias", "num_runs")


def by_category(store: RunStore, collection: Collection, relies: pd.DataFrame, selected: pd.DataFrame) -> pd.DataFrame:
    """`COLUMNS`: of the rows that are drawn those of which some run's decisions are stored.

    relies: `texture.table`; selected: `select.SELECTED_COLUMNS`. Trials of a search are no rows.
    """
    wanted = [] if collection.is_search else list(_drawn(relies))
    runs = {name: [run for run in collection.own if run.algorithm == name] for _, name in wanted}
    steps, found = steps_of(selected), []
    with ProgressBar(sum(len(runs[name]) for _, name in wanted), "file of decisions") as progress:
        for dataset, name in wanted:
            number, counts = 0, pd.DataFrame(columns=["shape", "texture"], dtype="int64")
            for run in runs[name]:
                progress.tick()
                own = pd.DataFrame.from_dict(_counts(store, run, dataset, steps), "index", columns=counts.columns)
                number, counts = number + bool(len(own)), counts.add(own, fill_value=0)
            for category, shape, texture in counts.sort_index().itertuples(name=None):
                bias = 100 * measures.shape_bias(shape, texture)
                found.append((dataset, name, category, int(shape), int(texture), bias, number))
    return pd.DataFrame(found, columns=list(COLUMNS))


def _drawn(relies: pd.DataFrame) -> list[tuple[str, str]]:
    """(set, row): the reference, and as many more as a figure holds."""
    found = []
    for dataset, own in relies.groupby("dataset", sort=False):
        is_reference = own["algorithm"] == own["reference"]
        ordered = own.assign(first=is_reference).sort_values(["first", "mean"], ascending=False, kind="stable")
        found += [(str(dataset), str(name)) for name in ordered["algorithm"][:MOST]]
    return found


def _counts(
    store: RunStore, run: Run, dataset: str, steps: Mapping[tuple[str, str], int | None]
) -> dict[str, tuple[int, int]]:
    """Of one run; empty where its decisions at the selected step are not there: the table beside has its shape bias."""
    if (run.id, dataset) not in steps:
        return {}
    try:
        return cues_of(store, run, dataset, steps[run.id, dataset])
    except Failure:
        return {}
