"""A study's comparison in MLflow's own pages: a view that is ready when its link is opened.

MLflow's pages keep a view that somebody shares as a tag of the experiment, and a link names the tag. We write such a
tag: a row per method with the means of what counts, its runs folded below, and the same as mean curves with bands.
All that is in it follows from the protocol that the runs carry. The form is that of the pages and no public interface,
so it is written for the version that it was tried with; people with another get the link to the plain table.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from biasbed import limits, record
from biasbed.errors import Failure
from biasbed.tracking.finding import clause, find_runs
from biasbed.tracking.pages import Pages, pages
from biasbed.tracking.server import artifact_text, guarded, writer

TRIED = "3.17.2"  # the MLflow whose pages the views are for
TAG = "mlflow.sharedViewState."
LOADED = 100  # runs that the table loads at a time: means are over those that are loaded
NAME = "attributes.`Run Name`"  # the column of the methods, whose names would be cut
STUDY = (record.KIND, record.SUITE, record.STUDY)
ALIKE = (record.TESTED, record.PROTOCOL_HASH)  # by the first that runs have, it is told what may stand in one table


@dataclass(frozen=True)
class Comparison:
    """Finished runs that may stand in one table."""

    tags: Mapping[str, str]  # by which MLflow finds them; their study, kind and protocol among them
    protocol: record.Protocol
    algorithms: tuple[str, ...]  # or rows of a study, where runs say what they are one of
    experiments: Mapping[str, int]  # id -> how many of the runs are there; the first run's first
    rows: str = record.ROW  # tag of what is compared; runs from before have their method's only
    settings: tuple[str, ...] = ()  # parameters in which a method's runs differ by design, as trials do

    @property
    def key(self) -> str:
        """The view's name: equal for the same runs, so that a later one replaces it."""
        return f"{record.slug(self.tags[record.STUDY])[:60]}-{record.digest(dict(self.tags))[:8]}"

    @property
    def experiment(self) -> str:
        """The experiment that the view belongs to: where most of the runs are."""
        return max(self.experiments, key=lambda name: self.experiments[name])

    @property
    def size(self) -> int:
        return sum(self.experiments.values())

    @property
    def filter(self) -> str:
        """What finds the runs, in MLflow's language."""
        wanted = [clause(name, value) for name, value in self.tags.items()]
        return " and ".join([*wanted, "attributes.status = 'FINISHED'"])

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """What counts, in the order of the columns."""
        best = self.protocol.best
        if self.is_published:  # only these numbers are known, and under no other name
            return tuple(str(record.MetricName("test", entry.headline, entry.name)) for entry in self.protocol.sets)
        if self.is_search:  # what a search is decided by stands first
            return tuple(sorted(best, key=lambda name: best[name] != self.protocol.monitor))
        return tuple(best)

    @property
    def is_published(self) -> bool:
        return self.tags[record.KIND] == "published"

    @property
    def is_search(self) -> bool:
        """Whether the runs are a sweep's trials."""
        return self.tags[record.KIND] == "trial"

    # --- the view ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What MLflow's pages call the state of a view."""
        columns = [f"metrics.`{self.metrics[0]}`", *(f"params.`{name}`" for name in self.settings)]
        columns += [f"metrics.`{name}`" for name in self.metrics[1:]]
        sections, charts = self._charts()
        return {
            "searchFilter": self.filter,
            # By start time, the study's own run would come along. Of more runs than are loaded at once those with
            # the highest values would come first, and their means would be no means of the method.
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
            # Of trials the best one is looked for, and a mean of their parameters means nothing.
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
        """Sections and charts, from the answer to the details; the pages add charts of all other metrics themselves.

        They file a metric under what stands before its last slash, so sections bear such names.
        """
        best = self.protocol.best
        curves = self.metrics if self.is_published else best.values()
        shown = [name for name in map(record.parse_metric, curves) if name is not None]
        first = list(dict.fromkeys(f"{name.phase}/{name.measure}" for name in shown))
        others = dict.fromkeys(measure for entry in self.protocol.sets for measure in entry.measures)
        details = [record.BEST, "train", *(f"{phase}/{name}" for phase in ("test", "val") for name in others)]
        names = list(dict.fromkeys([*first, *details, "time", "memory"]))
        sections = [_section(name, is_open=name in first or name in (record.BEST, "train")) for name in names]
        make = _bars if self.is_published else _curve
        charts = [make(str(name), f"{name.phase}/{name.measure}") for name in shown]
        return sections, charts + [_bars(name, record.BEST) for name in best if not self.is_published]


def _section(name: str, is_open: bool) -> dict[str, Any]:
    how = {"display": is_open, "columns": 2, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": name, "name": name, **how}


def _bars(metric: str, section: str) -> dict[str, Any]:
    """A bar per method. It is not `isGenerated`: those become curves where a metric's step is not 0."""
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
    """A mean curve with its band per method."""
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
    """Pixels that show the whole name; those that the pages choose show a dozen characters."""
    return max(85, 24 + 7 * len(column.split("`")[1]))


def packed(state: Mapping[str, Any]) -> str:
    """A view as the tag's text, in the pages' own compressed form: a tag has room for 20,000 characters."""
    compressed = zlib.compress(record.canonical_json(state).encode(), 9)
    return "deflate;" + base64.b64encode(compressed).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The view that a tag holds."""
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text.removeprefix("deflate;"))))
    return state


# --- writing it and telling of it -------------------------------------------------------------------------------------


def of_study(uri: str, study: str) -> list[Comparison]:
    """What a study's finished runs give to compare; usually one comparison. Raises Failure where the server fails."""
    found: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for run in find_runs(uri, study=study):
        scope = scope_of(run.data.tags)
        if scope.get(record.KIND) in ("train", "trial") and all(scope.values()) and run.info.status == "FINISHED":
            found.setdefault(tuple(scope.items()), []).append(run)
    return [_of_runs(uri, dict(scope), runs) for scope, runs in found.items()]


def scope_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a run, of which those that may stand in one table with it have the same."""
    alike = next((name for name in ALIKE if tags.get(name)), record.PROTOCOL_HASH)
    return {name: tags.get(name, "") for name in (*STUDY, alike)}


def _of_runs(uri: str, tags: Mapping[str, str], runs: list[Any]) -> Comparison:
    text = artifact_text(uri, runs[0].info.run_id, record.PROTOCOL_FILE)
    try:
        protocol = record.Protocol.from_json(text or "")
    except ValueError as error:
        raise Failure(f"run {runs[0].info.run_id} has no {record.PROTOCOL_FILE} that could be read: {error}") from None
    rows = record.ROW if all(run.data.tags.get(record.ROW) for run in runs) else record.ALGORITHM
    return Comparison(
        tags=tags,
        protocol=protocol,
        algorithms=tuple(dict.fromkeys(run.data.tags.get(rows, "") for run in runs)),
        rows=rows,
        experiments=Counter(run.info.experiment_id for run in runs),
        settings=_searched(runs) if tags[record.KIND] == "trial" else (),
    )


def _searched(runs: Iterable[Any]) -> tuple[str, ...]:
    """The parameters in which runs of one method differ: what a search has chosen for each trial."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in run.data.params.items():
            if name.startswith(record.CONFIG_PARAMETER):
                values.setdefault((run.data.tags.get(record.ALGORITHM, ""), name), set()).add(value)
    return tuple(sorted({name for (_, name), chosen in values.items() if len(chosen) > 1}))


def offer_study(uri: str, study: str) -> None:
    """Write a study's views and print their links. A server that fails costs a line: the numbers are safe without."""
    with _forgiven(uri):
        for comparison in of_study(uri, study):
            _offer(uri, comparison)


def offer(uri: str, comparison: Comparison) -> None:
    """The same of one comparison."""
    with _forgiven(uri):
        _offer(uri, comparison)


@contextlib.contextmanager
def _forgiven(uri: str) -> Iterator[None]:
    try:
        with guarded(uri):
            yield
    except Failure as failure:
        print(f"warning: no link to compare the runs in MLflow's pages: {failure}", file=sys.stderr)


def _offer(uri: str, comparison: Comparison) -> None:
    for line in _offered(uri, comparison):
        print(line, flush=True)


def _offered(uri: str, comparison: Comparison) -> list[str]:
    """The lines that lead to a view, which is written."""
    found = pages(uri, comparison.experiment)
    if found is None:
        return []
    start = f" (first start them: {found.start})" if found.start else ""
    if found.version != TRIED:
        return [f"The runs in MLflow's pages{start}:", f"  {found.experiment(comparison.experiment)}"]
    writer(uri).set_experiment_tag(comparison.experiment, TAG + comparison.key, packed(comparison.state()))
    link = found.experiment(comparison.experiment, viewStateShareKey=comparison.key)
    return [
        f"Compare in MLflow's pages, a row per method and its runs below{start}:",
        f"  table:  {link}",
        f"  curves: {link}&compareRunsMode=CHART",
        *_caveats(found, comparison),
    ]


def _caveats(found: Pages, comparison: Comparison) -> list[str]:
    """What the view leaves out."""
    lines = [f"  {limits.note(comparison.protocol.limit)}"] if comparison.protocol.limit else []
    here = comparison.experiments[comparison.experiment]
    if here < comparison.size:
        link = found.experiments(list(comparison.experiments), searchFilter=comparison.filter)
        lines.append(f"  {comparison.size - here} of {comparison.size} runs are in other experiments; all: {link}")
    if here > LOADED:
        lines.append(f"  MLflow loads {LOADED} of the {here} runs at a time: 'Load more' until the means are of all")
    return lines
