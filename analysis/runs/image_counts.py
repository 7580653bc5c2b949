"""How many images stand behind a run's numbers: what trainings keep in `record.COUNTS_FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed import measures, record
from biasbed.analysis.runs.run import Run
from biasbed.system.strict import parse_json

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

WORD = "images"  # what counts are called by, where accuracies are by theirs


class ImageCounts:
    """Reads each file once: runs with the same images have the same."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._known: dict[tuple[str, str, str], Mapping[str, int]] = {}

    def of(self, run: Run, protocol: record.Protocol) -> Mapping[str, int]:
        """Name -> images; empty where the run has no such file, or nothing of it is of groups of images."""
        inputs = (name for own in protocol.derived for name in own.inputs)
        if run.kind == "published" or not any(measures.of(name).of_biases or _is_of_counts(name) for name in inputs):
            return {}
        place = run.protocol, run.cell, run.data_fingerprint
        if place not in self._known:
            self._known[place] = self._read(run)
        return self._known[place]

    def _read(self, run: Run) -> Mapping[str, int]:
        """Of a file of anybody's what are numbers of images."""
        try:
            found = parse_json(self.store.text(run.id, record.COUNTS_FILE) or "{}")
        except ValueError:
            return {}
        items = found.items() if isinstance(found, dict) else ()
        return {name: number for name, number in items if type(number) is int and number >= 0 and _is_of_counts(name)}


def images_of(metric: str) -> str:
    """What the number of images is called, of which a metric is the accuracy; empty where it is none.

    `val/conflicting_images/a_val` of `val/conflicting_accuracy/a_val`.
    """
    name = record.parse_metric(metric)
    if name is None or not name.measure.endswith("accuracy"):
        return ""
    return str(replace(name, measure=name.measure.removesuffix("accuracy") + WORD))


def _is_of_counts(name: str) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.measure.endswith(WORD)
