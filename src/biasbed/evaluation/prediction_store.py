"""What a model that is tested decides, kept piece by piece, so that a test that was cut off goes on where it was."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from biasbed import record
from biasbed.compute.distributed import Group
from biasbed.errors import UsageError
from biasbed.evaluation import recorded
from biasbed.evaluation.decisions import Decisions, write_predictions
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.pieces import Columns, Piece, pieces_of
from biasbed.suites.sets import EvaluationSet
from biasbed.system.files import whole
from biasbed.system.terminal import ProgressBar

Parts = dict[str, dict[int, Columns]]  # set -> number of the piece -> what is decided on it

COLUMNS = "columns"  # in a piece's file: the names of all others
DAMAGED = (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile)  # of reading one


@dataclass(frozen=True, eq=False)
class StoredDecisions:
    """What the model decides on each set."""

    decisions: list[Decisions]
    skipped: set[str]  # images that can't be read
    images: int  # that were decided on now, and not in an attempt before
    seconds: float  # that this took


@dataclass(frozen=True, eq=False)
class PredictionStore:
    """A run's folder, as the place of what is decided: a file per set, and of one that is not finished, per piece."""

    folder: Path
    sets: Sequence[EvaluationSet]
    observer: str
    skip: bool  # images that can't be read may be missing
    which: str = "last"  # of `record.PREDICTION_EPOCHS`
    number: int = 0  # of the evaluation

    def finished(self) -> dict[str, Decisions]:
        """Of the sets that an attempt before has finished."""
        found = {entry.name: self._finished(entry) for entry in self.sets}
        return {name: one for name, one in found.items() if one is not None}

    def _finished(self, entry: EvaluationSet) -> Decisions | None:
        path = self._file(entry)
        if not path.exists():
            return None
        try:
            one = recorded.read_predictions(path)
        except UsageError:  # damaged: they are made again
            return None
        is_whole = one.label_map == entry.label_map.name and (self.skip or one.images == entry.source.ids)
        classes, words = entry.source.classes, entry.preprocessing
        own = replace(one, observer=self.observer, set=entry.name, classes=classes, preprocessing=words)
        if is_whole:
            self._clear(entry)  # what a kill left of it
        return own if is_whole else None

    def begun(self, coming: Sequence[EvaluationSet]) -> Parts:
        """Of the other sets, what is there; the last piece comes again in any case, to finish its set."""
        found: Parts = {}
        for entry in coming:
            *earlier, _ = pieces_of(0, entry.source)
            own = {piece.number: self._piece(entry, piece) for piece in earlier}
            found[entry.name] = {number: part for number, part in own.items() if part is not None}
        return found

    def _piece(self, entry: EvaluationSet, piece: Piece) -> Columns | None:
        path = self._file(entry, piece.number)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                part = dict(file)
            # A directory of the archive that was damaged may end early, and say nothing of it.
            if set(part.pop(COLUMNS).tolist()) != set(part):
                return None
            is_whole = self.skip or np.array_equal(part["row"], piece.rows)
            return part if is_whole and {len(column) for column in part.values()} == {len(part["row"])} else None
        except DAMAGED:  # it is decided again
            return None

    def keep(self, entry: EvaluationSet, number: int, part: Columns) -> None:
        """Write what is decided on a piece."""
        path = self._file(entry, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{COLUMNS: np.array(list(part))}, **part)  # type: ignore[arg-type]

    def finish(self, entry: EvaluationSet, one: Decisions) -> None:
        """Write what is decided on a set, in place of its pieces."""
        write_predictions(self._file(entry), one, self.number)
        self._clear(entry)

    def _clear(self, entry: EvaluationSet) -> None:
        """Remove the pieces of a set that is finished."""
        for piece in self._file(entry).parent.glob(f"{self.which}-*.npz"):
            piece.unlink(missing_ok=True)

    def _file(self, entry: EvaluationSet, piece: int | None = None) -> Path:
        path = self.folder / record.predictions_file(entry.name, self.which)
        return path if piece is None else path.with_name(f"{self.which}-{piece}.npz")


def decide(
    sets: Sequence[EvaluationSet],
    kept: PredictionStore,
    predict: Callable[[Tensor], Tensor],
    group: Group,
    make: Callable[..., Evaluator],
) -> StoredDecisions | None:
    """Decide on all images that the folder has no decisions on yet, and write them piece by piece; on rank 0.

    make: the evaluator of some sets, of which some pieces are decided already.
    """
    found = kept.finished() if group.is_main else {}
    names = group.share_object(list(found))
    coming = [entry for entry in sets if entry.name not in names]
    parts = kept.begun(coming) if group.is_main else {}
    evaluator = make(coming, done=group.share_object({name: list(own) for name, own in parts.items()}))
    images, began = sum(len(piece.rows) for piece in evaluator.coming), time.monotonic()
    with ProgressBar(images, "image", silent=not group.is_main) as bar:
        for piece, part in evaluator.pieces(predict, lambda count: bar.tick(count * group.world)):
            if part is None:
                continue
            entry = coming[piece.set]
            own = parts[entry.name]
            own[piece.number] = part
            if any(other.set == piece.set and other.number > piece.number for other in evaluator.coming):
                kept.keep(entry, piece.number, part)
                continue
            whole_set = [own.pop(number) for number in sorted(own)]
            found[entry.name] = evaluator.whole(entry, whole_set, kept.observer)
            kept.finish(entry, found[entry.name])
    seconds = time.monotonic() - began
    evaluator.close()
    if not group.is_main:
        return None
    skipped = {f"{entry.name}: {image}" for entry in sets for image in _missing(entry, found[entry.name])}
    return StoredDecisions([found[entry.name] for entry in sets], skipped, images, seconds)


def _missing(entry: EvaluationSet, one: Decisions) -> set[str]:
    """The images that can't be read."""
    return set() if len(one.images) == len(entry.source) else set(entry.source.ids) - set(one.images)
