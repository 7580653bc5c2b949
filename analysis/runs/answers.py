"""What a run decided on each image of a set, as it is stored beside its metrics."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from biasbed import record
from biasbed.analysis.runs.alike import TESTED
from biasbed.analysis.runs.run import Run
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.data.names import photographs
from biasbed.errors import Failure, first_line

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

NEEDED = ("image", "label", "correct")
FURTHER = ("condition", "targets", "epoch")


def answers_of(store: RunStore, run: Run, dataset: str, step: int) -> ImageAnswers:
    """What the weights of this step decided; a tested model has one state alone.

    Failure, which says in a few words why there are none: no file of that step, a damaged one, labels of which an image
    has several.
    """
    which = record.PREDICTION_EPOCHS[-1:] if run.kind in TESTED else record.PREDICTION_EPOCHS
    there = False
    for name in which:
        content = store.file(run.id, record.predictions_file(dataset, name))
        if content is None:
            continue
        there, table = True, _table(content)
        if run.kind in TESTED or _step(table) == step:
            return _answers(table)
    raise Failure(
        f"the decisions of step {step}, which the rule chose, are not kept" if there else "no decisions are stored"
    )


def _table(content: bytes) -> Any:
    """Of a file of anybody's the columns that are needed here; Failure where they are not whole."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        names = [name for name in (*NEEDED, *FURTHER) if name in file.schema_arrow.names]
        if "targets" in names:
            raise Failure("its images have several labels each, and a decision on them is not right or wrong")
        table = file.read(columns=names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Failure(f"the stored decisions can't be read ({first_line(error)})") from None
    text, kinds = pa.types.is_string, {name: table.schema.field(name).type for name in names}
    fits = {
        "image": text,
        "label": text,
        "condition": text,
        "correct": pa.types.is_boolean,
        "epoch": pa.types.is_integer,
    }
    spoilt = [name for name in NEEDED if name not in names]
    spoilt += [name for name, kind in kinds.items() if not fits[name](kind) or table[name].null_count]
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
