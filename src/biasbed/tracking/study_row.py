"""Results in a study's own run in MLflow: metrics over its runs, a note with a table, and pictures.

It is rewritten whenever one of the runs ends and when the study is analysed, from data on the server alone.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from biasbed import measures, record
from biasbed.errors import Failure
from biasbed.system.strict import parse_json
from biasbed.tracking import comparison, notes
from biasbed.tracking.pages import Pages
from biasbed.tracking.run_reader import StoredRun, find_runs
from biasbed.tracking.server import fetch_protocol, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIGURES = "figures"  # artifacts of the study's run: pictures of its last analysis
SHOWN = ("scores.png", "critical_difference.png")
HEADLINE = "biasbed.headline"  # tag of the study's run: the result of its last analysis in a sentence
MOST = 5  # rows in the description of an experiment
NOTED = "biasbed.noted"  # tag with the hash of biasbed's note; another note is a user's, and kept


@dataclass
class RowResults:
    """Results of the finished runs of one row at their best evaluations."""

    name: str = ""  # displayed name
    runs: int = 0  # number of them
    values: dict[str, list[float]] = field(default_factory=dict)  # short name -> a value per run


class StudyColumn(NamedTuple):
    """Column of a study's results."""

    protocol: record.Protocol
    metric: str

    @property
    def is_monitor(self) -> bool:
        return self.metric == self.protocol.monitor


@dataclass
class StudyRuns:
    """Runs of a study on the server, and the results of their rows."""

    members: list[StoredRun]  # its trainings, trials and tests, in any state
    protocols: list[record.Protocol]  # one, or one per held-out domain
    rows: dict[str, RowResults]

    @cached_property
    def columns(self) -> dict[str, StudyColumn]:
        """Columns with values, by the short names of their metrics; the monitor comes last."""
        names = set().union(*(row.values for row in self.rows.values()))
        columns: dict[str, StudyColumn] = {}
        for protocol in self.protocols:
            for name, metric in protocol.best.items():
                if name in names:
                    columns[name] = StudyColumn(protocol, metric)
        return dict(sorted(columns.items(), key=lambda item: item[1].is_monitor))

    def shown(self, column: str, row: RowResults) -> str:
        """Format the mean of a column in a row, and its standard deviation."""
        return notes.shown(measures.describe_metric(*self.columns[column]).unit, row.values.get(column, []))

    @property
    def finished(self) -> int:
        return sum(row.runs for row in self.rows.values())

    @property
    def is_search(self) -> bool:
        return any(run.data.tags.get(record.KIND) == "trial" for run in self.members)


def refresh(uri: str, study: str, headline: str = "", pictures: Path | None = None) -> None:
    """Rewrite the run of a study, if it has one. A failure of the server is ignored: no numbers depend on it.

    headline: the result of its analysis in a sentence. pictures: the folder with the figures of the analysis.
    """
    with contextlib.suppress(Failure), guarded(uri):
        for run in find_runs(uri, study=study, kind="study"):
            if notes.PARENT not in run.data.tags:
                _rewrite(uri, run, _collect_results(uri, find_runs(uri, study=study)), headline, pictures)
                break


def _rewrite(uri: str, study_run: StoredRun, study: StudyRuns, headline: str, pictures: Path | None) -> None:
    """Write the study's numbers, headline, figures and note to its run. A note that a user has changed stays."""
    from mlflow.entities import Metric, RunTag

    client, run_id, old_tags = writer(uri), study_run.info.run_id, study_run.data.tags
    if pictures is not None:
        for path in filter(Path.exists, map(pictures.joinpath, SHOWN)):
            client.log_artifact(run_id, str(path), FIGURES)
    links = _format_links(uri, old_tags[record.STUDY])
    tags = {HEADLINE: headline or old_tags.get(HEADLINE, "")}
    note = old_tags.get(notes.NOTE)
    is_ours = note is None or record.digest(note) == old_tags.get(NOTED)
    if is_ours:
        tags[notes.NOTE] = _format_note(uri, study_run, study, tags[HEADLINE], links)
        tags[NOTED] = record.digest(tags[notes.NOTE])
    _note_experiment(client, study_run, study, links)
    numbers = _compute_metrics(study)
    if not numbers.items() <= study_run.data.metrics.items():  # else nothing has happened since
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, study.finished) for name, value in numbers.items()]
        for start in range(0, len(metrics), 1000):
            client.log_batch(run_id, metrics=metrics[start : start + 1000])
    client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items() if value])


def _collect_results(uri: str, runs: Sequence[StoredRun]) -> StudyRuns:
    """Collect the members of a study and the results of the finished ones."""
    members = [run for run in runs if run.data.tags.get(record.KIND) in (*record.TABLED, "trial")]
    protocols: dict[str, record.Protocol] = {}
    rows: dict[str, RowResults] = {}
    for run in members:
        if run.info.status != "FINISHED":
            continue
        tags, metrics = run.data.tags, run.data.metrics
        protocol = protocols.get(tags.get(record.PROTOCOL_HASH, ""))
        if protocol is None:
            with contextlib.suppress(Failure):
                protocol = fetch_protocol(uri, run.info.run_id)
                protocols[tags.get(record.PROTOCOL_HASH, "")] = protocol
        row_id = tags.get(record.ROW, tags.get(record.ALGORITHM, ""))
        row = rows.setdefault(row_id, RowResults(tags.get(record.DISPLAY_NAME, row_id)))
        row.runs += 1
        exact = _read_exact_values(tags)
        if protocol is None:
            continue
        for name, metric in protocol.best.items():
            value = exact.get(name, metrics.get(name))
            if value is None and tags[record.KIND] == "evaluate":
                value = metrics.get(metric)
            if value is not None and record.is_finite(value):
                row.values.setdefault(name, []).append(value)
    return StudyRuns(members, list(protocols.values()), rows)


