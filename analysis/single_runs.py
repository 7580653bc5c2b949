"""Rows with one run: tests over runs can't speak of them, so models are compared over images instead.

Only where a row has one run is anything fetched. What comes out is about other images of the same kind, for these very
weights; how much another seed would change is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from biasbed.analysis.columns import Column
from biasbed.analysis.runs.predictions import answers_of, steps_of
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.statistics import over_images
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.analysis.statistics.pairs import pairs
from biasbed.errors import Failure
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore

COLUMNS = (
    *("dataset", "cell", "a", "b", "num_runs_a", "num_runs_b", "run_a", "run_b", "seed_a", "seed_b"),
    *("images", "photographs", "both", "only_a", "only_b", "neither", "difference", "low", "high"),
    *("p", "p_holm", "num_tests", "significant"),
)
VIEWS = "an image is shown under several conditions: its views are not independent"
SENTENCE = (
    "What this says is about other images of the same kind, for these very weights; it says nothing about other seeds."
)


@dataclass(frozen=True)
class ComparedOverImages:
    """What the decisions of single runs tell."""

    table: pd.DataFrame  # `COLUMNS`
    left_out: tuple[str, ...]  # what is not compared, and why
    images: int  # decisions that were read

    @property
    def applies(self) -> bool:
        """Whether some row has one run, of which decisions could be compared."""
        return bool(len(self.table) or self.left_out)


def gather(
    store: RunStore, collection: Collection, sets: Sequence[Column], selected: pd.DataFrame, options: AnalyzeOptions
) -> ComparedOverImages:
    """Every pair of rows of which one at least has a single run, on each set.

    selected: `select.SELECTED_COLUMNS`, of which steps the decisions are wanted. Of a row with several runs stands the
    first. Trials of a search are no rows with one run.
    """
    steps = steps_of(selected)
    wanted = [] if collection.is_search else [(column, _rows(column, collection, sets)) for column in sets]
    wanted = [(column, rows) for column, rows in wanted if _family(rows, options.control)]
    found: list[dict[str, object]] = []
    left_out: list[str] = []
    read = 0
    with ProgressBar(sum(len(rows) for _, rows in wanted), "file of decisions") as progress:
        for column, rows in wanted:
            if column.name not in {entry.name for entry in collection.protocol_of(next(iter(rows.values()))[0]).sets}:
                left_out.append(f"{column.name}: it is derived of several sets, and has no images of its own")
                continue
            answers, reasons = _answers(store, column, rows, steps, progress)
            read += sum(len(one.right) for one in answers.values())
            of_set, unlike = _compared(column, rows, answers, options)
            left_out += _told(column.name, reasons, len(rows)) + unlike
            found += of_set
    return ComparedOverImages(_corrected(found, options.alpha), tuple(left_out), read)


def _rows(column: Column, collection: Collection, sets: Sequence[Column]) -> dict[str, tuple[Run, ...]]:
    """Row -> its runs of the column's cell, published ones apart: they have no decisions."""
    cells = [entry.cell for entry in sets]
    rows: dict[str, tuple[Run, ...]] = {}
    for run in collection.own:
        if column.cell in run.among(cells):
            rows[run.algorithm] = (*rows.get(run.algorithm, ()), run)
    return dict(sorted(rows.items()))


def _family(rows: dict[str, tuple[Run, ...]], control: str) -> list[tuple[str, str]]:
    """The pairs that are compared."""
    if control != "none" and control not in rows:
        return []
    known = pairs(tuple(rows), None if control == "none" else control)
    return [(a, b) for a, b in known if 1 in (len(rows[a]), len(rows[b]))]


def _answers(
    store: RunStore,
    column: Column,
    rows: dict[str, tuple[Run, ...]],
    steps: Mapping[tuple[str, str], int | None],
    progress: ProgressBar,
) -> tuple[dict[str, ImageAnswers], dict[str, str]]:
    """(row -> decisions of its first run, row -> why there are none)."""
    answers, reasons = {}, {}
    for name, runs in rows.items():
        progress.tick()
        step = steps.get((runs[0].id, column.name), -1)
        try:
            if step is not None and step < 0:
                raise Failure("its run has no value there")
            answers[name] = answers_of(store, runs[0], column.entry.name, step)
        except Failure as error:
            reasons[name] = str(error)
    return answers, reasons


def _told(dataset: str, reasons: dict[str, str], rows: int) -> list[str]:
    """A line for each reason, with the rows that it is of."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [
        f"{dataset}, {'all rows' if len(same) == rows else ', '.join(same)}: {reason}" for reason, same in names.items()
    ]


def _compared(
    column: Column, rows: dict[str, tuple[Run, ...]], answers: dict[str, ImageAnswers], options: AnalyzeOptions
) -> tuple[list[dict[str, object]], list[str]]:
    """(what stands in the table of a set, pairs that can't be compared)."""
    found: list[dict[str, object]] = []
    unlike = []
    for a, b in _family(rows, options.control):
        if a not in answers or b not in answers:
            continue
        try:
            one = over_images.compare(answers[a], answers[b], options.alpha, options.bootstrap)
        except ValueError as error:
            unlike.append(f"{column.name}, {a} and {b}: {error}")
            continue
        about: dict[str, object] = {"dataset": column.name, "cell": column.cell, "a": a, "b": b}
        for side, name in (("a", a), ("b", b)):
            first = rows[name][0]
            about |= {f"num_runs_{side}": len(rows[name]), f"run_{side}": first.id, f"seed_{side}": first.seed}
        found.append(about | vars(one))
    return found, unlike


def _corrected(found: list[dict[str, object]], alpha: float) -> pd.DataFrame:
    """`COLUMNS`, by Holm over all McNemar tests of all sets."""
    table = pd.DataFrame(found).reindex(columns=list(COLUMNS))
    table["p_holm"] = over_images.holm(table["p"].to_list())
    table["num_tests"] = int(table["p"].notna().sum())
    table["significant"] = np.asarray(table["p_holm"].to_numpy(dtype="float64") < alpha)
    return table


def sentences(compared: ComparedOverImages, alpha: float) -> list[str]:
    """What is said of all of it together."""
    if not compared.applies:
        return []
    table = compared.table
    if table.empty:
        return ["Rows with one run could not be compared over images.", *compared.left_out]
    tested, told = int(table["p"].notna().sum()), int(table["significant"].sum())
    lines = [f"{compared.images:,} stored decisions on images were read to compare rows with one run with others."]
    if tested:
        lines.append(
            f"Of {tested} exact McNemar tests {told} tell a pair apart at {alpha:g} after Holm's correction over all."
        )
    views = sorted(set(table.loc[table["p"].isna(), "dataset"]))
    if views:
        lines.append(f"No McNemar test on {', '.join(views)}: {VIEWS}. The interval draws photographs with all views.")
    if ((table["num_runs_a"] > 1) | (table["num_runs_b"] > 1)).any():
        lines.append("Of a row with several runs the first stands for it.")
    return [*lines, SENTENCE, *(f"Left out: {line}" for line in compared.left_out)]
