"""Where the numbers come from: the runs with ids and links, versions, code, images, and the command."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pandas as pd

from biasbed.analysis.report import words
from biasbed.analysis.report.cells import Links, ReportTable, TableCell, decimal, text
from biasbed.analysis.report.compared import repeats
from biasbed.analysis.result import Analysis, scores_by_run
from biasbed.analysis.runs.run import Run
from biasbed.settings import word
from biasbed.system import commands

PLACES = ("output_dir", "experiment", "tracking_uri")  # options that say where, not what


def facts(analysis: Analysis) -> Mapping[str, str]:
    """What one must know to do it again."""
    scope = analysis.collection.scope
    protocols = _protocols(analysis)
    found = {
        "Runs": analysis.runs_sentence,
        "Suite, study": f"{scope.suite}, {scope.study}",
        "Protocol" + "s" * (len(protocols) > 1): ", ".join(protocols),
        "Tracking server": analysis.tracking_uri,
        "Significance level": f"{analysis.alpha:g}",
        "This analysis again": command(analysis),
        "Versions": ", ".join(f"{name} {version}" for name, version in analysis.versions.items()),
    }
    sources = sorted({run.source for run in analysis.collection.runs if run.source})
    return found | ({"Source": "; ".join(sources)} if sources else {})


def _protocols(analysis: Analysis) -> list[str]:
    """Hashes: of one's own runs, or where all are published, of those."""
    return sorted({run.protocol for run in analysis.collection.own or analysis.collection.runs})


def command(analysis: Analysis) -> str:
    """The command that computes the same from the same runs; suite and study are named, defaults are not."""
    scope = analysis.collection.scope
    named = {"suite": scope.suite, "study": scope.study}
    protocols = _protocols(analysis)
    named |= {"protocol": protocols[0]} if len(protocols) == 1 else {}  # one alone would leave out the others' runs
    for option in dataclasses.fields(analysis.options):
        value = getattr(analysis.options, option.name)
        if option.name not in (*PLACES, *named) and value != option.default:
            named[option.name] = word(value)
    return commands.typed("analyze", named)


def run_tables(analysis: Analysis, links: Links) -> Mapping[str, Any]:
    """Scores of every run, its origin, and the same of runs that do not count."""
    c = analysis.collection
    run, step = words.repeated(analysis), c.protocol.step_unit
    caption = f"Every {run}'s scores in {analysis.units}, at the {step} that the selection rule picks."
    other = "Finished runs that do not count, as another run has the same configuration, data and seed."
    if run == "run":
        scores = _scores(analysis, links, analysis.shown_runs, analysis.runs, caption, "runs.csv", anchors=True)
    else:
        scores = _replicates(analysis, links, f"{caption} A number leads to its run.")
    chosen = set(analysis.runs["run_id"])
    listed = [one for one in analysis.shown_runs if one.id in chosen or not c.is_search]
    return {
        "scores": scores,
        "duplicates": _scores(analysis, links, c.duplicates, analysis.duplicates, other, "duplicates.csv")
        if c.duplicates
        else None,
        "origin": _origin(analysis, links, [*listed, *c.duplicates]),
    }


def _replicates(analysis: Analysis, links: Links, caption: str) -> ReportTable:
    """A line for each replicate, whose scores are those of a run on each cell."""
    rows, ids, seen = [], [], set()
    for one in repeats(analysis):
        values = [
            decimal(one.scores.get(c.name, math.nan), c.digits, href=links.to_run(one.runs.get(c.name)))
            for c in analysis.sets
        ]
        rows.append((text(one.algorithm), text(one.name), *values))
        ids.append(links.algorithms[one.algorithm] if one.algorithm not in seen else "")
        seen.add(one.algorithm)
    head = ("algorithm", words.repeated(analysis), *(c.name for c in analysis.sets))
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "runs.csv", tuple(ids))


def _scores(
    analysis: Analysis,
    links: Links,
    runs: Sequence[Run],
    table: pd.DataFrame,
    caption: str,
    file: str,
    anchors: bool = False,
) -> ReportTable:
    scores = scores_by_run(table)
    spans = _spans(table)
    rows, ids, seen = [], [], set()
    for run in runs:
        values = [decimal(scores.get((run.id, c.name), math.nan), c.digits) for c in analysis.sets]
        seed = TableCell(
            f"{run.seed} {run.test_domains}".strip(), value=float(run.seed) if run.seed.isdecimal() else None
        )
        span = "" if analysis.collection.published else spans.get(run.id, "")
        rows.append((text(run.algorithm), seed, links.run(run.id), TableCell(span), *values))
        ids.append(links.algorithms[run.algorithm] if anchors and run.algorithm not in seen else "")
        seen.add(run.algorithm)
    head = ("algorithm", "seed", "run", analysis.collection.protocol.step_unit, *analysis.set_names)
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, file, tuple(ids))


def _spans(table: pd.DataFrame) -> dict[str, str]:
    """Run -> the selected steps, `per set` where each set has its own."""
    found: dict[str, set[tuple[int, int]]] = {}
    for run_id, first, last in zip(table["run_id"], table["first_step"], table["last_step"], strict=True):
        found.setdefault(run_id, set()).add((int(first), int(last)))
    return {
        run_id: "per set" if len(spans) > 1 else "-".join(str(step) for step in dict.fromkeys(next(iter(spans))))
        for run_id, spans in found.items()
    }


def _origin(analysis: Analysis, links: Links, runs: Sequence[Run]) -> ReportTable:
    """Id, name and link of every run, and the code, settings and images behind it; columns without entries left out."""
    columns = {
        "algorithm": [text(run.algorithm) for run in runs],
        "cell": [text(run.cell) for run in runs],
        "seed": [TableCell(run.seed, value=float(run.seed) if run.seed.isdecimal() else None) for run in runs],
        "name": [text(run.name) for run in runs],
        "finished": [text(_day(run.ended)) for run in runs],
        "git commit": [text(run.git_commit[:10] + "+changes" * (run.git_dirty == "true")) for run in runs],
        "code": [text(run.code_hash[:8]) for run in runs],
        "settings": [text(run.config_hash[:8]) for run in runs],
        "images": [text(run.data_fingerprint[:8]) for run in runs],
    }
    kept = {name: entries for name, entries in columns.items() if any(entry.text for entry in entries)}
    ids = [TableCell(run.id, href=run_url(analysis.tracking_uri, run), left=True) for run in runs]
    rows = tuple(zip(ids, *kept.values(), strict=True))
    caption = (
        "Every run: its MLflow id, and the first digits of the hashes of its code, its settings and the images that it "
        "saw. Equal hashes mean equal inputs."
    )
    return ReportTable(caption, ("run", *kept), rows, False, ids=tuple(links.runs[run.id] for run in runs))


def _day(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def run_url(tracking_uri: str, run: Run) -> str:
    """The run's page where the tracking server has a web address, else empty."""
    if not tracking_uri.startswith(("http://", "https://")):
        return ""
    return f"{tracking_uri.rstrip('/')}/#/experiments/{quote(run.experiment)}/runs/{quote(run.id)}"
