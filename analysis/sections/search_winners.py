"""Winners of a search by selection rule: what each chose of the same trials, and how that tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from biasbed.analysis.comparisons.rule_comparison import NO_WINNERS, WINNER_COLUMNS, Winners
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    make_table,
    named,
    number,
    prepared,
    text,
    text_cell,
)
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart

TRIALS_FILE, MEANS_FILE = "winners.csv", "criteria.csv"


class SearchWinners(Section[Winners]):
    """Trials that every rule chose of a search, and their test values."""

    name = "criteria"
    title = "Winners by criterion"

    def compute(self, analysis: Analysis) -> Winners:
        return join_winners([rule.winners for rule in analysis.rules.scores])

    def files(self, data: Winners, analysis: Analysis) -> Iterator[CsvFile]:
        trials = "the trial that every rule chose in each cell: its settings and all its test values"
        yield CsvFile(TRIALS_FILE, data.each, trials)
        yield CsvFile(MEANS_FILE, data.means, "the same as means over methods, a row per rule and set")

    def show(self, data: Winners, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if len(data.means):
            yield make_mean_table(data, analysis)
        if len(data.each):
            yield make_trial_table(data, analysis, links)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return self.parts(analysis, links)[:1]


SEARCH_WINNERS = SearchWinners()


def join_winners(winners: Sequence[Winners]) -> Winners:
    """Return the trials that all rules chose, one rule below the other."""
    winners = [of_rule for of_rule in winners if len(of_rule.each)]
    if not winners:
        return NO_WINNERS
    settings: dict[str, None] = {}
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for of_rule in winners:
        settings |= dict.fromkeys(of_rule.settings)
        names |= dict.fromkeys(of_rule.measures)
        digits |= of_rule.digits
    frame = pd.concat([of_rule.each for of_rule in winners], ignore_index=True)
    return Winners(frame.reindex(columns=[*WINNER_COLUMNS, *settings, *names]), tuple(settings), tuple(names), digits)


def make_mean_table(winners: Winners, analysis: Analysis) -> ReportTable:
    """Return the scores of every rule's winners: means over methods (the Align-Conflict paper's table 4)."""
    frame = winners.means
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("criterion", _rule_cell),
        TableColumn("it needs", text("labels")),
        *_measure_columns(winners),
    ]
    records: list[Mapping[Any, Any]] = []
    for name in analysis.set_names:
        records += frame[frame["dataset"] == name].to_dict("records")
    caption = (
        "Winners of the search by criterion: test values of what each rule chose, from the same trials; mean over "
        f"{frame['num_algorithms'].iloc[0]} algorithms."
    )
    return make_table(caption, columns, records, MEANS_FILE, oracle=True)


def make_trial_table(winners: Winners, analysis: Analysis, links: Links) -> ReportTable:
    """Return the trial that every rule chose, with its settings and test values."""
    frame = winners.each
    records = []
    for row in frame.sort_values(["dataset", "algorithm"], kind="stable").to_dict("records"):
        values = {name: row[name] for name in winners.settings}
        settings = [f"{name}={value}" for name, value in values.items() if value and isinstance(value, str)]
        trial = links.run_cell(row["run_id"], f"trial {row['trial']}")
        records.append({**row, "trial": trial, "settings": text_cell(" ".join(settings))})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("algorithm", links.algorithm()),
        TableColumn("criterion", _rule_cell),
        TableColumn("trial", prepared("trial")),
        TableColumn("settings", prepared("settings")),
        *_measure_columns(winners),
    ]
    return make_table("The trial that each criterion chose.", columns, records, TRIALS_FILE, oracle=True)


def _measure_columns(winners: Winners) -> Sequence[TableColumn]:
    return [TableColumn(name, number(name, digits)) for name, digits in winners.digits.items()]


def _rule_cell(row: TableRecord) -> TableCell:
    return text_cell(wording.rule_name(row))
