"""Cost of choosing the epoch: selection rules beside the oracle, which looks at the test images.

Regret is what choosing without looking at the test images costs (Kalischek et al. 2023, table 1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from biasbed.analysis.columns import Column, make_design
from biasbed.analysis.comparisons.rule_comparison import ORACLE, under_every_rule
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import (
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    number_cell,
    prepared,
    text_cell,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.scores import block_matrix, mean_matrix
from biasbed.analysis.sections.section import (
    CsvFile,
    PlannedFigure,
    PrintedTable,
    Section,
    Sentences,
    ShownPart,
)
from biasbed.analysis.selection.rules import RULES
from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import DIGITS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES_FILE, GAP_FILE, REGRET_FILE = "selection.csv", "selection_gap.csv", "regret.csv"
CHOICES_FILE = "choices.csv"
REGRET_COLUMNS = (
    *("rule", "oracle", "labels", "algorithm", "num_sets", "regret", "largest", "largest_on", "average_rank"),
)
WIDEST = 18.0  # inches


class SelectionCosts(NamedTuple):
    """Scores under every rule and what each costs."""

    rules: pd.DataFrame  # rule_comparison.COLUMNS
    gap: pd.DataFrame  # `gap_to_oracle` of the rule in use
    regret: pd.DataFrame  # `REGRET_COLUMNS`


class SelectionCost(Section[SelectionCosts]):
    """Distance of each selection rule from the oracle."""

    name = "gap"
    title = "What choosing the epoch costs"

    def compute(self, analysis: Analysis) -> SelectionCosts:
        table = analysis.selection
        gap = gap_to_oracle(table, analysis.rule.name)
        return SelectionCosts(table, gap, regret_table(table, analysis.columns))

    def files(self, data: SelectionCosts, analysis: Analysis) -> Iterator[CsvFile]:
        if analysis.collection.is_table:
            return  # nothing was chosen
        yield CsvFile(CHOICES_FILE, analysis.choices, "which run every rule chose, and at which steps")
        yield CsvFile(RULES_FILE, data.rules, "scores under every selection rule, and the gap to the oracle")
        yield CsvFile(GAP_FILE, data.gap, "the selection rule beside the oracle")
        about = "what each selection rule costs, and where each algorithm stands under it"
        yield CsvFile(REGRET_FILE, data.regret, about)

    def show(self, data: SelectionCosts, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        gaps = rows_with_gap(data.rules)
        if len(gaps):
            yield PlannedFigure(
                "selection_gap",
                functools.partial(draw_gaps, analysis, gaps),
                description="how far each selection rule stays behind the oracle",
                alt="selection gap",
                caption="How far each selection rule stays behind the best epoch of each set.",
                marked=True,
            )
        regret = data.regret[data.regret["regret"].notna()]
        if len(regret):
            yield make_regret_table(regret, analysis, links)
        if len(data.gap):
            table = make_printed_table(data.gap, analysis, links)
            yield PrintedTable("selection_gap", table, "the selection rule beside the oracle")
        skipped = describe_skipped(data.rules)
        if skipped:
            yield Sentences(tuple(skipped))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return [part for part in self.parts(analysis, links) if isinstance(part, ReportTable)][:1]


SELECTION_COST = SelectionCost()


def rows_with_gap(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a gap to the oracle, without the oracle's own. table: `rule_comparison.COLUMNS`."""
    return table[table["gap"].notna() & ~table["oracle"].astype(bool)]


# --- what is computed -------------------------------------------------------------------------------------------------


