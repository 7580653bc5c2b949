"""What an analysis is made of: which runs count, on which sets, by which rule, and their histories."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.analysis.runs.collect import Collection, collect
from biasbed.analysis.selection import names, own, published
from biasbed.analysis.selection.published import Study
from biasbed.analysis.selection.rules import AsPublished, History, Rule, make_rule
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    from biasbed.analysis import AnalyzeOptions
    from biasbed.analysis.runs.store import Store


@dataclass(frozen=True)
class Material:
    """All that is read before anything is computed."""

    collection: Collection
    sets: tuple[record.SetRecord, ...]  # that count
    rule: Rule
    histories: Mapping[str, History]  # run id -> history, also of runs that count under another rule only
    studies: tuple[Study, ...]  # published results that are asked for


def gather(store: Store, options: AnalyzeOptions) -> Material:
    """UsageError for options that fit no run, Failure where runs must not be compared or a rule chooses none."""
    names.check(store, options)
    collection, mlflow_runs = collect(store, options)
    sets = _chosen_sets(collection.protocol, options.sets)
    rule = _rule(collection, sets, options)
    studies = published.find(store, options, collection, sets, rule)
    if options.with_published:
        collection, sets = published.join(collection, sets, studies, options.algorithms)
    elif studies:
        notes = [note for study in studies for note in study.notes]
        collection = dataclasses.replace(collection, notes=(*collection.notes, *notes))
    of_studies = [run for study in studies for run in study.mlflow_runs]
    histories = read_histories(store, [*mlflow_runs, *of_studies])
    chosen, notes = own.choose(rule, collection.runs, histories)
    if options.with_published:
        chosen = (*chosen, *collection.published_by_rule[rule.name])
    collection = dataclasses.replace(collection, runs=chosen, notes=(*collection.notes, *notes))
    _check_control(collection, options.control)
    return Material(collection, sets, rule, histories, tuple(studies))


def _chosen_sets(protocol: record.Protocol, wanted: Sequence[str] | str) -> tuple[record.SetRecord, ...]:
    known = [entry.name for entry in protocol.sets]
    for name in () if wanted == "all" else wanted:
        if name not in known:
            raise UsageError(f"sets={','.join(wanted)}: there is no evaluation set '{name}'{nearest(name, known)}")
    return tuple(entry for entry in protocol.sets if wanted == "all" or entry.name in wanted)


def _rule(collection: Collection, sets: tuple[record.SetRecord, ...], options: AnalyzeOptions) -> Rule:
    if collection.published:
        run = collection.runs[0]
        return AsPublished(run.selection, run.selection_n)
    return make_rule(options.selection, options.n, dataclasses.replace(collection.protocol, sets=sets))


def read_histories(store: Store, mlflow_runs: Iterable[Any]) -> dict[str, History]:
    """Run id -> curves of all these MLflow runs."""
    runs = {run.info.run_id: run for run in mlflow_runs}
    return {
        run_id: History(_title(runs[run_id]), rows) for run_id, rows in store.histories(list(runs.values())).items()
    }


def _title(run: Any) -> str:
    return f"{run.info.run_name or run.info.run_id} ({run.info.run_id})"


def _check_control(collection: Collection, control: str) -> None:
    if control != "none" and control not in collection.algorithms:
        advice = nearest(control, collection.algorithms)
        raise UsageError(f"control={control}: no compared algorithm has this name{advice}")
