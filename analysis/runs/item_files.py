"""Files of decisions on single items: samples of lm-evaluation-harness, and tables with a line per image or question.

Models that answered the same items are compared item by item, which sees smaller differences than their scores do.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from biasbed.analysis.runs.predictions import answers_of
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.analysis.tables.user_scores import ScoreRow, UserScores, make_scores
from biasbed.analysis.tables.vocabulary import DATASETS, METHODS, SEEDS
from biasbed.errors import Failure, UsageError, listed, shown
from biasbed.evaluation.prediction_files import read_predictions
from biasbed.settings import nearest
from biasbed.system.csv_tables import BoundedLines, read_lines
from biasbed.system.strict import open_text, parse_json, read_bytes

SAMPLES = "samples_*.jsonl"  # as `lm_eval --log_samples` writes them
_TASK = re.compile(r"samples_(?P<task>.+?)(?:_\d{4}-\d{2}-\d{2}T[\d.-]+)?\.jsonl")
MEASURES = ("acc", "exact_match", "acc_norm", "em", "pass@1", "f1")  # of samples that do not list theirs
PARQUET = ".parquet"
ITEMS = ("image", "imagename", "item", "id", "docid", "questionid", "example", "exampleid", "filename", "file", "path")
RIGHT = ("correct", "right", "iscorrect", "hit", "acc")
LABELS = ("label", "target", "truth", "groundtruth", "gold", "category", "class", "answer")
DECISIONS = ("decision", "prediction", "pred", "predicted", "response", "objectresponse", "output")
SETS = tuple(name for name in DATASETS if name not in (*ITEMS, *LABELS, *DECISIONS))
OBSERVERS = ("subj", "observer", *METHODS)
TRUE, FALSE = {"1", "true", "yes", "1.0"}, {"0", "false", "no", "0.0"}
DELIMITERS = (";", "\t", ",", "|")
LONGEST_HEAD = 100_000  # characters of a first line that are looked at
MOST_BYTES = 2**30  # of a file of predictions
DEFAULT_SET = "items"  # data set of decisions that name none

ItemCell = tuple[str, str, str]  # method, data set, seed


@dataclass
class ItemScores:
    """Scores of single items by their names, and what was noted while they were read."""

    values: dict[ItemCell, dict[str, float]] = field(default_factory=dict)
    answers: dict[ItemCell, ImageAnswers] = field(default_factory=dict)  # of files that have them ready
    measures: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, cell: ItemCell, item: str, value: float, where: str) -> None:
        """Add an item's score. Raises UsageError if the item is there already."""
        of_cell = self.values.setdefault(cell, {})
        if item in of_cell:
            raise UsageError(f"{where}: item '{shown(item, 60)}' of {cell[0]} on {cell[1]} is there already")
        of_cell[item] = value


def read_items(paths: Sequence[Path], measure: str = "auto") -> UserScores:
    """Read the decisions of files or folders. Raises UsageError for anything else.

    measure: of samples; auto: the first that they list.
    """
    items = ItemScores()
    files = list_samples(paths)
    for path in files:
        _read_samples(path, measure, items)
    for path in paths:
        if path.suffix.lower() == PARQUET:
            _read_predictions(path, items)
        elif not path.is_dir() and path not in files:
            _read_table(path, items)
    return _make(items, ", ".join(map(str, paths)))


def list_samples(paths: Iterable[Path]) -> list[Path]:
    """Return the files of samples: those that are named, and all below the folders."""
    files = []
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob(SAMPLES))
            if not below:
                raise UsageError(
                    f"{path}: no scores are in the folder; looked for {SAMPLES}, as lm_eval writes them with "
                    "--log_samples, .json files of Every Eval Ever, and README.md with a model-index"
                )
            files += below
        elif path.suffix.lower() == ".jsonl":
            files.append(path)
    return files


