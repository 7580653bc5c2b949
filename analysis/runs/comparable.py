"""Comparable runs: those of one study that are tested alike, cell by cell, and may be in one table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed import limits, record
from biasbed.analysis.columns import Column, unit_of
from biasbed.analysis.runs.run import TESTED, Run, Scope, TrainedOn, distinct, group_runs
from biasbed.errors import Failure, UsageError
from biasbed.suites.name_conflicts import TestedCell, find_name_conflict
from biasbed.system.commands import format_command

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore


def select_comparable(
    store: RunStore, runs: list[Run], protocols: Mapping[str, record.Protocol]
) -> tuple[list[Run], list[str]]:
    """Return the runs that may be in one table, and notes.

    Within a cell all must be tested alike. Models that are only tested are left out if they are not tested like the
    trained ones of their study. Raises UsageError if several tables, or several protocols in one row, remain.
    """
    tested = {name: protocol.tested for name, protocol in protocols.items()}  # hashed once, as there may be many runs
    runs, notes = _add_comparable_models(runs, tested)
    tests_of_cells = {(run.cell, tested[run.protocol]) for run in runs}
    has_one_test = len(tests_of_cells) == len({run.cell for run in runs})
    protocols_of_rows = {(run.row_and_cell, run.protocol) for run in runs}
    has_one_protocol = len(protocols_of_rows) == len({run.row_and_cell for run in runs})
    # Runs on parts of the images fit no others, on any cell.
    has_one_limit = len({protocols[run.protocol].limit for run in runs}) < 2
    if not (has_one_test and has_one_protocol and has_one_limit):
        raise UsageError(*list_scopes(store, runs, Counter(run.scope for run in runs)))
    _refuse_name_conflicts(runs, protocols)
    return runs, notes


def _add_comparable_models(runs: list[Run], hashes: Mapping[str, str]) -> tuple[list[Run], list[str]]:
    """Return the trained runs and the tested models that are comparable to them, and notes on the other tested models.

    A tested model counts on its own cell if some run is trained on it, else on every cell whose columns it was tested
    on. hashes: hash of a protocol -> hash of what it tests.
    """
    trained = [run for run in runs if run.kind not in TESTED]
    if not trained:
        return runs, []
    test_by_cell = {run.cell: hashes[run.protocol] for run in trained}
    trained_rows = {run.algorithm for run in trained}
    kept, different, repeated = list(trained), [], []
    for run in runs:
        if run.kind not in TESTED:
            continue
        candidates = [run.cell] if run.cell in test_by_cell else sorted(test_by_cell)
        cells = tuple(cell for cell in candidates if test_by_cell[cell] == hashes[run.protocol])
        if not cells:
            different.append(run.algorithm)
        elif run.algorithm in trained_rows:
            repeated.append(run.algorithm)
        else:
            kept.append(replace(run, cells=cells))
    reasons = (
        (different, "they are tested otherwise"),
        (repeated, "a trained row is called so (row= gives a name)"),
    )
    notes = [f"left out, for {why}: tests of {', '.join(sorted(set(names)))}" for names, why in reasons if names]
    return kept, notes


def _refuse_name_conflicts(runs: Sequence[Run], protocols: Mapping[str, record.Protocol]) -> None:
    """Raise Failure if cells have different data sets, or versions of one, under the same name."""
    first_of_each: dict[tuple[str, str, str], Run] = {}
    for run in runs:
        first_of_each.setdefault((run.cell, run.protocol, run.tested), run)
    tests = []
    for run in first_of_each.values():
        tests.append(TestedCell(run.id, run.cell, protocols[run.protocol], run.tested))
    if reason := find_name_conflict(tests):
        raise Failure(reason)


def split_evidence(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs whose cells are columns, and the others: the evidence that only selection rules read.

    If a data set's domains are held out one at a time, runs that hold out several serve the choice of hyper-parameters:
    their models trained on fewer domains than the others in the table.
    """
    protocols = {run.protocol for run in runs if len(run.held_out) == 1}
    counted: list[Run] = []
    evidence: list[Run] = []
    for run in runs:
        if len(run.held_out) > 1 and run.protocol in protocols:
            evidence.append(run)
        else:
            counted.append(run)
    return counted, evidence


def cells_of(runs: Sequence[Run], protocols: Mapping[str, record.Protocol]) -> tuple[TrainedOn, ...]:
    """Return the cells of the trained runs, or of the tested ones if none is trained, sorted by name.

    Numbers in names are compared as numbers: a severity of 5 comes before one of 20.
    """
    by_cell = group_runs([run for run in runs if run.kind not in TESTED] or runs, "cell")
    cells = []
    for name in sorted(by_cell, key=lambda cell: (_natural_key(cell), cell)):
        first = by_cell[name][0]
        provides = frozenset[str]().union(*(run.provides for run in by_cell[name]))
        cells.append(TrainedOn(name, protocols[first.protocol], first.held_out, provides))
    return tuple(cells)


