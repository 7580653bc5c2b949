"""Collection of the runs that count: finished, of one suite, study and protocol, one per run key, consistent per row.

All irregularities are found here, before any number is computed. Those that stop the analysis are listed in one
`Failure`; the others become notes that are printed first.

Answers: Which runs does an analysis count, and which does it leave out?
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from biasbed import record, redaction
from biasbed.analysis.runs import consistency
from biasbed.analysis.runs.comparable import (
    cells_of,
    list_scopes,
    select_comparable,
    split_evidence,
    with_protocols,
)
from biasbed.analysis.runs.duplicates import duplicate_notes, first_of_each_key
from biasbed.analysis.runs.run import TESTED, Collection, Run, Scope, TrainedOn, distinct, group_runs
from biasbed.analysis.runs.store import parameters
from biasbed.errors import Failure, UsageError, shown
from biasbed.settings import refuse_unknown
from biasbed.system.commands import format_command
from biasbed.system.strict import parse_int, parse_json

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore

PUBLISHED_MARK = "@"  # erm@biasbed: the ERM of the BiasBed paper, beside the user's own
# Tags with names, by which runs are grouped, and sorted by the numbers in them.
NAMES = (
    *(record.ROW, record.ALGORITHM, record.CELL, record.SEED, record.TEST_DOMAINS, record.TRIAL, record.REPEAT),
    *(record.SUITE, record.STUDY, record.PROTOCOL_HASH, record.SELECTION),
)
LONGEST_NAME = 1000  # characters: Python reads numbers of up to 4,300 digits


def read_runs(runs: Iterable[Any]) -> tuple[list[Run], list[str]]:
    """Return the runs, and a note on those with unreadable tags, which are left out: anybody may write tags."""
    read, unreadable = [], []
    for run in runs:
        try:
            read.append(read_run(run))
        except ValueError as error:
            unreadable.append(f"{run.info.run_id} ({error})")
    if not unreadable:
        return read, []
    note = f"left out, for their tags can't be read: run {', '.join(unreadable[:3])}"
    if len(unreadable) > 3:
        note += f" and {len(unreadable) - 3} more"
    return read, [note]


def read_run(run: Any) -> Run:
    """Read an MLflow run by biasbed's tags; a missing tag is left empty. Raises ValueError for an unreadable tag."""
    tag = run.data.tags.get
    for name in NAMES:
        if len(tag(name, "")) > LONGEST_NAME:
            raise _unreadable_tag(name, tag(name), f"it has more than {LONGEST_NAME} characters")
    if not re.search("[0-9]", tag(record.TRIAL, "0")):
        raise _unreadable_tag(record.TRIAL, tag(record.TRIAL), "it has no number")
    return Run(
        id=run.info.run_id,
        name=run.info.run_name or run.info.run_id,
        experiment=run.info.experiment_id,
        status=run.info.status,
        started=run.info.start_time or 0,
        ended=run.info.end_time or 0,
        kind=tag(record.KIND, ""),
        suite=tag(record.SUITE, ""),
        study=tag(record.STUDY, record.ADHOC),
        protocol=tag(record.PROTOCOL_HASH, ""),
        algorithm=tag(record.ROW, "") or tag(record.ALGORITHM, ""),
        method=tag(record.ALGORITHM, ""),
        display_name=tag(record.DISPLAY_NAME, ""),
        cell=tag(record.CELL, ""),
        seed=tag(record.SEED, ""),
        test_domains=tag(record.TEST_DOMAINS, ""),
        run_key=tag(record.RUN_KEY, "") or run.info.run_id,
        config_hash=tag(record.CONFIG_HASH, ""),
        data_fingerprint=tag(record.DATA_FINGERPRINT, ""),
        code_hash=tag(record.CODE_HASH, ""),
        tested=tag(record.TESTED, ""),
        needs=_split_names(tag(record.NEEDS, "")),
        provides=_split_names(tag(record.PROVIDES, "")),
        repeat=tag(record.REPEAT, ""),
        space=tag(record.SPACE, ""),
        trial=tag(record.TRIAL, ""),
        trial_state=tag(record.TRIAL_STATE, ""),
        git_commit=tag(record.GIT_COMMIT, ""),
        git_dirty=tag(record.GIT_DIRTY, ""),
        selection=tag(record.SELECTION, ""),
        selection_n=_read_number(run, record.SELECTION_N),
        source=tag(record.SOURCE, ""),
        summary=_read_mapping(run, record.SUMMARY),
        skipped_images=tag(record.SKIPPED_IMAGES, ""),
        oracle=tag(record.ORACLE, ""),
        training_data=_read_mapping(run, record.TRAINING_DATA),
        overlaps=_split_names(tag(record.OVERLAPS, "")),
        weights=tag(record.WEIGHTS, ""),
        init=_read_mapping(run, record.INIT),
        method_facts=_read_mapping(run, record.METHOD_FACTS),
        parameters=_read_number(run, record.PARAMETERS),
        images_per_second=float(run.data.metrics.get("time/images_per_second", 0.0)),
        is_quick=bool(tag(record.QUICK, "")),
        config=parameters(run),
    )


