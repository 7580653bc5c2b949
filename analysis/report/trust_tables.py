"""Tables of trust measures: probabilities and conformal sets, detection, coverage by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from biasbed import measures
from biasbed.analysis.comparisons.trust import TEMPERATURE
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    interval_cell,
    make_table,
    number_cell,
    prepared_columns,
    text,
)
from biasbed.analysis.result import Analysis

PROBABILITIES = {
    "accuracy": "accuracy",
    "loss": "NLL",
    "loss_scaled": "NLL scaled",
    "brier": "Brier",
    "brier_scaled": "Brier scaled",
    "ece": "ECE",
    "ece_scaled": "ECE scaled",
    "lac_coverage": "coverage",
    "lac_size": "set size",
    TEMPERATURE: "temperature",
}
DETECTION = {
    "auroc_msp": "AUROC, softmax",
    "fpr95_msp": "FPR, softmax",
    "auroc_energy": "AUROC, energy",
    "fpr95_energy": "FPR, energy",
    "auroc_mahalanobis": "AUROC, Mahalanobis",
    "fpr95_mahalanobis": "FPR, Mahalanobis",
}
GROUPS = {
    "lac_coverage": "coverage",
    "lac_size": "set size",
    "own_lac_coverage": "coverage, own threshold",
    "own_lac_size": "set size, own threshold",
}


class TrustSection(NamedTuple):
    """Section of the report about trust."""

    tables: list[ReportTable]
    reasons: list[str]  # what has no value, and why


def on_page(analysis: Analysis, links: Links) -> TrustSection | None:
    """Return the section; None if no run was to store scores."""
    trust = analysis.trust
    if not trust.applies:
        return None
    sets = " and ".join(trust.calibrating)
    level = f"{100 * (1 - analysis.alpha):g}"
    promise = f"{100 * (1 - analysis.options.miss):g}"
    caption = say("trust_probabilities", sets=sets, level=level, promise=promise)
    frame = trust.table
    tables = [_values(analysis, links, frame, PROBABILITIES, caption, "trust.csv")]
    reference = next(filter(None, frame["reference"]), "")
    if reference:
        against = frame[frame["reference"] == reference].drop(columns=["mean", "std", "low", "high"])
        renamed = {"difference": "mean", "difference_low": "low", "difference_high": "high"}
        caption = say("trust_against", reference=reference)
        tables.append(_values(analysis, links, against.rename(columns=renamed), PROBABILITIES, caption, "trust.csv"))
    caption = say("trust_detection", sets=sets)
    tables.append(_values(analysis, links, frame, DETECTION, caption, "trust.csv"))
    tables.append(_values(analysis, links, trust.groups, GROUPS, say("trust_groups"), "trust_groups.csv"))
    return TrustSection([table for table in tables if table is not None], list(trust.left_out))


def _values(
    analysis: Analysis, links: Links, frame: pd.DataFrame, heads: Mapping[str, str], caption: str, file: str
) -> ReportTable | None:
    """Return a table with a column for each measure; None without any value. heads: of the columns, by measure."""
    shown = frame[frame["measure"].isin(list(heads))]
    if shown.empty:
        return None
    records: dict[tuple[str, ...], dict[Any, Any]] = {}
    keys = [name for name in ("dataset", "cell", "algorithm", "group") if name in shown]
    for row in shown.to_dict("records"):
        key = tuple(str(row[name]) for name in keys)
        record = records.setdefault(key, {**dict(zip(keys, key, strict=True)), "num_runs": row["num_runs"]})
        record[heads[row["measure"]]] = _cell(row)
    used = [head for measure, head in heads.items() if measure in set(shown["measure"])]
    columns = [TableColumn("set", text("dataset"))]
    if (shown["cell"] != "").any():
        columns.append(TableColumn("trained on", text("cell")))
    columns.append(TableColumn("algorithm", links.algorithm()))
    if "group" in shown:
        columns.append(TableColumn("group", text("group")))
    columns += prepared_columns(used)
    return make_table(caption, columns, records.values(), file, oracle=analysis.rule.oracle)


def _cell(row: Mapping[Any, Any]) -> TableCell:
    """Return a number with its interval, or with its deviation over runs if it has no interval."""
    unit = measures.find_measure(str(row["measure"]).removeprefix("own_")).unit
    digits = 1 if unit == measures.FRACTION else 3
    if unit == "classes":
        digits = 2
    if "low" not in row:
        return number_cell(row["mean"], digits)
    return interval_cell(row["mean"], row["low"], row["high"], digits)
