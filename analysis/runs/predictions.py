"""Stored predictions: a run's decision on each image of a set."""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from biasbed import record
from biasbed.analysis.runs.run import TESTED, Run
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.data.names import number_photographs
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import prediction_files
from biasbed.evaluation.decisions import Decisions

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

MOST_BYTES = 2**28  # decisions up to this size are kept in memory for further questions


class DecisionReader(Protocol):
    """Reader of the decisions of an analysis' runs on single images.

    step: that the rule chose; None if it averages several. `decisions` and `answers` raise Failure with a short reason
    if there are no decisions of this step.
    """

    @property
    def is_empty(self) -> bool:
        """True if no run can have decisions."""

    def decisions(self, run: Run, dataset: str, step: int | None) -> Decisions:
        """Return all that is stored of the decisions on a set."""

    def answers(self, run: Run, dataset: str, step: int | None) -> ImageAnswers:
        """Return which images of a set are classified rightly."""

    def table(self, run: Run, name: str) -> list[dict[str, str]]:
        """Return the rows of a CSV file that the evaluation of a model has written; empty if there is none."""


class TrackedDecisions:
    """Decisions that runs keep as artifacts. A file is fetched and parsed once, whoever asks, while memory allows."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._kept: dict[tuple[str, str], Decisions | None] = {}  # (run id, file) -> decisions; used last, stands last
        self._num_bytes = 0

    @property
    def is_empty(self) -> bool:
        return False

    def decisions(self, run: Run, dataset: str, step: int | None) -> Decisions:
        """Return the decisions of the weights of this step; of a tested model its only ones."""
        if step is None:
            raise Failure("the rule averages several steps, and decisions are those of one")
        is_tested = run.kind in TESTED
        has_file = False
        for name in record.PREDICTION_EPOCHS[-1:] if is_tested else record.PREDICTION_EPOCHS:
            decisions = self._read_once(run.id, record.predictions_file(dataset, name))
            if decisions is None:
                continue
            has_file = True
            if is_tested or decisions.epoch == step:
                return replace(decisions, set=dataset)
        if has_file:
            raise Failure(f"the decisions of step {step}, which the rule chose, are not kept")
        raise Failure("no decisions are stored")

    def answers(self, run: Run, dataset: str, step: int | None) -> ImageAnswers:
        return answers_of(self.decisions(run, dataset, step))

    def table(self, run: Run, name: str) -> list[dict[str, str]]:
        content = self.store.file(run.id, name) if run.kind in TESTED else None
        if content is None:
            return []
        return list(csv.DictReader(io.StringIO(content.decode(errors="replace"))))

    def _read_once(self, run_id: str, name: str) -> Decisions | None:
        """Return a file's decisions; None if the run has no such file. Those used last are kept, up to `MOST_BYTES`."""
        key = run_id, name
        if key in self._kept:
            self._kept[key] = self._kept.pop(key)  # now the last one
            return self._kept[key]
        decisions = self._read_from_store(run_id, name)
        size = _num_bytes(decisions)
        while size and self._kept and self._num_bytes + size > MOST_BYTES:
            oldest = next(iter(self._kept))
            self._num_bytes -= _num_bytes(self._kept.pop(oldest))
        self._kept[key] = decisions
        self._num_bytes += size
        return decisions

    def _read_from_store(self, run_id: str, name: str) -> Decisions | None:
        """Read a file from the store; None if the run has no such file. Raises Failure if it can't be read."""
        content = self.store.file(run_id, name)
        try:
            return None if content is None else prediction_files.read_predictions(Path(name), content)
        except UsageError as error:
            raise Failure(f"the stored decisions can't be read: {error}") from None


def _num_bytes(decisions: Decisions | None) -> int:
    """Return how much memory the decisions take; 0 for None."""
    return 0 if decisions is None else decisions.num_bytes


def answers_of(decisions: Decisions) -> ImageAnswers:
    """Return which images are classified rightly, sorted by condition and name.

    Raises Failure if an image is there twice, or has several labels.
    """
    if decisions.targets is not None:
        raise Failure("its images have several labels each, and a decision on them is not right or wrong")
    keys = [np.array(list(decisions.images), dtype=object)]
    if decisions.condition is not None:
        keys.insert(0, np.asarray(decisions.condition))
    order = np.lexsort(keys[::-1])  # numpy sorts by the last key first
    keys = [key[order] for key in keys]
    repeats = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    if repeats.any():
        raise Failure("the stored decisions name an image twice")
    digest = hashlib.sha256()
    for column in (*keys, np.asarray(decisions.label)[order]):
        digest.update("\n".join(column).encode() + b"\0")
    of_view = None
    if decisions.condition is not None:
        conditions, images = keys
        of_view = number_photographs(images, conditions)
        if len(np.unique(of_view)) == len(of_view):
            of_view = None  # experiments with one condition, or another image under each
    return ImageAnswers(digest.hexdigest(), decisions.right[order], of_view)