def gap_to_oracle(selection: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Return the means under a rule beside those of the oracle, as Kalischek et al. 2023 print them in table 1.

    Columns algorithm, dataset, best_epoch (the oracle), the rule's name, difference (rule - oracle), std (of the
    difference over runs). Empty without an oracle. selection: `rule_comparison.COLUMNS`.
    """
    keys = ["algorithm", "dataset"]
    rows = selection[selection["skipped"] == ""]
    oracle = rows[rows["rule"] == ORACLE].set_index(keys)["mean"]
    of_rule = rows[(rows["rule"] == rule) & rows["gap"].notna()].set_index(keys)
    frame = pd.DataFrame({ORACLE: oracle.reindex(of_rule.index), rule: of_rule["mean"]})
    frame["difference"] = frame[rule] - frame[ORACLE]
    return frame.assign(std=of_rule["gap_std"]).round(DIGITS).reset_index()


def regret_table(selection: pd.DataFrame, sets: Sequence[Column]) -> pd.DataFrame:
    """Return `REGRET_COLUMNS`: what each rule costs an algorithm, and the algorithm's rank under it.

    num_sets: number of blocks that the algorithm has; regret: mean of their gaps to the oracle; largest, largest_on:
    the largest gap and its block. These are empty without an oracle, and if units differ. Only algorithms with scores
    under every rule are there, which published ones rarely have. selection: `rule_comparison.COLUMNS`.
    """
    design = make_design(sets)
    selection = under_every_rule(selection[selection["skipped"] == ""])
    has_one_unit = len(set(design.units.values())) == 1
    rows = []
    for rule, of_rule in selection.groupby("rule", sort=False):
        means = block_matrix(mean_matrix(of_rule), sets)
        ranks = friedman.rank(friedman.orient(means.dropna(), sorted(design.lower_blocks))).mean()
        about = (rule, bool(of_rule["oracle"].iloc[0]), str(of_rule["labels"].iloc[0]))
        gaps_by_algorithm = of_rule.pivot(index="dataset", columns="algorithm", values="gap")
        for algorithm in of_rule["algorithm"].unique():
            gaps = design.reduced(gaps_by_algorithm[algorithm])[means[algorithm].notna()]
            regret, largest, largest_on = math.nan, math.nan, ""
            if has_one_unit and len(gaps) and gaps.notna().all():
                regret, largest = float(gaps.mean()), float(gaps.max())
                if largest > 0:
                    largest_on = str(gaps.idxmax())
            rows.append((*about, algorithm, len(gaps), regret, largest, largest_on, float(ranks[algorithm])))
    return pd.DataFrame(rows, columns=list(REGRET_COLUMNS)).round(DIGITS)


# --- tables and sentences ---------------------------------------------------------------------------------------------


def make_regret_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return the cost of each selection rule for every algorithm, mean over the sets.

    frame: `REGRET_COLUMNS`, those with a regret.
    """
    heads = {row["rule"]: wording.rule_name(row) for row in frame.to_dict("records")}
    records: dict[str, dict[Any, Any]] = {}
    for row in frame.to_dict("records"):
        rank = row["average_rank"]  # NaN if no set is left that all algorithms have
        below = ""
        if not math.isnan(rank):
            below = f"rank {rank:.2f}"
        cells = records.setdefault(row["algorithm"], {"algorithm": row["algorithm"]})
        cells["rule", row["rule"]] = number_cell(row["regret"], interval=below)
    columns = [links.column()]
    columns += [TableColumn(head, prepared(("rule", rule))) for rule, head in heads.items()]
    noun, oracle = make_design(analysis.sets).noun, wording.describe_oracle(analysis)
    caption = (
        f"What each selection rule costs: {wording.unit(analysis)} behind {oracle}, mean over the {noun}s; below, the "
        f"average rank under the rule.{_labels_needed(analysis, heads)}"
    )
    return make_table(caption, columns, _in_order(analysis, records), REGRET_FILE, oracle=True)


def _in_order(analysis: Analysis, records: Mapping[str, TableRecord]) -> list[TableRecord]:
    """Return the records in display order; an algorithm without scores under every rule has none."""
    return [records[name] for name in analysis.algorithms if name in records]


def _labels_needed(analysis: Analysis, rules: Iterable[str]) -> str:
    """Return a sentence on the labels that rules need besides validation, with a blank before it; empty without any."""
    rules_by_labels: dict[str, list[str]] = {}
    for name in rules:
        needs: Sequence[str] = ()
        if name == analysis.rule.name:
            needs = analysis.rule.needs
        elif name in RULES:
            needs = RULES.load(name).needs
        for needed in needs:
            rules_by_labels.setdefault(needed, []).append(name)
    parts = []
    for needed, names in rules_by_labels.items():
        verb = "needs" if len(names) == 1 else "need"
        parts.append(f"{wording.listing(names)} {verb} {needed}")
    if parts:
        return f" {'; '.join(parts)}."
    return ""


