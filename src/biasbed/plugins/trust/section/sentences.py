"""Sentences on trust: rows that are better calibrated, prediction sets with too few labels, sets that are detected.

A row is called better calibrated only where the interval of its difference over images and that over runs leave out 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from biasbed.analysis.display_names import Labels
from biasbed.analysis.report.table_model import TableRecord
from biasbed.analysis.report.wording import count, listing, plural
from biasbed.analysis.result import Analysis
from biasbed.plugins.trust.options import trust_options
from biasbed.plugins.trust.section.assessed_rows import REFERENCE, LimitedTemperature, TrustTables

CALIBRATION = {"ece": "before temperature scaling", "ece_scaled": "after temperature scaling"}  # by measure
# Support of the two intervals of a difference to a reference, which fills the braces.
BETTER, WORSE = "better calibrated than {}", "worse calibrated than {}"
BETTER_WEIGHTS, WORSE_WEIGHTS = f"{BETTER} for these weights alone", f"{WORSE} for these weights alone"
NOT_SHOWN, NOT_COMPARED = "not shown to differ from {}", "not compared with {}"
VERDICTS = (BETTER, WORSE, BETTER_WEIGHTS, WORSE_WEIGHTS, NOT_SHOWN, NOT_COMPARED)
BY_CHANCE = 50.0  # AUROC
MOST = 4  # sets of one verdict that are put into words; the tables have all


def trust_sentences(trust: TrustTables, analysis: Analysis) -> list[str]:
    """Return the sentences on every row with stored scores; empty if there are none."""
    if trust.table.empty:
        return []
    return [
        *_calibration_sentences(trust, analysis),
        *_limit_sentences(trust.at_limit, analysis.label),
        _coverage_sentence(trust, analysis),
        *_detection_sentences(trust, analysis),
    ]


def leaves_out_zero(low: float, high: float) -> bool:
    """Return True if 0 is outside an interval; False for NaN."""
    return low > 0 or high < 0


def both_leave_out_zero(low: float, high: float, runs_low: float, runs_high: float) -> bool:
    """Return True if both intervals leave out 0, on the same side; False for NaN."""
    if math.isnan(runs_low):
        return False
    return min(low, runs_low) > 0 or max(high, runs_high) < 0


# --- calibration ------------------------------------------------------------------------------------------------------


def _calibration_sentences(trust: TrustTables, analysis: Analysis) -> list[str]:
    """Return a sentence for each row, before and after scaling, on its calibration compared with the reference."""
    frame = trust.table
    calibration = frame[frame["measure"].isin(CALIBRATION)]
    compared = calibration[calibration["reference"] != ""]
    reference = analysis.options.control_name or REFERENCE
    if compared.empty:
        if reference in set(calibration["algorithm"]) and calibration["algorithm"].nunique() == 1:
            return []
        return [
            f"No row is compared with another: {analysis.label(reference)} has no stored scores on these sets. "
            "control=<row> names another reference."
        ]
    lines = []
    others = calibration[calibration["algorithm"] != reference]
    for name in dict.fromkeys(others["algorithm"]):
        for measure in CALIBRATION:
            of_row = others[(others["algorithm"] == name) & (others["measure"] == measure)]
            lines.append(_calibration_sentence(of_row.to_dict("records"), reference, analysis.label))
    number = len(compared)
    scope = (
        "Calibration is the expected calibration error (ECE), in points; in brackets the "
        f"{100 * (1 - analysis.alpha):g} % interval of the difference over images, for these weights and temperatures, "
        "then over runs (Welch's t). 'Better' or 'worse' means that both leave out 0, 'for these weights alone' that "
        "only the one over images does: another seed may then differ. Each interval covers one row and set alone: of "
        f"{number} true differences of 0, about {number * analysis.alpha:.1f} would leave out 0."
    )
    return [*lines, scope]


def _calibration_sentence(rows: Sequence[TableRecord], reference: str, label: Labels) -> str:
    """Return the sentence on a row's calibration. rows: its table rows of one measure, one for each set."""
    by_verdict: dict[str, list[TableRecord]] = {}
    for row in rows:
        by_verdict.setdefault(_calibration_verdict(row), []).append(row)
    parts = []
    for verdict in VERDICTS:
        if verdict in by_verdict:
            parts.append(f"{verdict.format(label(reference))} on {_list_sets(by_verdict[verdict], label)}")
    return f"{label(str(rows[0]['algorithm']))} {CALIBRATION[rows[0]['measure']]}: {'; '.join(parts)}."


def _calibration_verdict(row: TableRecord) -> str:
    """Return which of `VERDICTS` the intervals of a difference of calibration errors support; less error is better."""
    low, high = row["difference_low"], row["difference_high"]
    if not row["reference"]:
        return NOT_COMPARED
    if not leaves_out_zero(low, high):
        return NOT_SHOWN
    is_of_runs = both_leave_out_zero(low, high, row["runs_low"], row["runs_high"])
    if high < 0:
        return BETTER if is_of_runs else BETTER_WEIGHTS
    return WORSE if is_of_runs else WORSE_WEIGHTS