def _read_exact_values(tags: Mapping[str, str]) -> dict[str, float]:
    """Return the exact values of the rounded metrics `best/*`; empty for runs that have only the metrics."""
    with contextlib.suppress(ValueError):
        values = parse_json(tags.get(record.BEST_VALUES, "{}"))
        if isinstance(values, dict):
            return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    return {}


def _compute_metrics(study: StudyRuns) -> dict[str, float]:
    """Return the study's metrics: its progress, and the rounded mean and deviation of each column and row.

    For a search, the value of the best trial takes the place of mean and deviation.
    """
    states = Counter(run.info.status.lower() for run in study.members)
    numbers = {f"progress/{name}": float(states[name]) for name in ("finished", "running", "failed", "killed")}
    for short_name, column in study.columns.items():
        name = short_name.removeprefix(f"{record.BEST}/")
        for row, results in study.rows.items():
            values = results.values.get(short_name, [])
            if study.is_search and values and column.is_monitor:
                value = max(values) if column.protocol.monitor_higher_is_better else min(values)
                numbers[f"{short_name}/{row}"] = measures.rounded(value)
            elif values and not study.is_search:
                numbers[f"mean/{name}/{row}"] = measures.rounded(statistics.fmean(values))
                if len(values) > 1:
                    numbers[f"deviation/{name}/{row}"] = measures.rounded(statistics.stdev(values))
    return numbers


# --- the note ---------------------------------------------------------------------------------------------------------


def _format_note(uri: str, study_run: StoredRun, study: StudyRuns, headline: str, links: str) -> str:
    """Return the note: headline, table, pictures, links and commands. The table's last rows are cut if it is long."""
    tags, run_id = study_run.data.tags, study_run.info.run_id
    name, suite = tags[record.STUDY], tags.get(record.SUITE, "")
    paths = {artifact.path for artifact in writer(uri).list_artifacts(run_id, FIGURES)}
    shown = [f"{FIGURES}/{file}" for file in SHOWN if f"{FIGURES}/{file}" in paths]
    progress = f"**{name}** on the suite **{suite}**: {study.finished} of {len(study.members)} runs have finished."
    after = [
        notes.pictures(run_id, shown),
        links,
        notes.GUIDE if links else "",
        notes.commands(
            {
                "what the numbers support": notes.command("analyze", suite=suite, study=name),
                "goes on": notes.own_command() if not headline else "",
            }
        ),
    ]
    room = notes.LONGEST - len(notes.joined(progress, headline, *after)) - 200
    return notes.joined(f"**{headline}**" if headline else "", _format_table(study, room), progress, *after)


def _format_table(study: StudyRuns, room: int) -> str:
    """Return a table with a line per row, and mean and deviation of each column; empty for a search.

    room: most characters; lines at the end are left out.
    """
    if study.is_search or not study.columns:
        return ""
    rows = []
    for row in _sort_rows(study):
        rows.append([row.name, str(row.runs), *(study.shown(column, row) for column in study.columns)])
    head = ["", "runs", *map(notes.short, study.columns)]
    while rows and len(notes.table(head, rows)) > room:
        rows.pop()
    rule = "Mean ± standard deviation over runs, each at its best epoch by the validation's monitor."
    if not rows:
        return ""
    return notes.joined(notes.table(head, rows), rule)


def _note_experiment(client: MlflowClient, study_run: StoredRun, study: StudyRuns, links: str) -> None:
    """Write the newest study's results into the experiment's description, which pages show above its runs."""
    if study.is_search or not study.columns:
        return
    experiment = client.get_experiment(study_run.info.experiment_id)
    present = experiment.tags.get(notes.NOTE)
    usual = notes.describe_experiment(experiment.name)
    if present not in (None, usual) and record.digest(present) != experiment.tags.get(NOTED):
        return  # a user's note
    column = next(iter(study.columns))
    values = ", ".join(f"{row.name} {study.shown(column, row)}" for row in _sort_rows(study)[:MOST])
    left = len(study.rows) - MOST
    if left > 0:
        values += f" and {left} more"
    name = study_run.data.tags[record.STUDY]
    result = f"Study **{name}**, {notes.short(column)}: {values}. {links}"
    text = notes.joined(result, notes.GUIDE if links else "", usual)
    client.set_experiment_tag(experiment.experiment_id, notes.NOTE, text)
    client.set_experiment_tag(experiment.experiment_id, NOTED, record.digest(text))


def _sort_rows(study: StudyRuns) -> list[RowResults]:
    """Return the rows sorted by the first column (shape bias if present), best first, rows without a value last."""
    first, column = next(iter(study.columns.items()))
    higher = measures.describe_metric(*column).higher_is_better
    with_value = [row for row in study.rows.values() if row.values.get(first)]
    with_value.sort(key=lambda row: statistics.fmean(row.values[first]), reverse=higher)
    return with_value + [row for row in study.rows.values() if not row.values.get(first)]


def _format_links(uri: str, study: str) -> str:
    """Return links to the study's comparisons, relative to the address of the pages."""
    lines = []
    for view in comparison.compare_study(uri, study):
        link = Pages("").experiment(view.experiment, **view.query).removeprefix("/")
        lines.append(f"[Compare as a table]({link}) · [as curves]({link}&compareRunsMode=CHART)")
    return "\n\n".join(lines[:5])
