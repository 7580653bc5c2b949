"""The report's tables of what each selection rule chose of a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed.analysis.report.cells import Links, ReportTable, decimal, text
from biasbed.analysis.result import Analysis


def means(analysis: Analysis) -> ReportTable | None:
    """What every rule's winners of a search score: the mean over methods (the Align-Conflict paper's table 4)."""
    found, shown = analysis.winners.means, analysis.winners.digits
    if found.empty:
        return None
    rows = [
        (
            text(row["dataset"]),
            text(_rule(row)),
            text(row["labels"]),
            *(decimal(row[measure], n) for measure, n in shown.items()),
        )
        for name in analysis.set_names
        for row in found[found["dataset"] == name].to_dict("records")
    ]
    caption = (
        f"Winners of the search by criterion: test values of what each rule chose, from the same trials; mean over "
        f"{found['num_algorithms'].iloc[0]} algorithms."
    )
    return ReportTable(caption, ("set", "criterion", "it needs", *shown), tuple(rows), True, "criteria.csv")


def each(analysis: Analysis, links: Links) -> ReportTable | None:
    """The trial that every rule chose, with its settings and test values."""
    found = analysis.winners
    if found.each.empty:
        return None
    rows = []
    for row in found.each.sort_values(["dataset", "algorithm"], kind="stable").to_dict("records"):
        settings = [f"{name}={row[name]}" for name in found.settings if row[name] and isinstance(row[name], str)]
        trial = links.run(row["run_id"], f"trial {row['trial']}")
        values = (decimal(row[measure], n) for measure, n in found.digits.items())
        rows.append(
            (text(row["dataset"]), text(row["algorithm"]), text(_rule(row)), trial, text(" ".join(settings)), *values)
        )
    head = ("set", "algorithm", "criterion", "trial", "settings", *found.digits)
    return ReportTable("The trial that each criterion chose.", head, tuple(rows), True, "winners.csv")


def _rule(row: Mapping[Any, Any]) -> str:
    return f"{row['rule']} (ORACLE)" if row["oracle"] else str(row["rule"])
