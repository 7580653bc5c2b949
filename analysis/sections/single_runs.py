"""Rows with one run, compared over images, since tests over runs need several.

Decisions are fetched only for pairs of which one row has a single run. The result is about other images of the same
kind, for these very weights; it does not tell how much another seed would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from biasbed.analysis.columns import Column
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableColumn,
    count,
    interval,
    make_table,
    named,
    p_value,
    prepared,
)
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Collection, Run, runs_by_row
from biasbed.analysis.sections.section import CsvFile, Section, SectionAnswer, Sentences, ShownPart
from biasbed.analysis.selection.select import steps_of
from biasbed.analysis.statistics import exact, over_images
from biasbed.analysis.statistics.over_images import ImageAnswers
from biasbed.analysis.statistics.pairs import pairs
from biasbed.errors import Failure
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.predictions import DecisionReader

FILE = "over_images.csv"
MOST_ITEMS = 3  # pairs that the verdict names
DEPENDENT = "an image is shown under several conditions: its views are not independent"
SCOPE = (
    "These results hold for other images of the same kind and these very weights; they say nothing about other seeds."
)
COLUMNS = (
    *("dataset", "cell", "a", "b", "num_runs_a", "num_runs_b", "run_a", "run_b", "seed_a", "seed_b"),
    *("images", "photographs", "both", "only_a", "only_b", "neither", "difference", "low", "high"),
    *("p", "p_holm", "num_tests", "significant"),
)


@dataclass(frozen=True)
class ComparedOverImages:
    """Pairs of rows compared over images, of which one at least has a single run."""

    table: pd.DataFrame  # `COLUMNS`
    left_out: tuple[str, ...]  # comparisons that are left out, and why
    images: int  # number of decisions that were read

    @property
    def applies(self) -> bool:
        """True if some row has one run."""
        return bool(len(self.table) or self.left_out)


class SingleRuns(Section[ComparedOverImages]):
    """Rows with one run beside the others, by their decisions on images."""

    name = "over-images"
    title = "Rows with one run, over images"

    def compute(self, analysis: Analysis) -> ComparedOverImages:
        decisions = analysis.inputs.decisions
        sets = () if decisions.is_empty else analysis.columns
        return compare_single_runs(decisions, analysis.collection, sets, analysis.selected.values, analysis.options)

    def answer(self, analysis: Analysis) -> SectionAnswer:
        data = analysis.data(self)
        is_in_verdict = bool(main_comparison(analysis).skipped)  # `conclusions.without_tests_over_sets`
        if is_in_verdict or not data.table["significant"].astype(bool).any():
            return SectionAnswer((), False)
        return SectionAnswer((f"{pairs_apart(data, analysis.alpha, analysis.label)} {SCOPE}",), True)

    def files(self, data: ComparedOverImages, analysis: Analysis) -> Iterator[CsvFile]:
        description = "rows with one run: McNemar's exact test and paired bootstrap over images, from stored decisions"
        yield CsvFile(FILE, data.table, description)

    def show(self, data: ComparedOverImages, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data.applies:
            yield Sentences(tuple(describe(data, analysis.alpha, analysis.label)))
        if len(data.table):
            yield make_pair_table(data.table, analysis, links)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        if analysis.collection.is_table:  # decisions on single items that a user brought
            return self.parts(analysis, links)
        return super().on_terminal(analysis, links)


SINGLE_RUNS = SingleRuns()

# --- what is computed -------------------------------------------------------------------------------------------------


def compare_single_runs(
    decisions: DecisionReader,
    collection: Collection,
    sets: Sequence[Column],
    selected: pd.DataFrame,
    options: AnalyzeOptions,
) -> ComparedOverImages:
    """Compare every pair of rows of which one at least has a single run, on each set.

    The first run of a row stands for it. Nothing is compared in a search, whose trials are no rows. selected:
    `select.SELECTED_COLUMNS`, which say at which steps decisions are taken.
    """
    compared: list[tuple[Column, dict[str, list[Run]]]] = []
    if not collection.is_search:
        cells = [column.cell for column in sets]
        rows_by_cell = {cell: runs_by_row(collection.unpublished, cell, cells) for cell in dict.fromkeys(cells)}
        for column in sets:
            rows = rows_by_cell[column.cell]
            if _pairs_to_compare(rows, options.control_name):
                compared.append((column, rows))
    steps = steps_of(selected) if compared else {}
    lines: list[dict[str, object]] = []
    left_out: list[str] = []
    images = 0
    with ProgressBar(sum(len(rows) for _, rows in compared), "file") as progress:
        for column, rows in compared:
            protocol = collection.protocol_of(next(iter(rows.values()))[0])
            if column.name not in {tested.name for tested in protocol.sets}:
                left_out.append(f"{column.name}: it is derived of several sets, and has no images of its own")
                continue
            answers, reasons = _fetch_answers(decisions, column, rows, steps, progress)
            images += sum(len(answer.right) for answer in answers.values())
            lines_of_set, incomparable = _compare_pairs(column, rows, answers, options)
            lines += lines_of_set
            left_out += _list_reasons(column.name, reasons, len(rows)) + incomparable
    table = pd.DataFrame(lines).reindex(columns=list(COLUMNS))
    p_holm = exact.holm(table["p"].to_numpy(dtype="float64"))  # over all McNemar tests of all sets
    num_tests = int(table["p"].notna().sum())
    table = table.assign(p_holm=p_holm, num_tests=num_tests, significant=p_holm < options.alpha)
    return ComparedOverImages(table, tuple(left_out), images)


def _pairs_to_compare(rows: Mapping[str, Sequence[Run]], control: str | None) -> list[tuple[str, str]]:
    """Return the pairs of rows of which one at least has a single run; with a control only its own."""
    if control is not None and control not in rows:
        return []
    family = pairs(tuple(rows), control)
    return [(a, b) for a, b in family if 1 in (len(rows[a]), len(rows[b]))]


def _fetch_answers(
    decisions: DecisionReader,
    column: Column,
    rows: Mapping[str, Sequence[Run]],
    steps: Mapping[tuple[str, str], int | None],
    progress: ProgressBar,
) -> tuple[dict[str, ImageAnswers], dict[str, str]]:
    """Return row -> decisions of its first run, and row -> the reason if there are none."""
    answers, reasons = {}, {}
    for name, runs in rows.items():
        progress.tick()
        run_and_set = runs[0].id, column.name
        if run_and_set not in steps:
            reasons[name] = "its run has no value there"
            continue
        try:
            answers[name] = decisions.answers(runs[0], column.set_record.name, steps[run_and_set])
        except Failure as error:
            reasons[name] = str(error)
    return answers, reasons


def _list_reasons(dataset: str, reasons: Mapping[str, str], num_rows: int) -> list[str]:
    """Return a line for each reason, with the rows of a set that it is about. reasons: by row."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names_by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in names_by_reason.items():
        listed = "all rows" if len(names) == num_rows else ", ".join(names)
        lines.append(f"{dataset}, {listed}: {reason}")
    return lines


