"""Tracking server as analysis reads it: runs by tag, metric histories, small artifacts.

Any error of a dead or strange server becomes a `Failure` of one line.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbed import measures, record
from biasbed.analysis.runs.run import Run
from biasbed.system import places
from biasbed.system.strict import parse_json
from biasbed.tracking.metric_histories import MetricHistory, open_reader
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import artifact_bytes, artifact_text, database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

PHASES_READ = ("val", "test")  # the metrics that analysis uses; others may be many and stay on the server
# The scores of a method's biased classifier, or of the stage that trains it (`Algorithm.predictors`), have this name.
# Its accuracies on aligned and conflicting validation images are read, and the loss of its stage.
BIASED = "biased"
IMAGES = "images"  # replaces `accuracy` in the names of counts of images
_BIASED = re.compile(rf"{BIASED}/(loss|(aligned|conflicting)_accuracy/[a-z0-9_-]+)")


class RunStore:
    """One tracking server, for reading and, through `client`, for logging results."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        self.home = places.home(tracking_uri)
        self.reader = open_reader(tracking_uri)
        self._listings: dict[tuple[str, str], frozenset[str]] = {}  # (run, folder) -> paths in it
        self._counts: dict[tuple[str, str, str], Mapping[str, int]] = {}  # (protocol, cell, images) -> counts

    @functools.cached_property
    def client(self) -> MlflowClient:
        """MLflow's client. It is made on demand, as making it creates a local database that does not exist."""
        with guarded(self.uri):
            return writer(self.uri)

    @property
    def is_new(self) -> bool:
        """True for a local database that does not exist yet."""
        file = database(self.uri)
        return file is not None and not file.exists()

    def runs(self, kind: str) -> list[Any]:
        """Return all MLflow runs with this `biasbed.kind`, over all experiments, in the order of their start."""
        return find_runs(self.uri, kind=kind)

    def text(self, run_id: str, path: str) -> str | None:
        """Return a text artifact; None if the run has none of this name. Raises Failure if it can't be read."""
        return artifact_text(self.uri, run_id, path)

    def file(self, run_id: str, path: str) -> bytes | None:
        """Return an artifact; None if the run has none of this name.

        In folders of folders a run may have few of many. Their outer folder is listed once, in place of requests for
        files that are not there.
        """
        folder = os.path.dirname(path)
        outer = os.path.dirname(folder)
        if outer and (run_id, outer) not in self._listings:
            with guarded(self.uri):
                paths = frozenset(artifact.path for artifact in self.client.list_artifacts(run_id, outer))
            self._listings[run_id, outer] = paths
        if outer and folder not in self._listings[run_id, outer]:
            return None
        return artifact_bytes(self.uri, run_id, path)

    def image_counts(self, run: Run, protocol: record.Protocol) -> Mapping[str, int]:
        """Return the numbers of images behind metrics by name; empty if none are stored, or no metric needs them.

        The file, which anybody may have written, is read once for all runs on the same images.
        """
        if run.kind == "published":
            return {}
        inputs = itertools.chain.from_iterable(derivation.inputs for derivation in protocol.derived)
        if not any(measures.find_measure(name).of_biases or _is_count(name) for name in inputs):
            return {}
        key = run.protocol, run.cell, run.data_fingerprint
        if key not in self._counts:
            values = None
            with contextlib.suppress(ValueError):
                values = parse_json(self.text(run.id, record.COUNTS_FILE) or "{}")
            items = values.items() if isinstance(values, dict) else ()
            self._counts[key] = {k: v for k, v in items if type(v) is int and v >= 0 and _is_count(k)}
        return self._counts[key]

    def histories(self, runs: Sequence[Any]) -> dict[str, MetricHistory]:
        """Return the complete histories of the runs' val and test metrics, keyed by run id."""
        return self.reader.read_histories(runs, is_read)


@functools.cache
def is_read(metric: str) -> bool:
    """Return True for biasbed's metrics that analysis uses."""
    name = record.parse_metric(metric)
    return name.phase in PHASES_READ if name is not None else _BIASED.fullmatch(metric) is not None


def parameters(run: Any) -> Mapping[str, str]:
    """Return the resolved config of a run, without MLflow's record of the command line."""
    prefix, intern = record.CONFIG_PARAMETER, sys.intern  # equal texts once in memory: thousands of runs share them
    params = run.data.params
    return {intern(name.removeprefix(prefix)): intern(params[name]) for name in params if name.startswith(prefix)}


def _is_count(name: str) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.measure.endswith(IMAGES)
