"""What a run decided on each image of a set, as it is stored beside its metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from biasbed import record
from biasbed.analysis.runs.comparable import TESTED
from biasbed.analysis.runs.run import Run
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.data.names import photographs
from biasbed.errors import Failure, first_line
from biasbed.system.strict import read_parquet

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

RIGHT, FURTHER = ("image", "label", "correct"), ("condition", "targets", "epoch")
CUES = ("label", "decision", "bias")


def steps_of(selected: pd.DataFrame) -> Mapping[tuple[str, str], int | None]:
    """(run, set) -> the one step whose decisions stand for it; None where a rule takes the mean of several.

    selected: `select.SELECTED_COLUMNS`.
    """
    return {
        (row["run_id"], row["dataset"]): int(row["last_step"]) if row["num_steps"] == 1 else None
        for row in selected.to_dict("records")
    }


def answers_of(store: RunStore, run: Run, dataset: str, step: int | None) -> ImageAnswers:
    """What the weights of this step decided; a tested model has one state alone.

    Failure, which says in a few words why there are none: no file of that step, a damaged one, labels of which an image
    has several.
    """
    return _answers(_decided(store, run, dataset, step, RIGHT))


def cues_of(store: RunStore, run: Run, dataset: str, step: int | None) -> dict[str, tuple[int, int]]:
    """The same on cue conflicts, counted: category of the shape -> decisions for the shape, for the texture."""
    table = _decided(store, run, dataset, step, CUES).to_pandas()
    conflict = table[table["label"] != table["bias"]]
    counts = (conflict["decision"] == conflict[cue] for cue in CUES[::2])
    found = pd.DataFrame(dict(zip(CUES[::2], counts, strict=True))).groupby(conflict["label"]).sum()
    return {str(name): (int(shape), int(texture)) for name, shape, texture in found.itertuples(name=None)}


def _decided(store: RunStore, run: Run, dataset: str, step: int | None, needed: Sequence[str]) -> Any:
    """The file of decisions that a step left."""
    if step is None:
        raise Failure("the rule averages several steps, and decisions are those of one")
    which = record.PREDICTION_EPOCHS[-1:] if run.kind in TESTED else record.PREDICTION_EPOCHS
    there = False
    for name in which:
        content = store.file(run.id, record.predictions_file(dataset, name))
        if content is None:
            continue
        there, table = True, _table(content, needed)
        if run.kind in TESTED or _step(table) == step:
            return table
    raise Failure(
        f"the decisions of step {step}, which the rule chose, are not kept" if there else "no decisions are stored"
    )


def _table(content: bytes, needed: Sequence[str]) -> Any:
    """Of a file of anybody's the columns that are needed here; Failure where they are not whole."""
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


def _step(table: Any) -> int | None:
    return int(table["epoch"][0].as_py()) if "epoch" in table.column_names else None


def _answers(table: Any) -> ImageAnswers:
    import pyarrow as pa

    keys = ["condition", "image"] if "condition" in table.column_names else ["image"]
    table = table.sort_by([(name, "ascending") for name in keys])
    if len(table.select(keys).group_by(keys).aggregate([])) < len(table):
        raise Failure("the stored decisions name an image twice")
    digest = hashlib.sha256()
    for name in (*keys, "label"):
        digest.update("\n".join(_words(table[name])).encode() + b"\0")
    of_view = photographs(*(_words(table[name]) for name in reversed(keys))) if len(keys) > 1 else None
    right = np.asarray(pa.chunked_array(table["correct"]).to_numpy(), dtype=bool)
    return ImageAnswers(digest.hexdigest(), right, of_view)


def _words(column: Any) -> Sequence[str]:
    words: list[str] = column.to_pylist()
    return words
