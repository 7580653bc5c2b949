"""Tables of selection rules: precision of the choice, cost of each rule, gains from labels, winners of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from biasbed import record
from biasbed.analysis.columns import make_design
from biasbed.analysis.comparisons import rule_comparison
from biasbed.analysis.comparisons.rule_comparison import BASELINE, OVER_METHODS
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.score_tables import algorithm_column
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    interval,
    make_table,
    named,
    number,
    number_cell,
    prepared,
    text,
    text_cell,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.result import number as number_text
from biasbed.analysis.selection.rules import RULES, BestValidation

# --- precision of the choice ------------------------------------------------------------------------------------------

GRAIN_NUMBERS = (
    *("conflicting_images", "image_conflicting", "image_score", "score", "low", "high", "epochs", "epochs_within"),
    *("test_score", "test_low", "test_high"),
)


def grain(analysis: Analysis) -> ReportTable | None:
    """Precision of the chosen epoch's scores, given validation's few images, by column: medians over runs."""
    frame = analysis.grain[analysis.grain["rule"] == analysis.rule.name]
    if frame.empty:
        return None
    records = []
    for name in analysis.set_names:
        of_set = frame[frame["dataset"] == name]
        if len(of_set):
            medians = of_set[[column for column in of_set if column in GRAIN_NUMBERS]].median()
            records.append({"dataset": name, **medians.astype(float).to_dict()})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("conflicting images", _whole_number("conflicting_images")),
        TableColumn("points of one", number("image_conflicting")),
        TableColumn("AC points", number("image_score")),
        TableColumn("AC, validation", interval("score", "low", "high")),
        TableColumn("AC, test", interval("test_score", "test_low", "test_high")),
        TableColumn("epochs within", _epochs_within),
    ]
    caption = say("grain", rule=analysis.rule.name)
    return make_table(caption, columns, records, "grain.csv", oracle=analysis.rule.oracle)


def _whole_number(key: str) -> CellMaker:

    def make(medians: TableRecord) -> TableCell:
        return TableCell(f"{medians[key]:.0f}", value=medians[key])

    return make


def _epochs_within(medians: TableRecord) -> TableCell:
    return TableCell(f"{medians['epochs_within']:g} of {medians['epochs']:g}", value=medians["epochs_within"])


# --- cost of rules, gains from labels ---------------------------------------------------------------------------------


def labels(analysis: Analysis) -> ReportTable | None:
    """Gains of rules that take more labels: means over methods."""
    frame = analysis.labels[analysis.labels["algorithm"] == OVER_METHODS]
    if frame.empty:
        return None
    digits = {column.name: column.digits for column in analysis.sets}
    monitor = record.parse_metric(analysis.collection.protocol.monitor)
    measure = monitor.measure if monitor else analysis.collection.protocol.monitor
    records: dict[str, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        by = ""
        if row["rule"] == BestValidation.name:
            by = measure
        rule = TableCell(oracle_name(row), interval=by, left=True)
        cells = records.setdefault(row["rule"], {"rule": rule, "needs": text_cell(row["labels"])})
        cells[row["dataset"]] = _gain_cell(row, digits[row["dataset"]])
    columns = [TableColumn("rule", prepared("rule")), TableColumn("labels", prepared("needs"))]
    columns += [
        TableColumn(analysis.label(name), prepared(name), name=name) for name in digits if name in set(frame["dataset"])
    ]
    level = wording.percent(1 - analysis.alpha)
    caption = say("labels", units=analysis.units, baseline=BASELINE, level=level)
    if analysis.collection.is_search:
        caption += say("labels_of_search")
    return make_table(caption, columns, records.values(), "labels.csv", oracle=True)


def _gain_cell(row: TableRecord, digits: int) -> TableCell:
    """Show a score, its difference to the baseline's and the interval of that."""
    if row["rule"] == row["baseline"]:
        return number_cell(row["mean"], digits)
    difference, low, high = (f"{round(row[key], digits) + 0.0:+.{digits}f}" for key in ("difference", "low", "high"))
    bounds = ""
    if not math.isnan(row["low"]):
        bounds = f"{low} to {high}"
    return number_cell(row["mean"], digits, spread=difference, interval=bounds)


def regret(analysis: Analysis, links: Links) -> ReportTable | None:
    """Cost of each selection rule for every algorithm, mean over the sets; None without an oracle."""
    frame = analysis.regret[analysis.regret["regret"].notna()]
    if frame.empty:
        return None
    heads = {row["rule"]: oracle_name(row) for row in frame.to_dict("records")}
    records: dict[str, dict[Any, Any]] = {}
    for row in frame.to_dict("records"):
        rank = row["average_rank"]  # NaN if no set is left that all algorithms have
        below = ""
        if not math.isnan(rank):
            below = say("regret_rank", rank=f"{rank:.2f}")
        cells = records.setdefault(row["algorithm"], {"algorithm": row["algorithm"]})
        cells["rule", row["rule"]] = number_cell(row["regret"], interval=below)
    columns = [algorithm_column(links)]
    columns += [TableColumn(head, prepared(("rule", rule))) for rule, head in heads.items()]
    noun = make_design(analysis.sets).noun
    slots = {"unit": wording.unit(analysis), "oracle": wording.oracle(analysis), "noun": noun}
    caption = say("regret", **slots) + _labels_needed(analysis, heads)
    return make_table(caption, columns, _in_order(analysis, records), "regret.csv", oracle=True)


