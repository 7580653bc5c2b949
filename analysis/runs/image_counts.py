"""Numbers of images behind a run's metrics, which trainings store in `record.COUNTS_FILE`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed import measures, record
from biasbed.analysis.runs.run import Run
from biasbed.system.strict import parse_json

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

IMAGES = "images"  # replaces `accuracy` in the names of counts


class ImageCounts:
    """Reader of image counts. It reads each file once, as runs on the same images have the same counts."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._cache: dict[tuple[str, str, str], Mapping[str, int]] = {}

    def read(self, run: Run, protocol: record.Protocol) -> Mapping[str, int]:
        """Return numbers of images by name; empty if the run has no such file, or no metric needs them."""
        if run.kind == "published":
            return {}
        inputs = itertools.chain.from_iterable(derivation.inputs for derivation in protocol.derived)
        if not any(measures.measure_of(name).of_biases or _is_count(name) for name in inputs):
            return {}
        key = run.protocol, run.cell, run.data_fingerprint
        if key not in self._cache:
            self._cache[key] = self._read_file(run)
        return self._cache[key]

    def _read_file(self, run: Run) -> Mapping[str, int]:
        """Return the valid counts in the file, which anybody may have written."""
        try:
            values = parse_json(self.store.text(run.id, record.COUNTS_FILE) or "{}")
        except ValueError:
            return {}
        items = values.items() if isinstance(values, dict) else ()
        return {name: number for name, number in items if type(number) is int and number >= 0 and _is_count(name)}


def images_of(metric: str) -> str:
    """Return the name of the number of images behind an accuracy; empty for other metrics.

    `val/conflicting_accuracy/a_val` gives `val/conflicting_images/a_val`.
    """
    name = record.parse_metric(metric)
    if name is None or not name.measure.endswith("accuracy"):
        return ""
    return str(replace(name, measure=name.measure.removesuffix("accuracy") + IMAGES))


def _is_count(name: str) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.measure.endswith(IMAGES)
