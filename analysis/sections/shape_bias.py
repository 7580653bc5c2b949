"""Shape bias beside the reference's, over runs and by category of the shape.

Shape bias (Geirhos et al., ICLR 2019, section 3): the share of decisions for the shape among those for either cue of a
cue conflict. It does not say how many decisions those are: that is the coverage.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed import measures, record
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import (
    MISSING,
    Links,
    PrintedText,
    ReportTable,
    ScoreColumn,
    TableCell,
    TableColumn,
    TableRecord,
    interval,
    interval_text,
    make_table,
    named,
    number,
    p_value,
)
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.sections.section import (
    CsvFile,
    PlannedFigure,
    PrintedTable,
    Section,
    SectionAnswer,
    Sentences,
    ShownPart,
)
from biasbed.analysis.selection.select import steps_of
from biasbed.analysis.statistics import exact, per_set
from biasbed.errors import Failure
from biasbed.evaluation.decisions import CueCounts
from biasbed.published import observers, shape_bias_figure
from biasbed.published.shape_bias_figure import MOST
from biasbed.system.terminal import ProgressBar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.predictions import DecisionReader

FILE, CATEGORY_FILE = "shape_bias.csv", "shape_bias_by_category.csv"
COVERAGE = "cue_coverage"
REFERENCE = "erm"  # if no control is named
MEANING = "Shape bias: of the decisions for either cue, the percentage for the shape"
# In percent and points but for p. low, high: of this difference alone; p: Welch's; p_holm: over all rows and sets, as
# low_holm and high_holm, which leave out 0 exactly where p_holm is below alpha.
COLUMNS = (
    *("dataset", "algorithm", "mean", "std", "num_runs", "coverage"),
    *("reference", "difference", "low", "high", "p", "p_holm", "significant", "low_holm", "high_holm"),
)
# shape, texture: decisions for either cue of `num_runs` runs together; shape_bias: in percent.
CATEGORY_COLUMNS = ("dataset", "algorithm", "category", "shape", "texture", "shape_bias", "num_runs")


class ShapeBiases(NamedTuple):
    """Shape bias of every row, and decisions by category of the rows that are drawn."""

    table: pd.DataFrame  # `COLUMNS`
    by_category: pd.DataFrame  # `CATEGORY_COLUMNS`


class ShapeBias(Section[ShapeBiases]):
    """Does a row rely less on texture than the reference?"""

    name = "shape-bias"
    title = "Shape bias"
    terminal_title = "Texture or shape"

    def compute(self, analysis: Analysis) -> ShapeBiases:
        table = shape_bias_table(analysis.runs, analysis.algorithms, analysis.options)
        decisions, selected = analysis.inputs.decisions, analysis.selected.values
        return ShapeBiases(table, count_by_category(decisions, analysis.collection, table, selected))

    def answer(self, analysis: Analysis) -> SectionAnswer:
        table = analysis.data(self).table
        return SectionAnswer(tuple(describe(table, analysis.alpha, analysis.label)), bool(table["significant"].any()))

    def score_columns(self, analysis: Analysis) -> Iterator[ScoreColumn]:
        make = number("mean", spread="std")
        for dataset, frame in analysis.data(self).table.groupby("dataset", sort=False):
            cells = {str(row["algorithm"]): make(row) for row in frame.to_dict("records")}
            yield ScoreColumn("shape bias", str(dataset), cells, f" {MEANING}; ± between runs.")

    def files(self, data: ShapeBiases, analysis: Analysis) -> Iterator[CsvFile]:
        table = data.table.round(SCORE_DIGITS)
        yield CsvFile(FILE, table, "shape bias of every algorithm, beside that of the reference")
        description = "decisions for shape and texture by category of the shape, of the rows that are drawn"
        yield CsvFile(CATEGORY_FILE, data.by_category.round(SCORE_DIGITS), description)

    def show(self, data: ShapeBiases, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data.table.empty:
            return
        yield Sentences(tuple(describe(data.table, analysis.alpha, analysis.label)))
        table = make_bias_table(data.table, analysis, links)
        yield table
        yield PrintedTable("shape_bias", table, "shape bias beside the reference's")
        points = runs_with_monitor(analysis)
        if len(points):
            yield PlannedFigure(
                "shape_bias",
                functools.partial(draw_runs, analysis, points),
                description="shape bias against validation accuracy, one point per run",
                alt="shape bias against in-domain validation accuracy",
                caption=(
                    "One point per run, at the selected epochs. 100: all decisions on cue conflicts are for the shape, "
                    "0: for the texture."
                ),
            )
        for dataset, rows in data.by_category.groupby("dataset", sort=False):
            yield PlannedFigure(
                f"shape_bias_by_category_{dataset}",
                functools.partial(draw_categories, analysis, rows),
                description="shape bias by category",
                alt="shape bias by category of the shape",
                caption=(
                    "As Geirhos et al. (2019) draw it: a point for each category, the decisions of a row's runs "
                    "together, a line at their mean; beside the reference the rows with the highest shape bias. People "
                    "and networks, where they stand here, decided on the same categories in that paper."
                ),
            )


SHAPE_BIAS = ShapeBias()

# --- what is computed -------------------------------------------------------------------------------------------------


def shape_bias_table(runs: pd.DataFrame, algorithms: Sequence[str], options: AnalyzeOptions) -> pd.DataFrame:
    """Return `COLUMNS`, one row per set of cue conflicts and algorithm, in this order; empty without a shape bias.

    runs: `scores.run_table`. The reference is the control, by default the row `erm` if there is one.
    """
    if record.SHAPE_BIAS not in runs:
        return pd.DataFrame(columns=list(COLUMNS))
    reference = options.control_name or REFERENCE
    rows: list[dict[str, object]] = []
    compared: list[ReferenceComparison] = []
    for dataset, of_set in runs[runs[record.SHAPE_BIAS].notna()].groupby("dataset", sort=False):
        values = {}
        for name, of_row in of_set.groupby("algorithm"):
            values[str(name)] = of_row.reindex(columns=[record.SHAPE_BIAS, COVERAGE]).astype(float)
        biases = {name: of_row[record.SHAPE_BIAS].to_numpy(dtype="float64") for name, of_row in values.items()}
        for name in (name for name in algorithms if name in values):
            compared.append(compare_with(biases, name, reference, 1 - options.alpha))
            about = {"dataset": str(dataset), "algorithm": name, "coverage": float(values[name][COVERAGE].mean())}
            rows.append(about | compared[-1].columns)
    return correct_by_holm(pd.DataFrame(rows).reindex(columns=list(COLUMNS)), compared, options.alpha)


class ReferenceComparison(NamedTuple):
    """A row compared with the reference."""

    columns: dict[str, object]  # mean, std, num_runs, reference, difference, low, high, p
    of_row: exact.Array  # values of its runs; empty, as the next, if it is not compared
    of_reference: exact.Array


def compare_with(values: Mapping[str, exact.Array], name: str, reference: str, level: float) -> ReferenceComparison:
    """Compare a row with the reference by Welch's test.

    For the reference itself, and without one, the results of the test are NaN and the values empty. values: algorithm
    -> values of its runs, in percent. level: confidence of the interval.
    """
    of_row, of_reference = values[name], values.get(reference, np.empty(0))
    columns: dict[str, object] = {
        "mean": of_row.mean(),
        "std": of_row.std(ddof=1) if len(of_row) > 1 else math.nan,
        "num_runs": len(of_row),
        "reference": reference if len(of_reference) else "",
    }
    if not len(of_reference) or name == reference:
        unknown: dict[str, object] = dict.fromkeys(("difference", "low", "high", "p"), math.nan)
        return ReferenceComparison(columns=columns | unknown, of_row=np.empty(0), of_reference=np.empty(0))
    low, high, p = per_set.welch(of_row, of_reference, level)
    columns |= {"difference": of_row.mean() - of_reference.mean(), "low": low, "high": high, "p": p}
    return ReferenceComparison(columns=columns, of_row=of_row, of_reference=of_reference)


def correct_by_holm(frame: pd.DataFrame, compared: Sequence[ReferenceComparison], alpha: float) -> pd.DataFrame:
    """Return the frame with the columns p_holm, significant, low_holm and high_holm.

    The interval is Welch's at the level at which Holm's procedure decides. frame: a row per comparison, with `p`.
    """
    p = frame["p"].to_numpy(dtype="float64")
    p_holm, levels = exact.holm(p), exact.holm_levels(p, alpha)
    bounds = []
    for comparison, level in zip(compared, levels, strict=True):
        bounds.append(per_set.welch(comparison.of_row, comparison.of_reference, 1 - level)[:2])
    low, high = np.array(bounds, dtype="float64").reshape(-1, 2).T
    return frame.assign(p_holm=p_holm, significant=p_holm < alpha, low_holm=low, high_holm=high)


def count_by_category(
    decisions: DecisionReader, collection: Collection, biases: pd.DataFrame, selected: pd.DataFrame
) -> pd.DataFrame:
    """Return `CATEGORY_COLUMNS` of the rows that are drawn, if decisions of their runs are stored.

    That is what Geirhos et al. (2019) draw in figure 4. One file is fetched for every run of these rows, which are few:
    the reference and the rows with the highest shape bias. Trials of a search are no rows.

    biases: `shape_bias_table`; selected: `select.SELECTED_COLUMNS`.
    """
    drawn = [] if collection.is_search else _choose_drawn(biases)
    runs = {name: [run for run in collection.unpublished if run.algorithm == name] for _, name in drawn}
    steps = steps_of(selected) if drawn else {}
    rows = []
    with ProgressBar(sum(len(runs[name]) for _, name in drawn), "file") as progress:
        for dataset, name in drawn:
            counts_of_runs = []
            for run in runs[name]:
                progress.tick()
                counts_of_runs.append(_count_cues(decisions, run, dataset, steps))
            num_runs = sum(map(bool, counts_of_runs))
            for category in sorted(set().union(*counts_of_runs)):
                counts = [of_run[category] for of_run in counts_of_runs if category in of_run]
                shape, texture = sum(count.shape for count in counts), sum(count.texture for count in counts)
                bias = 100 * measures.shape_bias(shape, texture)
                rows.append((dataset, name, category, shape, texture, bias, num_runs))
    return pd.DataFrame(rows, columns=list(CATEGORY_COLUMNS))


def _choose_drawn(biases: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (set, row) for each set: the reference, then rows by their shape bias, as many as a figure holds."""
    drawn = []
    for dataset, rows in biases.groupby("dataset", sort=False):
        is_reference = rows["algorithm"] == rows["reference"]
        ordered = rows.assign(first=is_reference).sort_values(["first", "mean"], ascending=False, kind="stable")
        drawn += [(str(dataset), str(name)) for name in ordered["algorithm"][:MOST]]
    return drawn


