"""Prediction store: decisions of a model stored in pieces, so that an interrupted evaluation can resume.

Answers: How does an interrupted evaluation continue, and what is kept of it?
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from biasbed import record
from biasbed.config import NO_SCORES, ScoreSettings
from biasbed.errors import UsageError
from biasbed.evaluation import prediction_files
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.pieces import Columns, Piece, cut_pieces, keeps_scores
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.suites.sets import EvaluationSet
from biasbed.system.files import atomic_file
from biasbed.system.terminal import ProgressBar

PartsBySet = dict[str, dict[int, Columns]]  # set -> number of the piece -> decisions on it

COLUMNS = "columns"  # in a piece's file: the names of all other arrays
# Errors of reading a damaged file.
DAMAGED = (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile)


@dataclass(frozen=True, eq=False)
class StoredDecisions:
    """Decisions of a model on each set, and the work of making them."""

    sets: Sequence[EvaluationSet]
    decisions: list[Decisions]  # on each of them
    skipped: set[str]  # images that can't be read
    images: int  # decided in this attempt
    seconds: float  # of this attempt

    def measure(self) -> dict[str, float]:
        """Return the metrics of all sets."""
        metrics: dict[str, float] = {}
        for evaluation_set, decided in zip(self.sets, self.decisions, strict=True):
            metrics |= measure(evaluation_set, decided, "test")
        return metrics


@dataclass(frozen=True, eq=False)
class PredictionStore:
    """Files of decisions in a run's folder: one per finished set, and one per piece of an unfinished set."""

    folder: Path
    sets: Sequence[EvaluationSet]
    observer: str
    skip: bool  # True: images that can't be read may be missing
    which: str = "last"  # of `record.PREDICTION_EPOCHS`
    number: int = 0  # of the evaluation
    scores: ScoreSettings = NO_SCORES

    def read_finished(self) -> dict[str, Decisions]:
        """Return the decisions on the sets that an earlier attempt has finished."""
        finished = {}
        for evaluation_set in self.sets:
            decisions = self._read_set(evaluation_set)
            if decisions is not None:
                finished[evaluation_set.name] = decisions
        return finished

    def _read_set(self, evaluation_set: EvaluationSet) -> Decisions | None:
        """Return the decisions on a set, None if they are missing, damaged or of other images."""
        path = self._file(evaluation_set)
        if not path.exists():
            return None
        try:
            decisions = prediction_files.read_predictions(path)
        except UsageError:  # damaged
            return None
        if decisions.label_map != evaluation_set.label_map.name:
            return None
        if not self.skip and decisions.images != evaluation_set.source.ids:
            return None
        if self.scores.is_kept and keeps_scores(evaluation_set) and decisions.log_probability is None:
            return None
        self._remove_pieces(evaluation_set)  # left behind by a kill
        return replace(
            decisions,
            observer=self.observer,
            set=evaluation_set.name,
            classes=evaluation_set.source.classes,
            preprocessing=evaluation_set.preprocessing,
        )

    def read_pieces(self, sets: Sequence[EvaluationSet]) -> PartsBySet:
        """Return the stored pieces of unfinished sets: set -> number of the piece -> its columns.

        The last piece of a set is never among them: deciding it again completes the set.
        """
        parts: PartsBySet = {}
        for evaluation_set in sets:
            parts[evaluation_set.name] = {}
            *earlier, _ = cut_pieces(0, evaluation_set.source)
            for piece in earlier:
                columns = self._read_piece(evaluation_set, piece)
                if columns is not None:
                    parts[evaluation_set.name][piece.number] = columns
        return parts

    def _read_piece(self, evaluation_set: EvaluationSet, piece: Piece) -> Columns | None:
        """Return the decisions on a piece, None if they are missing, damaged or of other images."""
        path = self._file(evaluation_set, piece.number)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                part = dict(file)
            # A damaged archive may end early without an error, and lack columns.
            if set(part.pop(COLUMNS).tolist()) != set(part):
                return None
            is_complete = self.skip or np.array_equal(part["row"], piece.rows)
            has_one_length = {len(column) for column in part.values()} == {len(part["row"])}
            has_scores = "log_probability" in part or not (self.scores.is_kept and keeps_scores(evaluation_set))
            return part if is_complete and has_one_length and has_scores else None
        except DAMAGED:
            return None

    def write_piece(self, evaluation_set: EvaluationSet, number: int, part: Columns) -> None:
        """Write the decisions on a piece."""
        path = self._file(evaluation_set, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{COLUMNS: np.array(list(part))}, **part)  # type: ignore[arg-type]

    def write_set(self, evaluation_set: EvaluationSet, decisions: Decisions) -> None:
        """Write the decisions on a set, in place of its pieces."""
        write_predictions(self._file(evaluation_set), decisions, self.number)
        self._remove_pieces(evaluation_set)

    def _remove_pieces(self, evaluation_set: EvaluationSet) -> None:
        for piece in self._file(evaluation_set).parent.glob(f"{self.which}-*.npz"):
            piece.unlink(missing_ok=True)

    def _file(self, evaluation_set: EvaluationSet, piece: int | None = None) -> Path:
        path = self.folder / record.predictions_file(evaluation_set.name, self.which)
        if piece is None:
            return path
        return path.with_name(f"{self.which}-{piece}.npz")


