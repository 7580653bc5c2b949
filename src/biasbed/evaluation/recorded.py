"""Recorded decisions: readers of files that say who answered what to which image.

Reads the CSV files of Geirhos et al. (texture-vs-shape 2019, model-vs-human 2021; one row per trial:
`subj,session,trial,rt,object_response,category,condition,imagename`) and our own predictions. A file comes from
anywhere and may have been cut off on its way: an incomplete row is refused, not counted. No torch.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import CATEGORIES_16, cue_classes
from biasbed.datasets.known_sets import find_known_set
from biasbed.errors import UsageError, listed
from biasbed.evaluation.decisions import CUES, MODELS, PEOPLE, SHORTCUT, Decisions
from biasbed.settings import hint_near
from biasbed.system.csv_tables import read_lines
from biasbed.system.strict import parse_float, parse_json, read_parquet

SUFFIXES = (".csv", ".parquet")
NEEDED = ("object_response", "category", "imagename")  # columns of a CSV file of trials
READ = ("subj", "session", "trial", "rt", *NEEDED, "condition")  # all that such a file may have
# Columns of our predictions.
NAMES = ("image", "label", "decision", "bias", "group", "condition")
NUMBERS = ("confidence", "rank", "bias_rank", "loss", "energy", "max_softmax")
COLUMNS = (*NAMES, *NUMBERS)
LISTS = ("targets", "scores")  # if images have several labels
SCORE_LISTS = ("log_probability", "features")  # if scores are kept


def files(text: str) -> tuple[Path, ...]:
    """Return the files that `a.csv,b.parquet` names; empty if it names anything else."""
    paths = [Path(part.strip()).expanduser() for part in text.split(",") if part.strip()]
    return tuple(paths) if paths and all(path.suffix.lower() in SUFFIXES for path in paths) else ()


def read(paths: Sequence[Path]) -> list[Decisions]:
    """Read every observer in the files, in the order of appearance. Raises UsageError for a file that is damaged.

    Joins the trials that several CSV files have of one subject; trials on cue-conflict images are kept apart.
    """
    answers = []
    trials: dict[tuple[bool, str], list[Trial]] = {}
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
        if path.suffix.lower() != ".csv":
            answers.append(read_predictions(path))
            continue
        for trial in _read_csv(path):
            trials.setdefault((trial.cues is None, trial.subject), []).append(trial)
    for (_, name), rows in trials.items():
        answers.append(_subject(name, rows))
    seen = set()
    for decisions in answers:
        if (decisions.observer, decisions.set) in seen:
            raise UsageError(
                f"two of the files are of the observer '{decisions.observer}': give one of them, or rename it"
            )
        seen.add((decisions.observer, decisions.set))
    return answers


@dataclass(frozen=True, slots=True)
class Trial:
    """Row of a CSV file."""

    subject: str
    response: str
    category: str
    image: str
    condition: str
    session: str
    is_timed: bool  # it has a reaction time
    cues: tuple[str, str] | None  # the classes of shape and texture

    @property
    def image_key(self) -> tuple[str, ...]:
        """Parts that tell one answer of a file from another."""
        return self.subject, self.session, self.condition, self.image


def _read_csv(path: Path) -> list[Trial]:
    """Read the trials of a file. Raises UsageError with the line of an incomplete trial."""
    lines = read_lines(path)
    _, names = next(lines, (0, []))
    _refuse_other_columns(path, names)
    _print_unread_columns(path, names)
    trials = []
    lines_of_trials = []
    for number, fields in lines:
        row = dict(zip(names, fields, strict=False))
        problem = _problem(names, fields, row)
        if problem:
            raise UsageError(f"{path}, line {number}: {problem}: was the file cut off, or edited?")
        trials.append(_trial(row, path.stem))
        lines_of_trials.append(number)
    if not trials:
        raise UsageError(f"{path}: holds no trials")
    _refuse_cut_name(path, number, trials)
    _refuse_repeated(path, lines_of_trials, trials)
    return trials


def _refuse_other_columns(path: Path, names: Sequence[str]) -> None:
    """Raise UsageError if a file lacks a needed column, or has one twice."""
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise UsageError(
            f"{path}: lacks the column {listed(missing)} of trials ({', '.join(NEEDED)}); it has "
            f"{listed(names) or 'no lines'}"
        )
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"{path}: has the column '{name}' twice")


def _print_unread_columns(path: Path, names: Sequence[str]) -> None:
    """Print a line for each column that is not read."""
    for name in names:
        if name not in READ:
            print(f"{path.name}: the column '{name}' is not read{hint_near(name, READ)}", file=sys.stderr)


def _problem(names: Sequence[str], fields: Sequence[str], row: Mapping[str, str]) -> str | None:
    """Describe the problem of a line; None if there is none."""
    if len(fields) != len(names):
        which = "more" if len(fields) > len(names) else "fewer"
        return f"has {which} fields than the first line has names, {len(fields)} and {len(names)}"
    empty = [name for name in (*NEEDED, "subj") if row.get(name) == ""]
    return f"has an empty {empty[0]} (a trial without a response has 'na' there)" if empty else None


def _trial(row: Mapping[str, str], default_subject: str) -> Trial:
    is_timed = False
    with contextlib.suppress(ValueError):  # a model has no reaction time
        is_timed = math.isfinite(parse_float(row.get("rt", "nan")))
    return Trial(
        subject=row.get("subj", default_subject),
        response=row["object_response"],
        category=row["category"],
        image=row["imagename"],
        condition=row.get("condition", ""),
        session=row.get("session", ""),
        is_timed=is_timed,
        cues=cue_classes(row["imagename"]),
    )


class _Possible(NamedTuple):
    """Classes that a decision may name."""

    classes: tuple[str, ...]
    are_all: bool  # False: what else was possible is unknown


def _find_possible(set_name: str, names: Collection[str]) -> _Possible:
    """Return the classes of a public set that has all of these labels and cues.

    Without one it is unknown what else was possible: the classes then are the names, or the 16 categories of Geirhos et
    al. if the names are among these.
    """
    classes = find_known_set(set_name).classes
    if set(names) <= set(classes):
        return _Possible(classes, True)
    is_among_16 = set(names) <= set(CATEGORIES_16)
    return _Possible(CATEGORIES_16 if is_among_16 else tuple(sorted(set(names))), False)


def _refuse_cut_name(path: Path, number: int, trials: Sequence[Trial]) -> None:
    """Raise UsageError if the file ends within the name of its last image, so that nothing else is missing."""
    *before, last = (Path(trial.image).suffix for trial in trials)
    if last not in before and any(suffix.startswith(last) for suffix in before):  # .pn of .png
        name = trials[-1].image
        raise UsageError(f"{path}, line {number}: '{name}' is called unlike the other images: was the file cut off?")


def _refuse_repeated(path: Path, lines: Sequence[int], trials: Sequence[Trial]) -> None:
    """Raise UsageError if an image is answered twice. lines: of each trial its number."""
    first_lines: dict[tuple[str, ...], int] = {}
    for number, trial in zip(lines, trials, strict=True):
        first = first_lines.setdefault(trial.image_key, number)
        if first != number:
            raise UsageError(
                f"{path}, line {number}: {trial.subject} answers the same image more than once in a session "
                f"('{trial.image}', first in line {first}): give the files of one experiment"
            )


def _subject(name: str, trials: Sequence[Trial]) -> Decisions:
    """Make the decisions of one subject of its trials."""
    label = Coded.from_names(trial.category for trial in trials)
    textures = []
    for trial in trials:
        if trial.cues is not None:
            shape, texture = trial.cues
            textures.append(texture)
            if shape != trial.category:  # then the column holds something else than the shape
                raise UsageError(f"{name}: {trial.image} shows the shape {shape}, but its category is {trial.category}")
    # Geirhos et al. call people subject-01, subject-02, ...; a model has no reaction time.
    is_person = name.lower().startswith("subject") or any(trial.is_timed for trial in trials)
    set_name = "cue_conflict" if textures else "decisions"
    possible = _find_possible(set_name, {*label.counts(), *textures})
    has_conditions = any(trial.condition for trial in trials)
    return Decisions(
        observer=name,
        set=set_name,
        images=Names([trial.image for trial in trials]),
        label=label,
        decision=Coded.from_names(trial.response for trial in trials),
        classes=possible.classes,
        has_all_classes=possible.are_all,
        bias=Coded.from_names(textures) if textures else None,
        condition=Coded.from_names(trial.condition for trial in trials) if has_conditions else None,
        session=Coded.from_names(trial.session for trial in trials),
        kind=PEOPLE if is_person else MODELS,
    )


def read_predictions(path: Path, content: bytes | None = None) -> Decisions:
    """Read predictions of our own (`decisions.write_predictions`). Raises UsageError if they are none or damaged.

    content: of the file, if it is on a server.
    """
    from pyarrow import ArrowException

    try:
        name_columns = [name for name in NAMES if name != "image"]
        source = path if content is None else content
        table = read_parquet(source, (*COLUMNS, *LISTS, *SCORE_LISTS), name_columns)
        missing = [name for name in ("image", "label", "decision") if name not in table.column_names]
        if missing or not len(table):
            raise UsageError(f"{path}: no predictions of biasbed ({f'no column {missing[0]}' if missing else 'empty'})")
        _check_columns(path, table)
        matrices = (*LISTS, *SCORE_LISTS)
        columns: dict[str, Any] = {name: _column(table[name]) for name in table.column_names if name not in matrices}
        metadata = table.schema.metadata or {}
        labels = _read_labels(path, table, metadata)
        scores = _read_scores(path, table, metadata)
    except (OSError, ArrowException, ValueError) as error:  # ValueError: names that are not UTF-8
        raise UsageError(f"{path}: can't be read as parquet ({str(error).splitlines()[0]})") from None
    observer, set_name = path.stem, "cue_conflict" if "bias" in columns else "decisions"
    if path.parent.parent.name == "predictions":  # in a run's folder
        observer, set_name = path.absolute().parents[2].name, path.parent.name
    names: set[str] = set()
    for name in {"label", "bias"} & columns.keys():
        names.update(label for label, count in columns[name].counts().items() if count)
    possible = _find_possible(set_name, names)
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
        features=scores.columns.get("features"),
        cues=SHORTCUT if metadata.get(b"cues") == json.dumps(SHORTCUT).encode() else CUES,
    )


def _column(column: Any) -> Any:
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


class _Labels(NamedTuple):
    """Labels of which an image may have several."""

    names: tuple[str, ...] = ()
    columns: Mapping[str, np.ndarray] = {}  # [N,K] each


def _read_labels(path: Path, table: Any, metadata: Mapping[bytes, bytes]) -> _Labels:
    """Read the columns of labels, of which predictions on images with one label have none."""
    if b"labels" not in metadata:
        return _Labels()
    names = parse_json(metadata[b"labels"])
    columns = {name: _matrix(table[name]) for name in LISTS if name in table.column_names}
    kinds_and_shapes = {(name, column.dtype.kind, column.shape) for name, column in columns.items()}
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        shape = (len(table), len(names))
        if kinds_and_shapes == {("targets", "b", shape), ("scores", "f", shape)}:
            return _Labels(tuple(names), columns)
    raise UsageError(f"{path}: no predictions of biasbed (its columns of labels are not whole)")


def _read_scores(path: Path, table: Any, metadata: Mapping[bytes, bytes]) -> _Labels:
    """Read the kept scores and the names of their classes. Raises UsageError if they are not whole."""
    if "log_probability" not in table.column_names:
        return _Labels()
    names = parse_json(metadata.get(b"classes", b"null"))
    columns = {name: _matrix(table[name]) for name in SCORE_LISTS if name in table.column_names}
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        has_numbers = {"energy", "max_softmax"} <= set(table.column_names)
        fits = columns["log_probability"].shape == (len(table), len(names))
        if has_numbers and fits and all(column.dtype.kind == "f" for column in columns.values()):
            return _Labels(tuple(names), columns)
    raise UsageError(f"{path}: no predictions of biasbed (its columns of scores are not whole)")


def _matrix(column: Any) -> np.ndarray:
    """Convert a column of lists to a matrix [N,K]. Empty if the lists differ in length, or values are missing."""
    from pyarrow import compute, types

    has_lists = types.is_list(column.type) or types.is_fixed_size_list(column.type)
    lengths = compute.unique(compute.list_value_length(column)).to_pylist() if has_lists else []
    values = column.combine_chunks().flatten() if len(lengths) == 1 and lengths[0] else None
    if values is None or values.null_count:
        return np.empty(0)
    matrix: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return matrix


def _check_columns(path: Path, table: Any) -> None:
    """Raise UsageError if a column has another type than ours, or missing values."""
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
            raise UsageError(f"{path}: no predictions of biasbed (the column {name} has {problem})")
