"""The report's tables of effective robustness."""

from __future__ import annotations

from biasbed.analysis import effective
from biasbed.analysis.report.cells import Links, ReportTable, decimal, interval, text
from biasbed.analysis.result import Analysis


def figure_name(reference: str, dataset: str) -> str:
    """Of its figure's files."""
    return f"effective_{dataset}_by_{reference}"


def tables(analysis: Analysis, links: Links) -> list[tuple[str, ReportTable]]:
    """(name of its figure, table) of each pair of sets, the rows farthest above the line first."""
    found = []
    for (reference, dataset), own in analysis.effective.groupby(["reference", "dataset"], sort=False):
        rows = []
        for row in own.sort_values("residual", ascending=False, kind="stable").to_dict("records"):
            kind = "plain" if row["plain"] else "extrapolated" if row["extrapolated"] else ""
            numbers = (decimal(row["reference_accuracy"]), decimal(row["accuracy"]), decimal(row["predicted"]))
            residual = interval(row["residual"], row["low"], row["high"])
            rows.append((links.algorithm(row["algorithm"]), text(kind), *numbers, residual))
        caption = (
            f"Accuracy on {dataset} above what accuracy on {reference} predicts, in points. Below it the interval that "
            "the scatter of the plain rows leaves, were the row one more of them "
            f"({100 * (1 - analysis.alpha):g} %). Extrapolated: farther outside the plain rows' range than that is "
            "wide; the line tells nothing there."
        )
        head = ("", "", str(reference), str(dataset), "predicted", "above the line")
        table = ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "effective_robustness.csv")
        found.append((figure_name(str(reference), str(dataset)), table))
    return found


def sentences(analysis: Analysis) -> list[str]:
    """See `effective.sentences`."""
    return effective.sentences(analysis.effective, analysis.alpha)
