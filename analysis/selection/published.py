"""Published results beside one's own, in the same tables and tests.

Runs of kind `published` (`mlflow run . -e import`) are compared with one's own on the sets that both have, with the
same headline measure, unit and number of classes, and under the same selection rule; numbers whose paper names none
stand under each. A published algorithm is marked, as `erm@biasbed`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbed import measures, record
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.runs.collect import PUBLISHED_MARK, published_by_rule, read_run
from biasbed.analysis.runs.comparable import columns_of, read_protocol
from biasbed.analysis.runs.run import Collection, Run, TrainedOn
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Selected
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.system import places
from biasbed.system.commands import typed

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore


@dataclass(frozen=True)
class PublishedStudy:
    """One paper's results, as far as they may stand beside one's own."""

    name: str
    shared: tuple[tuple[Column, record.SetRecord], ...]  # one's own columns and what the paper calls the same
    by_rule: Mapping[str, tuple[Run, ...]]  # selection rule -> runs, under the paper's own names
    mlflow_runs: tuple[Any, ...]
    notes: tuple[str, ...]
    protocols: Mapping[str, record.Protocol]  # hash -> the protocol

    @property
    def mark(self) -> str:
        return PUBLISHED_MARK + self.name.removeprefix("published_")

    @property
    def columns(self) -> tuple[Column, ...]:
        """One's own columns that it shares."""
        return tuple(column for column, _ in self.shared)

    def in_own_words(self, histories: Mapping[str, History]) -> dict[str, History]:
        """Run id -> history with one's own names of sets, on each of one's own cells those that are shared there."""
        return {
            run.id: histories[run.id].told_apart(self._names(histories[run.id]))
            for runs in self.by_rule.values()
            for run in runs
        }

    def _names(self, history: History) -> dict[str, dict[str, str]]:
        """Cell -> metric with one's own name of its set -> the same with the paper's."""
        found: dict[str, dict[str, str]] = {}
        metrics = [name for name in map(record.parse_metric, history.metrics) if name is not None]
        for column, theirs in self.shared:
            names = found.setdefault(column.cell, {})
            for name in metrics:
                if name.set == theirs.name:
                    names[str(dataclasses.replace(name, set=column.set_record.name))] = str(name)
        return found


def find(
    store: RunStore, options: AnalyzeOptions, collection: Collection, sets: Sequence[Column], rule: Rule
) -> list[PublishedStudy]:
    """The published studies that fit; none where the options ask for none. Failure where they ask and none fits."""
    if not options.with_published and options.compare == "none":
        return []
    if collection.published:
        raise UsageError("with_published and compare take your own runs: these are published results already")
    if collection.part:
        raise UsageError(f"with_published and compare take whole runs: these are {collection.part}")
    mlflow_runs = {run.info.run_id: run for run in store.runs("published")}
    every = [run for run in map(read_run, mlflow_runs.values()) if run.finished and run.protocol]
    if not every:
        command = typed("import", {"source": "biasbed"})
        raise Failure(f"no published results are on {places.public_uri(store.uri)}; to import them: {command}")
    studies, problems = [], []
    for scope in sorted({run.scope for run in every}):
        runs = [run for run in every if run.scope == scope]
        by_rule = published_by_rule(runs, options.n)
        protocol = read_protocol(store, scope.protocol, runs)
        shared, notes = _shared(sets, protocol, collection.cells)
        if not {rule.name, ""} & set(by_rule):
            problems.append(f"{scope.study} has the rules {_rules(runs)}, and yours is {rule.name}")
        elif not shared:
            names = ", ".join(entry.name for entry in protocol.sets)
            problems.append(f"{scope.study} has none of your sets ({names}){''.join(f'; {note}' for note in notes)}")
        else:
            needed = [mlflow_runs[run.id] for same in by_rule.values() for run in same]
            cited = [f"{scope.study}: {source}" for source in sorted({run.source for run in runs}) if source]
            notes = [f"{scope.study}: {note}" for note in notes]
            found = (tuple(shared), by_rule, tuple(needed), (*cited, *notes), {scope.protocol: protocol})
            studies.append(PublishedStudy(scope.study, *found))
    if not studies:
        raise Failure("no published results can stand beside these runs:", *(f"  {problem}" for problem in problems))
    return studies


