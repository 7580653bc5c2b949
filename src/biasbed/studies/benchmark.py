"""`benchmark`: rows x cells x seeds as a study. The same command finishes what was cut off, starts nothing twice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import yaml

from biasbed import record
from biasbed.config import Config
from biasbed.errors import Failure, MissingData, UsageError
from biasbed.options import BenchmarkOptions, MainOptions, StudyOptions, of_trainings
from biasbed.studies import ledger
from biasbed.studies.cells import HELD_OUT
from biasbed.studies.display import Display, listing
from biasbed.studies.launchers import Launcher, open_launcher, read_options
from biasbed.studies.outline import outline
from biasbed.studies.plan import PlannedRun, Records, StudyPlan, make_plan
from biasbed.studies.runner import Item, Runner
from biasbed.studies.standing import RunStatus, estimate, seconds_per_unit, survey
from biasbed.studies.study import (
    LEDGER,
    SWEPT,
    TABLE,
    StudyRun,
    carried_out,
    finished_runs,
    note_left_out,
    refuse_mixture,
)
from biasbed.studies.table import (
    StudyTable,
    Words,
    parse_seeds,
    read_table,
    refuse_seen,
    refuse_unchosen,
    selected,
    vouched,
)
from biasbed.system.files import write_whole
from biasbed.system.terminal import clock
from biasbed.tracking.finding import find_runs
from biasbed.tracking.server import resolve_uri


def benchmark(flags: Mapping[str, str]) -> None:
    """Train or test every row in every cell, with every seed, as flags and table say; `dry_run` says what that means.

    Raises UsageError before anything is started, Failure in the end, with the runs that failed.
    """
    options, others = read_options(BenchmarkOptions, flags)
    given = {**others, HELD_OUT: options.test_domains}
    settings = of_trainings(given, options.loader_workers)
    launcher = open_launcher(options)
    table = _table(options, settings)
    try:
        plan = make_plan(table, launcher, options.workers)
    except (MissingData, Failure) as reason:
        if not options.dry_run:
            raise
        print("\n".join(outline(table, reason)))
        return
    if options.dry_run:
        print("\n".join(dry_run(plan)))
    else:
        carry_out(plan, launcher, options)


def main_study(flags: Mapping[str, str]) -> None:
    """Carry out `sweeps/studies/main.yaml`, or `main_quick.yaml`, then analyse it."""
    options, _ = read_options(MainOptions, flags)
    table = read_table("main_quick" if options.quick else "main")
    if options.seeds != "auto":
        table = dataclasses.replace(table, seeds=parse_seeds(options.seeds))
    output_dir, report = options.output_dir, "auto"
    if output_dir != "auto":
        table = dataclasses.replace(table, settings={**table.settings, "output_dir": output_dir})
        report = str(Path(output_dir) / "report")
    launcher = open_launcher(options)
    marks = {record.QUICK: "yes"} if options.quick else {}
    carry_out(make_plan(table, launcher, options.workers), launcher, options, marks)
    from biasbed.analysis import analyze
    from biasbed.analysis.options import AnalyzeOptions

    analyze(AnalyzeOptions(suite=table.suite, study=table.study, output_dir=report))


def named_table(options: BenchmarkOptions) -> StudyTable:
    """The table that is named, in the user's words for what it would import; an empty one where none is named."""
    if options.table != "none" and options.from_study != "none":
        raise UsageError("table and from_study name a table each: give one of them")
    table = StudyTable(Config.suite, "benchmark", {}, (0, 1, 2))
    if options.table != "none":
        table = read_table(options.table)
    if options.from_study != "none":
        from biasbed.studies.winners import fetch

        table = fetch(options.from_study, options.suite)
    return vouched(table, options.algorithms, options.suite)


def with_suite(flags: Mapping[str, str]) -> dict[str, str]:
    """The flags with the suite that they mean, which a table may name."""
    options, _ = read_options(BenchmarkOptions, flags)
    return {**flags, "suite": named_table(options).suite if options.suite == "auto" else options.suite}


def _table(options: BenchmarkOptions, settings: Mapping[str, str]) -> StudyTable:
    """The study's table, with what the flags say instead."""
    table = named_table(options)
    rows = selected(table, options.algorithms)
    refuse_unchosen(table, rows, settings)
    if not rows:
        raise UsageError("say what to train: algorithms=erm,infodrop, or table=<a study's table>")
    # A duration in one unit stands in for one in the other.
    instead = {*settings, *(("epochs", "steps") if {"epochs", "steps"} & set(settings) else ())}

    def left(words: Words) -> Words:
        return {name: value for name, value in words.items() if name not in instead}

    found = StudyTable(
        suite=table.suite if options.suite == "auto" else options.suite,
        study=table.study if options.study == "auto" else options.study,
        rows={name: left(own) for name, own in rows.items()},
        seeds=table.seeds if options.seeds == "auto" else parse_seeds(options.seeds),
        settings={**left(table.settings), **settings},
        cells={name: left(own) for name, own in table.cells.items()},
        chosen={row: table.chosen[row] for row in rows if row in table.chosen},
        chosen_by=table.chosen_by,
    )
    return refuse_seen(found)


