"""Command `benchmark`: rows x cells x seeds as a study. Repeating the command continues it; no run is trained twice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import yaml

from biasbed import record
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import BenchmarkOptions, MainOptions, StudyOptions, training_flags
from biasbed.studies import ledger, planner
from biasbed.studies.cells import HELD_OUT
from biasbed.studies.display import Display
from biasbed.studies.dry_run import list_runs
from biasbed.studies.launchers import Launcher, open_launcher, read_options
from biasbed.studies.plan import StudyPlan, make_plan
from biasbed.studies.runner import Item, Runner
from biasbed.studies.status import StudyRunStatus, estimate, read_statuses
from biasbed.studies.study import (
    LEDGER,
    TABLE,
    find_finished_runs,
    open_study,
    refuse_folder,
    refuse_mixture,
    write_lacking,
)
from biasbed.studies.study_table import (
    Overrides,
    StudyTable,
    parse_seeds,
    read_table,
    require_named_code,
    select_rows,
)
from biasbed.system.commands import format_command
from biasbed.system.files import write_whole
from biasbed.system.terminal import format_duration
from biasbed.tracking.server import resolve_uri


def benchmark(flags: Mapping[str, str]) -> None:
    """Train or test every row in every cell with every seed; with `dry_run`, only list the runs.

    Raises UsageError before anything is started, and Failure at the end if runs failed.
    """
    options, others = read_options(BenchmarkOptions, flags)
    settings = training_flags({**others, HELD_OUT: options.test_domains}, options.loader_workers)
    launcher = open_launcher(options)
    table = build_table(options, settings)
    plan = make_plan(table, launcher, options.workers)
    if options.dry_run:
        print("\n".join([*dry_run(plan), *_describe_power(plan)]))
    else:
        train_plan(plan, launcher, options)
        if _is_tracked(plan) and len(plan.table.rows) > 1:
            print(describe_scores(plan.suite, plan.table.study))


def describe_scores(suite: str, study: str) -> str:
    """Return the table of scores of a finished study with its conclusions, as `analyze` prints it."""
    from biasbed import analysis
    from biasbed.analysis.report import terminal_table

    scope = {"suite": suite, "study": study}
    try:
        table = terminal_table.render(analysis.load(**scope), has_files=False)
    except (Failure, UsageError) as reason:  # the study itself is done
        table = f"no table of its scores: {reason}"
    return f"\n{table}\n\nTables, figures and report: {format_command('analyze', scope)}"


def main_study(flags: Mapping[str, str]) -> None:
    """Train `sweeps/studies/main.yaml` or `main_quick.yaml`, then analyse it."""
    options, _ = read_options(MainOptions, flags)
    table = read_table("main_quick" if options.quick else "main")
    if options.seeds != "auto":
        table = dataclasses.replace(table, seeds=parse_seeds(options.seeds))
    output_dir, report = options.output_dir, "auto"
    if output_dir != "auto":
        table = dataclasses.replace(table, settings={**table.settings, "output_dir": output_dir})
        report = str(Path(output_dir) / "report")
    launcher = open_launcher(options)
    tags = {record.QUICK: "yes"} if options.quick else {}
    train_plan(make_plan(table, launcher, options.workers), launcher, options, tags)
    from biasbed.analysis import analyze
    from biasbed.analysis.options import AnalyzeOptions

    analyze(AnalyzeOptions(suite=table.suite, study=table.study, output_dir=report))


def load_table(options: BenchmarkOptions) -> StudyTable:
    """Load the table that the options name, with the user's names of files to import; an empty one if none is named."""
    if options.table != "none" and options.from_study != "none":
        raise UsageError("table and from_study name a table each: give one of them")
    table = StudyTable(Config.suite, "benchmark", {}, (0, 1, 2))
    if options.table != "none":
        table = read_table(options.table)
    if options.from_study != "none":
        from biasbed.studies.winners import fetch_table

        table = fetch_table(options.from_study, options.suite)
    return require_named_code(table, options.algorithms, options.suite)


def with_suite(flags: Mapping[str, str]) -> dict[str, str]:
    """Return the flags with the name of the suite, which a table may give."""
    options, _ = read_options(BenchmarkOptions, flags)
    suite = load_table(options).suite if options.suite == "auto" else options.suite
    return {**flags, "suite": suite}


def build_table(options: BenchmarkOptions, settings: Mapping[str, str]) -> StudyTable:
    """Build the study's table: the one that the options name, in which flags override the settings.

    settings: flags for all trainings.
    """
    table = load_table(options)
    rows = select_rows(table, options.algorithms)
    if not rows:
        raise UsageError("say what to train: algorithms=erm,infodrop, or table=<a study's table>")
    replaced = set(settings)
    if {"epochs", "steps"} & replaced:
        replaced |= {"epochs", "steps"}  # a duration in one unit replaces one in the other

    def without_replaced(overrides: Overrides) -> Overrides:
        return {name: value for name, value in overrides.items() if name not in replaced}

    chosen = {}
    for row in rows:
        if row in table.chosen:
            chosen[row] = {cell: without_replaced(overrides) for cell, overrides in table.chosen[row].items()}
    fresh = max(table.seen_seeds, default=-1) + 1
    return StudyTable(
        suite=table.suite if options.suite == "auto" else options.suite,
        study=table.study if options.study == "auto" else options.study,
        rows={name: without_replaced(row) for name, row in rows.items()},
        seeds=table.seeds if options.seeds == "auto" else parse_seeds(options.seeds, fresh),
        settings={**without_replaced(table.settings), **settings},
        cells={name: without_replaced(cell) for name, cell in table.cells.items()},
        chosen=chosen,
        chosen_by=table.chosen_by,
    )


