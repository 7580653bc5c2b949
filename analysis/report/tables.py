"""The result as CSV and JSON files. Every column is described in docs/report.md and docs/analysis.md."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from biasbed.analysis import scores
from biasbed.analysis.columns import blocks
from biasbed.analysis.report import compared, groups, layouts, paper_tables, single_runs, words
from biasbed.analysis.report.doubts import detectable
from biasbed.analysis.report.verdicts import main
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import planner
from biasbed.analysis.statistics.friedman import STRICT, RankTests
from biasbed.analysis.statistics.pairwise import limits_fields
from biasbed.system.tables import harmless

SCORE_DIGITS = 6  # of what is written; the tests use all digits
FLOAT_FORMAT = "%.10g"


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes all tables and returns file name -> one line that says what it is."""
    files = {}
    for name, (frame, description) in frames(analysis).items():
        safe = frame.rename(columns=harmless)  # of cells, those of texts
        for column in safe.select_dtypes(exclude=["number", "bool"]).columns:
            safe[column] = pd.Series(list(map(harmless, safe[column])), safe.index, dtype=object)
        safe.to_csv(folder / name, index=False, float_format=FLOAT_FORMAT, lineterminator="\n")
        files[name] = description
    for name, content, description in _tests(analysis):
        (folder / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        files[name] = description
    return files


def frames(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """CSV file name -> its content and one line that says what it is; those without rows are left out."""
    tables = {
        "runs.csv": (run_rows(analysis, analysis.runs), "every run, evaluation set and rule: the selected score"),
        "scores.csv": (
            scores.with_intervals(analysis.scores, analysis.sets),
            "mean and standard deviation over runs of each algorithm on each set, and what the set's size leaves open",
        ),
    }
    ranks = rank_rows(analysis)
    if len(ranks):
        tables["ranks.csv"] = (ranks, "rank of each algorithm on each set, and its average")
    if len(analysis.blocks):
        about = "the same of the data sets that have several columns: mean over columns, deviation over replicates"
        tables["blocks.csv"] = (analysis.blocks.round(SCORE_DIGITS), about)
        about = "what tables of data sets print: columns, averages and their mean, with the error and its ddof"
        tables["averages.csv"] = (average_rows(analysis), about)
    tables["rows.csv"] = (compared.rows(analysis), "what every algorithm is, with the settings in which they differ")
    if len(analysis.choices):
        tables["choices.csv"] = (analysis.choices, "which run every rule chose, and at which steps")
    tables |= _criteria(analysis)
    found = paper_tables.of(analysis)
    if found.tables:
        about = "the Align-Conflict paper's tables with all digits, and which of their numbers are marked"
        tables["paper_tables.csv"] = (paper_tables.frame(found), about)
    if len(analysis.duplicates):
        duplicates = run_rows(analysis, analysis.duplicates)
        tables["duplicates.csv"] = (duplicates, "like runs.csv, of finished runs that do not count")
    pairs = nemenyi_rows(analysis)
    if len(pairs):
        tables["nemenyi.csv"] = (pairs, "Nemenyi's test for every pair of algorithms")
    if len(analysis.grain):
        about = "of every selected epoch what the number of images leaves open, and how many epochs are as good"
        tables["grain.csv"] = (analysis.grain.round(SCORE_DIGITS), about)
    if len(analysis.spread):
        about = "deviations over runs, over epochs, and over both as Kalischek et al. (2023) give them"
        tables["spread.csv"] = (analysis.spread, about)
    if len(analysis.effective):
        about = "accuracy on shifted sets above the line through plain rows, on probit axes"
        tables["effective_robustness.csv"] = (analysis.effective.round(SCORE_DIGITS), about)
    if len(analysis.over_images.table):
        about = "rows with one run: McNemar's exact test and paired bootstrap over images, from stored decisions"
        tables[single_runs.CSV] = (analysis.over_images.table, about)
    if len(analysis.texture):
        about = "shape bias of every algorithm, beside that of the reference"
        tables["shape_bias.csv"] = (analysis.texture.round(SCORE_DIGITS), about)
    if len(analysis.cues):
        about = "decisions for shape and texture by category of the shape, of the rows that are drawn"
        tables["shape_bias_by_category.csv"] = (analysis.cues.round(SCORE_DIGITS), about)
    laid_out = layouts.frame(analysis)
    if len(laid_out):
        tables[layouts.CSV] = (laid_out, "tables laid out as a paper's: ours beside the printed numbers")
    if analysis.reproduction is not None:
        tables["reproduction.csv"] = (analysis.reproduction, "one's own numbers beside the published ones")
    tables |= {name: entry for name, entry in _evidence(analysis).items() if len(entry[0])}
    if not analysis.rule.oracle:
        return tables
    return {name: (_marked(frame), description) for name, (frame, description) in tables.items()}


def _criteria(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """What every selection rule chooses of a search; nothing without one."""
    if analysis.winners.each.empty:
        return {}
    return {
        "winners.csv": (
            analysis.winners.each,
            "the trial that every rule chose in each cell: its settings and all its test values",
        ),
        "criteria.csv": (analysis.winners.means, "the same as means over methods, a row per rule and set"),
    }


def _marked(frame: pd.DataFrame) -> pd.DataFrame:
    """No file of oracle numbers should look like one of others."""
    return frame if "oracle" in frame else frame.assign(oracle=True)


def run_rows(analysis: Analysis, runs: pd.DataFrame) -> pd.DataFrame:
    """Tidy: one row per run, evaluation set and rule."""
    collection = analysis.collection
    origin = {run.id: run for run in (*collection.runs, *collection.duplicates)}
    scope = {
        name: [getattr(origin[run_id], name) for run_id in runs["run_id"]]
        for name in ("kind", "suite", "study", "protocol")
    }
    frame = runs.assign(**scope, rule=analysis.rule.name, oracle=analysis.rule.oracle)
    if words.repeated(analysis) == "run":
        frame = frame.drop(columns=["cell", "replicate"])  # they would say nothing
    first = [*scope, "algorithm", "seed", "test_domains", "dataset", "rule", "oracle"]
    return frame[[*first, *(name for name in frame if name not in first)]].round(SCORE_DIGITS)


def average_rows(analysis: Analysis) -> pd.DataFrame:
    """One row per algorithm and column, data set of several columns, and over all data sets.

    Columns algorithm, dataset (of the last kind `AVERAGE`), mean, error (what ± is in tables; none over data sets), its
    kind and ddof, num_runs.
    """
    kind, ddof = scores.ERRORS[analysis.error]
    found = groups.averages(analysis)
    rows: list[tuple[object, ...]] = []
    for algorithm in analysis.algorithms:
        for group in groups.groups(analysis):
            names = (*(column.name for column in group.columns), *([group.block] if group.wide else []))
            for name, cell in zip(names, group.cells(analysis, algorithm), strict=True):
                rows.append((algorithm, name, cell.mean, cell.std, kind, ddof, cell.num_runs))
        if found is not None and found.means:
            rows.append((algorithm, groups.AVERAGE, found.means[algorithm], math.nan, "", None, None))
    columns = ["algorithm", "dataset", "mean", "error", "kind", "ddof", "num_runs"]
    return pd.DataFrame(rows, columns=columns).astype({"ddof": "Int64", "num_runs": "Int64"})


def rank_rows(analysis: Analysis) -> pd.DataFrame:
    """One row per setting and algorithm, best first: average rank, number of sets, and the rank on each set."""
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
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def nemenyi_rows(analysis: Analysis) -> pd.DataFrame:
    """One row per setting and pair: rank difference, p, and whether the omnibus test allows to speak of it."""
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


def _evidence(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    """What `PairwiseResults` holds; those that are empty (without pairs, without a plan) are not written."""
    found = analysis.pairwise
    plan = pd.DataFrame() if found.plan is None else found.plan
    return {
        "wilcoxon_holm.csv": (found.wilcoxon, "exact Wilcoxon and sign tests of every pair, with Holm's correction"),
        "effects.csv": (found.effects, "by how much one algorithm of a pair is better, with intervals"),
        "bayesian.csv": (
            found.bayesian,
            "probability that one of a pair is better in practice, or both alike",
        ),
        "intervals.csv": (found.intervals, "bootstrap intervals of every mean, and the runs behind it"),
        "per_set.csv": (found.sets, "Kruskal-Wallis test over the runs of every set"),
        "per_set_pairs.csv": (found.set_pairs, "Mann-Whitney tests over the runs of every set and pair"),
        "selection.csv": (analysis.selection, "scores under every selection rule, and the gap to the oracle"),
        "selection_gap.csv": (analysis.selection_gap, "the selection rule beside the oracle"),
        "regret.csv": (analysis.regret, "what each selection rule costs, and where each algorithm stands under it"),
        "labels.csv": (analysis.labels, "how much better rules choose that take more labels than others"),
        "sensitivity.csv": (found.flips, "every conclusion that is another one if something is changed"),
        "sensitivity_checks.csv": (found.checks, "how many conclusions were checked, and how many flip"),
        "pool.csv": (found.pool, "what other algorithms in the comparison do to Nemenyi's verdict on a pair"),
        "plan.csv": (plan, "power of larger and smaller designs"),
    }


def _tests(analysis: Analysis) -> list[tuple[str, dict[str, Any], str]]:
    """The JSON files: power, and the omnibus test or the two paired tests of two algorithms."""
    return [*_power(analysis), *_omnibus(analysis)]


def _power(analysis: Analysis) -> list[tuple[str, dict[str, Any], str]]:
    found = analysis.pairwise
    if not found.limits:
        return []
    content: dict[str, Any] = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle}
    for limits in found.limits:
        content[limits.setting] = limits_fields(limits, analysis.alpha) | {
            "sentence": " ".join(detectable(analysis, limits))
        }
    if found.plan is not None:
        names = planner.procedures(len(main(analysis).algorithms), analysis.alpha)
        cheapest = {name: planner.cheapest(found.plan, name) for name in names}
        content["plan"] = {
            "difference": float(found.plan["difference"].iloc[0]),
            "cheapest": {
                name: None if best is None else {"num_sets": best[0], "num_runs": best[1]}
                for name, best in cheapest.items()
            },
        }
    return [("power.json", content, "what this design could and could not have shown")]


def _omnibus(analysis: Analysis) -> list[tuple[str, dict[str, Any], str]]:
    whole, *others = analysis.comparisons
    about = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle, "algorithms": list(whole.algorithms)}
    found = []
    for name, fields, kind, description in (
        ("friedman.json", friedman_fields, "friedman", "Friedman's test with Iman and Davenport's correction"),
        ("paired_tests.json", pair_fields, "pair", "exact Wilcoxon signed-rank and sign test of the two algorithms"),
    ):
        if any(getattr(comparison, kind) is not None for comparison in analysis.comparisons):
            settings = {STRICT: None} | {other.setting: fields(other) for other in others}
            found.append((name, about | fields(whole) | settings, description))
    return found


def friedman_fields(comparison: RankTests) -> dict[str, Any]:
    """The omnibus test of one setting as plain values; JSON has no infinity, so an infinite F is null."""
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
    """The paired tests of one setting as plain values."""
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
