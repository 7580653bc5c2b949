"""Names that nobody knows are refused before any run is read.

Known is what biasbed's own registries name and what any tracked run names: a method from somebody's file and the sets
of another package are in no registry, so the server is asked for them. One short question for each name; only a refusal
asks for more, to offer the nearest.
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
    """UsageError for a selection rule, suite, algorithm or evaluation set that neither biasbed nor any run knows."""
    published = {record.SELECTION: options.selection}
    if options.selection not in ("auto", *RULES) and ":" not in options.selection and not store.find(published):
        hint = nearest(options.selection, ["auto", *RULES])
        raise UsageError(
            f"selection={options.selection}: there is no such rule{hint}, or <file>.py:<Class> of your own"
        )
    if options.suite != "auto":
        _tagged(store, "suite", options.suite, [options.suite], record.SUITE, SUITES)
    algorithms = () if options.algorithms == "all" else options.algorithms
    own = [name for name in algorithms if PUBLISHED_MARK not in name]
    _tagged(store, "algorithms", ",".join(algorithms), own, record.ALGORITHM, ALGORITHMS)
    if options.control != "none" and PUBLISHED_MARK not in options.control:
        _tagged(store, "control", options.control, [options.control], record.ALGORITHM, ALGORITHMS)
    if options.sets != "all":
        _sets(store, options.sets)


def _tagged(store: RunStore, option: str, words: str, names: Iterable[str], tag: str, registry: Iterable[str]) -> None:
    for name in names:
        # What is compared is a row, which may be called otherwise than its method.
        tags = (tag, record.ROW) if tag == record.ALGORITHM else (tag,)
        if name not in registry and not any(store.find({one: name}) for one in tags):
            known = dict.fromkeys((*registry, *(run.data.tags[one] for one in tags for run in store.one_of_each(one))))
            what = {record.SUITE: "suite", record.ALGORITHM: "algorithm"}[tag]
            raise UsageError(
                f"{option}={words}: neither biasbed nor any run knows the {what} '{name}'{nearest(name, known)}"
            )


def _sets(store: RunStore, names: Sequence[str]) -> None:
    """Sets stand in protocols, which few runs stand for: one of each is read."""
    known: dict[str, None] = {}
    cells = [run.data.tags[record.CELL] for run in store.one_of_each(record.CELL)]
    for number, run in enumerate(map(read_run, store.one_of_each(record.PROTOCOL_HASH)), 1):
        if all(name in known for name in names) or number == MANY_VALUES:
            return
        try:
            columns = read_protocol(store, run.protocol, [run]).columns
        except Failure:  # told apart later, among the runs that count
            return
        known |= dict.fromkeys([*(column.name for column in columns), *filter(None, (c.block for c in columns))])
        known |= dict.fromkeys(name for cell in cells for name in (cell, *(f"{cell}-{c.name}" for c in columns)))
    for name in names:
        if name not in known:
            hint = nearest(name, known) if known else "; no run on the server names any"
            raise UsageError(f"sets={','.join(names)}: no run knows the evaluation set '{name}'{hint}")