def has_items(path: Path) -> bool:
    """Return True if a file has a line per item and not a line per score, or is a folder of such files."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix == PARQUET:
        return True
    try:
        if suffix == ".jsonl":
            with open_text(path, errors="surrogateescape", newline="") as file:
                return bool(_TASK.fullmatch(path.name)) or '"doc_id"' in file.readline(LONGEST_HEAD)
        heads = next(iter(read_lines(path, DELIMITERS)), (0, []))[1]
    except (OSError, UsageError):
        return False  # the reader of tables says what is wrong with it
    return find_columns(heads) is not None


# --- samples of lm-evaluation-harness ---------------------------------------------------------------------------------


def _read_samples(path: Path, measure: str, items: ItemScores) -> None:
    """Read a file of samples; of several filters of an answer the first counts, of several files the newest."""
    match = _TASK.fullmatch(path.name)
    cell = path.absolute().parent.name, match["task"] if match else path.stem, ""
    if cell in items.values:  # sorted by name, hence by time
        items.notes.append(f"{cell[0]} has {cell[1]} twice: the newest file counts ({path.name})")
        del items.values[cell]
    first_filter: str | None = None
    with open_text(path, errors="surrogateescape", newline="") as file:
        for number, line in _lines_of(file, path):
            where = f"{path}, line {number}"
            sample = _parse_sample(line, where)
            name = str(sample.get("filter", ""))
            first_filter = name if first_filter is None else first_filter
            if name != first_filter:
                continue
            of_sample = _measure_of(sample, measure, where)
            items.measures.add(of_sample)
            value = sample[of_sample]
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise UsageError(f"{where}: {of_sample}={shown(str(value), 40)} is no number")
            items.add(cell, f"{sample['doc_id']} {sample.get('doc_hash', '')}", float(value), where)
    if cell not in items.values:
        raise UsageError(f"{path}: holds no samples")


def _lines_of(file: TextIO, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line with content. Raises UsageError for one that is endless, or no text."""
    lines = BoundedLines(file)
    try:
        for line in lines:
            lines.end_row()
            if line.strip():
                yield lines.number, line
    except ValueError as error:
        raise UsageError(f"{path}, line {lines.number}: {error}") from None


def _parse_sample(line: str, where: str) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError):
        sample = parse_json(line)
        if isinstance(sample, dict) and "doc_id" in sample:
            return sample
    raise UsageError(f"{where}: is no sample of lm-evaluation-harness (a JSON object with a doc_id): was it cut off?")


def _measure_of(sample: Mapping[str, Any], measure: str, where: str) -> str:
    """Return the name of the measure that counts."""
    listed_there = sample.get("metrics")
    named = listed_there if isinstance(listed_there, list) else []
    names = [name for name in named if isinstance(name, str) and name in sample]
    names = names or [name for name in MEASURES if name in sample]
    if measure != "auto":
        if measure not in sample:
            raise UsageError(f"score={measure}: {where} has no such measure{nearest(measure, names)}")
        return measure
    if not names:
        raise UsageError(f"{where}: names no measure; say it, as score=acc")
    return str(names[0])


# --- tables with a line per item --------------------------------------------------------------------------------------


class ItemColumns(NamedTuple):
    """Positions of the columns of a table of decisions."""

    items: tuple[int, ...]  # that together name an item
    right: int | None
    label: int | None
    decision: int | None
    method: int | None
    dataset: int | None
    seed: int | None


def find_columns(heads: Sequence[str]) -> ItemColumns | None:
    """Return the columns of a table of decisions; None if it is none."""
    letters = [re.sub(r"[^a-z0-9]", "", head.lower()) for head in heads]

    def first(names: Sequence[str]) -> int | None:
        return next((letters.index(name) for name in names if name in letters), None)

    item, right, label, decision = first(ITEMS), first(RIGHT), first(LABELS), first(DECISIONS)
    if item is None or (right is None and (label is None or decision is None)):
        return None
    further = [position for position in (first(("condition",)), first(("session",))) if position is not None]
    return ItemColumns((item, *further), right, label, decision, first(OBSERVERS), first(SETS), first(SEEDS))


