"""Inputs of an analysis, read before anything is computed: runs, columns, rule, histories, published results."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbed import measures, record, redaction
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.runs.collect import collect, read_run
from biasbed.analysis.runs.comparable import columns_of
from biasbed.analysis.runs.run import TESTED, Collection
from biasbed.analysis.selection import completeness, published
from biasbed.analysis.selection.pools import History, pools_of
from biasbed.analysis.selection.published import PublishedStudy
from biasbed.analysis.selection.rules import AsPublished, AsTested, Rule
from biasbed.analysis.selection.select import Rules, make_rule, rules_of
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.system.garbage import without_collection

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.predictions import DecisionReader
    from biasbed.analysis.runs.store import RunStore
    from biasbed.analysis.tables.user_scores import UserScores

SETTLED = ("published", *TESTED)  # kinds of runs without epochs to choose from


@dataclass(frozen=True)
class AnalysisInputs:
    """Runs, columns, rule and histories of an analysis."""

    collection: Collection
    sets: tuple[Column, ...]  # columns that count
    rule: Rule  # that of the first cell
    rules: Rules  # empty if no run leaves a step to choose
    histories: Mapping[str, History]  # run id -> history, also of runs that count under another rule only
    studies: tuple[PublishedStudy, ...]  # requested published results
    decisions: DecisionReader
    origin: str  # address of the tracking server, without password; empty for scores from elsewhere
    user_scores: UserScores | None = None  # the table that was given


def gather(store: RunStore, options: AnalyzeOptions) -> AnalysisInputs:
    """Read the inputs. Raises UsageError for options that fit no run, Failure if runs must not be compared."""
    from biasbed.analysis.runs.predictions import TrackedDecisions

    collection, mlflow_runs = collect(store, options)
    columns = _choose_columns(columns_of(collection.cells), options.sets)
    sets = _with_measure(columns, options.measure, collection)
    rules: Rules = {}
    if not collection.published:
        rules = rules_of(functools.partial(make_rule, options.selection, options.n), collection, sets)
    first = collection.runs[0]
    rule = next(iter(rules.values()), None) or AsPublished(first.selection, first.selection_n)
    # Published results beside the user's runs.
    studies = published.find(store, options, collection, sets, rule)
    if options.with_published:
        collection, sets = published.join(collection, sets, studies, options.algorithms)
    elif studies:
        notes = itertools.chain(collection.notes, *(study.notes for study in studies))
        collection = dataclasses.replace(collection, notes=tuple(notes))
    elif all(run.kind in TESTED for run in collection.runs):  # nothing was chosen, and no paper's rule is needed
        rule, rules = AsTested(), {}
    # Histories of all of them.
    mlflow_runs = [*mlflow_runs, *itertools.chain.from_iterable(study.mlflow_runs for study in studies)]
    histories = read_histories(store, mlflow_runs, collection.protocols)
    for study in studies:
        histories |= study.translated(histories)
    if options.with_published:
        collection = dataclasses.replace(collection, runs=published.runs_under(collection, rule.name))
    if rules:
        pools = pools_of(collection.unpublished, histories, sets, collection.protocols, collection.evidence)
        accepted = completeness.check(rule, pools, collection, options)
        collection = dataclasses.replace(collection, notes=(*collection.notes, *accepted))
    return AnalysisInputs(
        collection=collection,
        sets=sets,
        rule=rule,
        rules=rules,
        histories=histories,
        studies=tuple(studies),
        decisions=TrackedDecisions(store),
        origin=redaction.public_uri(store.uri),
    )


def _choose_columns(columns: Sequence[Column], sets: Sequence[str] | str) -> tuple[Column, ...]:
    """Return the columns that `sets=` names; the name of a block or cell stands for all its columns."""
    if sets == "all":
        return tuple(columns)
    names_in_use: dict[str, None] = {}
    for attribute in ("name", "block", "cell"):
        names_in_use |= dict.fromkeys(getattr(column, attribute) for column in columns if getattr(column, attribute))
    for name in sets:
        if name not in names_in_use:
            raise UsageError(f"sets={','.join(sets)}: there is no evaluation set '{name}'{nearest(name, names_in_use)}")
    return tuple(column for column in columns if {column.name, column.block, column.cell} & {*sets})


def _with_measure(columns: tuple[Column, ...], measure: str, collection: Collection) -> tuple[Column, ...]:
    """Return the columns with the measure that `measure=` names; all of them for `headline`.

    If changed copies of some sets have it, as with reliance on a cue, those copies are the columns. Raises UsageError
    if one of the sets lacks the measure, or if neither more nor less of it is better.
    """
    if measure == "headline":
        return columns
    protocols = {cell.name: cell.protocol for cell in collection.cells}
    copies: list[Column] = []
    for column in columns:
        copies += _copies(column, measure, protocols[column.cell])
    if copies:
        return tuple(copies)
    measured = []
    for column in columns:
        protocol = protocols[column.cell]
        with_measure = measured_by(column, measure, protocol)
        if with_measure is None:
            derived = [d.measure for d in protocol.derived if d.name == column.set_record.name]
            names = dict.fromkeys((*column.measures, *derived))
            raise UsageError(f"measure={measure}: {column.name} has no such measure{nearest(measure, names)}")
        measured.append(with_measure)
    if not measures.find_measure(measure).has_direction:
        raise UsageError(
            f"measure={measure}: neither more nor less of it is better, so no row can be better by it; "
            "biasbed.runs(study=...) has its values"
        )
    return tuple(measured)


def _copies(column: Column, measure: str, protocol: record.Protocol) -> Iterator[Column]:
    """Yield the changed copies of a column's set of which the measure is derived, in the protocol's order.

    They do not count otherwise, and their names begin with the set's.
    """
    name = column.set_record.name
    for member in protocol.sets:
        is_copy = not member.counts and member.name.startswith(f"{name}_")
        if is_copy and protocol.derivation(str(record.MetricName("test", measure, member.name))) is not None:
            renamed = dataclasses.replace(column, name=column.name.replace(name, member.name), set_record=member)
            with_measure = measured_by(renamed, measure, protocol)
            assert with_measure is not None
            yield with_measure


def read_histories(
    store: RunStore, mlflow_runs: Iterable[Any], protocols: Mapping[str, record.Protocol]
) -> dict[str, History]:
    """Return run id -> history of these MLflow runs; curves that can be derived are added if they were not logged."""
    runs = {run.info.run_id: run for run in mlflow_runs}
    histories = {}
    with without_collection():
        for run_id, rows in store.histories(list(runs.values())).items():
            run = read_run(runs[run_id])
            protocol = protocols.get(run.protocol)
            images = {} if protocol is None else store.image_counts(run, protocol)
            history = History(f"{run.name} ({run.id})", rows, run.kind in SETTLED, images)
            histories[run_id] = history if protocol is None else history.with_derived(protocol.derived, run.held_out)
    return histories
