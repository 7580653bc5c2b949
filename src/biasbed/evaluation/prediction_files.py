"""Files of predictions: the decisions of a tested model on each image of a set, as parquet. No torch.

A file that is read may come from anywhere and be damaged.

Answers: How are decisions stored, and read again?
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import CATEGORIES_16
from biasbed.datasets.known_sets import find_known_set
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import CUES, SHORTCUT, Decisions
from biasbed.system.files import atomic_file
from biasbed.system.strict import parse_json, read_parquet

# Columns of a file.
NAMES = ("image", "label", "decision", "bias", "group", "condition")
NUMBERS = ("confidence", "rank", "bias_rank", "loss", "energy", "max_softmax", "epoch")
COLUMNS = (*NAMES, *NUMBERS)
LISTS = ("targets", "scores")  # if images have several labels
SCORE_LISTS = ("log_probability",)  # if scores are kept
FLOATS = ("confidence", "loss", "energy", "max_softmax")  # columns of floating-point numbers
ROWS = 2**15  # rows that are written together

# --- writing ----------------------------------------------------------------------------------------------------------


def write_predictions(path: Path, decisions: Decisions, epoch: int) -> None:
    """Write the decisions of a tested model, per image, as parquet (`record.PREDICTIONS` has the columns)."""
    import pyarrow as pa
    from pyarrow import parquet

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own takes 20 MB more than it needs

    def make_table(start: int) -> pa.Table:
        return to_table(decisions, epoch, slice(start, start + ROWS))

    metadata = {"label_map": decisions.label_map, "cues": json.dumps(decisions.cues)}
    if decisions.targets is not None:
        metadata["labels"] = json.dumps(decisions.classes)
    if decisions.log_probability is not None:
        metadata["classes"] = json.dumps(decisions.classes)
    schema = make_table(0).schema
    name_columns = [field.name for field in schema if pa.types.is_string(field.type) and field.name != "image"]
    options = {
        "compression": "zstd",
        "compression_level": 9,  # names of images are half of what there is to press
        "data_page_size": 2**17,
        "write_page_checksum": True,
        "use_dictionary": [*name_columns, "top5.list.element", "rank", "bias_rank", "epoch"],
        "column_encoding": {name: "BYTE_STREAM_SPLIT" for name in FLOATS if name in schema.names},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = schema.with_metadata(metadata)
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema, **options) as writer:
        for start in range(0, len(decisions.label), ROWS):
            writer.write_table(make_table(start).replace_schema_metadata(metadata))


def to_table(decisions: Decisions, epoch: int, rows: slice) -> Any:
    """Return these rows of the decisions as an Arrow table with the columns `record.PREDICTIONS`."""
    import pyarrow as pa

    return pa.table(_columns(decisions, epoch, rows))


def _columns(decisions: Decisions, epoch: int, rows: slice) -> dict[str, Any]:
    """Return these rows of the file's columns, by name; columns that the decisions lack are left out."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "image": _strings(decisions.images, rows),
        "label": decisions.label,
        "decision": decisions.decision,
        "correct": decisions.decision[rows] == decisions.label[rows],
        "confidence": decisions.confidence,
        "rank": decisions.rank,
        "loss": decisions.loss,
        "top5": decisions.top,
        "top5_score": decisions.top_score,
        "epoch": np.full(len(decisions.label.codes[rows]), epoch, dtype=np.int32),
        "bias": decisions.bias,
        "bias_rank": decisions.bias_rank,
        "group": decisions.group,
        "condition": decisions.condition,
        "targets": decisions.targets,
        "scores": decisions.scores,
        "log_probability": decisions.log_probability,
        "energy": decisions.energy,
        "max_softmax": decisions.max_softmax,
    }
    columns = {name: column for name, column in columns.items() if column is not None}
    for name in {"label", "decision", "bias", "group", "condition"} & columns.keys():
        columns[name] = pa.array(columns[name].names, pa.string()).take(pa.array(columns[name].codes[rows]))
    for name in set(FLOATS) & columns.keys():
        columns[name] = columns[name][rows]
    for name in {"rank", "bias_rank"} & columns.keys():
        columns[name] = columns[name][rows].astype(np.int32)
    for name in {"targets", "scores", "log_probability"} & columns.keys():
        matrix = columns[name]
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(matrix[rows].reshape(-1)), matrix.shape[1])
    if "top5" in columns:
        columns["top5"] = pa.array(columns["top5"][rows].tolist(), pa.list_(pa.string()))
    if "top5_score" in columns:
        columns["top5_score"] = columns["top5_score"][rows].tolist()
    return columns