def _count_cues(
    decisions: DecisionReader, run: Run, dataset: str, steps: Mapping[tuple[str, str], int | None]
) -> dict[str, CueCounts]:
    """Return a run's decisions for shape and texture by category; empty if none are stored for the selected step.

    steps: (run id, set) -> selected step.
    """
    if (run.id, dataset) not in steps:
        return {}
    try:
        stored = decisions.decisions(run, dataset, steps[run.id, dataset])
    except Failure:
        return {}
    counts = {}
    for category in stored.label.names:
        count = stored.cue_counts(category)
        if count is not None:
            counts[category] = count
    return counts


# --- sentences and table ----------------------------------------------------------------------------------------------


def describe(frame: pd.DataFrame, alpha: float, label: Labels) -> list[str]:
    """Say for each set of cue conflicts which rows rely less or more on texture than the reference.

    frame: `COLUMNS`.
    """
    correction = describe_correction(frame, alpha)
    by_set = frame.groupby("dataset", sort=False)
    return [_describe_set(rows, alpha, label, correction) for _, rows in by_set]


def describe_numbers(frame: pd.DataFrame, alpha: float, label: Labels) -> str:
    """Return the rows' differences from the reference on one set of cue conflicts, without a verdict.

    frame: `COLUMNS` of that set, with a reference.
    """
    reference = str(frame["reference"].iloc[0])
    others = frame[frame["algorithm"] != reference].to_dict("records")
    dataset, differences = label(str(frame["dataset"].iloc[0])), list_differences(others, alpha, label)
    correction = describe_correction(frame, alpha)
    return f"Shape bias on {dataset} beside {label(reference)}'s: {differences} (in points, over runs{correction})."