def _read_number(run: Any, name: str) -> int:
    """Return the number in a tag; 0 without the tag."""
    text = run.data.tags.get(name) or "0"
    try:
        return parse_int(text, 0)
    except ValueError as error:
        raise _unreadable_tag(name, text, str(error)) from None


def _read_mapping(run: Any, name: str) -> dict[str, Any]:
    """Return the JSON object in a tag, whose values are numbers or texts; empty without the tag."""
    text = run.data.tags.get(name)
    if not text:
        return {}
    try:
        values = parse_json(text)
    except ValueError as error:
        raise _unreadable_tag(name, text, str(error)) from None
    kinds = int | float if name == record.TRAINING_DATA else str | int | float | None
    if not isinstance(values, dict) or not all(isinstance(value, kinds) for value in values.values()):
        raise _unreadable_tag(name, text, "it should be an object of plain values")
    return values


def _unreadable_tag(name: str, text: str, reason: str) -> ValueError:
    return ValueError(f"{name}={shown(text, 30)}: {shown(reason, 100)}")


def _split_names(text: str) -> frozenset[str]:
    """Return the names in a tag, which are separated by commas."""
    return frozenset(filter(None, text.split(",")))


def collect(store: RunStore, options: AnalyzeOptions) -> tuple[Collection, list[Any]]:
    """Return the runs that the options select, and the MLflow runs whose histories are needed.

    Histories are also needed of duplicates, of evidence, and of published runs under other rules. Raises UsageError for
    names that no run has, or if several things could be analysed; Failure if there is nothing to analyse, or if the
    runs of one row are inconsistent.
    """
    mlflow_runs, all_runs, unreadable = _read_all_runs(store, options)
    runs, scope_notes = _select_study(store, all_runs, options)
    unfinished = _find_unfinished(all_runs, runs)
    if "unfinished" in options.allow:
        runs, unfinished = [*runs, *unfinished], []
    runs, protocols, protocol_notes = with_protocols(store, runs)
    runs, test_notes = select_comparable(store, runs, protocols)
    runs, seed_notes = _select_seeds(_select_algorithms(runs, options), options.seeds)
    notes = [*unreadable, *scope_notes, *protocol_notes, *test_notes, *seed_notes]
    scope = runs[0].scope
    by_rule: dict[str, tuple[Run, ...]] = {}
    if scope.kind == "published":
        by_rule = published_by_rule(runs, options.n)
        runs = select_published_rule(runs, options.selection, options.n, protocols[scope.protocol])
    counted, duplicates = first_of_each_key(runs)
    notes += consistency.irregularities(counted, () if options.allow == "none" else options.allow)
    notes += duplicate_notes(counted, duplicates)
    not_finished = _count_unfinished(all_runs, scope, counted)
    counted, evidence = split_evidence(counted)
    cells = cells_of(counted, protocols)
    left_out, needs_notes = _read_unmet_needs(store, scope, counted, cells)
    collection = Collection(
        scope=scope,
        cells=cells,
        protocols=protocols,
        runs=tuple(counted),
        evidence=tuple(evidence),
        duplicates=tuple(duplicates),
        unfinished=tuple(run for run in unfinished if _is_selected(run, counted, options.seeds)),
        not_finished=not_finished,
        notes=(*notes, *needs_notes),
        left_out=left_out,
        published_by_rule=by_rule,
    )
    needed = dict.fromkeys(run.id for run in itertools.chain(counted, evidence, duplicates, *by_rule.values()))
    return collection, [mlflow_runs[run_id] for run_id in needed]


