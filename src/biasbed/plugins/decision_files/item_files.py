"""Files of decisions on single items: tables with a line per image or question, and predictions of biasbed's runs.

Models that answered the same items are compared item by item, which sees smaller differences than their scores do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.analysis.runs.predictions import answers_of
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.user_scores import UserScores, make_scores
from biasbed.analysis.tables.vocabulary import DATASETS, METHODS, SEEDS
from biasbed.errors import Failure, UsageError, listed, shown
from biasbed.evaluation.prediction_files import read_predictions
from biasbed.system.csv_tables import read_lines

PARQUET = ".parquet"
ITEMS = ("image", "imagename", "item", "id", "docid", "questionid", "example", "exampleid", "filename", "file", "path")
RIGHT = ("correct", "right", "iscorrect", "hit", "acc")
LABELS = ("label", "target", "truth", "groundtruth", "gold", "category", "class", "answer")
DECISIONS = ("decision", "prediction", "pred", "predicted", "response", "objectresponse", "output")
SETS = tuple(name for name in DATASETS if name not in (*ITEMS, *LABELS, *DECISIONS))
OBSERVERS = ("subj", "observer", *METHODS)
TRUE, FALSE = {"1", "true", "yes", "1.0"}, {"0", "false", "no", "0.0"}
DELIMITERS = (";", "\t", ",", "|")
DEFAULT_SET = "items"  # data set of decisions that name none


class ItemCell(NamedTuple):
    """Cell of a table of scores."""

    method: str
    dataset: str
    seed: str


@dataclass
class ItemDecisions:
    """Decisions on single items: those of tables by the items' names, those of predictions as they are stored."""

    by_item: dict[ItemCell, dict[str, bool]] = field(default_factory=dict)
    stored: dict[ItemCell, ImageAnswers] = field(default_factory=dict)

    def add(self, cell: ItemCell, item: str, is_right: bool, where: str) -> None:
        """Add an item's decision. Raises UsageError if the item is there already."""
        of_cell = self.by_item.setdefault(cell, {})
        if item in of_cell:
            raise UsageError(f"{where}: item '{shown(item, 60)}' of {cell.method} on {cell.dataset} is there already")
        of_cell[item] = is_right


def read(paths: Sequence[Path], measure: str) -> UserScores | None:
    """Read the decisions in files; None if no file has a line per item. Raises UsageError if only some files have."""
    if not any(map(has_items, paths)):
        return None
    decisions = ItemDecisions()
    for path in paths:
        if path.suffix.lower() == PARQUET:
            _read_predictions(path, decisions)
        else:
            _read_table(path, decisions)
    return _make_scores(decisions, ", ".join(map(str, paths)))


def has_items(path: Path) -> bool:
    """Return True if a file has a line per item and not a line per score."""
    if path.suffix.lower() == PARQUET:
        return True
    try:
        heads = next(iter(read_lines(path, DELIMITERS)), (0, []))[1]
    except (OSError, UsageError):
        return False  # the reader of tables says what is wrong with it
    return find_columns(heads) is not None


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
    """Return the columns of a table of decisions; None for a table of another kind."""
    letters = [re.sub(r"[^a-z0-9]", "", head.lower()) for head in heads]

    def first(names: Sequence[str]) -> int | None:
        return next((letters.index(name) for name in names if name in letters), None)

    item, right, label, decision = first(ITEMS), first(RIGHT), first(LABELS), first(DECISIONS)
    if item is None or (right is None and (label is None or decision is None)):
        return None
    further = [position for position in (first(("condition",)), first(("session",))) if position is not None]
    return ItemColumns((item, *further), right, label, decision, first(OBSERVERS), first(SETS), first(SEEDS))


def _read_table(path: Path, decisions: ItemDecisions) -> None:
    """Read a CSV file with a line per item; without a column of methods the file's name is the method."""
    lines = read_lines(path, DELIMITERS)
    heads = next(lines, (0, []))[1]
    columns = find_columns(heads)
    if columns is None:
        raise UsageError(
            f"{path}: has no line per item; with several files each needs a column 'image' (or 'id'), and 'correct' or "
            f"'label' and 'decision'; it has {listed(heads) or 'nothing'}"
        )
    for number, fields in lines:
        where = f"{path}, line {number}"
        if len(fields) != len(heads):
            raise UsageError(f"{where}: {len(fields)} entries for {len(heads)} columns: was the file cut off?")
        method = path.stem if columns.method is None else fields[columns.method]
        dataset = DEFAULT_SET if columns.dataset is None else fields[columns.dataset]
        seed = "" if columns.seed is None else fields[columns.seed]
        item = " ".join(fields[position] for position in columns.items)
        decisions.add(ItemCell(method, dataset, seed), item, _is_right(fields, columns, where), where)


def _is_right(fields: Sequence[str], columns: ItemColumns, where: str) -> bool:
    """Return the value of the column of right decisions; without one, True if the decision is the label."""
    if columns.right is None:
        assert columns.label is not None
        assert columns.decision is not None
        return fields[columns.label] == fields[columns.decision]
    word = fields[columns.right].casefold()
    if word not in TRUE | FALSE:
        raise UsageError(f"{where}: '{shown(fields[columns.right], 40)}' should be 1 or 0, true or false")
    return word in TRUE


def _read_predictions(path: Path, decisions: ItemDecisions) -> None:
    """Read a file of predictions of a run of biasbed."""
    in_run = path.parent.parent.name == "predictions"
    method = path.absolute().parents[2].name if in_run else path.stem
    cell = ItemCell(method, path.parent.name if in_run else DEFAULT_SET, "")
    if cell in decisions.stored:
        raise UsageError(f"{path}: decisions of {method} on {cell.dataset} are there already: rename one of the files")
    try:
        decisions.stored[cell] = answers_of(read_predictions(path))
    except Failure as failure:
        raise failure.with_place(str(path)) from None


def _make_scores(decisions: ItemDecisions, source: str) -> UserScores:
    """Return the accuracies, with the decisions behind them."""
    answers: dict[tuple[str, str, str], ImageAnswers] = {}
    answers.update(decisions.stored.items())
    for cell, by_item in decisions.by_item.items():
        names = sorted(by_item)
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        answers[cell] = ImageAnswers(digest, np.array([by_item[name] for name in names]))
    rows = [Score(*cell, float(answer.right.mean()), source) for cell, answer in answers.items()]
    number = sum(len(answer.right) for answer in answers.values())
    note = f"decisions on {number:,} items in {len(answers)} files and sets"
    return replace(make_scores(rows, source, [note], "accuracy"), answers=answers)
