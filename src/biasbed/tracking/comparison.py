"""Comparison of a study in MLflow's pages: a shared view that opens with its link.

MLflow's pages store a shared view as a tag of the experiment, and a link names the tag. biasbed writes such a tag: a
row per method with means of the headline metrics, its runs folded below, and mean curves with bands. Everything in it
follows from the protocol of the runs. The format belongs to the pages and is no public interface, so the view is
written only for the version of MLflow that it was tested with; other versions get the link to the plain table.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from biasbed import limits, record
from biasbed.errors import Failure
from biasbed.tracking.pages import Pages, pages
from biasbed.tracking.run_reader import find_runs, match_tag
from biasbed.tracking.server import artifact_text, guarded, writer

TRIED = "3.17.2"  # the version of MLflow whose pages the views fit
TAG = "mlflow.sharedViewState."
LOADED = 100  # runs that the table loads at a time; means are over the loaded ones
NAME = "attributes.`Run Name`"  # the column with the methods, widened for their names
STUDY = (record.KIND, record.SUITE, record.STUDY)
ALIKE = (record.TESTED, record.PROTOCOL_HASH)  # runs with the same first tag of these may be in one table


@dataclass(frozen=True)
class Comparison:
    """Finished runs that may be in one table."""

    tags: Mapping[str, str]  # by which MLflow finds them, including study, kind and protocol
    protocol: record.Protocol
    algorithms: tuple[str, ...]  # values of the tag that names the rows
    experiments: Mapping[str, int]  # id -> number of the runs in it, beginning with that of the first run
    rows: str = record.ROW  # tag that names the rows
    settings: tuple[str, ...] = ()  # parameters in which a method's runs differ by design, as in trials

    @property
    def key(self) -> str:
        """Name of the view: equal for the same runs, so that a later view replaces it."""
        return f"{record.slug(self.tags[record.STUDY])[:60]}-{record.digest(dict(self.tags))[:8]}"

    @property
    def experiment(self) -> str:
        """Experiment of the view: the one with most of the runs."""
        return max(self.experiments, key=lambda name: self.experiments[name])

    @property
    def size(self) -> int:
        return sum(self.experiments.values())

    @property
    def filter(self) -> str:
        """MLflow filter that finds the runs."""
        conditions = [match_tag(name, value) for name, value in self.tags.items()]
        return " and ".join([*conditions, "attributes.status = 'FINISHED'"])

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of the columns, in their order."""
        best = self.protocol.best
        if self.is_published:  # published runs have only these metrics
            sets = self.protocol.sets
            return tuple(str(record.MetricName("test", eval_set.headline, eval_set.name)) for eval_set in sets)
        if self.is_search:  # the monitor that decides the search is first
            return tuple(sorted(best, key=lambda name: best[name] != self.protocol.monitor))
        return tuple(best)

    @property
    def is_published(self) -> bool:
        return self.tags[record.KIND] == "published"

    @property
    def is_search(self) -> bool:
        """True if the runs are the trials of a sweep."""
        return self.tags[record.KIND] == "trial"

    # --- the view ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state of the view, in the format of MLflow's pages."""
        columns = [f"metrics.`{self.metrics[0]}`", *(f"params.`{name}`" for name in self.settings)]
        columns += [f"metrics.`{name}`" for name in self.metrics[1:]]
        sections, charts = self._charts()
        return {
            "searchFilter": self.filter,
            # Ordered by start time, the study's own run would be included. If there are more runs than are loaded at
            # once, ordering by value would load the best ones first, and bias the means.
            "orderByKey": columns[0] if self.size <= LOADED else "attributes.run_id",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": columns,
            "columnOrder": [NAME, *columns],
            "columnWidths": {NAME: 240, **{name: _width(name) for name in columns}},
            "groupBy": {
                "aggregateFunction": "average",
                "groupByKeys": [{"mode": "tag", "groupByData": self.rows}],
            },
            # Trials are shown one by one: the best is of interest, and the mean of their parameters is meaningless.
            "groupsExpanded": {f"tag.{self.rows}.{name}": self.is_search for name in self.algorithms},
            "useGroupedValuesInCharts": True,
            "runsHiddenMode": "SHOW_ALL",
            "viewMaximized": False,
            "runListHidden": False,
            "isAccordionReordered": True,
            "hideEmptyCharts": True,
            "compareRunSections": sections,
            "compareRunCharts": charts,
        }

    def _charts(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return sections and charts, from the result to the details; the pages add charts of all other metrics.

        The pages sort a metric into the section named by the part before its last slash.
        """
        best = self.protocol.best
        curves = self.metrics if self.is_published else best.values()
        shown = [name for name in map(record.parse_metric, curves) if name is not None]
        first = list(dict.fromkeys(f"{name.phase}/{name.measure}" for name in shown))
        measures = list(itertools.chain.from_iterable(eval_set.measures for eval_set in self.protocol.sets))
        details = list(map("/".join, itertools.product(("test", "val"), measures)))
        names = list(dict.fromkeys([*first, record.BEST, "train", *details, "time", "memory"]))
        sections = [_section(name, is_open=name in first or name in (record.BEST, "train")) for name in names]
        make = _bars if self.is_published else _curve
        charts = [make(str(name), f"{name.phase}/{name.measure}") for name in shown]
        if not self.is_published:
            charts += [_bars(name, record.BEST) for name in best]
        return sections, charts


def _section(name: str, is_open: bool) -> dict[str, Any]:
    options = {"display": is_open, "columns": 2, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": name, "name": name, **options}


def _bars(metric: str, section: str) -> dict[str, Any]:
    """Return a chart with a bar per method. Generated charts would become curves if a metric's step is not 0."""
    return {
        "type": "BAR",
        "uuid": f"chart:{metric}",
        "metricSectionId": section,
        "metricKey": metric,
        "runsCountToCompare": LOADED,
        "deleted": False,
        "isGenerated": False,
    }


def _curve(metric: str, section: str) -> dict[str, Any]:
    """Return a chart with a mean curve and its band per method."""
    return {
        **_bars(metric, section),
        "type": "LINE",
        "xAxisKey": "step",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "selectedXAxisMetricKey": "",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "lineSmoothness": 0,
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }


def _width(column: str) -> int:
    """Return the width in pixels that shows the whole name; the default of the pages shows a dozen characters."""
    return max(85, 24 + 7 * len(column.split("`")[1]))


def packed(state: Mapping[str, Any]) -> str:
    """Encode a view as the text of the tag, compressed as the pages do: a tag has room for 20,000 characters."""
    compressed = zlib.compress(record.canonical_json(state).encode(), 9)
    return "deflate;" + base64.b64encode(compressed).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Decode the view in the text of a tag."""
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text.removeprefix("deflate;"))))
    return state


# --- writing it and telling of it -------------------------------------------------------------------------------------


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
    """Describe runs of one protocol that are to be compared; the protocol is read from the first."""
    text = artifact_text(uri, runs[0].info.run_id, record.PROTOCOL_FILE)
    try:
        protocol = record.Protocol.from_json(text or "")
    except ValueError as error:
        raise Failure(f"run {runs[0].info.run_id} has no {record.PROTOCOL_FILE} that could be read: {error}") from None
    rows = _choose_row_tag([run.data.tags for run in runs])
    return Comparison(
        tags=tags,
        protocol=protocol,
        algorithms=tuple(dict.fromkeys(run.data.tags.get(rows, "") for run in runs)),
        rows=rows,
        experiments=Counter(run.info.experiment_id for run in runs),
        settings=_searched(runs) if tags[record.KIND] == "trial" else (),
    )


def _choose_row_tag(runs: Sequence[Mapping[str, str]]) -> str:
    """Return the tag that names the rows: that of display names, if every run has one and no two rows share one."""
    rows = record.ROW if all(tags.get(record.ROW) for tags in runs) else record.ALGORITHM
    names = {(tags.get(rows, ""), tags.get(record.DISPLAY_NAME, "")) for tags in runs}
    return record.DISPLAY_NAME if are_distinct(names) else rows


def are_distinct(names: Collection[tuple[str, str]]) -> bool:
    """Return True if every row has a display name, and no two rows share one. names: distinct (row, display name)."""
    displayed = {name for _, name in names if name}
    return len(displayed) == len(names) == len({row for row, _ in names})


def _searched(runs: Iterable[Any]) -> tuple[str, ...]:
    """Return the parameters in which runs of one method differ, which a search chose for each trial."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in run.data.params.items():
            if name.startswith(record.CONFIG_PARAMETER):
                values.setdefault((run.data.tags.get(record.ALGORITHM, ""), name), set()).add(value)
    return tuple(sorted({name for (_, name), chosen in values.items() if len(chosen) > 1}))


def offer_study(uri: str, study: str) -> None:
    """Write a study's views and print their links. A failure of the server is only a warning."""
    with _as_warning(uri):
        for comparison in compare_study(uri, study):
            _print_view(uri, comparison)


def offer(uri: str, comparison: Comparison) -> None:
    """Write one comparison's view and print its link. A failure of the server is only a warning."""
    with _as_warning(uri):
        _print_view(uri, comparison)


@contextlib.contextmanager
def _as_warning(uri: str) -> Iterator[None]:
    try:
        with guarded(uri):
            yield
    except Failure as failure:
        print(f"warning: no link to compare the runs in MLflow's pages: {failure}", file=sys.stderr)


def _print_view(uri: str, comparison: Comparison) -> None:
    for line in _write_view(uri, comparison):
        print(line, flush=True)


def _write_view(uri: str, comparison: Comparison) -> list[str]:
    """Write a view and return the lines with its links; none if the server has no pages."""
    mlflow_pages = pages(uri, comparison.experiment)
    if mlflow_pages is None:
        return []
    start = f" (first start them: {mlflow_pages.start})" if mlflow_pages.start else ""
    if mlflow_pages.version != TRIED:
        return [f"The runs in MLflow's pages{start}:", f"  {mlflow_pages.experiment(comparison.experiment)}"]
    writer(uri).set_experiment_tag(comparison.experiment, TAG + comparison.key, packed(comparison.state()))
    link = mlflow_pages.experiment(comparison.experiment, viewStateShareKey=comparison.key)
    return [
        f"Compare in MLflow's pages, a row per method and its runs below{start}:",
        f"  table:  {link}",
        f"  curves: {link}&compareRunsMode=CHART",
        *_caveats(mlflow_pages, comparison),
    ]


def _caveats(mlflow_pages: Pages, comparison: Comparison) -> list[str]:
    """Return lines about what the view leaves out."""
    lines = []
    if comparison.protocol.limit:
        lines.append(f"  {limits.note(comparison.protocol.limit)}")
    here = comparison.experiments[comparison.experiment]
    if here < comparison.size:
        link = mlflow_pages.experiments(list(comparison.experiments), searchFilter=comparison.filter)
        lines.append(f"  {comparison.size - here} of {comparison.size} runs are in other experiments; all: {link}")
    if here > LOADED:
        lines.append(f"  MLflow loads {LOADED} of the {here} runs at a time: 'Load more' until the means are of all")
    return lines