def decide(store: PredictionStore, predict: Callable[[Tensor], Tensor], usual: Evaluator) -> StoredDecisions | None:
    """Decide on the images of the store's sets that it lacks, store the decisions, and return all of them on rank 0.

    usual: evaluator whose settings are used.
    """
    group = usual.group
    decisions = store.read_finished() if group.is_main else {}
    finished = group.share_object(list(decisions))
    coming = [evaluation_set for evaluation_set in store.sets if evaluation_set.name not in finished]
    parts = store.read_pieces(coming) if group.is_main else {}
    done = group.share_object({name: list(columns) for name, columns in parts.items()})
    evaluator = usual.for_sets(coming, done)
    images, began = sum(len(piece.rows) for piece in evaluator.todo), time.monotonic()
    last_pieces = {piece.set: piece.number for piece in evaluator.todo}
    with ProgressBar(images, "image", silent=not group.is_main) as bar:
        for piece, part in evaluator.decide_pieces(predict, lambda count: bar.tick(count * group.world)):
            if part is None:  # on other ranks
                continue
            evaluation_set = coming[piece.set]
            columns = parts[evaluation_set.name]
            columns[piece.number] = part
            if piece.number < last_pieces[piece.set]:
                store.write_piece(evaluation_set, piece.number, part)
                continue
            in_order = [columns.pop(number) for number in sorted(columns)]
            decisions[evaluation_set.name] = evaluator.join_decisions(evaluation_set, in_order, store.observer)
            store.write_set(evaluation_set, decisions[evaluation_set.name])
    seconds = time.monotonic() - began
    evaluator.close()
    if not group.is_main:
        return None
    ordered = [decisions[evaluation_set.name] for evaluation_set in store.sets]
    return StoredDecisions(store.sets, ordered, skipped_images(store.sets, ordered), images, seconds)


def decide_in_memory(
    evaluator: Evaluator, predict: Callable[[Tensor], Tensor], observer: str, silent: bool = False
) -> StoredDecisions:
    """Decide on all images of the evaluator's sets in this process, and store nothing. observer: name of the model."""
    images, began = sum(len(piece.rows) for piece in evaluator.todo), time.monotonic()
    with ProgressBar(images, "image", silent=silent) as bar:
        decided = [
            decisions for decisions in evaluator.decide_each(predict, bar.tick, observer) if decisions is not None
        ]
    seconds = time.monotonic() - began
    return StoredDecisions(evaluator.sets, decided, skipped_images(evaluator.sets, decided), images, seconds)


def skipped_images(sets: Sequence[EvaluationSet], decided: Sequence[Decisions]) -> set[str]:
    """Return the images without a decision, as they could not be read: `<set>: <image>`."""
    skipped: set[str] = set()
    for evaluation_set, decisions in zip(sets, decided, strict=True):
        if len(decisions.images) < len(evaluation_set.source):
            missing = set(evaluation_set.source.ids) - set(decisions.images)
            skipped.update(f"{evaluation_set.name}: {image}" for image in missing)
    return skipped