def describe_skipped(table: pd.DataFrame) -> list[str]:
    """Say which rules have no scores, and why. table: `rule_comparison.COLUMNS`."""
    skipped = table[table["skipped"].fillna("") != ""]
    pairs = zip(skipped["rule"], skipped["skipped"], strict=True)
    return [f"{rule}: not computed, {reason}" for rule, reason in pairs]


def make_printed_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return each set's own best epoch, the rule in use and their difference, for LaTeX.

    So Kalischek et al. 2023 print it in table 1. frame: `gap_to_oracle`.
    """
    rule = analysis.rule.name
    columns = [
        TableColumn(None, prepared("name"), printed="", align="l"),
        TableColumn(None, prepared("column"), printed="", align="l"),
        *(
            TableColumn(None, prepared(name), printed=analysis.label(name), style="turned")
            for name in analysis.set_names
        ),
    ]
    records = []
    for algorithm in analysis.algorithms:
        rows = frame[frame["algorithm"] == algorithm].to_dict("records")
        for column in (ORACLE, rule, "difference") if rows else ():
            name = links.algorithm_cell(algorithm) if column == ORACLE else TableCell("")
            cells: dict[str, TableCell] = {"name": name, "column": text_cell(column.replace("_", " "))}
            records.append(cells | {row["dataset"]: number_cell(row[column]) for row in rows})
    shown = latex.escape(rule.replace("_", " "))
    caption = f"ORACLE: each set's own best epoch, beside the rule {shown}, and the difference, in {analysis.units}."
    note = f"Each set's own best epoch is chosen on the test images. Means over runs. {latex.provenance(analysis)}."
    printed = PrintedText("selection-gap", caption, note)
    return make_table("", columns, records, oracle=True, printed=printed)


# --- figure -----------------------------------------------------------------------------------------------------------


def draw_gaps(analysis: Analysis, gaps: pd.DataFrame) -> Figure:
    """Draw by how much each set's own best epoch is better than the one that a rule picks, for every algorithm."""
    from biasbed.analysis.report.figures.style import GREY, WARNING, Sheet, legend, look, marker_offset, set_axis

    rules = list(dict.fromkeys(gaps["rule"]))
    names = analysis.set_names
    k = len(analysis.algorithms)
    width = max(4.8, min(max(0.8, 0.11 * k) * len(names) + 1.2, WIDEST))
    figure = Sheet(figsize=(width, 2.3 * len(rules) + 1.2), layout="constrained")
    grid = figure.subplots(len(rules), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, rule in zip(grid, rules, strict=True):
        # Where all gaps are zero but for the order in which means were added up, none is to be seen.
        table = gaps[gaps["rule"] == rule].set_index(["algorithm", "dataset"])["gap"].round(DIGITS)
        for position, algorithm in enumerate(analysis.algorithms):
            colour, _, marker = look(position)
            if algorithm not in table.index:
                continue  # published: not known under every rule
            x = np.arange(len(names)) + marker_offset(position, k)
            y = table.loc[algorithm].reindex(list(names))
            axes.plot(x, y, marker, ms=4.5, color=colour, label=analysis.label(algorithm))
            for name, centre, value in zip(names, x, y, strict=True):
                text = f"{analysis.label(algorithm)} on {analysis.label(name)}, {rule}: {value:.1f} behind"
                figure.tip(axes, float(centre), float(value), text)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.grid(axis="y", color="#ececec", lw=0.7)
        axes.set_axisbelow(True)
        axes.set_title(f"{rule}: points behind the ORACLE (best_epoch, selected on the test images)", color=WARNING)
        set_axis(axes, [*map(analysis.label, names)])
        axes.tick_params(axis="x", labelbottom=axes is grid[-1])
        axes.set_ylabel("gap (points)")
    legend(figure, *grid)
    return figure
