"""Refusal of unknown names of rules, suites, algorithms and evaluation sets, before any run is read.

A name is known if it is in biasbed's registries or if a tracked run has it: methods from a user's file and sets of
another package are in no registry, so the server is searched for them. Each name takes one short query; only a refusal
makes more, to suggest the nearest name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.algorithms import REGISTRY as ALGORITHMS
from biasbed.analysis.runs.collect import PUBLISHED_MARK, read_run
from biasbed.analysis.runs.comparable import read_protocol
from biasbed.analysis.runs.store import MANY_VALUES
from biasbed.analysis.selection.rules import RULES
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.suites import REGISTRY as SUITES

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore


def check(store: RunStore, options: AnalyzeOptions) -> None:
    """Raise UsageError for a selection rule, suite, algorithm or set that neither biasbed nor any run knows."""
    published = {record.SELECTION: options.selection}
    if options.selection not in ("auto", *RULES) and ":" not in options.selection and not store.find(published):
        hint = nearest(options.selection, ["auto", *RULES])
        raise UsageError(
            f"selection={options.selection}: there is no such rule{hint}, or <file>.py:<Class> of your own"
        )
    suite = options.suite
    if suite not in ("auto", *SUITES) and not store.find({record.SUITE: suite}):
        names = [*SUITES, *(run.data.tags[record.SUITE] for run in store.one_of_each(record.SUITE))]
        hint = nearest(suite, dict.fromkeys(names))
        raise UsageError(f"suite={suite}: neither biasbed nor any run knows the suite '{suite}'{hint}")
    if options.algorithms != "all":
        trained_here = [name for name in options.algorithms if PUBLISHED_MARK not in name]
        _check_algorithms(store, f"algorithms={','.join(options.algorithms)}", trained_here)
    if options.control != "none" and PUBLISHED_MARK not in options.control:
        _check_algorithms(store, f"control={options.control}", [options.control])
    if options.sets != "all":
        _check_sets(store, options.sets)


def _check_algorithms(store: RunStore, setting: str, names: Iterable[str]) -> None:
    """Check names of rows, which are those of methods unless the user chose others. setting: `option=value`."""
    tags = (record.ALGORITHM, record.ROW)
    for name in names:
        if name not in ALGORITHMS and not any(store.find({tag: name}) for tag in tags):
            names_there = list(ALGORITHMS)
            for tag in tags:
                names_there += [run.data.tags[tag] for run in store.one_of_each(tag)]
            hint = nearest(name, dict.fromkeys(names_there))
            raise UsageError(f"{setting}: neither biasbed nor any run knows the algorithm '{name}'{hint}")


def _check_sets(store: RunStore, names: Sequence[str]) -> None:
    """Check names of evaluation sets, which are in protocols: one run per protocol is read."""
    set_names: dict[str, None] = {}
    cells = [run.data.tags[record.CELL] for run in store.one_of_each(record.CELL)]
    for number, run in enumerate(map(read_run, store.one_of_each(record.PROTOCOL_HASH)), 1):
        if all(name in set_names for name in names) or number == MANY_VALUES:
            return
        try:
            columns = read_protocol(store, run.protocol, [run]).columns
        except Failure:  # reported later, if the run is among those that count
            return
        columns_there = [column.name for column in columns]
        set_names |= dict.fromkeys(columns_there)
        set_names |= dict.fromkeys(column.block for column in columns if column.block)
        for cell in cells:
            set_names |= dict.fromkeys([cell, *(f"{cell}-{name}" for name in columns_there)])
    for name in names:
        if name not in set_names:
            hint = nearest(name, set_names) if set_names else "; no run on the server names any"
            raise UsageError(f"sets={','.join(names)}: no run knows the evaluation set '{name}'{hint}")