def _count_unfinished(all_runs: Sequence[Run], scope: Scope, counted: Sequence[Run]) -> dict[str, int]:
    """Count the study's unfinished runs by status, without those that are accepted and count."""
    counted_ids = {run.id for run in counted}
    statuses: Counter[str] = Counter()
    for run in all_runs:
        is_of_study = (run.kind, run.suite, run.study) == (scope.kind, scope.suite, scope.study)
        if is_of_study and not run.finished and run.id not in counted_ids:
            statuses[run.status] += 1
    return dict(statuses)


def _is_selected(run: Run, counted: Sequence[Run], seeds: Sequence[str] | str) -> bool:
    """Return True if an unfinished run would be in the tables: in the row of a run that counts, with a chosen seed."""
    return (seeds == "all" or run.seed in seeds) and run.algorithm in distinct(counted, "algorithm")


# --- suite, study, protocol -------------------------------------------------------------------------------------------

TRAINED, SEARCHED = ("train", "published"), ("trial",)  # kinds of runs


def _read_all_runs(store: RunStore, options: AnalyzeOptions) -> tuple[dict[str, Any], list[Run], list[str]]:
    """Return the MLflow runs that the options may select, by id; the same runs as they are read; and notes.

    Trials, of which there may be thousands, are read only if no other run fits.
    """
    mlflow_runs: dict[str, Any] = {}
    for kinds in ((*TRAINED, *TESTED), SEARCHED):
        for kind in kinds:
            mlflow_runs |= {run.info.run_id: run for run in store.runs(kind)}
        all_runs, notes = read_runs(mlflow_runs.values())
        if any(run.finished and _makes_trials_needless(run, options.study) for run in all_runs):
            break
    return mlflow_runs, all_runs, notes


def _makes_trials_needless(run: Run, study: str) -> bool:
    """Return True if the option `study` means this finished run, which is no trial.

    Tested models are no sign of that, as they may belong to a study of trials.
    """
    return study == "auto" or (run.study == study and run.kind in TRAINED)


def _find_unfinished(all_runs: Sequence[Run], finished: Sequence[Run]) -> list[Run]:
    """Return the last attempt of each training in the studies of `finished` that never finished, one per run key."""
    finished_keys = {run.run_key for run in finished}
    studies = {(run.kind, run.suite, run.study) for run in finished}
    last_attempts: dict[str, Run] = {}
    for run in sorted(all_runs, key=lambda run: (run.started, run.id)):
        is_training = run.algorithm and run.protocol and run.kind in ("train", *SEARCHED)
        is_of_study = (run.kind, run.suite, run.study) in studies
        if is_training and is_of_study and not run.finished and run.run_key not in finished_keys:
            last_attempts[run.run_key] = run
    return list(last_attempts.values())


def _select_study(store: RunStore, runs: Sequence[Run], options: AnalyzeOptions) -> tuple[list[Run], list[str]]:
    """Return the finished runs of the one study that the options select, and notes on the other runs.

    Of the runs that fit, those count that `_choose_kind` chooses. Raises UsageError if they belong to several
    studies, Failure if no run has finished.
    """
    finished: list[Run] = []
    unnamed: list[Run] = []
    for run in runs:
        if run.finished and run.algorithm and run.protocol:
            finished.append(run)
        elif run.finished:
            unnamed.append(run)
    if not finished:
        raise Failure(*_describe_nothing(store, runs))
    notes = []
    if unnamed:
        notes.append(f"left out, for they name no algorithm or protocol: {len(unnamed)} run(s) ({unnamed[0].id} ...)")
    fitting = _filter_runs(finished, "suite", options.suite, runs)
    fitting = _filter_runs(fitting, "study", options.study, runs)
    fitting = _filter_runs(fitting, "protocol", options.protocol, runs)
    by_kind = group_runs(fitting, "kind")
    if "train" in by_kind:  # published numbers are analysed only if the study is named
        for study in distinct(by_kind.get("published", []), "study"):
            command = format_command("analyze", {"study": study}, is_for_others=True)
            notes.append(f"published results are there too; for these: {command}")
    notes += _note_tests_elsewhere([run for run in fitting if run.kind in TESTED], finished)
    chosen = _choose_kind(fitting)
    scopes = Counter(run.scope for run in chosen)
    if len({(scope.suite, scope.study) for scope in scopes}) > 1:
        raise UsageError(*list_scopes(store, chosen, scopes))
    return chosen, notes


