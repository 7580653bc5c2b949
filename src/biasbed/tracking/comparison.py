"""Comparison of a study in MLflow's pages: links to the table and the curves of the runs that may be compared.

Filter and order are in the links, as the pages themselves write them into their addresses.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from biasbed import limits, record
from biasbed.errors import Failure
from biasbed.tracking.pages import pages
from biasbed.tracking.run_reader import find_runs, match_tag
from biasbed.tracking.server import fetch_protocol, guarded

STUDY = (record.KIND, record.SUITE, record.STUDY)
ALIKE = (record.TESTED, record.PROTOCOL_HASH)  # runs with the same first tag of these may be in one table


@dataclass(frozen=True)
class Comparison:
    """Comparison of finished runs that may be in one table."""

    tags: Mapping[str, str]  # tags that they share, including study, kind and protocol
    protocol: record.Protocol
    experiments: Mapping[str, int]  # id -> number of the runs in it; the first run's experiment comes first

    @property
    def experiment(self) -> str:
        """Experiment that the links lead to: the one with most of the runs."""
        return max(self.experiments, key=lambda name: self.experiments[name])

    @property
    def size(self) -> int:
        return sum(self.experiments.values())

    @property
    def filter(self) -> str:
        """MLflow filter that finds the runs."""
        conditions = [match_tag(name, value) for name, value in self.tags.items()]
        return " and ".join([*conditions, "attributes.status = 'FINISHED'"])

    @property
    def first_metric(self) -> str:
        """Metric that orders the runs: shape bias if there is one; for trials of a search, its monitor."""
        if self.tags[record.KIND] == "published":  # such runs have only these metrics
            first = self.protocol.sets[0]
            return str(record.MetricName("test", first.headline, first.name))
        best = self.protocol.best
        if self.tags[record.KIND] == "trial":
            return next((name for name in best if best[name] == self.protocol.monitor), next(iter(best)))
        return next(iter(best))

    @property
    def query(self) -> dict[str, str]:
        """Query of a link to the table of the runs: which ones, and in which order."""
        return {"searchFilter": self.filter, "orderByKey": f"metrics.`{self.first_metric}`", "orderByAsc": "false"}


# --- links to them ----------------------------------------------------------------------------------------------------


def compare_study(uri: str, study: str) -> list[Comparison]:
    """Return the comparisons of a study's finished runs, usually one. Raises Failure if the server fails."""
    by_scope: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for run in find_runs(uri, study=study):
        scope = scope_of(run.data.tags)
        if scope.get(record.KIND) in ("train", "trial") and all(scope.values()) and run.info.status == "FINISHED":
            by_scope.setdefault(tuple(scope.items()), []).append(run)
    return [_compare_runs(uri, dict(scope), runs) for scope, runs in by_scope.items()]


def scope_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that are equal for all runs that may be in one table with this run."""
    alike = next((name for name in ALIKE if tags.get(name)), record.PROTOCOL_HASH)
    return {name: tags.get(name, "") for name in (*STUDY, alike)}


def _compare_runs(uri: str, tags: Mapping[str, str], runs: list[Any]) -> Comparison:
    """Describe runs of one protocol that may be compared; the protocol is read from the first."""
    protocol = fetch_protocol(uri, runs[0].info.run_id)
    return Comparison(tags, protocol, Counter(run.info.experiment_id for run in runs))


def offer_study(uri: str, study: str) -> None:
    """Print the links of a study's comparisons. A failure of the server is only a warning."""
    with _as_warning(uri):
        for comparison in compare_study(uri, study):
            _print_links(uri, comparison)


def offer(uri: str, comparison: Comparison) -> None:
    """Print the links of one comparison. A failure of the server is only a warning."""
    with _as_warning(uri):
        _print_links(uri, comparison)


@contextlib.contextmanager
def _as_warning(uri: str) -> Iterator[None]:
    try:
        with guarded(uri):
            yield
    except Failure as failure:
        print(f"warning: no link to compare the runs in MLflow's pages: {failure}", file=sys.stderr)


def _print_links(uri: str, comparison: Comparison) -> None:
    """Print the links of a comparison; nothing if the server has no pages."""
    mlflow_pages = pages(uri)
    if mlflow_pages is None:
        return
    start = f" (first start them: {mlflow_pages.start})" if mlflow_pages.start else ""
    link = mlflow_pages.experiment(comparison.experiment, **comparison.query)
    print(f"Compare the runs in MLflow's pages{start}:")
    print(f"  table:  {link}")
    print(f"  curves: {link}&compareRunsMode=CHART")
    if comparison.protocol.limit:
        print(f"  {limits.note(comparison.protocol.limit)}")
    elsewhere = comparison.size - comparison.experiments[comparison.experiment]
    if elsewhere:
        print(f"  {elsewhere} of {comparison.size} runs are in other experiments")
    sys.stdout.flush()