def _natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return the sort key of a name: its words, each with the number after it, or -1."""
    return tuple((word, int(digits or -1)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", name))


class Unreadable(Failure):
    """No run has the protocol that its tag names, although the server answers."""


def with_protocols(store: RunStore, runs: Sequence[Run]) -> tuple[list[Run], dict[str, record.Protocol], list[str]]:
    """Return the runs whose protocols can be read, those protocols by hash, and notes on the other runs.

    Raises Failure if there is none, or if the server fails.
    """
    protocols: dict[str, record.Protocol] = {}
    notes, last = [], None
    for digest, same in group_runs(runs, "protocol").items():
        try:
            protocols[digest] = read_protocol(store, digest, same)
        except Unreadable as failure:
            last = failure
            notes.append(f"left out: {len(same)} run(s) of {same[0].algorithm} ({same[0].id} ...): {failure}")
    if not protocols and last is not None:
        raise last
    return [run for run in runs if run.protocol in protocols], protocols, notes


def read_protocol(store: RunStore, digest: str, runs: Sequence[Run]) -> record.Protocol:
    """Return the protocol with this hash, from the first of the runs that has it undamaged.

    Raises Failure if there is none; `Unreadable` if the server answered for all of them.
    """
    kind: type[Failure] = Unreadable
    problem = f"no run of protocol {digest} has a {record.PROTOCOL_FILE}"
    for run in runs:
        try:
            text = store.text(run.id, record.PROTOCOL_FILE)
            if text is None:
                continue
            protocol = record.Protocol.from_json(text)
        except (Failure, ValueError) as error:
            problem = f"{record.PROTOCOL_FILE} of run {run.id} can't be read: {error}"
            if isinstance(error, Failure):
                kind = Failure
            continue
        if protocol.hash == digest:
            return protocol
        problem = (
            f"{record.PROTOCOL_FILE} of run {run.id} has the hash {protocol.hash}, its tag says {digest}: "
            "it was changed, or another version of biasbed wrote it"
        )
    raise kind(problem)


def list_scopes(store: RunStore, runs: Sequence[Run], scopes: Mapping[Scope, int]) -> list[str]:
    """Return the lines of a message that lists the scopes, each with the command to analyse it."""
    lines = ["several things could be analysed; name one:"]
    for scope, count in sorted(scopes.items()):
        of_scope = [run for run in runs if run.scope == scope]
        num_algorithms = len(distinct(of_scope, "algorithm"))
        arguments = {"suite": scope.suite, "study": scope.study}
        if sum((s.suite, s.study) == (scope.suite, scope.study) for s in scopes) > 1:
            arguments["protocol"] = scope.protocol
        lines.append(
            f"  {count} {scope.kind} run(s) of {num_algorithms} algorithm(s), {_describe_tests(store, of_scope)}"
        )
        lines.append(f"    {format_command('analyze', arguments)}")
    return lines


def _describe_tests(store: RunStore, runs: Sequence[Run]) -> str:
    """Return what runs of one protocol are trained and tested on, or why that can't be read."""
    try:
        protocol = read_protocol(store, runs[0].protocol, runs)
    except Failure as failure:
        return str(failure)
    tested = f"tested on {', '.join(eval_set.name for eval_set in protocol.sets)}"
    start = "" if protocol.start == record.SCRATCH else f" from {protocol.start}"
    training_sets = ", ".join(protocol.training_sets)
    text = f"trained on {training_sets}{start}, {tested}" if training_sets else tested
    if protocol.limit:
        text += f", {limits.note(protocol.limit)}"
    return text


def columns_of(cells: Iterable[TrainedOn]) -> tuple[Column, ...]:
    """Return the columns of the score table: one for each cell and set that its runs are judged on.

    Without cells a column is named after its set, with cells after its cell, or after both if a cell has several sets.
    Raises Failure if two columns have the same name.
    """
    columns: dict[str, Column] = {}
    for cell in cells:
        judged = cell.protocol.judged(cell.test_domains)
        for eval_set in judged:
            name = _name_column(cell.name, eval_set.name, has_one_set=len(judged) == 1)
            if name in columns:
                raise Failure(
                    f"two columns of the score table would be called '{name}': call one of the cells otherwise"
                )
            columns[name] = Column(name, eval_set, cell.name, unit_of(cell.protocol, eval_set))
    return tuple(columns.values())


def _name_column(cell: str, eval_set: str, has_one_set: bool) -> str:
    """Return the name of a set's column: `sketch`, with cells `pacs-sketch`. cell: empty without cells."""
    if not cell:
        return eval_set
    if has_one_set:
        return cell
    if eval_set == cell or eval_set.startswith(f"{cell}-"):
        return eval_set
    return f"{cell}-{eval_set}"