def _note_tests_elsewhere(tested: Sequence[Run], finished: Sequence[Run]) -> list[str]:
    """Return a note on further tests of these models, which are in tables of their own: of another suite or study."""
    scopes = {run.scope for run in tested}
    models = {(run.algorithm, run.weights) for run in tested if run.weights}
    elsewhere = []
    for run in finished:
        if run.kind in TESTED and run.scope not in scopes and (run.algorithm, run.weights) in models:
            elsewhere.append(run)
    if not elsewhere:
        return []
    names = ", ".join(distinct(elsewhere, "algorithm"))
    suites = ", ".join(distinct(elsewhere, "suite"))
    return [f"other tests of {names} are in tables of their own (suites: {suites})"]


def _choose_kind(runs: Sequence[Run]) -> list[Run]:
    """Return the trainings, else the published runs, else the trials of a search, else the models that were tested.

    Models that were tested in the study of the trainings or trials count beside these.
    """
    by_kind = group_runs(runs, "kind")
    trained, published = by_kind.get("train", []), by_kind.get("published", [])
    if not trained and not published:
        trained = [run for run in runs if run.kind in SEARCHED and run.trial_state == "complete"]
    tested = [run for run in runs if run.kind in TESTED]
    studies = {(run.suite, run.study) for run in trained}
    tested_beside = [run for run in tested if (run.suite, run.study) in studies]
    return [*trained, *tested_beside] or published or tested


def _filter_runs(runs: list[Run], name: str, value: str, all_runs: Sequence[Run]) -> list[Run]:
    """Return the runs with this suite, study or protocol; all of them for `auto`.

    A protocol may be given by its first digits. Raises UsageError if no run has the value. all_runs: with unfinished
    ones, for the message.
    """
    if value == "auto":
        return runs
    matching = group_runs(runs, name).get(value, [])
    if not matching and name == "protocol" and len(value) >= 4:
        matching = [run for run in runs if run.protocol.startswith(value)]
    if not matching:
        unfinished = [run for run in group_runs(all_runs, name).get(value, ()) if not run.finished]
        message = f"{name}={value}: no finished run has it"
        if unfinished:
            message += f" ({len(unfinished)} unfinished or failed)"
        refuse_unknown(value, distinct(runs, name), message)
    return matching