def _strings(names: Names, rows: slice) -> Any:
    """Return names as an Arrow array, made from their bytes: a Python object for each would be slow."""
    import pyarrow as pa

    start, stop, _ = rows.indices(len(names))
    content, ends = names.arrays(start, stop)
    return pa.StringArray.from_buffers(stop - start, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content))


# --- reading ----------------------------------------------------------------------------------------------------------


class PossibleClasses(NamedTuple):
    """Classes among which a model or person has decided."""

    classes: tuple[str, ...]
    are_all: bool  # False: others may have been possible


def find_possible(set_name: str, names: Collection[str]) -> PossibleClasses:
    """Return the classes of the public set of this name, if all `names` (labels and cues) are among them.

    Otherwise it is unknown which others were possible: the classes then are the names, or the 16 categories of Geirhos
    et al. if the names are among these.
    """
    classes = find_known_set(set_name).classes
    if set(names) <= set(classes):
        return PossibleClasses(classes, True)
    is_among_16 = set(names) <= set(CATEGORIES_16)
    return PossibleClasses(CATEGORIES_16 if is_among_16 else tuple(sorted(set(names))), False)


def read_predictions(path: Path, content: bytes | None = None) -> Decisions:
    """Read a file of `write_predictions`. Raises UsageError for a file of another kind, or a damaged one.

    content: the file's bytes, if they were read already, as from a server.
    """
    from pyarrow import ArrowException

    try:
        name_columns = [name for name in NAMES if name != "image"]
        source = path if content is None else content
        table = read_parquet(source, (*COLUMNS, *LISTS, *SCORE_LISTS), name_columns)
        missing = [name for name in ("image", "label", "decision") if name not in table.column_names]
        if missing or not len(table):
            raise ValueError(f"no column {missing[0]}" if missing else "empty")
        _check_columns(table)
        matrices = (*LISTS, *SCORE_LISTS)
        columns: dict[str, Any] = {
            name: _from_arrow(table[name]) for name in table.column_names if name not in matrices
        }
        metadata = table.schema.metadata or {}
        labels = _read_labels(table, metadata)
        scores = _read_scores(table, metadata)
    except (OSError, ArrowException, ValueError) as error:  # ValueError: names that are not UTF-8
        raise UsageError(f"{path}: no predictions of biasbed ({str(error).splitlines()[0]})") from None
    observer, set_name = path.stem, "cue_conflict" if "bias" in columns else "decisions"
    if path.parent.parent.name == "predictions":  # in a run's folder
        observer, set_name = path.absolute().parents[2].name, path.parent.name
    names: set[str] = set()
    for name in {"label", "bias"} & columns.keys():
        names.update(label for label, count in columns[name].counts().items() if count)
    possible = find_possible(set_name, names)
    return Decisions(
        observer=observer,
        set=set_name,
        images=columns["image"],
        label=columns["label"],
        decision=columns["decision"],
        classes=labels.names or scores.names or possible.classes,
        has_all_classes=bool(labels.names or scores.names) or possible.are_all,
        bias=columns.get("bias"),
        group=columns.get("group"),
        condition=columns.get("condition"),
        confidence=columns.get("confidence"),
        loss=columns.get("loss"),
        rank=columns.get("rank"),
        bias_rank=columns.get("bias_rank"),
        label_map=(metadata.get(b"label_map") or b"recorded").decode(errors="replace"),
        targets=labels.columns.get("targets"),
        scores=labels.columns.get("scores"),
        log_probability=scores.columns.get("log_probability"),
        energy=columns.get("energy") if scores.names else None,
        max_softmax=columns.get("max_softmax") if scores.names else None,
        epoch=int(columns["epoch"][0]) if "epoch" in columns else None,
        cues=SHORTCUT if metadata.get(b"cues") == json.dumps(SHORTCUT).encode() else CUES,
    )


