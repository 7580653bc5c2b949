"""All that an analysis reads before anything is computed: runs, columns, rule, histories, published results."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.runs.collect import collect, read_run
from biasbed.analysis.runs.comparable import TESTED, columns_of
from biasbed.analysis.runs.image_counts import ImageCounts
from biasbed.analysis.runs.run import Collection
from biasbed.analysis.selection import completeness, corruption_errors, published, unknown_names
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.published import PublishedStudy
from biasbed.analysis.selection.rules import AsPublished, AsTested, Rule
from biasbed.analysis.selection.select import Rules, make_rule, rules_of
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore

SETTLED = ("published", *TESTED)  # kinds of runs of which a rule has nothing to choose


@dataclass(frozen=True)
class AnalysisInputs:
    """All that is read before anything is computed."""

    collection: Collection
    sets: tuple[Column, ...]  # that count
    rule: Rule  # as it is made for the first cell
    rules: Rules
    histories: Mapping[str, History]  # run id -> history, also of runs that count under another rule only
    studies: tuple[PublishedStudy, ...]  # published results that are asked for


def gather(store: RunStore, options: AnalyzeOptions) -> AnalysisInputs:
    """UsageError for options that fit no run, Failure where runs must not be compared or a rule chooses none."""
    unknown_names.check(store, options)
    collection, mlflow_runs = collect(store, options)
    sets = _measured(_chosen(columns_of(collection.cells), options.sets), options.measure, collection)
    rules = {} if collection.published else _rules(collection, sets, options)
    rule = next(iter(rules.values()), None) or _as_published(collection)
    studies = published.find(store, options, collection, sets, rule)
    if options.with_published:
        collection, sets = published.join(collection, sets, studies, options.algorithms)
    elif studies:
        notes = [note for study in studies for note in study.notes]
        collection = dataclasses.replace(collection, notes=(*collection.notes, *notes))
    elif all(run.kind in TESTED for run in collection.runs):  # nothing was chosen, and no paper's rule is needed
        rule, rules = AsTested(), {}
    of_studies = [run for study in studies for run in study.mlflow_runs]
    histories = read_histories(store, [*mlflow_runs, *of_studies], collection.protocols)
    for study in studies:
        histories |= study.in_own_words(histories)
    if options.with_published:
        collection = dataclasses.replace(collection, runs=published.runs_under(collection, rule.name))
    if options.corruption_errors_of != "none":
        sets, histories, note = corruption_errors.by_row(
            collection, sets, rules, histories, options.corruption_errors_of
        )
        collection = dataclasses.replace(collection, notes=(*collection.notes, note))
    _check_control(collection, options.control)
    if rules:
        pools = pools_of(collection.own, histories, sets, collection.protocols, collection.evidence)
        accepted = completeness.check(rule, pools, collection, histories, options)
        collection = dataclasses.replace(collection, notes=(*collection.notes, *accepted))
    return AnalysisInputs(collection, sets, rule, rules, histories, tuple(studies))


def _chosen(columns: Sequence[Column], wanted: Sequence[str] | str) -> tuple[Column, ...]:
    """The columns that `sets=` names; the name of a block or cell stands for all its columns."""
    known = dict.fromkeys(name for own in ("name", "block", "cell") for name in (getattr(c, own) for c in columns))
    for name in () if wanted == "all" else wanted:
        if name not in known:
            raise UsageError(f"sets={','.join(wanted)}: there is no evaluation set '{name}'{nearest(name, known)}")
    return tuple(c for c in columns if wanted == "all" or {c.name, c.block, c.cell} & {*wanted})


def _measured(columns: tuple[Column, ...], measure: str, collection: Collection) -> tuple[Column, ...]:
    """The columns by the measure that `measure=` names. UsageError where one of their sets does not have it."""
    if measure == "headline":
        return columns
    protocols = {cell.name: cell.protocol for cell in collection.cells}
    found = [(column, measured_by(column, measure, protocols[column.cell])) for column in columns]
    for column, other in found:
        if other is None:
            derivations = [entry.measure for entry in protocols[column.cell].derived if entry.name == column.entry.name]
            known = dict.fromkeys((*column.measures, *derivations))
            raise UsageError(f"measure={measure}: {column.name} has no such measure{nearest(measure, known)}")
    return tuple(other for _, other in found if other is not None)


def _rules(collection: Collection, sets: Sequence[Column], options: AnalyzeOptions) -> Rules:
    return rules_of(lambda protocol: make_rule(options.selection, options.n, protocol), collection, sets)


def _as_published(collection: Collection) -> Rule:
    run = collection.runs[0]
    return AsPublished(run.selection, run.selection_n)


def read_histories(
    store: RunStore, mlflow_runs: Iterable[Any], protocols: Mapping[str, record.Protocol]
) -> dict[str, History]:
    """Run id -> curves of all these MLflow runs, with those that are derived where they were not logged."""
    runs, counts = {run.info.run_id: run for run in mlflow_runs}, ImageCounts(store)
    found = {}
    with _uncollected():
        for run_id, rows in store.histories(list(runs.values())).items():
            run = read_run(runs[run_id])
            protocol = protocols.get(run.protocol)
            known = {} if protocol is None else counts.of(run, protocol)
            history = History(f"{run.name} ({run.id})", rows, run.kind in SETTLED, known)
            found[run_id] = history if protocol is None else history.with_derived(protocol.derived, run.held_out)
    return found


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No search for garbage in cycles: it would go through millions of rows again and again, which are in none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_control(collection: Collection, control: str) -> None:
    if control != "none" and control not in collection.algorithms:
        advice = nearest(control, collection.algorithms)
        raise UsageError(f"control={control}: no compared algorithm has this name{advice}")
