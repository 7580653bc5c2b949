"""Tables of the Align-Conflict paper (Lee et al. 2022, arXiv 2206.03680), from runs on biased data.

Table 2 has unbiased accuracy, 3 that of conflicting images, 4 the means over methods under each selection rule, 5 the
accuracy difference and equality of opportunity, 7 methods by their biased classifier. Numbers have two decimals, as in
the paper. The best of a column is marked, and the best of the methods that are told nothing of the bias; ties are all
marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.columns import names_of
from biasbed.analysis.comparisons.bias_measures import (
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
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.groups import ColumnGroup, groups
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.score_tables import score_columns
from biasbed.analysis.report.table_model import (
    MISSING,
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    make_table,
    prepared,
    spread_text,
    text_cell,
)
from biasbed.analysis.result import Analysis, number
from biasbed.analysis.selection.rules import GROUP_LABELS
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import UsageError

DECIMALS = 2
LABELS = frozenset({"bias", "validation_bias"})  # needs that are bias labels
TYPE = LABELS | {"bias_type"}  # needs that tell the type of the bias, as labels do
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
class PaperCell:
    """One cell."""

    mean: float
    std: float = math.nan  # of `Analysis.error`; NaN if it is not known
    num_runs: int = 0
    best: bool = False  # no cell of the column prints better
    unaided: bool = False  # no cell of a method that is told nothing of the bias prints better
    absent: bool = False  # runs are missing, which was accepted

    @property
    def text(self) -> str:
        if self.absent:
            return "X"
        return number(self.mean, DECIMALS)

    @property
    def std_text(self) -> str:
        if math.isnan(self.std):
            return ""
        return number(self.std, DECIMALS)


@dataclass(frozen=True)
class TableRow:
    """A row's name, and what is said of it under the table's further heads; True and False are check marks."""

    name: str
    about: tuple[bool | str, ...] = ()
    is_unaided: bool = False
    is_oracle: bool = False  # never marked as the best

    @property
    def text(self) -> str:
        if self.is_oracle:
            return f"{self.name} (ORACLE)"
        return self.name


@dataclass(frozen=True)
class Panel:
    """One measure of all rows."""

    measure: str
    cells: Mapping[tuple[str, str], PaperCell]  # (row, column)

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
    caption: str  # describes its cells and its marks
    oracle: bool = False

    @property
    def number(self) -> int:
        """Number of the table in the paper."""
        return TABLES[self.name]

    @property
    def title(self) -> str:
        """Names of all its measures."""
        return "; ".join(panel.title for panel in self.panels)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of scores."""
        names: list[str] = []
        for group in self.groups:
            names += names_of(group.columns)
        return tuple(names)