def _rules(runs: Iterable[Run]) -> str:
    names = {f"{run.selection} with n={run.selection_n}" if run.selection_n else run.selection for run in runs}
    return " and ".join(sorted(names))


def under(by_rule: Mapping[str, Sequence[Run]], rule: str) -> tuple[Run, ...]:
    """The published runs that count under a rule: those that came about by it, and those whose paper names none."""
    return (*by_rule.get(rule, ()), *(by_rule.get("", ()) if rule else ()))


# --- which sets are the same ------------------------------------------------------------------------------------------


def _shared(
    own: Sequence[Column], theirs: record.Protocol, cells: Sequence[TrainedOn]
) -> tuple[list[tuple[Column, record.SetRecord]], list[str]]:
    """One's own columns with the paper's records of the same sets, and what else is to be said about them."""
    held_out = {cell.name: cell.test_domains for cell in cells}
    counts = Counter(column.set_record.name for column in own)
    printed = columns_of([TrainedOn("", theirs)])
    shared, notes = [], []
    for column in own:
        names = {column.name} | ({column.set_record.name} if counts[column.set_record.name] == 1 else set())
        alone = held_out.get(column.cell, ()) == (column.set_record.domain,)
        other = next((p for p in printed if _is_same(column, p, names, alone)), None)
        if other is None:
            continue
        other = measured_by(other, column.headline, theirs) or other
        unlike = bool(column.classes and other.classes) and column.classes != other.classes
        if _kind(column) != _kind(other) or unlike:
            notes.append(f"{column.name} is not compared: {_described(column)} here, {_described(other)} there")
            continue
        if other.images and column.images != other.images:
            notes.append(f"{column.name} has {column.images} images here and {other.images} there")
        shared.append((column, other.set_record))
    return shared, notes


def _is_same(column: Column, printed: Column, names: set[str], alone: bool) -> bool:
    """Whether a paper's column shows what one's own does. names: of the latter; alone: whether its domain is held out,
    and no other.

    A domain is the same by block and name; it was trained on in part, had more been held out or none.
    """
    entry = printed.set_record
    if entry.domain:
        same_domain = column.set_record.domain in (entry.domain, *entry.aliases) and column.block == printed.block
        return same_domain and alone
    return bool(names & {entry.name, *entry.aliases})


def _kind(column: Column) -> tuple[str, str, bool]:
    return column.headline, column.unit, column.higher_is_better


def _described(column: Column) -> str:
    unit = "" if column.unit == measures.FRACTION else f" in {column.unit}"
    return f"{column.headline}{unit}{f' of {column.classes} classes' if column.classes else ''}"


# --- in the same tables and tests -------------------------------------------------------------------------------------


def join(
    collection: Collection,
    sets: Sequence[Column],
    studies: Sequence[PublishedStudy],
    wanted: Sequence[str] | str,
) -> tuple[Collection, tuple[Column, ...]]:
    """One's own runs with the published ones, marked, and the sets that any paper of these has.

    wanted: algorithms; `erm` stands for one's own and the published one, `erm@biasbed` for that alone. The published
    runs are not among `runs` yet: which of them count depends on the rule (`runs_under`).
    """
    studies = [study for study in studies if _has_wanted(study, wanted)] or studies
    names = [entry.name for entry in sets]
    shared = {entry.name for study in studies for entry in study.columns}
    by_rule: dict[str, tuple[Run, ...]] = {}
    for study in studies:
        for rule, runs in study.by_rule.items():
            marked = [dataclasses.replace(run, algorithm=run.algorithm + study.mark) for run in runs]
            by_rule[rule] = (*by_rule.get(rule, ()), *(run for run in marked if _is_wanted(run.algorithm, wanted)))
    _check_names(by_rule, wanted)
    notes = [note for study in studies for note in study.notes]
    left_out = [name for name in names if name not in shared]
    notes += [f"left out, for the published results don't have them: {', '.join(left_out)}"] if left_out else []
    notes.append(f"what others trained is marked {', '.join(s.mark for s in studies)}; its code and images are others'")
    protocols = {**collection.protocols, **{h: p for study in studies for h, p in study.protocols.items()}}
    notes = [*collection.notes, *notes]
    joined = dataclasses.replace(collection, published_by_rule=by_rule, notes=tuple(notes), protocols=protocols)
    has_summaries = any(run.summary for runs in by_rule.values() for run in runs)
    columns = [entry for entry in sets if entry.name in shared]
    return joined, tuple(map(_with_summary, columns) if has_summaries else columns)