def _list_sets(rows: Sequence[TableRecord], label: Labels) -> str:
    """Return the sets with the difference and its intervals as a listing, the largest differences first."""
    ordered = sorted(rows, key=lambda row: -abs(row["difference"]) if row["reference"] else 0)
    parts = [_difference_on_set(row, label) for row in ordered[:MOST]]
    if len(rows) > MOST:
        parts.append(f"{len(rows) - MOST} more")
    return listing(parts)


def _difference_on_set(row: TableRecord, label: Labels) -> str:
    """Return a set with the difference on it: `photo -1.20 [-2.00 to -0.40, over runs -1.90 to -0.50]`."""
    dataset = _set_name(row, label)
    if not row["reference"]:
        return dataset
    intervals = f"{row['difference_low']:+.2f} to {row['difference_high']:+.2f}"
    if not math.isnan(row["runs_low"]):
        intervals += f", over runs {row['runs_low']:+.2f} to {row['runs_high']:+.2f}"
    return f"{dataset} {row['difference']:+.2f} [{intervals}]"


def _set_name(row: TableRecord, label: Labels) -> str:
    """Return the display name of a row's set, with its training data if there are several."""
    return _with_cell(label(str(row["dataset"])), str(row["cell"]), label)


def _with_cell(name: str, cell: str, label: Labels) -> str:
    if not cell:
        return name
    return f"{name} (trained on {label(cell)})"


# --- prediction sets and detection ------------------------------------------------------------------------------------


def _coverage_sentence(trust: TrustTables, analysis: Analysis) -> str:
    """Return the sentence on the sets where prediction sets hold fewer labels than promised."""
    promised = 100 * (1 - trust_options(analysis.options).miss)
    promise = f"hold fewer labels than the promised {promised:g} % on"
    coverage = _rows_of_measure(trust, "lac_coverage")
    short = coverage[coverage["high"] < promised].sort_values("mean", kind="stable")
    if short.empty:
        return f"Prediction sets are not shown to {promise} any set."
    return f"Prediction sets {promise} {listing(_name_extremes(coverage, short, 'least', analysis.label))}."


def _detection_sentences(trust: TrustTables, analysis: Analysis) -> list[str]:
    """Return the sentence on the sets that maximum softmax tells from the training distribution, as a list.

    Empty if nothing was to be detected.
    """
    rates = _rows_of_measure(trust, "auroc_msp")
    if rates.empty:
        return []
    inside = listing(map(analysis.label, trust.calibrating))
    detected = rates[rates["low"] > BY_CHANCE].sort_values("mean", ascending=False, kind="stable")
    if detected.empty:
        return [f"Maximum softmax is not shown to tell the images of any set from those of {inside}."]
    sets = listing(_name_extremes(rates, detected, "most", analysis.label))
    return [
        f"Maximum softmax tells the images of {sets} from those of {inside}: AUROC above 50, which alone is no merit."
    ]


def _rows_of_measure(trust: TrustTables, measure: str) -> pd.DataFrame:
    frame = trust.table
    return frame[frame["measure"] == measure]


def _name_extremes(frame: pd.DataFrame, shown: pd.DataFrame, extreme: str, label: Labels) -> Iterator[str]:
    """Yield for each set of `shown` the number of its rows out of those of `frame`, and the first row with its value.

    extreme: word for the first row's value, `least` or `most`.
    """
    numbers = frame.groupby(["dataset", "cell"]).size().to_dict()
    for key, rows in shown.groupby(["dataset", "cell"], sort=False):
        first = rows.to_dict("records")[0]
        value = f"{label(str(first['algorithm']))} {first['mean']:.1f} [{first['low']:.1f} to {first['high']:.1f}]"
        yield f"{_set_name(first, label)} for {len(rows)} of {count(numbers[key], 'row')} ({extreme}: {value})"


# --- temperatures at a limit ------------------------------------------------------------------------------------------


def _limit_sentences(at_limit: Iterable[LimitedTemperature], label: Labels) -> Iterator[str]:
    """Yield a sentence for each limit: the runs whose temperature is there, the reason and the consequence."""
    runs_by_limit: dict[float, list[LimitedTemperature]] = {}
    for run in at_limit:
        runs_by_limit.setdefault(run.temperature, []).append(run)
    for limit, runs in sorted(runs_by_limit.items()):
        reason = "The scores say next to nothing about the calibrating labels."
        consequence = "almost equal probabilities, so a small ECE there is no merit"
        if limit < 1:
            reason = "Almost all calibrating images are decided rightly, so the sharpest probabilities are best."
            consequence = "almost certain decisions"
        yield (
            f"Temperature at the limit {limit:g}: {_name_runs(runs, label)}. {reason} It is not an estimate and is "
            f"left out of the mean temperature; measures after scaling are those of {consequence}."
        )


def _name_runs(runs: Iterable[LimitedTemperature], label: Labels) -> str:
    """Return `a (seeds 0, 1), b (seed 2)`."""
    seeds_by_row: dict[str, list[str]] = {}
    for run in runs:
        row = _with_cell(label(run.algorithm), run.cell, label)
        seeds_by_row.setdefault(row, []).append(run.seed)
    parts = []
    for row, seeds in seeds_by_row.items():
        numbers = list(filter(None, seeds))
        if numbers:
            row += f" ({plural('seed', len(numbers))} {', '.join(numbers)})"
        parts.append(row)
    return listing(parts)