def _read_table(path: Path, items: ItemScores) -> None:
    """Read a CSV file with a line per item; without a column of methods the file's name is the method."""
    lines = read_lines(path, DELIMITERS)
    heads = next(lines, (0, []))[1]
    columns = find_columns(heads)
    if columns is None:
        raise UsageError(
            f"{path}: has no line per item; with several files each needs a column 'image' (or 'id'), and 'correct' or "
            f"'label' and 'decision'; it has {listed(heads) or 'nothing'}"
        )
    items.measures.add("accuracy")
    for number, fields in lines:
        where = f"{path}, line {number}"
        if len(fields) != len(heads):
            raise UsageError(f"{where}: {len(fields)} entries for {len(heads)} columns: was the file cut off?")
        method = path.stem if columns.method is None else fields[columns.method]
        dataset = DEFAULT_SET if columns.dataset is None else fields[columns.dataset]
        seed = "" if columns.seed is None else fields[columns.seed]
        item = " ".join(fields[position] for position in columns.items)
        items.add((method, dataset, seed), item, _is_right(fields, columns, where), where)


def _is_right(fields: Sequence[str], columns: ItemColumns, where: str) -> float:
    """Return 1 for a right decision, 0 for a wrong one."""
    if columns.right is None:
        assert columns.label is not None
        assert columns.decision is not None
        return float(fields[columns.label] == fields[columns.decision])
    word = fields[columns.right].casefold()
    if word not in TRUE | FALSE:
        raise UsageError(f"{where}: '{shown(fields[columns.right], 40)}' should be 1 or 0, true or false")
    return float(word in TRUE)


def _read_predictions(path: Path, items: ItemScores) -> None:
    """Read a file of predictions of a run of biasbed."""
    try:
        content = read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error.strerror})") from None
    in_run = path.parent.parent.name == "predictions"
    method = path.absolute().parents[2].name if in_run else path.stem
    cell = method, path.parent.name if in_run else DEFAULT_SET, ""
    if cell in items.answers:
        raise UsageError(f"{path}: decisions of {method} on {cell[1]} are there already: rename one of the files")
    try:
        items.answers[cell] = answers_of(read_predictions(path, content))
    except Failure as failure:
        raise UsageError(f"{path}: {failure}") from None
    except ModuleNotFoundError:
        raise UsageError(f"{path}: to read parquet files, pip install pyarrow") from None
    items.measures.add("accuracy")


# --- both -------------------------------------------------------------------------------------------------------------


def _make(items: ItemScores, source: str) -> UserScores:
    """Return the scores of all items: means, and for decisions that are right or wrong the decisions too."""
    answers = dict(items.answers)
    notes = list(items.notes)
    rows = [ScoreRow(*cell, float(answer.right.mean()), source) for cell, answer in answers.items()]
    graded: dict[str, None] = {}
    for cell, values in items.values.items():
        scores = np.array([values[item] for item in sorted(values)])
        if np.isin(scores, (0.0, 1.0)).all():
            digest = hashlib.sha256("\n".join(sorted(values)).encode()).hexdigest()
            answers[cell] = ImageAnswers(digest, scores == 1)
        else:
            graded[cell[1]] = None
        rows.append(ScoreRow(*cell, float(scores.mean()), source))
    if graded:
        notes.append(f"items on {listed(graded, 5)} are not right or wrong: only their means are compared")
    counts = [*map(len, items.values.values()), *(len(answer.right) for answer in items.answers.values())]
    measure = " or ".join(sorted(items.measures))
    notes.insert(0, f"decisions on {sum(counts):,} items in {len(counts)} files and sets, by {measure}")
    paired = {cell: answer for cell, answer in answers.items() if cell[1] not in graded}
    return replace(make_scores(rows, source, notes, measure), answers=paired)
