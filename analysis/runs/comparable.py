"""Which runs may stand in one table: those of one study that are tested alike, cell by cell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from biasbed import limits, record
from biasbed.analysis.columns import Column, unit_of
from biasbed.analysis.runs.run import Run, Scope, TrainedOn
from biasbed.errors import Failure
from biasbed.suites.name_conflicts import TestedCell, find_name_conflict
from biasbed.system.commands import typed

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

TESTED = ("evaluate",)  # kinds of runs of models that are only tested


def alike(store: RunStore, runs: list[Run], protocols: Mapping[str, record.Protocol]) -> tuple[list[Run], list[str]]:
    """The runs that may stand in one table, and what to say: within a cell all must be tested alike.

    Tested models are left out where they are tested otherwise than the trained ones of their study. Failure where that
    leaves several tables, or one row several protocols.
    """
    tested = {name: protocol.tested for name, protocol in protocols.items()}  # each once: there may be many runs
    runs, notes = _with_tested(runs, tested)
    ways: dict[str, set[str]] = {}
    rows: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        ways.setdefault(run.cell, set()).add(tested[run.protocol])
        rows.setdefault(run.place, set()).add(run.protocol)
    parts = {protocols[name].limit for found in rows.values() for name in found}  # whole runs and others, in any cell
    if len(parts) > 1 or any(len(found) > 1 for found in (*ways.values(), *rows.values())):
        raise Failure(*list_scopes(store, runs, Counter(run.scope for run in runs)))
    _refuse_name_conflicts(runs, protocols)
    return runs, notes


def _with_tested(runs: list[Run], hashes: Mapping[str, str]) -> tuple[list[Run], list[str]]:
    """The trained runs with those of tested models that may stand beside them, and what to say about the others.

    A tested model stands in its own cell where one is trained on that, else in each whose columns it was tested on.
    """
    trained = [run for run in runs if run.kind not in TESTED]
    if not trained:
        return runs, []
    cells, rows = {run.cell: hashes[run.protocol] for run in trained}, {run.algorithm for run in trained}
    kept, others, again = list(trained), [], []
    for run in runs:
        if run.kind in TESTED:
            tested = hashes[run.protocol]
            own = [run.cell] if run.cell in cells else sorted(cells)
            found = tuple(cell for cell in own if cells[cell] == tested)
            if not found:
                others.append(run.algorithm)
            elif run.algorithm in rows:
                again.append(run.algorithm)
            else:
                kept.append(replace(run, cells=found))
    reasons = ((others, "they are tested otherwise"), (again, "a trained row is called so (row= gives a name)"))
    notes = [f"left out, for {why}: tests of {', '.join(sorted(set(names)))}" for names, why in reasons if names]
    return kept, notes


def _refuse_name_conflicts(runs: Sequence[Run], protocols: Mapping[str, record.Protocol]) -> None:
    """Failure where cells have data sets of one name that are not the same, or versions of one."""
    each = {(run.cell, run.protocol, run.tested): run for run in reversed(runs)}.values()
    tests = [TestedCell(run.id, run.cell, protocols[run.protocol], run.tested) for run in reversed(each)]
    if reason := find_name_conflict(tests):
        raise Failure(reason)


def apart(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """(runs whose cells are columns, those that rules alone look at).

    Where a data set's domains are held out one by one, runs that hold out several tell of hyper-parameters: what they
    score on a domain is of a model that trained on fewer domains than the others in its table.
    """
    singly = {run.protocol for run in runs if len(run.held_out) == 1}
    is_evidence = {run.id: len(run.held_out) > 1 and run.protocol in singly for run in runs}
    return [run for run in runs if not is_evidence[run.id]], [run for run in runs if is_evidence[run.id]]


def cells_of(runs: Sequence[Run], protocols: Mapping[str, record.Protocol]) -> tuple[TrainedOn, ...]:
    """What the runs trained on, in the order of names; where all models are only tested, what they were tested as.

    Numbers in names count as such: a severity of 5 stands before one of 20.
    """
    found: dict[str, list[Run]] = {}
    for run in [run for run in runs if run.kind not in TESTED] or runs:
        found.setdefault(run.cell, []).append(run)
    return tuple(
        TrainedOn(
            name=name,
            protocol=protocols[same[0].protocol],
            test_domains=same[0].held_out,
            provides=frozenset[str]().union(*(run.provides for run in same)),
        )
        for name, same in sorted(found.items(), key=lambda cell: (_in_parts(cell[0]), cell[0]))
    )


def _in_parts(name: str) -> tuple[tuple[str, int], ...]:
    """A name as words, each with the number after it."""
    return tuple((word, int(digits or -1)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", name))


class Unreadable(Failure):
    """No run has the protocol that its tag names: the server answers, and what it has is something else."""


def with_protocols(store: RunStore, runs: Sequence[Run]) -> tuple[list[Run], dict[str, record.Protocol], list[str]]:
    """Return the runs whose protocols can be read, those protocols by hash, and notes on the other runs.

    Raises Failure if there is none, or if the server fails.
    """
    protocols: dict[str, record.Protocol] = {}
    notes, last = [], None
    for wanted in dict.fromkeys(run.protocol for run in runs):
        own = [run for run in runs if run.protocol == wanted]
        try:
            protocols[wanted] = read_protocol(store, wanted, own)
        except Unreadable as failure:
            last = failure
            notes.append(f"left out: {len(own)} run(s) of {own[0].algorithm} ({own[0].id} ...): {failure}")
    if not protocols and last is not None:
        raise last
    return [run for run in runs if run.protocol in protocols], protocols, notes


def read_protocols(store: RunStore, runs: Sequence[Run]) -> dict[str, record.Protocol]:
    """Hash -> protocol of these runs."""
    by_hash: dict[str, list[Run]] = {}
    for run in runs:
        by_hash.setdefault(run.protocol, []).append(run)
    return {wanted: read_protocol(store, wanted, same) for wanted, same in by_hash.items()}


def read_protocol(store: RunStore, wanted: str, runs: Sequence[Run]) -> record.Protocol:
    """The protocol with this hash, from the first of the runs that has it unharmed; else Failure.

    It is `Unreadable` if the server has answered for all of them.
    """
    kind: type[Failure] = Unreadable
    problem = f"no run of protocol {wanted} has a {record.PROTOCOL_FILE}"
    for run in runs:
        try:
            text = store.text(run.id, record.PROTOCOL_FILE)
            if text is None:
                continue
            protocol = record.Protocol.from_json(text)
        except (Failure, ValueError) as error:
            problem = f"{record.PROTOCOL_FILE} of run {run.id} can't be read: {error}"
            kind = Failure if isinstance(error, Failure) else kind
            continue
        if protocol.hash == wanted:
            return protocol
        problem = f"{record.PROTOCOL_FILE} of run {run.id} has the hash {protocol.hash}, its tag says {wanted}"
    raise kind(problem)


def list_scopes(store: RunStore, runs: Sequence[Run], scopes: Mapping[Scope, int]) -> list[str]:
    """A message, with a line for each."""
    lines = ["several things could be analysed; name one:"]
    for scope, count in sorted(scopes.items()):
        of_scope = [run for run in runs if run.scope == scope]
        num_algorithms = len({run.algorithm for run in of_scope})
        arguments = {"suite": scope.suite, "study": scope.study}
        if sum((s.suite, s.study) == (scope.suite, scope.study) for s in scopes) > 1:
            arguments["protocol"] = scope.protocol
        lines.append(f"  {count} {scope.kind} run(s) of {num_algorithms} algorithm(s), {_describe(store, of_scope)}")
        lines.append(f"    {typed('analyze', arguments)}")
    return lines


def _describe(store: RunStore, runs: Sequence[Run]) -> str:
    try:
        protocol = read_protocol(store, runs[0].protocol, runs)
    except Failure as failure:
        return str(failure)
    start = "" if protocol.start == record.SCRATCH else f" from {protocol.start}"
    trained = f"trained on {', '.join(protocol.training_sets)}{start}"
    part = f", {limits.note(protocol.limit)}" if protocol.limit else ""
    return f"{trained}, tested on {', '.join(s.name for s in protocol.sets)}{part}"


def columns_of(cells: Iterable[TrainedOn]) -> tuple[Column, ...]:
    """A column per cell and set that its runs are judged on. Failure where two have one name.

    Without cells a column is called like its set; with them like its cell, and like both where a cell has several.
    """
    found: dict[str, Column] = {}
    for cell in cells:
        judged = cell.protocol.judged(cell.test_domains)
        for entry in judged:
            name = entry.name if len(judged) > 1 or not cell.name else cell.name
            inside = not cell.name or name == cell.name or name.startswith(f"{cell.name}-")
            name = name if inside else f"{cell.name}-{name}"
            column = Column(name, entry, cell.name, unit_of(cell.protocol, entry))
            if name in found:
                raise Failure(
                    f"two columns of the score table would be called '{name}': call one of the cells otherwise"
                )
            found[name] = column
    return tuple(found.values())
