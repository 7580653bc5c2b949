"""What MLflow's pages show of a study in its own row: what its runs have reached, as metrics, a note and pictures.

Written again whenever one of the runs ends and when the study is analysed, from nothing but what is on the server.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import measures, record
from biasbed.errors import Failure
from biasbed.tracking import comparison, notes
from biasbed.tracking.finding import FoundRun, find_runs
from biasbed.tracking.pages import Pages
from biasbed.tracking.server import artifact_text, guarded, writer

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIGURES = "figures"  # artifacts of the study's run: pictures of its last analysis
SHOWN = ("scores.png", "critical_difference.png")
HEADLINE = "biasbed.headline"  # of a study's run: what its last analysis says, in a sentence
MOST = 5  # rows in the description of an experiment
NOTED = "biasbed.noted"  # hash of the note that we gave it: another one is somebody's own


@dataclass
class Reached:
    """What the finished runs of one row have reached at their best evaluations."""

    runs: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)  # short name -> a value per run


@dataclass
class StudyRuns:
    """A study's runs by what is on the server, and what their rows have reached."""

    members: list[FoundRun]  # its trainings, trials and tests, whatever their state
    protocols: list[record.Protocol]  # one, or where domains are held out one for each
    rows: dict[str, Reached]

    @cached_property
    def columns(self) -> dict[str, tuple[record.Protocol, str]]:
        """Short name -> a protocol that has it, and its metric; of those with values."""
        known = {name for row in self.rows.values() for name in row.values}
        found = {name: (one, metric) for one in self.protocols for name, metric in one.best.items() if name in known}
        return dict(sorted(found.items(), key=lambda item: item[1][1] == item[1][0].monitor))  # what chose comes last

    def shown(self, column: str, row: Reached) -> str:
        """The mean of a column in a row, and its deviation."""
        return notes.shown(measures.described(*self.columns[column]).unit, row.values.get(column, []))

    @property
    def finished(self) -> int:
        return sum(row.runs for row in self.rows.values())

    @property
    def is_search(self) -> bool:
        return any(run.data.tags.get(record.KIND) == "trial" for run in self.members)


def refresh(uri: str, study: str, headline: str = "", pictures: Path | None = None) -> None:
    """Write a study's row again; nothing where there is none, or the server fails: the numbers are safe without.

    headline: what its analysis says in a sentence. pictures: the folder where that has drawn its figures.
    """
    with contextlib.suppress(Failure), guarded(uri):
        runs = find_runs(uri, study=study)
        own = [run for run in runs if run.data.tags.get(record.KIND) == "study" and notes.PARENT not in run.data.tags]
        if own:
            _refresh(uri, own[0], _reached(uri, runs), headline, pictures)


def _refresh(uri: str, own: FoundRun, found: StudyRuns, headline: str, pictures: Path | None) -> None:
    from mlflow.entities import Metric, RunTag

    client, run_id = writer(uri), own.info.run_id
    for path in [pictures / name for name in SHOWN] if pictures is not None else ():
        if path.exists():
            client.log_artifact(run_id, str(path), FIGURES)
    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, found.finished) for name, value in _numbers(found).items()]
    links = _links(uri, own.data.tags[record.STUDY])
    tags = {HEADLINE: headline or own.data.tags.get(HEADLINE, "")}
    given = own.data.tags.get(notes.NOTE)
    if given is None or record.digest(given) == own.data.tags.get(NOTED):
        tags[notes.NOTE] = _note(uri, own, found, tags[HEADLINE], links)
        tags[NOTED] = record.digest(tags[notes.NOTE])
    _note_experiment(client, own, found, links)
    for start in range(0, len(metrics), 1000):
        client.log_batch(run_id, metrics=metrics[start : start + 1000])
    client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items() if value])


def _reached(uri: str, runs: Sequence[FoundRun]) -> StudyRuns:
    members = [run for run in runs if run.data.tags.get(record.KIND) in (*record.TABLED, "trial")]
    protocols: dict[str, record.Protocol] = {}
    rows: dict[str, Reached] = {}
    for run in (run for run in members if run.info.status == "FINISHED"):
        tags, metrics = run.data.tags, run.data.metrics
        protocol = protocols.get(tags.get(record.PROTOCOL_HASH, ""))
        if protocol is None:
            with contextlib.suppress(ValueError):
                protocol = record.Protocol.from_json(artifact_text(uri, run.info.run_id, record.PROTOCOL_FILE) or "")
                protocols[tags.get(record.PROTOCOL_HASH, "")] = protocol
        row = rows.setdefault(tags.get(record.ROW, tags.get(record.ALGORITHM, "")), Reached())
        row.runs += 1
        for name, metric in protocol.best.items() if protocol is not None else ():
            value = metrics.get(name, metrics.get(metric) if tags[record.KIND] == "evaluate" else None)
            if value is not None and record.is_finite(value):
                row.values.setdefault(name, []).append(value)
    return StudyRuns(members, list(protocols.values()), rows)