def dry_run(plan: StudyPlan) -> list[str]:
    """Every run with its state, and how long the rest takes. Nothing is written anywhere."""
    standings = survey(plan, finished_runs(_server(plan), plan.table.study) if _is_tracked(plan) else {})
    return [*_not_applicable(plan), *listing(standings, estimate(standings, plan.workers), plan.workers)]


def carry_out(
    plan: StudyPlan, launcher: Launcher, options: StudyOptions, marks: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Train what is not done, under the study's run. Raises Failure with the runs that failed or were not sent.

    marks: tags of the study and of all its runs.
    """
    name, tags = plan.table.study, {**_origin(plan.table), **marks}
    if (plan.folder / SWEPT).exists():
        raise UsageError(f"the study '{name}' is a sweep: name another with study=")
    if _is_tracked(plan):
        _server(plan)  # may refuse; only then the run of `mlflow run` is taken
    with carried_out(plan.folder, name, plan.suite, plan.config, tags) as study:
        environment = {**study.environment, record.GIVEN_TAGS: json.dumps(tags)}
        finished = finished_runs(study.run.uri, name) if study.run is not None else {}
        write_whole(plan.folder / TABLE, yaml.safe_dump(_plain(plan.table), sort_keys=False))
        note_left_out(plan.folder, plan.lacking)
        display = Display(name, plan.workers)
        is_finished = study.run.is_finished if study.run is not None else lambda run: False
        standings = survey(plan, finished)
        runner = Runner(standings, plan.workers, launcher, options.retries, display, environment, is_finished)
        left = f"{len(runner.queue)} to train, {plan.workers} at a time" if runner.queue else "nothing is left to train"
        left += foreseen(plan, standings, study.run.uri if study.run is not None else None) if runner.queue else ""
        display.say("\n".join([*_not_applicable(plan), f"{name}: {len(runner.items)} runs; {left}"]))

        def end() -> None:
            runner.stop()
            display.close()
            _write_ledger(plan, runner.items, study.run)

        study.at_end.callback(end)
        runner.run()
        study.status = "FAILED" if any(item.state == "failed" for item in runner.items) else "FINISHED"
    _conclude(runner.items)


def foreseen(plan: StudyPlan, standings: Sequence[tuple[PlannedRun, RunStatus]], uri: str | None) -> str:
    """How long it will take, by this study's epochs or else by those of finished runs like its own on the server."""
    left, how = estimate(standings, plan.workers), "by the epochs timed so far"
    if left.seconds is None and uri is not None:
        known = {
            run.data.tags.get(record.CONFIG_HASH, ""): run.data.metrics for run in find_runs(uri, suite=plan.suite)
        }
        timed = [
            (run, dataclasses.replace(status, per_unit=seconds_per_unit(run, known.get(run.config_hash, {}))))
            for run, status in standings
        ]
        left = estimate(timed, plan.workers)
        how = "by runs like these on this server"
    if left.seconds is None:
        return "; how long that takes is said after the first epoch"
    return f"; about {clock(left.seconds)} {how}" if left.seconds else ""


def _not_applicable(plan: StudyPlan) -> list[str]:
    return [f"not applicable: {reason}" for reason in plan.left_out]


def _origin(table: StudyTable) -> dict[str, str]:
    """Tags of study and trainings: that a sweep chose their settings, and by test sets if it was so."""
    if not table.chosen_by:
        return {}
    oracle = {record.ORACLE: table.chosen_by["objective"]} if table.chosen_by["oracle"] == "true" else {}
    return {record.SWEEP: table.chosen_by["study"], **oracle}


def _conclude(items: list[Item]) -> None:
    """Failure that names what failed."""
    failed = [f"{item.run.name} ({item.failure})" for item in items if item.state == "failed"]
    unsent = [item.run.name for item in items if item.state == "done" and item.failure]
    parts = [f"{len(failed)} of {len(items)} runs failed: {'; '.join(failed)}"] if failed else []
    parts += [f"not sent to the server, `biasbed sync` does it: {', '.join(unsent)}"] if unsent else []
    if parts:
        raise Failure(". ".join([*parts, "The same command tries again and leaves alone what is done"]))


# --- the server -------------------------------------------------------------------------------------------------------


def _is_tracked(plan: StudyPlan) -> bool:
    return plan.config.tracking == "on"


def _server(plan: StudyPlan) -> str:
    """The tracking server; UsageError where the study there is not this one."""
    uri = resolve_uri()
    hashes = {(run.row, run.cell): run.config_hash for run in plan.runs}
    refuse_mixture(uri, plan.table.study, plan.suite, hashes)
    return uri


# --- the ledger -------------------------------------------------------------------------------------------------------


def _write_ledger(plan: StudyPlan, items: list[Item], study_run: StudyRun | None) -> None:
    """Write what the study has cost so far, and print it."""
    written = []
    for item in items:
        records: Records = item.run.folder().read_journal()
        if not records and item.state == "done" and study_run is not None:
            records = study_run.time_records(item.run)
        written.append(ledger.Line(item.run, item.state, item.run.reached(records), ledger.cost(item.run, records)))
    path = plan.folder / LEDGER
    ledger.write(path, written)
    print("\n".join([*ledger.summary(written, str(plan.config.device)), f"each run: {path}"]))


def _plain(table: StudyTable) -> dict[str, object]:
    plain = {name: value for name, value in dataclasses.asdict(table).items() if value or name == "settings"}
    return {**plain, "seeds": list(table.seeds)}
