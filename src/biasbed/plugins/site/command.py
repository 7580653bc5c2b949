"""Command `site`: analyse every study that is asked for, and write the results as static pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed import published, redaction
from biasbed.analysis import display_names
from biasbed.analysis.command import MANIFEST, check_folder, publish
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report.wording import count
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.collect import read_runs
from biasbed.analysis.runs.predictions import DecisionReader
from biasbed.analysis.runs.run import TESTED, Run, distinct, group_runs
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError, first_line
from biasbed.plugins.site import pages
from biasbed.plugins.site.options import SiteOptions
from biasbed.plugins.site.ranking import Ranking
from biasbed.plugins.site.tables import DecisionCounts
from biasbed.settings import refuse_unknown
from biasbed.system import commands
from biasbed.system.files import scratch_folder
from biasbed.tracking.server import resolve_uri

KINDS = ("train", "published", *TESTED)  # kinds of runs; a search has no table, as its winners are trained again


def site(options: SiteOptions) -> Path:
    """Analyse the studies and write their pages; return the folder.

    Raises UsageError for an unknown study or a folder that holds other files, Failure if no study can be analysed.
    """
    uri = resolve_uri(options.tracking_uri)
    store = RunStore(uri)
    folder = store.home / "site"
    if options.output_dir != "auto":
        folder = Path(options.output_dir).expanduser().absolute()
    folder = Path(os.path.normpath(folder))
    check_folder(folder)
    display_names.load(options.names)  # refuses a bad file before any analysis
    if options.published:
        for name in published.names():
            published.import_runs(name, uri)
    rankings, left_out = rank_studies(store, options)
    with scratch_folder() as scratch:
        files = pages.write(rankings, left_out, scratch)
        (scratch / MANIFEST).write_text(json.dumps(files, indent=2) + "\n", encoding="utf-8")
        publish(scratch, folder)
    tables = count(len(rankings), "table")
    print(f"{count(len(files), 'file')} of {tables}: {folder / pages.INDEX}", flush=True)
    return folder


# --- studies ----------------------------------------------------------------------------------------------------------


def rank_studies(store: RunStore, options: SiteOptions) -> tuple[list[Ranking], list[str]]:
    """Return the analyses, one for all runs that may be ranked together; and for others why they can't be analysed.

    Raises UsageError for an unknown study, Failure if nothing can be analysed.
    """
    runs = _finished_runs(store)
    if not runs:
        raise Failure(
            f"there is nothing to show: no finished runs on {redaction.public_uri(store.uri)}",
            f"train some:                  {commands.format_command('train', {'algorithm': 'erm'})}",
            f"or show published results:   {commands.format_command('site', {'published': 'true'})}",
        )
    rankings, left_out = [], []
    for study_runs in _group_by_study(runs, options):
        for table_runs in _split_into_tables(study_runs):
            try:
                ranking = _analyse_table(store, table_runs, options)
            except (Failure, UsageError) as failure:
                scope = study_runs[0].scope
                left_out.append(f"{scope.study} ({scope.suite}): {first_line(failure)}")
                print(f"left out: {left_out[-1]}", flush=True)
            else:
                rankings.append(ranking)
                print(f"analysed: {ranking.analysis.title}, {ranking.analysis.rule.name}", flush=True)
    if not rankings:
        raise Failure("no study can be analysed:", *left_out)
    return rankings, left_out


def _finished_runs(store: RunStore) -> list[Run]:
    """Return the finished runs that have a row and a protocol."""
    mlflow_runs = []
    if not store.is_new:
        for kind in KINDS:
            mlflow_runs += store.runs(kind)
    return [run for run in read_runs(mlflow_runs)[0] if run.finished and run.algorithm and run.protocol]


def _group_by_study(runs: Sequence[Run], options: SiteOptions) -> Iterator[list[Run]]:
    """Yield the runs of each study that is asked for, by suite and study.

    Raises UsageError for a study that no run has.
    """
    present = distinct(runs, "study")
    names: set[str] = set()
    if options.studies == "all":
        names = set(present)
    elif options.studies != "none":
        names = set(options.studies)
    for name in sorted(names):
        refuse_unknown(name, present, f"studies={','.join(options.studies)}: no finished run has the study '{name}'")
    if options.published:
        names |= {run.study for run in runs if run.kind == "published"}
    for _, of_suite in sorted(group_runs(runs, "suite").items()):
        for study, of_study in sorted(group_runs(of_suite, "study").items()):
            if study in names:
                yield of_study


def _split_into_tables(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield the runs of a study that may be in one table, table by table.

    Published numbers are split by protocol and selection rule. Trainings are split by protocol if some cell was tested
    in several ways. Models that were only tested are no reason to split: the analysis of a table takes those that were
    tested as its trainings are.
    """
    by_kind = group_runs(runs, "kind")
    for of_protocol in group_runs(by_kind.pop("published", []), "protocol").values():
        for of_rule in group_runs(of_protocol, "selection").values():
            yield from group_runs(of_rule, "selection_n").values()
    unpublished = [run for run in runs if run.kind in by_kind]
    trained = [run for run in unpublished if run.kind not in TESTED] or unpublished
    tests_of_cells = {(run.cell, run.tested or run.protocol) for run in trained}
    if len(tests_of_cells) > len(distinct(trained, "cell")):
        yield from group_runs(trained, "protocol").values()
    elif unpublished:
        yield unpublished


def _analyse_table(store: RunStore, runs: Sequence[Run], options: SiteOptions) -> Ranking:
    """Analyse runs that may be in one table."""
    first = runs[0]
    rule_of_paper = first.selection if first.kind == "published" else ""
    settings = AnalyzeOptions(
        suite=first.suite,
        study=first.study,
        protocol=first.protocol if len(distinct(runs, "protocol")) == 1 else "auto",
        selection=rule_of_paper or "auto",
        n=first.selection_n or AnalyzeOptions.n,
        alpha=options.alpha,
        order="rank",
        names=options.names,
        tracking_uri=options.tracking_uri,
    )
    analysis = compute(store, settings)
    return Ranking(analysis, count_decisions(analysis))


def count_decisions(analysis: Analysis) -> DecisionCounts:
    """Return (algorithm, set) -> how many images the runs classify rightly, or why that is not known."""
    reader, texts = analysis.inputs.decisions, {}
    runs = {run.id: run for run in analysis.collection.unpublished}
    for (algorithm, dataset), rows in analysis.runs.groupby(["algorithm", "dataset"], sort=False):
        if rows["run_id"].iloc[0] in runs:
            texts[str(algorithm), str(dataset)] = _count_right(reader, runs, str(dataset), rows.to_dict("records"))
    return texts


def _count_right(
    reader: DecisionReader, runs: Mapping[str, Run], dataset: str, rows: Sequence[Mapping[Any, Any]]
) -> str:
    """Return `4,512 of 5,000 right, 5 runs` of the runs of one row on a set. rows: of the run table."""
    right = images = 0
    for row in rows:
        step = int(row["last_step"]) if row["num_steps"] == 1 else None
        try:
            answers = reader.answers(runs[row["run_id"]], dataset, step)
        except Failure as failure:
            return first_line(failure)
        right, images = right + int(answers.right.sum()), images + len(answers.right)
    return f"{right:,} of {images:,} right, {count(len(rows), 'run')}"