def _compare_pairs(
    column: Column, rows: Mapping[str, Sequence[Run]], answers: Mapping[str, ImageAnswers], options: AnalyzeOptions
) -> tuple[list[dict[str, object]], list[str]]:
    """Return `COLUMNS` for each pair on a set, without what is corrected over all; and why pairs can't be compared."""
    lines: list[dict[str, object]] = []
    incomparable = []
    for a, b in _pairs_to_compare(rows, options.control_name):
        if a not in answers or b not in answers:
            continue
        try:
            comparison = over_images.compare(answers[a], answers[b], options.alpha, options.bootstrap)
        except ValueError as error:
            incomparable.append(f"{column.name}, {a} and {b}: {error}")
            continue
        line: dict[str, object] = {"dataset": column.name, "cell": column.cell, "a": a, "b": b}
        for side, name in (("a", a), ("b", b)):
            first = rows[name][0]
            line |= {f"num_runs_{side}": len(rows[name]), f"run_{side}": first.id, f"seed_{side}": first.seed}
        lines.append(line | vars(comparison))
    return lines, incomparable


# --- how it is shown --------------------------------------------------------------------------------------------------


def pairs_apart(compared: ComparedOverImages, alpha: float, label: Labels) -> str:
    """Return a sentence on the pairs that McNemar's tests tell apart; empty without such tests."""
    tested = compared.table[compared.table["p"].notna()]
    if tested.empty:
        return ""
    apart = []
    for row in tested[tested["significant"].astype(bool)].to_dict("records"):
        better, worse = ("a", "b") if row["only_a"] > row["only_b"] else ("b", "a")
        names = f"{label(row[better])} beats {label(row[worse])} on {label(row['dataset'])}"
        apart.append(f"{names} (p = {row['p_holm']:.2g})")
    if not apart:
        tests = f"none of {len(tested)} exact McNemar tests tells a pair apart at {alpha:g}"
        return f"Item by item, {tests} (Holm's correction over all)."
    more = f"; {len(apart) - MOST_ITEMS} more" if len(apart) > MOST_ITEMS else ""
    named_pairs = "; ".join(apart[:MOST_ITEMS])
    return f"Item by item, {named_pairs}{more} (exact McNemar tests with Holm's correction over all)."


