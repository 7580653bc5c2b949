"""The tables of the Align-Conflict paper (Lee et al. 2022, arXiv 2206.03680), from runs on biased data.

Table 2 has unbiased accuracy, 3 that of conflicting images, 4 the means over methods under each selection rule, 5 the
accuracy difference and equality of opportunity, 7 methods by what their biased classifier is. Numbers have two
decimals, as there. The best of a column is marked, and the best of those that are told nothing of the bias; ties all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.measured import (
    BIASED_ALIGNED,
    BIASED_CONFLICTING,
    CONFLICTING,
    DIFFERENCE,
    MEASURES,
    OPPORTUNITY,
    SCORE,
    UNBIASED,
)
from biasbed.analysis.options import TABLES
from biasbed.analysis.report import words
from biasbed.analysis.report.groups import ColumnGroup, groups
from biasbed.analysis.result import Analysis, number
from biasbed.analysis.selection.rules import GROUP_LABELS
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError

DECIMALS = 2
LABELS = frozenset({"bias", "validation_bias"})  # of what methods declare to need, bias labels to learn from
TYPE = LABELS | {"bias_type"}  # and what tells the type of the bias, as labels do
TITLES = {
    SCORE: "AC score",
    UNBIASED: "Unbiased accuracy",
    CONFLICTING: "Accuracy of bias-conflicting images",
    DIFFERENCE: "Accuracy difference, aligned - conflicting",
    OPPORTUNITY: "Equality of opportunity",
    BIASED_ALIGNED: "Biased classifier on aligned validation images",
    BIASED_CONFLICTING: "Biased classifier on conflicting validation images",
}
UNITS = {OPPORTUNITY: "ratio"}


@dataclass(frozen=True)
class Entry:
    """One cell."""

    mean: float
    std: float = math.nan  # of `Analysis.error`; NaN where it is not known
    num_runs: int = 0
    best: bool = False  # none of the column prints better
    unaided: bool = False  # none of those that are told nothing of the bias prints better
    absent: bool = False  # runs are missing, which was accepted

    @property
    def text(self) -> str:
        return "X" if self.absent else number(self.mean, DECIMALS)

    @property
    def std_text(self) -> str:
        return "" if math.isnan(self.std) else number(self.std, DECIMALS)


@dataclass(frozen=True)
class TableRow:
    """What a row is: its name, and what else is said of it under the table's heads; True and False are check marks."""

    name: str
    about: tuple[bool | str, ...] = ()
    is_unaided: bool = False
    is_oracle: bool = False  # which is never the best

    @property
    def text(self) -> str:
        return f"{self.name} (ORACLE)" if self.is_oracle else self.name


@dataclass(frozen=True)
class Panel:
    """One measure of all rows."""

    measure: str
    cells: Mapping[tuple[str, str], Entry]  # (row, column)

    @property
    def title(self) -> str:
        unit = UNITS.get(self.measure, "percent")
        return f"{TITLES[self.measure]}, {unit}"


@dataclass(frozen=True)
class PaperTable:
    """One table: rows x (panels x columns)."""

    name: str
    heads: tuple[str, ...]  # of the rows' names and what is said of them
    rows: tuple[TableRow, ...]
    groups: tuple[ColumnGroup, ...]
    panels: tuple[Panel, ...]
    caption: str  # what its cells are, and its marks
    oracle: bool = False

    @property
    def number(self) -> int:
        """In the paper."""
        return TABLES[self.name]

    @property
    def title(self) -> str:
        """All its measures."""
        return "; ".join(panel.title for panel in self.panels)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for group in self.groups for column in group.columns)


