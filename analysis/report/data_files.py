"""CSV and JSON files of the result. docs/report.md and docs/analysis.md describe every column."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from biasbed.analysis import scores, sections
from biasbed.analysis.columns import blocks
from biasbed.analysis.report import groups, laid_out_tables, phrases, study_design, wording
from biasbed.analysis.report.limitations import detectable
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.report.verdicts import main
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile
from biasbed.analysis.statistics import planner
from biasbed.analysis.statistics.friedman import STRICT, RankTests
from biasbed.analysis.statistics.pairwise import limits_fields
from biasbed.system.csv_tables import harmless

FLOAT_FORMAT = "%.10g"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write all tables and return file name -> one line that says what it is."""
    files = {}
    for name, (frame, description) in frames(analysis).items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(map(harmless, frame.columns))
            writer.writerows(zip(*(_texts(frame[column]) for column in frame.columns), strict=True))
        files[name] = description
    for name, content, description in (*_power(analysis), *_omnibus(analysis)):
        (folder / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        files[name] = description
    return files


def _texts(column: pd.Series[Any]) -> list[Any]:
    """Return a column as it is written: empty if a value is missing. There may be hundreds of thousands of values."""
    values = column.tolist()
    if column.dtype.kind == "f":
        return ["" if math.isnan(value) else FLOAT_FORMAT % value for value in values]
    if column.dtype.kind in "iub" and not column.hasnans:
        return values
    if isinstance(column.dtype, pd.StringDtype):
        texts = {value: _text(value) for value in set(values)}  # few names, many times
        return [texts[value] for value in values]
    return list(map(_text, values))


def _text(value: Any) -> Any:
    if pd.isna(value):
        return ""
    return harmless(value)


def frames(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """Return CSV file name -> its content and one line that says what it is; those without rows are left out."""
    descriptions, files = phrases.group("files"), []
    for name, frame in (_score_frames(analysis) | _pairwise_frames(analysis)).items():
        if frame is not None:
            files.append(CsvFile(name, frame, descriptions[name]))
    tables = {}
    for name, frame, description in (*files, *sections.csv_files(analysis)):
        if len(frame):
            # No file of oracle numbers should look like one of others.
            is_marked = "oracle" in frame or not analysis.rule.oracle
            tables[name] = (frame if is_marked else frame.assign(oracle=True), description)
    return tables


def _score_frames(analysis: Analysis) -> dict[str, pd.DataFrame | None]:
    """Return what is scored, chosen and laid out."""
    laid_out = laid_out_tables.frame(laid_out_tables.laid_out_tables(analysis, Links(analysis)))
    return {
        "runs.csv": run_rows(analysis, analysis.runs),
        "scores.csv": scores.with_intervals(analysis.scores, analysis.sets),
        "ranks.csv": rank_rows(analysis),
        "blocks.csv": analysis.blocks.round(SCORE_DIGITS),
        "averages.csv": average_rows(analysis) if len(analysis.blocks) else None,
        "rows.csv": study_design.row_frame(analysis),
        "choices.csv": analysis.choices,
        "bias_measures.csv": analysis.measured.round(SCORE_DIGITS),
        "duplicates.csv": run_rows(analysis, analysis.duplicates),
        "nemenyi.csv": nemenyi_rows(analysis),
        "spread.csv": analysis.spread,
        "shape_bias.csv": analysis.texture.round(SCORE_DIGITS),
        "shape_bias_by_category.csv": analysis.cues.round(SCORE_DIGITS),
        laid_out_tables.CSV: laid_out,
        "reproduction.csv": analysis.reproduction,
    }


def _pairwise_frames(analysis: Analysis) -> dict[str, pd.DataFrame | None]:
    """Return what the tests say of pairs and single sets, what rules cost, and what would change a conclusion."""
    results = analysis.pairwise
    return {
        "wilcoxon_holm.csv": results.wilcoxon,
        "effects.csv": results.effects,
        "bayesian.csv": results.bayesian,
        "intervals.csv": results.intervals,
        "per_set.csv": results.sets,
        "per_set_pairs.csv": results.set_pairs,
        "sensitivity.csv": results.flips,
        "sensitivity_checks.csv": results.checks,
        "pool.csv": results.pool,
        "plan.csv": results.plan,
    }


def run_rows(analysis: Analysis, runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run, evaluation set and rule."""
    collection = analysis.collection
    origin = {run.id: run for run in (*collection.runs, *collection.duplicates)}
    origins = [origin[run_id] for run_id in runs["run_id"].tolist()]
    scope = {}
    for name in ("kind", "suite", "study", "protocol"):
        scope[name] = [getattr(run, name) for run in origins]
    frame = runs.assign(**scope, rule=analysis.rule.name, oracle=analysis.rule.oracle)
    if wording.repeated(analysis) == "run":
        frame = frame.drop(columns=["cell", "replicate"])  # they would say nothing
    first = [*scope, "algorithm", "seed", "test_domains", "dataset", "rule", "oracle"]
    return frame[[*first, *(name for name in frame if name not in first)]].round(SCORE_DIGITS)


def average_rows(analysis: Analysis) -> pd.DataFrame:
    """Return one row per algorithm and column, data set of several columns, and over all data sets.

    Columns algorithm, dataset (of the last kind `AVERAGE`), mean, error (what ± is in tables; none over data sets), its
    kind and ddof, num_runs.
    """
    kind, ddof = scores.ERRORS[analysis.error]
    averages = groups.averages(analysis)
    rows: list[tuple[object, ...]] = []
    for algorithm in analysis.algorithms:
        cells = []
        for group in groups.groups(analysis):
            cells += [(column.name, analysis.cells[algorithm, column.name]) for column in group.columns]
            if group.wide:
                cells.append((group.block, analysis.averages[algorithm, group.block]))
        for name, cell in cells:
            rows.append((algorithm, name, cell.mean, cell.std, kind, ddof, cell.num_runs))
        if averages is not None and averages.means:
            rows.append((algorithm, groups.AVERAGE, averages.means[algorithm], math.nan, "", None, None))
    columns = ["algorithm", "dataset", "mean", "error", "kind", "ddof", "num_runs"]
    return pd.DataFrame(rows, columns=columns).astype({"ddof": "Int64", "num_runs": "Int64"})


def rank_rows(analysis: Analysis) -> pd.DataFrame:
    """Return one row per setting and algorithm, best first: average rank, number of sets, and the rank on each set."""
    parts = []
    for comparison in analysis.comparisons:
        if not len(comparison.ranks):
            continue
        ranks = comparison.ranks.T.loc[list(comparison.mean_ranks)]
        ranks = ranks.reindex(columns=list(blocks(analysis.sets)))
        ranks.insert(0, "average_rank", list(comparison.mean_ranks.values()))
        ranks.insert(1, "num_sets", len(comparison.sets))
        ranks.insert(0, "algorithm", ranks.index)
        ranks.insert(0, "setting", comparison.setting)
        parts.append(ranks.reset_index(drop=True))
    if parts:
        return pd.concat(parts, ignore_index=True)
    return pd.DataFrame()


def nemenyi_rows(analysis: Analysis) -> pd.DataFrame:
    """Return one row per setting and pair: rank difference, p, and whether the omnibus test is significant."""
    rows = []
    for comparison in analysis.comparisons:
        if comparison.nemenyi is None or comparison.reach is None:
            continue
        ranks, allowed = comparison.mean_ranks, comparison.significant
        for a, b in itertools.combinations(comparison.algorithms, 2):
            p = comparison.p(a, b)
            row = (comparison.setting, a, b, ranks[a], ranks[b], abs(ranks[a] - ranks[b]))
            rows.append((*row, comparison.reach.critical_difference, p, allowed, allowed and p < comparison.alpha))
    first = ["setting", "a", "b", "average_rank_a", "average_rank_b", "difference"]
    return pd.DataFrame(rows, columns=[*first, "critical_difference", "p", "omnibus_significant", "significant"])


JsonFile = tuple[str, dict[str, Any], str]  # name, content, one line that says what it is


def _power(analysis: Analysis) -> list[JsonFile]:
    """Return what the design could have shown; nothing without tests."""
    results = analysis.pairwise
    if not results.limits:
        return []
    content: dict[str, Any] = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle}
    for limits in results.limits:
        sentence = " ".join(detectable(analysis, limits))
        content[limits.setting] = limits_fields(limits, analysis.alpha) | {"sentence": sentence}
    if results.plan is not None:
        designs: dict[str, Any] = {}
        for name in planner.procedures(len(main(analysis).algorithms), analysis.alpha):
            cheapest = planner.cheapest(results.plan, name)
            designs[name] = None if cheapest is None else {"num_sets": cheapest[0], "num_runs": cheapest[1]}
        difference = float(results.plan["difference"].iloc[0])
        content["plan"] = {"difference": difference, "cheapest": designs}
    return [("power.json", content, "what this design could and could not have shown")]


def _omnibus(analysis: Analysis) -> list[JsonFile]:
    """Return the omnibus test, or the paired tests of two algorithms, of every setting."""
    first, *others = analysis.comparisons
    about = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle, "algorithms": list(first.algorithms)}
    files = []
    for name, fields, kind, description in (
        ("friedman.json", friedman_fields, "friedman", "Friedman's test with Iman and Davenport's correction"),
        ("paired_tests.json", pair_fields, "pair", "exact Wilcoxon signed-rank and sign test of the two algorithms"),
    ):
        if any(getattr(comparison, kind) is not None for comparison in analysis.comparisons):
            settings = {STRICT: None} | {comparison.setting: fields(comparison) for comparison in others}
            files.append((name, about | fields(first) | settings, description))
    return files


def friedman_fields(comparison: RankTests) -> dict[str, Any]:
    """Return the omnibus test of one setting as plain values; JSON has no infinity, so an infinite F is null."""
    fields = _common_fields(comparison)
    test = comparison.friedman
    if test is None:
        return fields
    finite = math.isfinite(test.f)
    return (
        fields
        | {
            "friedman_chi2": test.chi2,
            "friedman_dof": test.chi2_dof,
            "friedman_p": test.chi2_p,
            "iman_davenport_f": test.f if finite else None,
            "iman_davenport_f_infinite": not finite,
            "iman_davenport_dof": list(test.f_dof),
            "iman_davenport_p": test.f_p,
            "permutation_p": test.permutation_p,
            "p": test.p,
            "significant": comparison.significant,
            "kendall_w": test.kendall_w,
            "average_ranks": comparison.mean_ranks,
        }
        | _reach_fields(comparison)
    )


def pair_fields(comparison: RankTests) -> dict[str, Any]:
    """Return the paired tests of one setting as plain values."""
    fields = _common_fields(comparison)
    test = comparison.pair
    if test is None:
        return fields
    return (
        fields
        | {
            "a": test.a,
            "b": test.b,
            "wins": test.wins,
            "losses": test.losses,
            "ties": test.ties,
            "wilcoxon_rank_sum": test.rank_sum,
            "wilcoxon_p": test.wilcoxon_p,
            "sign_p": test.sign_p,
            "significant": comparison.significant,
        }
        | _reach_fields(comparison)
    )


def _common_fields(comparison: RankTests) -> dict[str, Any]:
    return {
        "setting": comparison.setting,
        "sets": list(comparison.sets),
        "left_out": list(comparison.left_out),
        "num_algorithms": len(comparison.algorithms),
        "num_sets": len(comparison.sets),
        "alpha": comparison.alpha,
        "skipped": comparison.skipped or None,
    }


def _reach_fields(comparison: RankTests) -> dict[str, Any]:
    reach = comparison.reach
    if reach is None:
        return {}
    return {
        "critical_difference": reach.critical_difference,
        "largest_possible_difference": reach.largest_difference,
        "smallest_num_sets": reach.smallest_num_sets,
        "power": reach.sentence,
    }