def _with_summary(column: Column) -> Column:
    """The column with what stands beside published means."""
    entry = dataclasses.replace(column.set_record, measures=(*column.measures, *measures.SUMMARY))
    return dataclasses.replace(column, set_record=entry)


def _has_wanted(study: PublishedStudy, wanted: Sequence[str] | str) -> bool:
    return any(_is_wanted(run.algorithm + study.mark, wanted) for runs in study.by_rule.values() for run in runs)


def _is_wanted(algorithm: str, wanted: Sequence[str] | str) -> bool:
    return wanted == "all" or algorithm in wanted or algorithm.partition(PUBLISHED_MARK)[0] in wanted


def _check_names(by_rule: Mapping[str, Sequence[Run]], wanted: Sequence[str] | str) -> None:
    known = {run.algorithm for runs in by_rule.values() for run in runs}
    for name in () if wanted == "all" else wanted:
        if PUBLISHED_MARK in name and name not in known:
            raise UsageError(f"algorithms={','.join(wanted)}: no published '{name}'{nearest(name, sorted(known))}")


def runs_under(collection: Collection, rule: str) -> tuple[Run, ...]:
    """The runs that count under a rule: one's own, then the published ones."""
    return (*collection.own, *under(collection.published_by_rule, rule))


def unprinted(collection: Collection, selected: Selected) -> dict[tuple[str, str], frozenset[str]]:
    """(row, column) of which no number was published; nothing can be said of what a row lacks there."""
    rows = {run.id: run.algorithm for run in collection.runs}
    published = {run.id for run in collection.runs if run.kind == "published"}
    values = zip(selected.values["run_id"], selected.values["dataset"], strict=True)
    there = {(rows[run], dataset) for run, dataset in values}
    lost = {(rows[entry.run_id], entry.dataset) for entry in selected.missing if entry.run_id in published}
    return dict.fromkeys(sorted(lost - there), frozenset())


def unprinted_notes(places: Iterable[tuple[str, str]]) -> list[str]:
    """A note for each choice of columns on rows without a number there."""
    columns: dict[str, list[str]] = {}
    for row, column in places:
        columns.setdefault(row, []).append(column)
    rows: dict[tuple[str, ...], list[str]] = {}
    for row, lost in columns.items():
        rows.setdefault(tuple(lost), []).append(row)
    return [f"no number was published of {', '.join(same)} on {', '.join(lost)}" for lost, same in rows.items()]


def summaries(collection: Collection) -> tuple[str, ...]:
    """The rows of which means were published in place of runs."""
    return tuple(sorted({run.algorithm for run in collection.runs if run.summary}))


def summary_notes(collection: Collection) -> list[str]:
    """Why some rows are in no test over runs."""
    rows = summaries(collection)
    if not rows:
        return []
    who = "all rows" if set(rows) == set(collection.algorithms) else ", ".join(rows)
    return [
        f"only means were published of {who}: tests over sets take them, tests over runs and what needs the spread of "
        "runs leave them out; ± and the number of runs are the paper's",
        *_derived_notes(collection),
    ]


def _derived_notes(collection: Collection) -> list[str]:
    """What of published means nobody printed."""
    protocols = dict.fromkeys(run.protocol for run in collection.runs if run.summary)
    found = dict.fromkeys(entry.measure for name in protocols for entry in collection.protocols[name].derived)
    return [f"not printed, but follow from the published means: {', '.join(found)}"] if found else []
