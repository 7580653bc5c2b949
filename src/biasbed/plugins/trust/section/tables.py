"""Tables of trust: probabilities, detection, and coverage by group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from biasbed import measures
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    count,
    interval_text,
    make_table,
    named,
    number_cell,
    prepared_columns,
    spread_text,
    text,
)
from biasbed.analysis.result import Analysis
from biasbed.plugins.trust.options import trust_options
from biasbed.plugins.trust.section.assessed_rows import TEMPERATURE, TrustTables
from biasbed.plugins.trust.section.sentences import both_leave_out_zero, leaves_out_zero

FILE, GROUPS_FILE = "trust.csv", "trust_groups.csv"
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
}
GROUPS = {
    "lac_coverage": "coverage",
    "lac_size": "set size",
    "own_lac_coverage": "coverage, own threshold",
    "own_lac_size": "set size, own threshold",
}


def make_tables(trust: TrustTables, analysis: Analysis, links: Links) -> list[ReportTable]:
    """Return the tables of probabilities, differences to the reference, detection, and coverage by group."""
    sets = " and ".join(trust.calibrating)
    level = f"{100 * (1 - analysis.alpha):g}"
    promise = f"{100 * (1 - trust_options(analysis.options).miss):g}"
    caption = (
        f"Unscaled probabilities, and those at a temperature that was fitted on one half of {sets}: negative "
        "log-likelihood (nats), Brier score (0 to 2), expected calibration error (%); coverage (%) and mean size of "
        f"conformal sets that promise {promise} % on images like those that calibrate (LAC). The measures of {sets} "
        f"are those of the other half. Mean ± standard deviation over runs (n - 1); below, its {level} % interval over "
        "images, for these weights."
    )
    frame = trust.table
    tables = [_measure_table(analysis, links, frame, PROBABILITIES, caption, FILE)]
    reference = next(filter(None, frame["reference"]), "")
    if reference:
        against = frame[frame["reference"] == reference]
        caption = (
            f"Difference to {analysis.label(reference)} on the same images; below, its {level} % interval over images, "
            "for these weights. Bold: 0 is outside that interval; underlined: outside of the interval over runs, too "
            "(Welch's t). Each interval is of this row, set and measure alone."
        )
        tables.append(_measure_table(analysis, links, against, PROBABILITIES, caption, FILE, _difference_cell))
    caption = (
        f"Detection of each set's images among the half of {sets} that did not calibrate, in percent: area under the "
        "receiver operating characteristic (50: by chance) and false positives where 95 % of the set are detected; by "
        "maximum softmax and energy. Mean ± standard deviation over runs; below, the interval over images."
    )
    tables.append(_measure_table(analysis, links, frame, DETECTION, caption, FILE))
    caption = (
        "Conformal sets by group of images: with the common threshold, and with a threshold of the group's own "
        "(Mondrian) where the calibrating images have the groups. Mean ± standard deviation over runs."
    )
    tables.append(_measure_table(analysis, links, trust.groups, GROUPS, caption, GROUPS_FILE))
    return [table for table in tables if table is not None]


def _measure_table(
    analysis: Analysis,
    links: Links,
    frame: pd.DataFrame,
    heads: Mapping[str, str],
    caption: str,
    file: str,
    make_cell: CellMaker | None = None,
) -> ReportTable | None:
    """Return a table with a column for each measure; None without any value.

    heads: of the columns, by measure. make_cell: of a row of the frame; `_mean_cell` by default.
    """
    make_cell = make_cell or _mean_cell
    shown = frame[frame["measure"].isin(list(heads))]
    if shown.empty:
        return None
    records: dict[tuple[str, ...], dict[Any, Any]] = {}
    keys = [name for name in ("dataset", "cell", "algorithm", "group") if name in shown]
    for row in shown.to_dict("records"):
        key = tuple(str(row[name]) for name in keys)
        record = records.setdefault(key, {**dict(zip(keys, key, strict=True)), "num_runs": 0})
        record["num_runs"] = max(record["num_runs"], row["num_runs"])  # a measure may lack a run
        record[heads[row["measure"]]] = make_cell(row)
    used = [head for measure, head in heads.items() if measure in set(shown["measure"])]
    columns = [TableColumn("set", named("dataset", links.label))]
    if (shown["cell"] != "").any():
        columns.append(TableColumn("trained on", named("cell", links.label)))
    columns.append(TableColumn("algorithm", links.algorithm()))
    if "group" in shown:
        columns.append(TableColumn("group", text("group")))
    columns += [TableColumn("runs", count("num_runs")), *prepared_columns(used)]
    return make_table(caption, columns, records.values(), file, oracle=analysis.rule.oracle)


def _mean_cell(row: TableRecord) -> TableCell:
    """Return a mean with its deviation over runs, and its interval if it has one."""
    digits = _digits_of(row)
    interval = interval_text(row.get("low", math.nan), row.get("high", math.nan), digits)
    if row["measure"] == TEMPERATURE and row["num_at_limit"]:
        interval = f"runs at a limit: {row['num_at_limit']}"
    spread = "" if math.isnan(row["std"]) else spread_text(f"{row['std']:.{digits}f}")
    return number_cell(row["mean"], digits, spread=spread, interval=interval)


def _difference_cell(row: TableRecord) -> TableCell:
    """Return a difference with its interval: bold if that over images leaves out 0, underlined if that over runs does.

    An underlined difference is always bold.
    """
    digits = _digits_of(row)
    over_images = (row["difference_low"], row["difference_high"])
    return number_cell(
        row["difference"],
        digits,
        interval=interval_text(*over_images, digits),
        bold=leaves_out_zero(*over_images),
        underlined=both_leave_out_zero(*over_images, row["runs_low"], row["runs_high"]),
    )


def _digits_of(row: TableRecord) -> int:
    unit = measures.find_measure(str(row["measure"]).removeprefix("own_")).unit
    if unit == "classes":
        return 2
    return 1 if unit == measures.FRACTION else 3
