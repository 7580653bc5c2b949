"""The report's table of rows with one run, compared over images."""

from __future__ import annotations

from biasbed.analysis import single_runs
from biasbed.analysis.report.cells import Links, ReportTable, TableCell, interval, p_entry, text
from biasbed.analysis.result import Analysis

CSV = "over_images.csv"


def table(analysis: Analysis, links: Links) -> ReportTable | None:
    """A row for each set and pair; None where no row has one run."""
    found = analysis.over_images.table
    if found.empty:
        return None
    rows = []
    for row in found.to_dict("records"):
        counts = (_count(row[name]) for name in ("only_a", "only_b", "photographs"))
        runs = (links.run(row[f"run_{side}"], row[side]) for side in "ab")
        effect = interval(row["difference"], row["low"], row["high"])
        tests = p_entry(row["p"], analysis.alpha, False), p_entry(row["p_holm"], analysis.alpha, row["significant"])
        rows.append((text(row["dataset"]), *runs, *counts, effect, *tests))
    caption = (
        "The same images decided by two models of which one at least has a single run: images on which only a, or only "
        "b, is right; a - b in points of accuracy with a paired bootstrap interval over photographs "
        f"({100 * (1 - analysis.alpha):g} %); McNemar's exact p, and by Holm over all tests of this table. A dash: "
        f"{single_runs.VIEWS}. {single_runs.SENTENCE}"
    )
    head = ("set", "a", "b", "only a", "only b", "photographs", "a - b", "p", "p (Holm)")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, CSV)


def _count(number: int) -> TableCell:
    return TableCell(f"{number:,}", value=number)


def sentences(analysis: Analysis) -> list[str]:
    """See `single_runs.sentences`."""
    return single_runs.sentences(analysis.over_images, analysis.alpha)
