"""Published results beside the user's own runs, in the same tables and tests.

Runs of kind `published` (`mlflow run . -e import`) are compared with the user's runs on the sets that both have, with
the same headline measure, unit and number of classes, and under the same selection rule. Numbers whose paper names no
rule appear under every rule. A published algorithm is marked, as in `erm@biasbed`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed import measures, record, redaction
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.runs.collect import PUBLISHED_MARK, published_by_rule, read_run
from biasbed.analysis.runs.comparable import columns_of, read_protocol
from biasbed.analysis.runs.run import TABLE, Collection, Run, TrainedOn, distinct, group_runs
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import Selected
from biasbed.errors import Failure, UsageError
from biasbed.settings import refuse_unknown
from biasbed.system.commands import format_command

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore


class SharedSet(NamedTuple):
    """Set that the user's runs and a paper have: the user's column, and the paper's record of the set."""

    column: Column
    theirs: record.SetRecord


@dataclass(frozen=True)
class PublishedStudy:
    """Results of one paper that are comparable to the user's own."""

    name: str
    shared: tuple[SharedSet, ...]
    by_rule: Mapping[str, tuple[Run, ...]]  # selection rule -> runs, under the paper's names
    mlflow_runs: tuple[Any, ...]
    notes: tuple[str, ...]
    protocols: Mapping[str, record.Protocol]  # hash -> the protocol

    @property
    def mark(self) -> str:
        """Suffix of the paper's rows: `@biasbed`."""
        return PUBLISHED_MARK + self.name.removeprefix("published_")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the user that the paper shares."""
        return tuple(column for column, _ in self.shared)

    def translated(self, histories: Mapping[str, History]) -> dict[str, History]:
        """Return the histories of the paper's runs by run id, with the user's names of the shared sets.

        They are split by the user's cells (`History.split_by_cell`), as a paper's run has a number on each.
        """
        runs = itertools.chain.from_iterable(self.by_rule.values())
        return {run.id: histories[run.id].split_by_cell(self._sources(histories[run.id])) for run in runs}

    def _sources(self, history: History) -> dict[str, dict[str, str]]:
        """Return cell -> metric with the user's name of the set -> the same metric as the paper names it."""
        metrics = [metric for metric in map(record.parse_metric, history.metrics) if metric is not None]
        by_cell: dict[str, dict[str, str]] = {}
        for column, theirs in self.shared:
            sources = by_cell.setdefault(column.cell, {})
            for metric in metrics:
                if metric.set == theirs.name:
                    sources[str(dataclasses.replace(metric, set=column.set_record.name))] = str(metric)
        return by_cell


def find(
    store: RunStore, options: AnalyzeOptions, collection: Collection, sets: Sequence[Column], rule: Rule
) -> list[PublishedStudy]:
    """Return the published studies that are comparable to these runs; empty if the options ask for none.

    Raises UsageError if these are no runs to compare with published results, Failure, with the reasons, if no study is
    comparable.
    """
    if not options.with_published and options.compare == "none":
        return []
    if collection.published or collection.part:
        kind = collection.part or "published results already"
        raise UsageError(f"with_published and compare take whole runs of your own: these are {kind}")
    mlflow_runs = {run.info.run_id: run for run in store.runs("published")}
    finished = [run for run in map(read_run, mlflow_runs.values()) if run.finished and run.protocol]
    if not finished:
        command = format_command("import", {"source": "biasbed"})
        raise Failure(f"no published results are on {redaction.public_uri(store.uri)}; to import them: {command}")
    studies, problems = [], []
    for scope, runs in sorted(group_runs(finished, "scope").items()):
        by_rule = published_by_rule(runs, options.n)
        protocol = read_protocol(store, scope.protocol, runs)
        shared, notes = _find_shared_sets(sets, protocol, collection.cells)
        if not {rule.name, ""} & set(by_rule):
            problems.append(f"{scope.study} has the rules {_list_rules(runs)}, and yours is {rule.name}")
        elif not shared:
            names = ", ".join(eval_set.name for eval_set in protocol.sets)
            problems.append("; ".join([f"{scope.study} has none of your sets ({names})", *notes]))
        else:
            sources = filter(None, distinct(runs, "source"))
            study = PublishedStudy(
                name=scope.study,
                shared=tuple(shared),
                by_rule=by_rule,
                mlflow_runs=tuple(mlflow_runs[run.id] for run in itertools.chain.from_iterable(by_rule.values())),
                notes=tuple(f"{scope.study}: {note}" for note in (*sources, *notes)),
                protocols={scope.protocol: protocol},
            )
            studies.append(study)
    if not studies:
        raise Failure("no published results can stand beside these runs:", *(f"  {problem}" for problem in problems))
    return studies