def dry_run(plan: StudyPlan) -> list[str]:
    """Return lines that list every run with its status, and the time left. Writes nothing."""
    refuse_folder(plan.folder, plan.table.study, "train")
    finished = find_finished_runs(_check_server(plan), plan.table.study) if _is_tracked(plan) else {}
    statuses = read_statuses(plan, finished)
    return [*_list_notes(plan), *list_runs(statuses, estimate(statuses, plan.workers), plan.workers)]


def train_plan(
    plan: StudyPlan,
    launcher: Launcher,
    options: StudyOptions,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Train the runs that are not done, under the study's run. Raises Failure if runs failed or were not sent.

    tags: added to the study and to all its runs.
    """
    name, tags = plan.table.study, {**_origin_tags(plan.table), **tags}
    refuse_folder(plan.folder, plan.table.study, "train")
    if _is_tracked(plan):
        _check_server(plan)  # before the run of `mlflow run` is taken
    with open_study(plan.folder, name, plan.suite, plan.config, tags) as study:
        environment = {**study.environment, record.GIVEN_TAGS: json.dumps(tags)}
        finished = find_finished_runs(study.run.uri, name) if study.run is not None else {}
        display = Display(name, plan.workers)
        statuses = read_statuses(plan, finished)
        write_whole(plan.folder / TABLE, yaml.safe_dump(_to_yaml(plan.table), sort_keys=False))
        write_lacking(plan.folder, plan.lacking)
        is_finished = study.run.is_finished if study.run is not None else lambda run: False
        runner = Runner(statuses, plan.workers, launcher, options.retries, display, environment, is_finished)
        open_states = [status.state for _, status in statuses if status.state != "done"]
        left = "nothing is left to train"
        if open_states:
            left = f"{len(open_states)} to train, {plan.workers} at a time{_describe_time(plan, statuses, launcher)}"
        power = _describe_power(plan) if open_states else []
        display.say("\n".join([*_list_notes(plan), f"{name}: {len(statuses)} runs; {left}", *power]))

        def end() -> None:
            runner.stop()
            display.close()
            _write_ledger(plan, runner.items)

        study.at_end.callback(end)
        runner.run()
        study.status = "FAILED" if any(item.state == "failed" for item in runner.items) else "FINISHED"
    _refuse_failed(runner.items)


def _describe_time(plan: StudyPlan, statuses: Sequence[StudyRunStatus], launcher: Launcher) -> str:
    """Return a clause on the time left, by the study's own epochs if there are any, else by measured steps."""
    seconds = estimate(statuses, plan.workers).seconds
    if seconds is not None:
        return f"; about {format_duration(seconds)} by the epochs timed so far" if seconds else ""
    units = sum(run.total - status.reached for run, status in statuses if status.state != "done")
    cost = planner.describe_cost(plan.runs, units, launcher, plan.workers, plan.folder)
    return f"; {cost or 'an estimate follows after the first evaluation'}"


def _describe_power(plan: StudyPlan) -> list[str]:
    """Return the line on the difference that the study's seeds can show, as a list; empty without one."""
    line = planner.describe_power(plan.runs, plan.suite, len(plan.table.seeds))
    return [line] if line else []


def _list_notes(plan: StudyPlan) -> list[str]:
    """Return the lines on the data, and on cells that are left out."""
    return [*plan.remarks, *(f"not applicable: {reason}" for reason in plan.left_out)]


def _origin_tags(table: StudyTable) -> dict[str, str]:
    """Return the tags of a study whose settings a sweep chose: the sweep, and its metric if that is of test sets."""
    if not table.chosen_by:
        return {}
    tags = {record.SWEEP: table.chosen_by["study"]}
    if table.chosen_by["oracle"] == "true":
        tags[record.ORACLE] = table.chosen_by["objective"]
    return tags


def _refuse_failed(items: list[Item]) -> None:
    """Raise Failure that names the runs that failed or were not sent."""
    failed = [f"{item.run.name} ({item.failure})" for item in items if item.state == "failed"]
    unsent = [item.run.name for item in items if item.state == "done" and item.failure]
    parts = []
    if failed:
        parts.append(f"{len(failed)} of {len(items)} runs failed: {'; '.join(failed)}")
    if unsent:
        parts.append(f"not sent to the server, `biasbed sync` does it: {', '.join(unsent)}")
    if parts:
        raise Failure(". ".join([*parts, "The same command tries again and leaves alone what is done"]))


# --- the server -------------------------------------------------------------------------------------------------------


def _is_tracked(plan: StudyPlan) -> bool:
    return plan.config.tracking == "on"


def _check_server(plan: StudyPlan) -> str:
    """Return the URI of the tracking server. Raises UsageError if it has a different study of this name."""
    uri = resolve_uri()
    hashes = {(run.row, run.cell): run.config_hash for run in plan.runs}
    refuse_mixture(uri, plan.table.study, plan.suite, hashes)
    return uri


# --- the study's files ------------------------------------------------------------------------------------------------


def _write_ledger(plan: StudyPlan, items: list[Item]) -> None:
    """Write and print the cost of the study so far."""
    lines = []
    for item in items:
        records = item.run.folder().read_journal()
        cost = ledger.compute_cost(item.run, records)
        lines.append(ledger.Line(item.run, item.state, item.run.reached(records), cost))
    path = plan.folder / LEDGER
    ledger.write_ledger(path, lines)
    summary = ledger.format_summary(lines, str(plan.config.device))
    print("\n".join([*summary, f"each run: {path}"]))


def _to_yaml(table: StudyTable) -> dict[str, object]:
    """Return a table as the values of its YAML file, without empty entries."""
    entries = {name: value for name, value in dataclasses.asdict(table).items() if value or name == "settings"}
    return {**entries, "seeds": list(table.seeds)}
