"""Stored predictions: a run's decision on each image of a set."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from biasbed import record
from biasbed.analysis.runs.run import TESTED, Run
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.data.names import photographs
from biasbed.errors import Failure, UsageError, first_line
from biasbed.evaluation import recorded
from biasbed.evaluation.decisions import Decisions
from biasbed.system.strict import read_parquet

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

RIGHT, FURTHER = ("image", "label", "correct"), ("condition", "targets", "epoch")
CUES = ("label", "decision", "bias")
Cues = dict[str, tuple[int, int]]  # category of the shape -> decisions for the shape, for the texture


class DecisionReader(Protocol):
    """Reader of the decisions of an analysis' runs on single images.

    `answers` and `cues` raise Failure if there are none.
    """

    @property
    def is_empty(self) -> bool:
        """True if no run can have any."""

    def answers(self, run: Run, dataset: str, step: int | None) -> ImageAnswers:
        """Return which images of a set are decided rightly."""

    def cues(self, run: Run, dataset: str, step: int | None) -> Cues:
        """Count decisions on cue conflicts."""

    def with_scores(self, run: Run, dataset: str, step: int | None) -> Decisions:
        """Return all that is stored of the decisions on a set, scores of all classes among it."""

    def table(self, run: Run, name: str) -> list[dict[str, str]]:
        """Return the rows of a CSV file that the evaluation of a model has written; empty if there is none."""


class TrackedDecisions:
    """Decisions that runs keep as artifacts."""

    def __init__(self, store: RunStore) -> None:
        self.store = store

    @property
    def is_empty(self) -> bool:
        return False

    def answers(self, run: Run, dataset: str, step: int | None) -> ImageAnswers:
        return answers_of(self.store, run, dataset, step)

    def cues(self, run: Run, dataset: str, step: int | None) -> Cues:
        return cues_of(self.store, run, dataset, step)

    def with_scores(self, run: Run, dataset: str, step: int | None) -> Decisions:
        return decisions_with_scores(self.store, run, dataset, step)

    def table(self, run: Run, name: str) -> list[dict[str, str]]:
        content = self.store.file(run.id, name) if run.kind in TESTED else None
        if content is None:
            return []
        return list(csv.DictReader(io.StringIO(content.decode(errors="replace"))))


def steps_of(selected: pd.DataFrame) -> Mapping[tuple[str, str], int | None]:
    """Return the selected step of each (run, set); None if the rule averages several.

    selected: `select.SELECTED_COLUMNS`.
    """
    steps: dict[tuple[str, str], int | None] = {}
    names = ("run_id", "dataset", "last_step", "num_steps")
    for run_id, dataset, last, number in zip(*(selected[name].tolist() for name in names), strict=True):
        steps[run_id, dataset] = int(last) if number == 1 else None
    return steps


def answers_of(store: RunStore, run: Run, dataset: str, step: int | None) -> ImageAnswers:
    """Return the decisions of the weights of this step; a tested model has only one state.

    Raises Failure with a short reason if there are none: no file of that step, a damaged file, or several labels per
    image.
    """
    return read_answers(_read(store, run, dataset, step, RIGHT))


def parse_answers(content: bytes) -> ImageAnswers:
    """Return the decisions of a file of predictions. Raises Failure with a short reason if it is none."""
    return read_answers(_parse_table(content, RIGHT))


def read_answers(table: Any) -> ImageAnswers:
    """Return the decisions of a table of predictions."""
    import pyarrow as pa

    keys = [name for name in ("condition", "image") if name in table.column_names]
    table = table.sort_by([(name, "ascending") for name in keys])
    if len(table.select(keys).group_by(keys).aggregate([])) < len(table):
        raise Failure("the stored decisions name an image twice")
    digest = hashlib.sha256()
    for name in (*keys, "label"):
        digest.update("\n".join(table[name].to_pylist()).encode() + b"\0")
    of_view = None
    if len(keys) > 1:
        of_view = photographs(table["image"].to_pylist(), table["condition"].to_pylist())
        if len(np.unique(of_view)) == len(of_view):
            of_view = None  # experiments with one condition, or another image under each
    right = np.asarray(pa.chunked_array(table["correct"]).to_numpy(), dtype=bool)
    return ImageAnswers(digest.hexdigest(), right, of_view)


def cues_of(store: RunStore, run: Run, dataset: str, step: int | None) -> Cues:
    """Count decisions on cue conflicts by category of the shape: (decisions for the shape, for the texture)."""
    table = _read(store, run, dataset, step, CUES).to_pandas()
    conflict = table[table["label"] != table["bias"]]
    hits = {cue: conflict["decision"] == conflict[cue] for cue in CUES[::2]}
    counts = pd.DataFrame(hits).groupby(conflict["label"]).sum()
    return {str(name): (int(shape), int(texture)) for name, shape, texture in counts.itertuples(name=None)}


def decisions_with_scores(store: RunStore, run: Run, dataset: str, step: int | None) -> Decisions:
    """Return the decisions of the weights of this step. Raises Failure if scores are not stored with them."""
    stored = _find(store, run, dataset, step, RIGHT)
    try:
        decisions = recorded.read_predictions(Path(record.predictions_file(dataset, "last")), stored.content)
    except UsageError as error:
        raise Failure(str(error)) from None
    if decisions.log_probability is None:
        raise Failure("no scores of all classes are stored (scores.keep=fp16 stores them)")
    return replace(decisions, set=dataset)


class _Stored(NamedTuple):
    """File of decisions: its bytes, and those of its columns that were needed."""

    content: bytes
    table: Any


def _read(store: RunStore, run: Run, dataset: str, step: int | None, needed: Sequence[str]) -> Any:
    """Read the table of the decisions at a step."""
    return _find(store, run, dataset, step, needed).table


def _find(store: RunStore, run: Run, dataset: str, step: int | None, needed: Sequence[str]) -> _Stored:
    """Find the file of the decisions at a step."""
    if step is None:
        raise Failure("the rule averages several steps, and decisions are those of one")
    epochs = record.PREDICTION_EPOCHS[-1:] if run.kind in TESTED else record.PREDICTION_EPOCHS
    has_file = False
    for name in epochs:
        content = store.file(run.id, record.predictions_file(dataset, name))
        if content is None:
            continue
        has_file, table = True, _parse_table(content, needed)
        has_step = "epoch" in table.column_names and int(table["epoch"][0].as_py()) == step
        if run.kind in TESTED or has_step:
            return _Stored(content, table)
    if has_file:
        raise Failure(f"the decisions of step {step}, which the rule chose, are not kept")
    raise Failure("no decisions are stored")


def _parse_table(content: bytes, needed: Sequence[str]) -> Any:
    """Parse the needed columns of a file that anybody may have written. Raises Failure if they are incomplete."""
    import pyarrow as pa

    try:
        table = read_parquet(content, (*needed, *FURTHER))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Failure(f"the stored decisions can't be read ({first_line(error)})") from None
    names = table.column_names
    if "targets" in names:
        raise Failure("its images have several labels each, and a decision on them is not right or wrong")
    others = {"correct": pa.types.is_boolean, "epoch": pa.types.is_integer}
    fits = {name: others.get(name, pa.types.is_string)(table.schema.field(name).type) for name in names}
    spoilt = [name for name in needed if name not in names]
    spoilt += [name for name in names if not fits[name] or table[name].null_count]
    if spoilt or not len(table):
        raise Failure(f"the stored decisions are not whole ({', '.join(spoilt) or 'no images'})")
    return table
