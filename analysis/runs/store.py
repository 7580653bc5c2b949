"""Tracking server as analysis reads it: runs by tag, metric histories, small artifacts.

Any error of a dead or strange server becomes a `Failure` with one line.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.system import places
from biasbed.tracking.run_reader import PAGE, MetricHistory, open_reader, read_pages
from biasbed.tracking.server import artifact_bytes, artifact_text, database, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

PHASES_READ = ("val", "test")  # the metrics that analysis uses; others may be many and stay on the server
MANY_VALUES = 30  # values of a tag; each is a join of the database's query, which allows 64
# The scores of a method's biased classifier, or of the stage that trains it (`Algorithm.predictors`), have this name.
# Its accuracies on aligned and conflicting validation images are read, and the loss of its stage.
BIASED = "biased"
_BIASED = re.compile(rf"{BIASED}/(loss|(aligned|conflicting)_accuracy/[a-z0-9_-]+)")


class RunStore:
    """One tracking server, for reading and, through `client`, for logging results."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        self.home = places.home(tracking_uri)
        self.reader = open_reader(tracking_uri)
        self._listings: dict[tuple[str, str], frozenset[str]] = {}  # (run, folder) -> paths in it

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
        return self.reader.find_runs({record.KIND: kind})

    def find(self, tags: Mapping[str, str], without: Mapping[str, Sequence[str]] | None = None) -> Any | None:
        """Return any run, trained or published, with these tags and without those values; None if there is none.

        Returns None, too, for values that MLflow's filters can't express.
        """
        conditions = [(key, "=", value) for key, value in tags.items()]
        for key, values in (without or {}).items():
            conditions += [(key, "!=", value) for value in values]
        if self.is_new or any("'" in value or "\\" in value for _, _, value in conditions):
            return None
        text = " AND ".join(f"tags.`{key}` {sign} '{value}'" for key, sign, value in conditions)
        with guarded(self.uri):
            experiments = read_pages(self.client.search_experiments, max_results=PAGE)
            ids = [experiment.experiment_id for experiment in experiments]
            for kind in ("train", "published"):
                runs = self.client.search_runs(ids, f"tags.`{record.KIND}` = '{kind}' AND {text}", max_results=1)
                if runs:
                    return runs[0]
        return None

    def one_of_each(self, tag: str) -> Iterator[Any]:
        """Yield a run for every value of a tag, at most `MANY_VALUES`, each found by excluding the values before."""
        seen: list[str] = []
        while len(seen) < MANY_VALUES and (run := self.find({}, {tag: seen or [""]})) is not None:
            seen.append(run.data.tags[tag])
            yield run

    def text(self, run_id: str, path: str) -> str | None:
        """Return a text artifact; None if the run has none of this name. Raises Failure if it can't be read."""
        return artifact_text(self.uri, run_id, path)

    def file(self, run_id: str, path: str) -> bytes | None:
        """Return an artifact; None if the run has none of this name. Each folder of folders is listed only once."""
        folder = os.path.dirname(path)
        outer = os.path.dirname(folder)
        if outer and folder not in self._list(run_id, outer):
            return None
        return artifact_bytes(self.uri, run_id, path)

    def _list(self, run_id: str, folder: str) -> frozenset[str]:
        paths = self._listings.get((run_id, folder))
        if paths is None:
            with guarded(self.uri):
                paths = frozenset(artifact.path for artifact in self.client.list_artifacts(run_id, folder))
            self._listings[run_id, folder] = paths
        return paths

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
    prefix = record.CONFIG_PARAMETER
    return {k.removeprefix(prefix): v for k, v in run.data.params.items() if k.startswith(prefix)}