def describe(compared: ComparedOverImages, alpha: float, label: Labels) -> list[str]:
    """Describe all comparisons over images together."""
    table = compared.table
    if table.empty:
        return ["Rows with one run could not be compared over images.", *compared.left_out]
    tested, significant = int(table["p"].notna().sum()), int(table["significant"].sum())
    lines = [f"{compared.images:,} stored decisions on images were read to compare rows with one run with others."]
    if tested:
        told_apart = f"{significant} tell a pair apart at {alpha:g} after Holm's correction over all"
        lines.append(f"Of {tested} exact McNemar tests {told_apart}.")
    views = ", ".join(map(label, sorted(set(table.loc[table["p"].isna(), "dataset"]))))
    if views:
        lines.append(f"No McNemar test on {views}: {DEPENDENT}. The interval draws photographs with all views.")
    if ((table["num_runs_a"] > 1) | (table["num_runs_b"] > 1)).any():
        lines.append("For a row with several runs, its first run is compared.")
    return [*lines, SCOPE, *(f"Left out: {reason}" for reason in compared.left_out)]


def make_pair_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return the table of all pairs and sets. frame: `COLUMNS`."""
    records = []
    for row in frame.to_dict("records"):
        names = {
            "name_a": links.run_cell(row["run_a"], links.label(row["a"])),
            "name_b": links.run_cell(row["run_b"], links.label(row["b"])),
        }
        records.append(dict(row) | names)
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("a", prepared("name_a")),
        TableColumn("b", prepared("name_b")),
        TableColumn("only a", count("only_a")),
        TableColumn("only b", count("only_b")),
        TableColumn("photographs", count("photographs")),
        TableColumn("a - b", interval("difference", "low", "high")),
        TableColumn("p", p_value("p", analysis.alpha)),
        TableColumn("p (Holm)", p_value("p_holm", analysis.alpha, bold="significant")),
    ]
    caption = (
        "The same images decided by two models of which one at least has a single run: images on which only a, or only "
        "b, is right; a - b in points of accuracy with a paired bootstrap interval over photographs "
        f"({100 * (1 - analysis.alpha):g} %, of this pair alone); McNemar's exact p, and by Holm over all tests of "
        f"this table. A dash: {DEPENDENT}. {SCOPE}"
    )
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)
