"""Provenance of the numbers: runs with ids and links, versions, code, images, and the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from biasbed.analysis.report import score_tables, wording
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    make_table,
    prepared_columns,
    text_cell,
    without_columns,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run
from biasbed.settings import word
from biasbed.system import commands

ORIGIN = (
    "Every run: its MLflow id, and the first digits of the hashes of its code, its settings and the images that it "
    "saw. Equal hashes mean equal inputs."
)
PLACES = ("output_dir", "tracking_uri")  # options that say where, not what


def facts(analysis: Analysis) -> Mapping[str, str]:
    """Return what one must know to repeat the analysis: name of a fact -> its text."""
    scope = analysis.collection.scope
    versions = ", ".join(f"{name} {version}" for name, version in analysis.versions.items())
    if analysis.collection.is_table:
        lines = {"Scores": analysis.runs_sentence, "From": scope.study}
        return lines | {"Significance level": f"{analysis.alpha:g}", "Versions": versions}
    protocols = _protocols(analysis)
    lines = {
        "Runs": analysis.runs_sentence,
        "Suite, study": f"{scope.suite}, {scope.study}",
        wording.plural("Protocol", len(protocols)): ", ".join(protocols),
        "Tracking server": analysis.tracking_uri,
        "Significance level": f"{analysis.alpha:g}",
        "This analysis again": command(analysis),
        "Versions": versions,
    }
    sources = sorted({run.source for run in analysis.collection.runs if run.source})
    return lines | ({"Source": "; ".join(sources)} if sources else {})


def _protocols(analysis: Analysis) -> list[str]:
    """Return the hashes of our runs' protocols, or of the published runs if there are no others."""
    return sorted({run.protocol for run in analysis.collection.unpublished or analysis.collection.runs})


def command(analysis: Analysis, is_for_others: bool = False) -> str:
    """Return the command that repeats the analysis; it names suite and study, and no defaults.

    is_for_others: on another machine, with another server.
    """
    scope = analysis.collection.scope
    values = {"suite": scope.suite, "study": scope.study}
    protocols = _protocols(analysis)
    if len(protocols) == 1:  # naming one of several would leave out the others' runs
        values["protocol"] = protocols[0]
    for option in dataclasses.fields(analysis.options):
        value = getattr(analysis.options, option.name)
        if option.name not in (*PLACES, *values) and value != option.default:
            values[option.name] = word(value)
    return commands.format_command("analyze", values, is_for_others=is_for_others)


def run_tables(analysis: Analysis, links: Links) -> Mapping[str, ReportTable | None]:
    """Return the scores of every run, the same of runs that do not count, and the origin of all."""
    chosen, collection = set(analysis.runs["run_id"].unique()), analysis.collection
    shown = [run for run in analysis.shown_runs if run.id in chosen or not collection.is_search]
    return {
        "scores": score_tables.by_run(analysis, links),
        "duplicates": score_tables.duplicates(analysis, links),
        "origin": None if collection.is_table else _origin(analysis, links, [*shown, *collection.duplicates]),
    }


def _origin(analysis: Analysis, links: Links, runs: Sequence[Run]) -> ReportTable:
    """Return id, name and link of every run, and the code, settings and images behind it, without empty columns."""
    records = []
    for run in runs:
        seed = float(run.seed) if run.seed.isdecimal() else None
        records.append(
            {
                "run": TableCell(run.id, href=run_url(analysis.tracking_uri, run), left=True),
                "algorithm": TableCell(links.label(run.algorithm), left=True, name=run.algorithm),
                "cell": text_cell(run.cell),
                "seed": TableCell(run.seed, value=seed),
                "name": text_cell(run.name),
                "finished": text_cell(_day(run.ended)),
                "git commit": text_cell(run.git_commit[:10] + "+changes" * (run.git_dirty == "true")),
                "code": text_cell(run.code_hash[:8]),
                "settings": text_cell(run.config_hash[:8]),
                "images": text_cell(run.data_fingerprint[:8]),
            }
        )
    columns = prepared_columns(records[0])
    ids = tuple(links.runs[run.id] for run in runs)
    table = make_table(ORIGIN, columns, records, oracle=False, ids=ids)
    return without_columns(table, lambda cells: not any(cell.text for cell in cells))


def _day(milliseconds: int) -> str:
    """Return a time since 1970 as text; empty for 0."""
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def run_url(tracking_uri: str, run: Run) -> str:
    """Return the run's page; empty if the tracking server has no web address."""
    if not tracking_uri.startswith(("http://", "https://")):
        return ""
    return f"{tracking_uri.rstrip('/')}/#/experiments/{quote(run.experiment)}/runs/{quote(run.id)}"