def describe_correction(frame: pd.DataFrame, alpha: float) -> str:
    """Say what intervals and p are corrected for; empty without any test."""
    num_tests = int(frame["p"].notna().sum())
    if not num_tests:
        return ""
    if num_tests == 1:
        return f"; {wording.percent(1 - alpha)} interval"
    return f"; p with Holm's correction for {num_tests} comparisons, each interval at the level at which it decides"


def _describe_set(frame: pd.DataFrame, alpha: float, label: Labels, correction: str) -> str:
    """Say which rows rely less or more on texture than the reference, and for which that is not shown."""
    rows, control = frame.to_dict("records"), str(frame["reference"].iloc[0])
    reference, dataset = label(control), label(str(frame["dataset"].iloc[0]))
    others = [row for row in rows if row["algorithm"] != control]
    if not control or not others:
        values = ", ".join(f"{label(row['algorithm'])} {row['mean']:.1f}" for row in rows)
        return (
            f"Shape bias on {dataset}, percent: {values}; there is no reference to compare it with: control=<row> "
            "names one."
        )
    less = [row for row in others if row["significant"] and row["difference"] > 0]
    more = [row for row in others if row["significant"] and row["difference"] < 0]
    parts: list[str] = []
    if less:
        parts.append(f"relies less on texture than {reference}: {list_differences(less, alpha, label)}")
    if more:
        parts.append(f"relies more on texture than {reference}: {list_differences(more, alpha, label)}")
    not_shown = [row for row in others if not row["significant"]]
    if not_shown:
        differences = list_differences(not_shown, alpha, label)
        nothing = f"no row is shown to rely less on texture than {reference}: {differences}"
        parts.append(f"not shown for {differences}" if parts else nothing)
    findings = wording.capitalized("; ".join(parts))
    return f"{findings} (shape bias on {dataset} in points, over runs{correction})."