def _numbers(study: StudyRuns) -> dict[str, float]:
    """The study's metrics: how far it is; mean and deviation of each column and row, of a search the best trial's."""
    states = Counter(run.info.status.lower() for run in study.members)
    found = {f"progress/{name}": float(states[name]) for name in ("finished", "running", "failed", "killed")}
    for column, (protocol, metric) in study.columns.items():
        name = column.removeprefix(f"{record.BEST}/")
        for row, reached in study.rows.items():
            values = reached.values.get(column, [])
            if study.is_search and values and metric == protocol.monitor:
                found[f"{column}/{row}"] = (max if protocol.monitor_higher_is_better else min)(values)
            elif values and not study.is_search:
                found[f"mean/{name}/{row}"] = statistics.fmean(values)
                if len(values) > 1:
                    found[f"deviation/{name}/{row}"] = statistics.stdev(values)
    return found


# --- the note ---------------------------------------------------------------------------------------------------------


def _note(uri: str, own: FoundRun, found: StudyRuns, headline: str, links: str) -> str:
    """The answer, the table, the pictures, the links, the commands; the table's last rows go where all is too long."""
    tags, run_id = own.data.tags, own.info.run_id
    study, suite = tags[record.STUDY], tags.get(record.SUITE, "")
    kept = {entry.path for entry in writer(uri).list_artifacts(run_id, FIGURES)}
    shown = [f"{FIGURES}/{name}" for name in SHOWN if f"{FIGURES}/{name}" in kept]
    what = f"**{study}** on the suite **{suite}**: {found.finished} of {len(found.members)} runs have finished."
    after = [
        notes.pictures(run_id, shown),
        links,
        notes.commands(
            {
                "what the numbers support": notes.command("analyze", suite=suite, study=study),
                "goes on": notes.own_command() if not headline else "",
            }
        ),
    ]
    room = notes.LONGEST - len(notes.joined(what, headline, *after)) - 200
    return notes.joined(f"**{headline}**" if headline else "", _table(found, room), what, *after)


def _table(study: StudyRuns, room: int) -> str:
    """A line per row, with mean and deviation of each column."""
    if study.is_search or not study.columns:
        return ""
    rows = [
        [name, str(row.runs), *(study.shown(column, row) for column in study.columns)] for name, row in _ordered(study)
    ]
    head = ["", "runs", *map(notes.short, study.columns)]
    while rows and len(text := notes.table(head, rows)) > room:
        rows.pop()
    rule = "Mean ± standard deviation over runs, each at its best epoch by the validation's monitor."
    return notes.joined(text, rule) if rows else ""


def _note_experiment(client: MlflowClient, own: FoundRun, study: StudyRuns, links: str) -> None:
    """The newest study's numbers in the experiment's description, which pages show above the table of its runs."""
    if study.is_search or not study.columns:
        return
    experiment = client.get_experiment(own.info.experiment_id)
    present = experiment.tags.get(notes.NOTE)
    usual = notes.of_experiment(experiment.name)
    if present not in (None, usual) and record.digest(present) != experiment.tags.get(NOTED):
        return  # somebody's own words
    column = next(iter(study.columns))
    values = ", ".join(f"{name} {study.shown(column, row)}" for name, row in _ordered(study)[:MOST])
    left = len(study.rows) - MOST
    more = f" and {left} more" if left > 0 else ""
    name = own.data.tags[record.STUDY]
    line = f"Study **{name}**, {notes.short(column)}: {values}{more}. {links}"
    for key, value in ((notes.NOTE, text := notes.joined(line, usual)), (NOTED, record.digest(text))):
        client.set_experiment_tag(experiment.experiment_id, key, value)


def _ordered(study: StudyRuns) -> list[tuple[str, Reached]]:
    """Rows by what stands first, shape bias where there is one: the best before the others."""
    first, metric = next(iter(study.columns.items()))
    higher = measures.described(*metric).higher_is_better
    known = [(name, row) for name, row in study.rows.items() if row.values.get(first)]
    known.sort(key=lambda item: statistics.fmean(item[1].values[first]), reverse=higher)
    return known + [item for item in study.rows.items() if item not in known]


def _links(uri: str, study: str) -> str:
    """To the comparisons in these very pages, whatever their address."""
    lines = []
    for one in comparison.of_study(uri, study):
        link = Pages("", "").experiment(one.experiment, viewStateShareKey=one.key).removeprefix("/")
        lines.append(f"[Compare as a table]({link}) · [as curves]({link}&compareRunsMode=CHART)")
    return "\n\n".join(lines[:5])