@dataclass(frozen=True)
class PaperTables:
    """The tables that were asked for, and why others are not there; neither for data without a bias."""

    tables: tuple[PaperTable, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # name -> why

    @property
    def reasons(self) -> list[str]:
        """In sentences."""
        return [f"Table {TABLES[name]} ({name}) is left out: {why}." for name, why in self.left_out.items()]


class CannotBeMadeError(Exception):
    """Why there is no such table."""


def of(analysis: Analysis) -> PaperTables:
    """What `tables=` asks for, as far as the runs allow."""
    wanted = TABLES if isinstance(analysis.options.tables, str) else analysis.options.tables
    if analysis.options.tables == "none" or analysis.measured.empty:
        return PaperTables()
    tables, left_out = [], {}
    for name in (name for name in TABLES if name in wanted):
        try:
            tables.append(MAKERS[name](analysis))
        except CannotBeMadeError as reason:
            left_out[name] = str(reason)
    return PaperTables(tuple(tables), left_out)


def check(analysis: Analysis) -> None:
    """UsageError where a table is asked for by name that can't be made."""
    if isinstance(analysis.options.tables, str):
        return
    asked = f"tables={','.join(analysis.options.tables)}"
    if analysis.measured.empty:
        raise UsageError(f"{asked}: no compared set has images that agree and images that conflict with a bias")
    for name, why in of(analysis).left_out.items():
        raise UsageError(f"{asked}: there is no table '{name}': {why}")


# --- the tables -------------------------------------------------------------------------------------------------------


def _of_accuracy(name: str, measure: str) -> Callable[[Analysis], PaperTable]:
    def make(analysis: Analysis) -> PaperTable:
        return _of_methods(analysis, name, _of_rule(analysis), [measure])

    return make


def _fairness(analysis: Analysis) -> PaperTable:
    values = _of_rule(analysis)
    values = _of_runs(values[values["measure"].isin([DIFFERENCE, OPPORTUNITY])])
    shown = [name for name in (DIFFERENCE, OPPORTUNITY) if name in set(values["measure"])]
    if OPPORTUNITY not in shown:
        raise CannotBeMadeError("no run has an accuracy for each class's aligned and conflicting images")
    return _of_methods(analysis, "fairness", values, shown)


def _biased(analysis: Analysis) -> PaperTable:
    """Of methods with a biased classifier of their own, by its architecture."""
    values = _of_rule(analysis)
    own = values[values["measure"].isin([BIASED_ALIGNED, BIASED_CONFLICTING])]
    if own.empty:
        raise CannotBeMadeError("no run has recorded what a biased classifier of its own scores in validation")
    values = values[values["run_id"].isin(own["run_id"])]
    runs = {run.id: run for run in analysis.collection.runs}
    backbones: dict[str, dict[str, None]] = {}
    for algorithm, run_id in values[["algorithm", "run_id"]].drop_duplicates().itertuples(index=False, name=None):
        config = runs[run_id].config
        named = config.get("hparams.biased_backbone", "none")
        backbone = config.get("backbone", "") if named in ("none", "null", "") else named
        backbones.setdefault(algorithm, {})[backbone] = None
    table = _of_methods(analysis, "biased", values, [UNBIASED, BIASED_ALIGNED, BIASED_CONFLICTING])
    rows = [replace(row, about=(*row.about, " or ".join(backbones[row.name]))) for row in table.rows]
    return replace(table, heads=(*table.heads, "biased network"), rows=tuple(rows))


def _criteria(analysis: Analysis) -> PaperTable:
    """A row for each selection rule: means over the methods that have the column under every rule."""
    values = _of_runs(analysis.measured[analysis.measured["measure"].isin(MEASURES)])
    rules = list(dict.fromkeys(values["rule"]))
    if len(rules) < 2:
        raise CannotBeMadeError(f"{rules[0]} is the only selection rule that gives these runs a value")
    of_methods = values.groupby(["rule", "dataset", "measure", "algorithm"])["value"].mean().unstack("rule")
    complete = of_methods[rules].dropna()
    means = complete.groupby(["measure", "dataset"]).mean().round(DIGITS)
    if means.empty:
        raise CannotBeMadeError("no method has a value under every selection rule")
    labels = dict(zip(values["rule"], values["labels"], strict=True))
    oracle = dict(zip(values["rule"], values["oracle"], strict=True))
    rows = tuple(
        TableRow(name, (labels[name],), not oracle[name] and GROUP_LABELS not in labels[name], oracle[name])
        for name in rules
    )
    found = _columns(analysis, means.index.get_level_values("dataset"))
    panels = []
    for measure in (name for name in MEASURES if name in means.index.get_level_values("measure")):
        own = means.xs(measure, level="measure").to_dict()
        cells = {(str(r), str(d)): Entry(value) for r, of_rule in own.items() for d, value in of_rule.items()}
        panels.append(Panel(measure, _marked(cells, rows, measure)))
    numbers = complete.groupby(["measure", "dataset"]).size()
    caption = (
        f"Criteria by which epochs are chosen: means over {_range(numbers)} methods that have a value under each. "
        "Bold: best of the column but for oracles; underlined: best of those that take no bias labels of validation."
    )
    return PaperTable("criteria", ("criterion", "it needs"), rows, found, tuple(panels), caption)


MAKERS: Mapping[str, Callable[[Analysis], PaperTable]] = {
    "unbiased": _of_accuracy("unbiased", UNBIASED),
    "conflicting": _of_accuracy("conflicting", CONFLICTING),
    "criteria": _criteria,
    "fairness": _fairness,
    "biased": _biased,
}


# --- what they consist of ---------------------------------------------------------------------------------------------


def _of_rule(analysis: Analysis) -> pd.DataFrame:
    """What the rule in use chose."""
    return analysis.measured[analysis.measured["rule"] == analysis.rule.name]


def _of_runs(values: pd.DataFrame) -> pd.DataFrame:
    """Without published means."""
    found = values[values["printed_runs"].isna()]
    if found.empty:
        raise CannotBeMadeError("it takes the values of runs, and only means were published")
    return found


def _range(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _columns(analysis: Analysis, names: Collection[str]) -> tuple[ColumnGroup, ...]:
    """The columns with a value, as all tables have them, without averages."""
    found = []
    for group in groups(analysis):
        columns = tuple(column for column in group.columns if column.name in set(names))
        found += [replace(group, columns=columns, counted=columns[:1])] if columns else []
    return tuple(found)


def _of_methods(analysis: Analysis, name: str, values: pd.DataFrame, shown: Sequence[str]) -> PaperTable:
    """Rows are methods, with the check marks of what they declare."""
    values = values[values["measure"].isin(shown)]
    algorithms = [name for name in analysis.algorithms if name in set(values["algorithm"])]
    needs = {
        name: frozenset[str]().union(*(run.needs for run in analysis.collection.runs if run.algorithm == name))
        for name in algorithms
    }
    rows = tuple(
        TableRow(name, (bool(needs[name] & LABELS), bool(needs[name] & TYPE)), is_unaided=not needs[name] & TYPE)
        for name in algorithms
    )
    columns = _columns(analysis, set(values["dataset"]))
    names = [column.name for group in columns for column in group.columns]
    panels = []
    for measure in shown:
        cells = _cells(analysis, values[values["measure"] == measure], algorithms, names)
        is_biased = measure in (BIASED_ALIGNED, BIASED_CONFLICTING)
        panels.append(Panel(measure, cells if is_biased else _marked(cells, rows, measure)))
    heads = ("method", "labels", "type")
    has_all = not any(math.isnan(cell.mean) for panel in panels for cell in panel.cells.values())
    caption = _caption(analysis) + ("" if has_all else words.not_applicable(analysis))
    return PaperTable(name, heads, rows, columns, tuple(panels), caption, analysis.rule.oracle)


def _caption(analysis: Analysis) -> str:
    return (
        f"Mean ± {words.error(analysis)} between {words.repeated(analysis)}s ({words.error_by(analysis)}). Bold: best "
        "of the column; underlined: best of the methods that are told nothing of the bias. labels: the method learns "
        "from bias labels; type: it knows beforehand what the bias is, as labels tell it, too; as methods declare."
    )


def _cells(
    analysis: Analysis, values: pd.DataFrame, algorithms: Sequence[str], names: Sequence[str]
) -> dict[tuple[str, str], Entry]:
    """(row, column) -> mean and deviation over runs, or as they were printed."""
    keys = ["algorithm", "dataset"]
    found = values.groupby(keys).agg(
        mean=("value", "mean"),
        std=("value", "std"),
        number=("value", "count"),
        printed_std=("printed_std", "mean"),
        printed_runs=("printed_runs", "max"),
    )
    found["std"] = found["printed_std"].fillna(found["std"])
    found["number"] = found["printed_runs"].fillna(found["number"]).astype("int64")
    places = [(algorithm, name) for algorithm in algorithms for name in names]
    cells = {place: Entry(math.nan, absent=place in analysis.absent) for place in places}
    for row in found.round(DIGITS).reset_index().to_dict("records"):
        spread = scores.spread_of(row["std"], row["number"], analysis.error)
        cells[row["algorithm"], row["dataset"]] = Entry(row["mean"], spread, row["number"])
    return cells


def _marked(
    cells: Mapping[tuple[str, str], Entry], rows: Sequence[TableRow], measure: str
) -> dict[tuple[str, str], Entry]:
    """The same with the best of every column marked, by what is printed."""
    is_higher = measure != DIFFERENCE and measures.of(measure).higher_is_better
    marked = {row.name for row in rows if not row.is_oracle}
    unaided = {row.name for row in rows if row.is_unaided}
    best = {mark: _best(cells, names, is_higher) for mark, names in (("best", marked), ("unaided", unaided))}
    return {
        (row, column): replace(
            cell,
            best=row in marked and cell.text == best["best"].get(column),
            unaided=row in unaided and cell.text == best["unaided"].get(column),
        )
        for (row, column), cell in cells.items()
    }


def _best(cells: Mapping[tuple[str, str], Entry], rows: Collection[str], is_higher: bool) -> dict[str, str]:
    """Column -> the best number among these rows, as it is printed."""
    found: dict[str, Entry] = {}
    for (row, column), cell in cells.items():
        if row in rows and not math.isnan(cell.mean):
            before = found.get(column)
            if before is None or measures.is_better(cell.mean, before.mean, is_higher):
                found[column] = cell
    return {column: cell.text for column, cell in found.items()}


# --- as a file --------------------------------------------------------------------------------------------------------


def frame(found: PaperTables) -> pd.DataFrame:
    """Tidy: one row per table, measure, row and column.

    labels and type are the check marks of methods; of rules `labels` is what they take.
    """
    records = []
    for table in found.tables:
        for panel in table.panels:
            for row in table.rows:
                about = dict(zip(table.heads[1:], row.about, strict=True))
                said = {
                    "labels": about.get("labels", about.get("it needs")),
                    "type": about.get("type"),
                    "biased_network": about.get("biased network", ""),
                }
                first = {"table": table.name, "number": table.number, "measure": panel.measure, "row": row.name} | said
                for column in table.columns:
                    cell = panel.cells.get((row.name, column))
                    if cell is not None:
                        values = {"mean": cell.mean, "std": cell.std, "num_runs": cell.num_runs}
                        marks = {"best": cell.best, "best_unaided": cell.unaided}
                        records.append(
                            {**first, "dataset": column, **values, **marks, "oracle": table.oracle or row.is_oracle}
                        )
    return pd.DataFrame(records)