def list_differences(rows: Sequence[TableRecord], alpha: float, label: Labels) -> str:
    """Return each row's difference with its interval and p, both as Holm's procedure decides."""
    parts = []
    for row in rows:
        low, high = float(row["low_holm"]), float(row["high_holm"])
        evidence = "one run"
        if not math.isnan(low):
            evidence = f"{low:+.1f} to {high:+.1f}; p {wording.short_p(row['p_holm'], alpha)}"
        parts.append(f"{label(row['algorithm'])} {row['difference']:+.1f} [{evidence}]")
    return ", ".join(parts)


def make_bias_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return shape bias beside the reference's. frame: `COLUMNS`, with rows."""
    reference = next(filter(None, frame["reference"]), "")
    against = f"against {analysis.label(reference) or MISSING}"
    columns = [
        links.column(),
        TableColumn("set", named("dataset", analysis.label), printed="set", align="l"),
        TableColumn("shape bias", number("mean", spread="std"), printed="shape bias"),
        TableColumn("coverage", number("coverage"), printed="coverage"),
        TableColumn(against, interval("difference", "low_holm", "high_holm"), printed=against),
        TableColumn(None, _corrected_bounds, printed="interval"),
        TableColumn("p (Holm)", p_value("p_holm", analysis.alpha, bold="significant"), printed="p (Holm)"),
        TableColumn("runs", number("num_runs", 0), printed="runs"),
    ]
    caption = (
        f"{MEANING} (0: all for the texture); coverage: that of all decisions which is for either cue. Mean ± standard "
        "deviation over runs (n - 1). "
    )
    if reference:
        correction = describe_correction(frame, analysis.alpha)
        caption += (
            f"Against {analysis.label(reference)}: the difference with its interval, and p (Welch's t over "
            f"runs{correction})."
        )
    else:
        caption += "There is no reference to compare with: control=<algorithm> names one."
    printed = PrintedText("shape-bias", f"{MEANING}.", f"{latex.prose(caption)} {latex.provenance(analysis)}.")
    records, is_oracle = frame.to_dict("records"), analysis.rule.oracle
    return make_table(caption, columns, records, FILE, oracle=is_oracle, printed=printed)


def _corrected_bounds(row: TableRecord) -> TableCell:
    return TableCell(interval_text(row["low_holm"], row["high_holm"], 1))


# --- figures ----------------------------------------------------------------------------------------------------------


def runs_with_monitor(analysis: Analysis) -> pd.DataFrame:
    """Return the runs with a shape bias and a validation score of the same epochs."""
    if record.SHAPE_BIAS not in analysis.runs:
        return analysis.runs.iloc[:0]
    return analysis.runs.dropna(subset=[record.SHAPE_BIAS, "monitor"])


def draw_runs(analysis: Analysis, points: pd.DataFrame) -> Figure:
    """Draw one point per run: validation score against shape bias (0: decides by texture only, 100: by shape only)."""
    from biasbed.analysis.report.figures.style import GREY, Sheet, legend, look

    figure = Sheet(figsize=(4.8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for position, algorithm in enumerate(analysis.algorithms):
        colour, _, marker = look(position)
        of_row = points[points["algorithm"] == algorithm]
        style: dict[str, Any] = dict(color=colour, marker=marker, s=28, alpha=0.85, lw=0)
        axes.scatter(of_row["monitor"], of_row["shape_bias"], label=analysis.label(algorithm), **style)
        for row in of_row.to_dict("records"):
            text = f"{analysis.label(algorithm)} seed {row['seed']}: shape bias {row['shape_bias']:.1f}"
            figure.tip(axes, row["monitor"], row["shape_bias"], f"{text}, validation {row['monitor']:.1f}")
    axes.axhline(50, color=GREY, lw=0.8, ls=":")
    axes.set_ylim(-3, 103)
    axes.set_xlabel(f"in-domain validation: {analysis.collection.protocol.monitor} (%)")
    axes.set_ylabel("shape bias (%)")
    legend(figure, axes)
    return figure


def draw_categories(analysis: Analysis, frame: pd.DataFrame) -> Figure:
    """Draw shape bias by category on one set; people and known networks beside it if it has their categories.

    frame: rows of `CATEGORY_COLUMNS`.
    """
    shares = {}
    for name in analysis.algorithms:
        rows = frame[(frame["algorithm"] == name) & frame["shape_bias"].notna()]
        if len(rows):
            biases = rows["shape_bias"].astype(float) / 100
            shares[analysis.label(name)] = dict(zip(rows["category"], biases, strict=True))
    return shape_bias_figure.figure(shares, set(frame["category"]) == observers.categories())