def _list_rules(runs: Iterable[Run]) -> str:
    """Return the selection rules of published runs as text: `best_epoch and last_n with n=30`."""
    names = set()
    for run in runs:
        n = f" with n={run.selection_n}" if run.selection_n else ""
        names.add(run.selection + n)
    return " and ".join(sorted(names))


def published_under(by_rule: Mapping[str, Sequence[Run]], rule: str) -> tuple[Run, ...]:
    """Return the published runs that count under a rule: those selected by it, and those whose paper names no rule."""
    if not rule:
        return tuple(by_rule.get("", ()))
    return (*by_rule.get(rule, ()), *by_rule.get("", ()))


# --- which sets are the same ------------------------------------------------------------------------------------------


def _find_shared_sets(
    columns: Sequence[Column], theirs: record.Protocol, cells: Sequence[TrainedOn]
) -> tuple[list[SharedSet], list[str]]:
    """Return the sets that the user's columns share with a paper, and notes on differences."""
    held_out = {cell.name: cell.test_domains for cell in cells}
    num_columns = Counter(column.set_record.name for column in columns)
    printed_columns = columns_of([TrainedOn("", theirs)])
    shared, notes = [], []
    for column in columns:
        names = {column.name}
        if num_columns[column.set_record.name] == 1:  # else the set's name does not tell its columns apart
            names.add(column.set_record.name)
        is_only_held_out = held_out.get(column.cell, ()) == (column.set_record.domain,)
        same = (printed for printed in printed_columns if _is_same(column, printed, names, is_only_held_out))
        match = next(same, None)
        if match is None:
            continue
        match = measured_by(match, column.headline, theirs) or match
        classes = {column.set_record.classes, match.set_record.classes} - {0}
        if _comparable_kind(column) != _comparable_kind(match) or len(classes) > 1:
            notes.append(
                f"{column.name} is not compared: {_describe_measure(column)} here, {_describe_measure(match)} there"
            )
            continue
        if match.images and column.images != match.images:
            notes.append(f"{column.name} has {column.images} images here and {match.images} there")
        shared.append(SharedSet(column, match.set_record))
    return shared, notes


def _is_same(column: Column, printed: Column, names: set[str], is_only_held_out: bool) -> bool:
    """Return True if a paper's column shows the same set as the user's column.

    names: of the user's column. is_only_held_out: the column's domain and no other was held out of training, as in the
    paper. Domains are the same if data set and name agree.
    """
    theirs = printed.set_record
    if theirs.domain:
        is_same_domain = column.set_record.domain in (theirs.domain, *theirs.aliases) and column.block == printed.block
        return is_same_domain and is_only_held_out
    return bool(names & {theirs.name, *theirs.aliases})


def _comparable_kind(column: Column) -> tuple[str, str, bool]:
    """Return what two columns must agree in to be compared."""
    return column.headline, column.unit, column.higher_is_better


def _describe_measure(column: Column) -> str:
    """Return measure, unit and number of classes of a column as text."""
    text = column.headline
    if column.unit != measures.FRACTION:
        text += f" in {column.unit}"
    if column.set_record.classes:
        text += f" of {column.set_record.classes} classes"
    return text


# --- in the same tables and tests -------------------------------------------------------------------------------------


def join(
    collection: Collection,
    sets: Sequence[Column],
    studies: Sequence[PublishedStudy],
    algorithms: Sequence[str] | str,
) -> tuple[Collection, tuple[Column, ...]]:
    """Return the collection with marked published runs, and the columns that any of the papers shares.

    The published runs are not in `runs` yet: the rule decides which of them count (`runs_under`). algorithms: `erm`
    selects the user's and the published one, `erm@biasbed` only the latter.
    """
    studies = [study for study in studies if _has_selected(study, algorithms)] or studies
    shared: set[str] = set()
    by_rule: dict[str, tuple[Run, ...]] = {}
    notes = list(collection.notes)
    protocols = dict(collection.protocols)
    for study in studies:
        shared.update(column.name for column in study.columns)
        notes += study.notes
        protocols |= study.protocols
        for rule, runs in study.by_rule.items():
            marked = [dataclasses.replace(run, algorithm=run.algorithm + study.mark) for run in runs]
            selected = [run for run in marked if _is_selected(run.algorithm, algorithms)]
            by_rule[rule] = (*by_rule.get(rule, ()), *selected)
    published = list(itertools.chain.from_iterable(by_rule.values()))
    _refuse_unknown_rows(distinct(published, "algorithm"), algorithms)
    left_out = [column.name for column in sets if column.name not in shared]
    if left_out:
        notes.append(f"left out, for the published results don't have them: {', '.join(left_out)}")
    notes.append(f"what others trained is marked {', '.join(s.mark for s in studies)}; its code and images are others'")
    joined = dataclasses.replace(collection, published_by_rule=by_rule, notes=tuple(notes), protocols=protocols)
    columns = tuple(column for column in sets if column.name in shared)
    if any(run.summary for run in published):
        columns = tuple(map(_with_summary, columns))
    return joined, columns