def _from_arrow(column: Any) -> Any:
    """Convert an Arrow column to an array [N] of numbers, to `Coded` if names repeat, or to `Names` of images."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries().combine_chunks()
        return Coded(column.indices.to_numpy(), column.dictionary.to_pylist())
    if pa.types.is_string(column.type):
        column = column.combine_chunks()
        _, ends, content = column.buffers()
        offsets = np.frombuffer(ends, dtype=np.int32)[column.offset :][: len(column) + 1]
        return Names.from_bytes(np.frombuffer(content or b"", dtype=np.uint8), offsets)
    return column.to_numpy()


class ClassColumns(NamedTuple):
    """Columns with a value for each of K classes or labels."""

    names: tuple[str, ...] = ()  # of the classes
    columns: Mapping[str, np.ndarray] = {}  # [N,K] each


def _read_labels(table: Any, metadata: Mapping[bytes, bytes]) -> ClassColumns:
    """Read the columns of several labels; empty if images have one label. Raises ValueError if they are not whole."""
    if b"labels" not in metadata:
        return ClassColumns()
    return _read_matrices(table, parse_json(metadata[b"labels"]), {"targets": "b", "scores": "f"}, "labels")


def _read_scores(table: Any, metadata: Mapping[bytes, bytes]) -> ClassColumns:
    """Read the scores of all classes; empty if the file has none. Raises ValueError if they are not whole."""
    if "log_probability" not in table.column_names:
        return ClassColumns()
    is_complete = {"energy", "max_softmax"} <= set(table.column_names)
    names = parse_json(metadata.get(b"classes", b"null")) if is_complete else None
    return _read_matrices(table, names, {"log_probability": "f"}, "scores")


def _read_matrices(table: Any, names: object, kinds: Mapping[str, str], subject: str) -> ClassColumns:
    """Read columns of lists with a value for each class. Raises ValueError if one is missing or not whole.

    names: of the classes, from the file's metadata. kinds: column -> kind of its numbers, as numpy names it.
    """
    columns = {name: _to_matrix(table[name]) for name in kinds if name in table.column_names}
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        expected = {(name, kind, (len(table), len(names))) for name, kind in kinds.items()}
        if {(name, column.dtype.kind, column.shape) for name, column in columns.items()} == expected:
            return ClassColumns(tuple(names), columns)
    raise ValueError(f"its columns of {subject} are not whole")


def _to_matrix(column: Any) -> np.ndarray:
    """Convert a column of lists to a matrix [N,K]. Empty if the lists differ in length, or values are missing."""
    from pyarrow import compute, types

    if not (types.is_list(column.type) or types.is_fixed_size_list(column.type)):
        return np.empty(0)
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        return np.empty(0)
    values = column.combine_chunks().flatten()
    if values.null_count:
        return np.empty(0)
    matrix: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return matrix


def _check_columns(table: Any) -> None:
    """Raise ValueError if a column has another type than ours, or missing values."""
    import pyarrow as pa

    for name in COLUMNS:
        if name not in table.column_names:
            continue
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        fits = pa.types.is_string(kind) if name in NAMES else is_number
        if not fits or table[name].null_count:
            problem = "missing values" if fits else f"the type {kind}"
            raise ValueError(f"the column {name} has {problem}")