def _describe_nothing(store: RunStore, runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the lines of the message if no run has finished: what there is, and how to get runs."""
    statuses = Counter(run.status.lower() for run in sorted(runs, key=attrgetter("status")))
    counts = ", ".join(f"{number} {status}" for status, number in statuses.items())
    there = f"only {counts} runs" if counts else "no runs"
    return (
        f"there is nothing to analyse: {there} on {redaction.public_uri(store.uri)}",
        f"train some:                   {format_command('train', {'algorithm': 'erm'})}",
        f"or take published results:    {format_command('import', {'source': 'biasbed'})}",
    )


# --- algorithms and published rules -----------------------------------------------------------------------------------


def _select_algorithms(runs: list[Run], options: AnalyzeOptions) -> list[Run]:
    """Return the runs of the rows that `algorithms=` names. Raises UsageError for a row that is not there."""
    if options.algorithms == "all":
        return runs
    names = [name for name in options.algorithms if not (options.with_published and PUBLISHED_MARK in name)]
    if not names:
        raise UsageError(f"algorithms={','.join(options.algorithms)}: name at least one of your own")
    present = distinct(runs, "algorithm")
    for name in names:
        refuse_unknown(name, present, f"algorithms={','.join(options.algorithms)}: no finished run of '{name}'")
    return [run for run in runs if run.algorithm in names]


def _select_seeds(runs: list[Run], seeds: Sequence[str] | str) -> tuple[list[Run], list[str]]:
    """Return the runs with these seeds, and a note on algorithms that have none of them.

    Raises UsageError for a seed that no run has.
    """
    if seeds == "all":
        return runs, []
    present = sorted(distinct(runs, "seed"), key=len)  # 2 before 10
    for seed in seeds:
        refuse_unknown(seed, present, f"seeds={','.join(seeds)}: no finished run has the seed {seed}")
    selected = [run for run in runs if run.seed in seeds]
    lost = sorted({*distinct(runs, "algorithm")} - {*distinct(selected, "algorithm")})
    if not lost:
        return selected, []
    return selected, [f"left out, for no run of theirs has these seeds: {', '.join(lost)}"]


def published_by_rule(runs: Sequence[Run], n: int) -> dict[str, tuple[Run, ...]]:
    """Return selection rule -> published runs whose numbers were selected by it, one per key.

    n: number of epochs that numbers under `last_n` must be means of. Runs whose paper names no rule are under "".
    """
    by_rule = {}
    for rule, same in sorted(group_runs(runs, "selection").items()):
        if rule == "last_n":
            same = [run for run in same if run.selection_n == n]
        if same:
            by_rule[rule] = tuple(first_of_each_key(same)[0])
    return by_rule


def select_published_rule(runs: Sequence[Run], rule: str, n: int, protocol: record.Protocol) -> list[Run]:
    """Return the published runs under the rule that `selection=` and `n=` name, or the protocol's own for `auto`.

    Raises UsageError if no runs were published under it, or if `auto` does not tell which of several rules is meant.
    """
    rules = distinct(runs, "selection")
    if rule == "auto":
        if protocol.default_selection not in rules and len(rules) > 1:
            raise UsageError(f"name the rule of the published numbers: selection={' or '.join(rules)}")
        rule = protocol.default_selection if protocol.default_selection in rules else rules[0]
    if rules == [""]:  # numbers whose paper names no rule count under every rule
        return list(runs)
    refuse_unknown(rule, rules, f"selection={rule}: these results were not published under this rule")
    chosen = group_runs(runs, "selection")[rule]
    if rule != "last_n":
        return chosen
    lengths = sorted(run.selection_n for run in chosen)
    if n not in lengths:
        raise UsageError(f"n={n}: these results were published as means over the last {lengths[0]} epochs")
    return [run for run in chosen if run.selection_n == n]


# --- rows that can't be trained on a cell ----------------------------------------------------------------------------


def _read_unmet_needs(
    store: RunStore, scope: Scope, runs: Sequence[Run], cells: Iterable[TrainedOn]
) -> tuple[Mapping[tuple[str, str], frozenset[str]], list[str]]:
    """Return (row, cell) without runs -> its unmet needs, as the study's own run notes them; and notes.

    The server is asked only if some row lacks a cell. A note names each run whose file can't be read.
    """
    present = {run.row_and_cell for run in runs}
    rows = {run.algorithm for run in runs if run.kind not in TESTED}
    empty = set(itertools.product(rows, (cell.name for cell in cells))) - present
    if not empty:
        return {}, []
    needs: dict[tuple[str, str], frozenset[str]] = {}
    notes = []
    for run in store.runs("study"):
        tags = run.data.tags
        if (tags.get(record.SUITE), tags.get(record.STUDY)) != (scope.suite, scope.study):
            continue
        text = store.text(run.info.run_id, record.NOT_APPLICABLE_FILE)
        try:
            noted = _parse_needs(text or "{}")
        except (ValueError, AttributeError, TypeError) as error:
            notes.append(f"{record.NOT_APPLICABLE_FILE} of run {run.info.run_id} can't be read: {shown(str(error))}")
            continue
        needs |= {key: missing for key, missing in noted.items() if key in empty}
    return needs, notes


def _parse_needs(text: str) -> dict[tuple[str, str], frozenset[str]]:
    """Return (row, cell) -> unmet needs, from the JSON of a study. Raises an error of its kind for other content."""
    needs = {}
    for row, missing_by_cell in parse_json(text).items():
        for cell, missing in missing_by_cell.items():
            needs[row, cell] = frozenset(missing)
    return needs