def _with_summary(column: Column) -> Column:
    """Return the column with the measures that papers give beside a mean."""
    eval_set = dataclasses.replace(column.set_record, measures=(*column.measures, *measures.SUMMARY))
    return dataclasses.replace(column, set_record=eval_set)


def _has_selected(study: PublishedStudy, algorithms: Sequence[str] | str) -> bool:
    """Return True if the option `algorithms` selects any row of a study."""
    runs = itertools.chain.from_iterable(study.by_rule.values())
    return any(_is_selected(run.algorithm + study.mark, algorithms) for run in runs)


def _is_selected(algorithm: str, algorithms: Sequence[str] | str) -> bool:
    """Return True if the option `algorithms` selects a published row, by its name with or without the mark."""
    unmarked = algorithm.partition(PUBLISHED_MARK)[0]
    return algorithms == "all" or algorithm in algorithms or unmarked in algorithms


def _refuse_unknown_rows(published: Sequence[str], algorithms: Sequence[str] | str) -> None:
    """Raise UsageError if the option `algorithms` names a published row that is not there."""
    if algorithms == "all":
        return
    for name in algorithms:
        if PUBLISHED_MARK in name:
            refuse_unknown(name, published, f"algorithms={','.join(algorithms)}: no published '{name}'")


def runs_under(collection: Collection, rule: str) -> tuple[Run, ...]:
    """Return the runs that count under a rule: the user's, then the published ones."""
    return (*collection.unpublished, *published_under(collection.published_by_rule, rule))


def unprinted(collection: Collection, selected: Selected) -> list[tuple[str, str]]:
    """Return the (row, column) of published rows, or of a user's table, that no number was printed for; sorted."""
    runs = {run.id: run for run in collection.runs}
    cells = set()
    for missing in selected.missing:
        if runs[missing.run_id].kind in ("published", TABLE):
            cells.add((runs[missing.run_id].algorithm, missing.dataset))
    for chosen in selected.choices:
        cells.discard((chosen.candidate.run.algorithm, chosen.column.name))
    return sorted(cells)


def unprinted_notes(cells: Iterable[tuple[str, str]], is_table: bool, label: Callable[[str], str]) -> list[str]:
    """Return notes on cells without a number; rows that lack the same columns share one.

    cells: `unprinted`. is_table: the rows are those of a user's table. label: returns display names.
    """
    absence, advice = "no number was published", ""
    if is_table:
        absence, advice = "no score is there", ": the tests use the sets that all methods have"
    columns_by_row: dict[str, list[str]] = {}
    for row, column in cells:
        columns_by_row.setdefault(row, []).append(column)
    rows_by_columns: dict[tuple[str, ...], list[str]] = {}
    for row, columns in columns_by_row.items():
        rows_by_columns.setdefault(tuple(columns), []).append(row)
    notes = []
    for lacking, rows in rows_by_columns.items():
        notes.append(f"{absence} of {', '.join(map(label, rows))} on {', '.join(map(label, lacking))}{advice}")
    return notes


def rows_of_printed_means(collection: Collection) -> tuple[str, ...]:
    """Return the rows of which only means were published, sorted."""
    return tuple(distinct((run for run in collection.runs if run.summary), "algorithm"))


def summary_notes(collection: Collection, label: Callable[[str], str]) -> list[str]:
    """Return notes on the rows that are in no test over runs, since only their means were published."""
    rows = rows_of_printed_means(collection)
    if not rows:
        return []
    who = "all rows" if set(rows) == set(collection.algorithms) else ", ".join(map(label, rows))
    if collection.is_table:
        return [
            f"means and ± of {who} are printed ones: tests over sets take the means, and none is over runs; Welch's on "
            "each data set take both, if the number of runs is known"
        ]
    return [
        f"only means were published of {who}: tests over sets take them, tests over runs and what needs the spread of "
        "runs leave them out; ± and the number of runs are the paper's, ± with the divisor of the table",
        *_derived_notes(collection),
    ]


def _derived_notes(collection: Collection) -> list[str]:
    """Return a note on the measures that are derived from published means."""
    measures_of_papers: dict[str, None] = {}
    for protocol in dict.fromkeys(run.protocol for run in collection.runs if run.summary):
        for derivation in collection.protocols[protocol].derived:
            measures_of_papers[derivation.measure.replace("_", " ")] = None
    if not measures_of_papers:
        return []
    return [f"not printed, but follow from the published means: {', '.join(measures_of_papers)}"]