@dataclass(frozen=True)
class PaperTables:
    """The tables that were asked for, and why others are not there; neither for data without a bias."""

    tables: tuple[PaperTable, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # name -> reason

    @property
    def reasons(self) -> list[str]:
        """Reasons why others are not there, in sentences."""
        lines = []
        for name, reason in self.left_out.items():
            lines.append(say("paper_left_out", number=TABLES[name], name=name, reason=reason))
        return lines


class CannotBeMadeError(Exception):
    """Reason why there is no such table."""


def make_tables(analysis: Analysis) -> PaperTables:
    """Make the tables that `tables=` asks for, as far as the runs allow."""
    requested = TABLES if isinstance(analysis.options.tables, str) else analysis.options.tables
    if analysis.options.tables == "none" or analysis.measured.empty:
        return PaperTables()
    tables, left_out = [], {}
    for name in TABLES:
        if name in requested:
            try:
                tables.append(MAKERS[name](analysis))
            except CannotBeMadeError as reason:
                left_out[name] = str(reason)
    return PaperTables(tuple(tables), left_out)


def check(analysis: Analysis) -> None:
    """Raise UsageError if a table is asked for by name that can't be made."""
    if isinstance(analysis.options.tables, str):
        return
    option = f"tables={','.join(analysis.options.tables)}"
    if analysis.measured.empty:
        raise UsageError(f"{option}: no compared set has images that agree and images that conflict with a bias")
    for name, reason in make_tables(analysis).left_out.items():
        raise UsageError(f"{option}: there is no table '{name}': {reason}")


# --- the tables -------------------------------------------------------------------------------------------------------


def _unbiased(analysis: Analysis) -> PaperTable:
    return _table_of_methods(analysis, "unbiased", _rule_values(analysis), [UNBIASED])


def _conflicting(analysis: Analysis) -> PaperTable:
    return _table_of_methods(analysis, "conflicting", _rule_values(analysis), [CONFLICTING])


def _fairness(analysis: Analysis) -> PaperTable:
    values = _rule_values(analysis)
    values = _without_means(values[values["measure"].isin([DIFFERENCE, OPPORTUNITY])])
    shown = [name for name in (DIFFERENCE, OPPORTUNITY) if name in set(values["measure"])]
    if OPPORTUNITY not in shown:
        raise CannotBeMadeError("no run has an accuracy for each class's aligned and conflicting images")
    return _table_of_methods(analysis, "fairness", values, shown)


def _biased(analysis: Analysis) -> PaperTable:
    """Make the table of methods with a biased classifier, by its architecture."""
    values = _rule_values(analysis)
    of_classifiers = values[values["measure"].isin([BIASED_ALIGNED, BIASED_CONFLICTING])]
    if of_classifiers.empty:
        raise CannotBeMadeError("no run has recorded what a biased classifier of its own scores in validation")
    values = values[values["run_id"].isin(of_classifiers["run_id"])]
    runs = {run.id: run for run in analysis.collection.runs}
    backbones: dict[str, dict[str, None]] = {}
    for algorithm, run_id in values[["algorithm", "run_id"]].drop_duplicates().itertuples(index=False, name=None):
        config = runs[run_id].config
        backbone = config.get("hparams.biased_backbone", "none")
        if backbone in ("none", "null", ""):
            backbone = config.get("backbone", "")
        backbones.setdefault(algorithm, {})[backbone] = None
    table = _table_of_methods(analysis, "biased", values, [UNBIASED, BIASED_ALIGNED, BIASED_CONFLICTING])
    rows = [replace(row, about=(*row.about, " or ".join(backbones[row.name]))) for row in table.rows]
    return replace(table, heads=(*table.heads, "biased network"), rows=tuple(rows))


def _criteria(analysis: Analysis) -> PaperTable:
    """Make the table of selection rules: means over the methods that have the column under every rule."""
    values = _without_means(analysis.measured[analysis.measured["measure"].isin(MEASURES)])
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
    rows = []
    for name in rules:
        is_unaided = not oracle[name] and GROUP_LABELS not in labels[name]
        rows.append(TableRow(name, (labels[name],), is_unaided, oracle[name]))
    panels = []
    for measure in MEASURES:
        if measure in means.index.get_level_values("measure"):
            cells: dict[tuple[str, str], PaperCell] = {}
            for rule, of_rule in means.xs(measure, level="measure").items():
                cells |= {(str(rule), str(dataset)): PaperCell(value) for dataset, value in of_rule.items()}
            panels.append(Panel(measure, _mark_best(cells, rows, measure)))
    numbers = complete.groupby(["measure", "dataset"]).size()
    number_range = str(numbers.min()) if numbers.nunique() == 1 else f"{numbers.min()} to {numbers.max()}"
    caption = say("paper_criteria", number=number_range)
    columns = _groups_with_values(analysis, means.index.get_level_values("dataset"))
    return PaperTable("criteria", ("criterion", "it needs"), tuple(rows), columns, tuple(panels), caption)


MAKERS: Mapping[str, Callable[[Analysis], PaperTable]] = {
    "unbiased": _unbiased,
    "conflicting": _conflicting,
    "criteria": _criteria,
    "fairness": _fairness,
    "biased": _biased,
}


# --- parts of tables --------------------------------------------------------------------------------------------------


def _rule_values(analysis: Analysis) -> pd.DataFrame:
    """Return the measures of what the rule in use chose."""
    return analysis.measured[analysis.measured["rule"] == analysis.rule.name]


def _without_means(values: pd.DataFrame) -> pd.DataFrame:
    """Return the values of runs, without published means."""
    of_runs = values[values["printed_runs"].isna()]
    if of_runs.empty:
        raise CannotBeMadeError("it takes the values of runs, and only means were published")
    return of_runs


def _groups_with_values(analysis: Analysis, names: Iterable[str]) -> tuple[ColumnGroup, ...]:
    """Return the groups of these columns, without averages."""
    names, kept = set(names), []
    for group in groups(analysis):
        columns = tuple(column for column in group.columns if column.name in names)
        if columns:
            kept.append(replace(group, columns=columns, counted=columns[:1]))
    return tuple(kept)


def _table_of_methods(analysis: Analysis, name: str, values: pd.DataFrame, shown: Sequence[str]) -> PaperTable:
    """Make a table whose rows are methods, with the check marks of what they declare to need."""
    values = values[values["measure"].isin(shown)]
    needs: dict[str, set[str]] = {name: set() for name in analysis.algorithms if name in set(values["algorithm"])}
    for run in analysis.collection.runs:
        if run.algorithm in needs:
            needs[run.algorithm] |= run.needs
    rows = []
    for algorithm, needed in needs.items():
        about = (bool(needed & LABELS), bool(needed & TYPE))
        rows.append(TableRow(algorithm, about, is_unaided=not needed & TYPE))
    column_groups = _groups_with_values(analysis, values["dataset"])
    panels, is_complete = [], True
    for measure in shown:
        cells = _make_cells(analysis, values[values["measure"] == measure], list(needs), column_groups)
        is_complete &= not any(math.isnan(cell.mean) for cell in cells.values())
        is_biased = measure in (BIASED_ALIGNED, BIASED_CONFLICTING)
        panels.append(Panel(measure, cells if is_biased else _mark_best(cells, rows, measure)))
    slots = {"run": wording.repeated(analysis), "divisor": wording.error_by(analysis)}
    caption = say("paper_methods", error=wording.error(analysis), **slots)
    caption += "" if is_complete else wording.not_applicable(analysis)
    heads = ("method", "labels", "type")
    return PaperTable(name, heads, tuple(rows), column_groups, tuple(panels), caption, analysis.rule.oracle)


def _make_cells(
    analysis: Analysis, values: pd.DataFrame, algorithms: Sequence[str], column_groups: Sequence[ColumnGroup]
) -> dict[tuple[str, str], PaperCell]:
    """Return (row, column) -> mean and deviation over runs, or as they were printed."""
    table = values.groupby(["algorithm", "dataset"]).agg(
        mean=("value", "mean"),
        std=("value", "std"),
        number=("value", "count"),
        printed_std=("printed_std", "mean"),
        printed_runs=("printed_runs", "max"),
    )
    table["std"] = table["printed_std"].fillna(table["std"])
    table["number"] = table["printed_runs"].fillna(table["number"]).astype("int64")
    cells = {}
    for algorithm in algorithms:
        for group in column_groups:
            for column in group.columns:
                key = algorithm, column.name
                cells[key] = PaperCell(math.nan, absent=key in analysis.absent)
    for row in table.round(DIGITS).reset_index().to_dict("records"):
        spread = scores.spread_of(row["std"], row["number"], analysis.error)
        cells[row["algorithm"], row["dataset"]] = PaperCell(row["mean"], spread, row["number"])
    return cells


def _mark_best(
    cells: Mapping[tuple[str, str], PaperCell], rows: Sequence[TableRow], measure: str
) -> dict[tuple[str, str], PaperCell]:
    """Return the cells with the best of every column marked, by what is printed."""
    is_higher = measure != DIFFERENCE and measures.find_measure(measure).higher_is_better
    comparable = {row.name for row in rows if not row.is_oracle}
    unaided = {row.name for row in rows if row.is_unaided}
    best, best_unaided = _best_texts(cells, comparable, is_higher), _best_texts(cells, unaided, is_higher)
    marked = {}
    for (row, column), cell in cells.items():
        is_best = row in comparable and cell.text == best.get(column)
        is_best_unaided = row in unaided and cell.text == best_unaided.get(column)
        marked[row, column] = replace(cell, best=is_best, unaided=is_best_unaided)
    return marked


def _best_texts(cells: Mapping[tuple[str, str], PaperCell], rows: Collection[str], is_higher: bool) -> dict[str, str]:
    """Return the best number of each column among these rows, as it is printed."""
    best: dict[str, PaperCell] = {}
    for (row, column), cell in cells.items():
        if row not in rows or math.isnan(cell.mean):
            continue
        if column not in best or measures.is_better(cell.mean, best[column].mean, is_higher):
            best[column] = cell
    return {column: cell.text for column, cell in best.items()}


# --- as tables of the report and as a file ----------------------------------------------------------------------------

FILE = "paper_tables.csv"


def report_tables(analysis: Analysis, table: PaperTable, links: Links) -> list[ReportTable]:
    """Return a table for each measure."""
    note = latex.prose(table.caption) + f" {latex.provenance(analysis)}."
    caption = f"{'ORACLE: ' if table.oracle else ''}{latex.escape(table.title)}."
    printed = PrintedText(f"paper-{table.name}", caption, note, packages="amssymb")
    columns = [TableColumn(table.heads[0], prepared("row"), printed="", align="l")]
    columns += [TableColumn(head, prepared(head), printed=head, align="c") for head in table.heads[1:]]
    columns += score_columns(table.groups, analysis.label)
    tables = []
    for panel in table.panels:
        marks = table.caption if panel is table.panels[0] else say("paper_marks_as_above")
        caption = say("paper_table", number=table.number, title=panel.title, marks=marks)
        records = [_record(table, panel, row, links) for row in table.rows]
        tables.append(make_table(caption, columns, records, FILE, oracle=table.oracle, printed=printed))
    return tables


def _record(table: PaperTable, panel: Panel, row: TableRow, links: Links) -> dict[str, TableCell]:
    href = ""
    if row.name in links.algorithms:
        href = links.to_algorithm(row.name)
    cells = {"row": TableCell(links.label(row.text), href=href, left=True, name=row.name)}
    for head, about in zip(table.heads[1:], row.about, strict=True):
        cells[head] = _about_cell(about)
    for name in table.columns:
        cell = panel.cells.get((row.name, name))
        if cell is not None:
            cells[name] = _score_cell(cell, href)
    return cells


def _about_cell(about: bool | str) -> TableCell:
    """Return a check mark, or wording."""
    if isinstance(about, bool):
        return TableCell("✓" if about else MISSING, value=float(about))
    return text_cell(about)


def _score_cell(cell: PaperCell, href: str) -> TableCell:
    if math.isnan(cell.mean):
        return TableCell(cell.text, value=-math.inf)
    spread = spread_text(cell.std_text)
    return TableCell(cell.text, cell.mean, spread, href=href, bold=cell.best, underlined=cell.unaided)


def frame(tables: PaperTables) -> pd.DataFrame:
    """Return one row per table, measure, row and column.

    labels and type are the check marks of methods; of rules `labels` is what they take.
    """
    lines = []
    for table in tables.tables:
        for panel in table.panels:
            for row in table.rows:
                lines += _lines(table, panel, row)
    return pd.DataFrame(lines)


def _lines(table: PaperTable, panel: Panel, row: TableRow) -> list[dict[str, object]]:
    """Return a row of a paper's table as lines of the CSV file, one a column."""
    about = dict(zip(table.heads[1:], row.about, strict=True))
    first = {
        "table": table.name,
        "number": table.number,
        "measure": panel.measure,
        "row": row.name,
        "labels": about.get("labels", about.get("it needs")),
        "type": about.get("type"),
        "biased_network": about.get("biased network", ""),
    }
    lines = []
    for column in table.columns:
        cell = panel.cells.get((row.name, column))
        if cell is not None:
            values = {"mean": cell.mean, "std": cell.std, "num_runs": cell.num_runs}
            marks = {"best": cell.best, "best_unaided": cell.unaided, "oracle": table.oracle or row.is_oracle}
            lines.append({**first, "dataset": column, **values, **marks})
    return lines