def _in_order(analysis: Analysis, records: Mapping[str, TableRecord]) -> list[TableRecord]:
    """Return the records in the order of algorithms; published ones, not known under every rule, have none."""
    return [records[name] for name in analysis.algorithms if name in records]


def oracle_name(row: TableRecord) -> str:
    """Return a rule's name, marked if it is an oracle."""
    if row["oracle"]:
        return f"{row['rule']} (ORACLE)"
    return str(row["rule"])


def _labels_needed(analysis: Analysis, rules: Iterable[str]) -> str:
    """Say which labels rules need besides validation; empty if none does."""
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


def skipped_rules(analysis: Analysis) -> list[str]:
    """Say which rules have no scores, and why."""
    table = analysis.selection
    skipped = table[table["skipped"].fillna("") != ""]
    pairs = zip(skipped["rule"], skipped["skipped"], strict=True)
    return [say("rule_skipped", rule=rule, reason=reason) for rule, reason in pairs]


def gap(analysis: Analysis, links: Links) -> ReportTable | None:
    """Distance of the rule's scores from the oracle's, above the scores; None without an oracle."""
    table = analysis.selection[analysis.selection["gap"].notna() & ~analysis.selection["oracle"].astype(bool)]
    if table.empty:
        return None
    names = list(dict.fromkeys(table["rule"]))
    rule = analysis.rule.name if analysis.rule.name in names else names[0]
    digits = {column.name: column.digits for column in analysis.sets}
    records: dict[str, dict[str, Any]] = {}
    for row in table[table["rule"] == rule].to_dict("records"):
        places = digits[row["dataset"]]
        cells = records.setdefault(row["algorithm"], {"algorithm": row["algorithm"]})
        cells[row["dataset"]] = number_cell(row["gap"], places, interval=number_text(row["mean"], places))
    columns = [algorithm_column(links)]
    columns += [TableColumn(analysis.label(name), prepared(name), name=name) for name in digits]
    caption = say("gap", rule=rule, unit=wording.unit(analysis))
    return make_table(caption, columns, _in_order(analysis, records), "selection.csv", oracle=True)


def gap_in_print(analysis: Analysis, links: Links) -> ReportTable | None:
    """Each set's own best epoch, the rule in use and their difference (Kalischek et al. 2023, table 1); for LaTeX."""
    frame, rule = analysis.selection_gap, analysis.rule.name
    if frame.empty:
        return None
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
        for column in (rule_comparison.ORACLE, rule, "difference") if rows else ():
            name = links.algorithm_cell(algorithm) if column == rule_comparison.ORACLE else TableCell("")
            cells: dict[str, TableCell] = {"name": name, "column": text_cell(column)}
            records.append(cells | {row["dataset"]: number_cell(row[column]) for row in rows})
    slots = {"rule": latex.escape(rule), "units": analysis.units, "provenance": latex.provenance(analysis)}
    printed = PrintedText("selection-gap", say("printed_gap", **slots), say("printed_gap_note", **slots))
    return make_table("", columns, records, oracle=True, printed=printed)


# --- winners of a search ----------------------------------------------------------------------------------------------


def criteria(analysis: Analysis) -> ReportTable | None:
    """Scores of every rule's winners of a search: means over methods (the Align-Conflict paper's table 4)."""
    frame = analysis.winners.means
    if frame.empty:
        return None
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("criterion", _rule_cell),
        TableColumn("it needs", text("labels")),
        *_measure_columns(analysis),
    ]
    records: list[Mapping[Any, Any]] = []
    for name in analysis.set_names:
        records += frame[frame["dataset"] == name].to_dict("records")
    caption = say("criteria", number=frame["num_algorithms"].iloc[0])
    return make_table(caption, columns, records, "criteria.csv", oracle=True)


def winners(analysis: Analysis, links: Links) -> ReportTable | None:
    """The trial that every rule chose of a search, with its settings and test values."""
    frame = analysis.winners.each
    if frame.empty:
        return None
    records = []
    for row in frame.sort_values(["dataset", "algorithm"], kind="stable").to_dict("records"):
        values = {name: row[name] for name in analysis.winners.settings}
        settings = [f"{name}={value}" for name, value in values.items() if value and isinstance(value, str)]
        trial = links.run_cell(row["run_id"], f"trial {row['trial']}")
        records.append({**row, "trial": trial, "settings": text_cell(" ".join(settings))})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("algorithm", links.algorithm()),
        TableColumn("criterion", _rule_cell),
        TableColumn("trial", prepared("trial")),
        TableColumn("settings", prepared("settings")),
        *_measure_columns(analysis),
    ]
    return make_table(say("winners"), columns, records, "winners.csv", oracle=True)


def _measure_columns(analysis: Analysis) -> Sequence[TableColumn]:
    return [TableColumn(name, number(name, digits)) for name, digits in analysis.winners.digits.items()]


def _rule_cell(row: TableRecord) -> TableCell:
    return text_cell(oracle_name(row))
