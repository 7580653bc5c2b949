"""CSV and JSON files of the tests over sets. docs/report.md and docs/analysis.md describe every column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from biasbed.analysis.columns import blocks
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks.tables import FILE
from biasbed.analysis.sections.section import CsvFile, JsonFile
from biasbed.analysis.statistics.friedman import STRICT, RankTests


def make_files(analysis: Analysis) -> Iterator[CsvFile | JsonFile]:
    """Yield all files."""
    tests = analysis.pairwise
    yield CsvFile(FILE, rank_rows(analysis), "rank of each algorithm on each set, and its average")
    yield CsvFile("nemenyi.csv", nemenyi_rows(analysis), "Nemenyi's test for every pair of algorithms")
    about = "exact Wilcoxon and sign tests of every pair, with Holm's correction"
    yield CsvFile("wilcoxon_holm.csv", tests.wilcoxon, about)
    yield CsvFile("effects.csv", tests.effects, "by how much one algorithm of a pair is better, with intervals")
    about = "probability that one of a pair is better in practice, or both alike"
    yield CsvFile("bayesian.csv", tests.bayesian, about)
    yield CsvFile("intervals.csv", tests.intervals, "bootstrap intervals of every mean, and the runs behind it")
    yield from _omnibus_files(analysis)


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


def _omnibus_files(analysis: Analysis) -> Iterator[JsonFile]:
    """Yield the omnibus tests, and the paired tests of two algorithms, if any setting has them."""
    if any(comparison.friedman is not None for comparison in analysis.comparisons):
        about = "Friedman's test with Iman and Davenport's correction"
        yield JsonFile("friedman.json", _fields_of_settings(analysis, friedman_fields), about)
    if any(comparison.pair is not None for comparison in analysis.comparisons):
        about = "exact Wilcoxon signed-rank and sign test of the two algorithms"
        yield JsonFile("paired_tests.json", _fields_of_settings(analysis, pair_fields), about)


def _fields_of_settings(analysis: Analysis, fields: Callable[[RankTests], dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of the first comparison, and below its name those of each further setting."""
    first, *others = analysis.comparisons
    about = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle, "algorithms": list(first.algorithms)}
    settings = {STRICT: None} | {comparison.setting: fields(comparison) for comparison in others}
    return about | fields(first) | settings


def friedman_fields(comparison: RankTests) -> dict[str, Any]:
    """Return the omnibus test of one setting as plain values; JSON has no infinity, so an infinite F is null."""
    test = comparison.friedman
    if test is None:
        return _common_fields(comparison)
    is_finite = math.isfinite(test.f)
    return {
        **_common_fields(comparison),
        "friedman_chi2": test.chi2,
        "friedman_dof": test.chi2_dof,
        "friedman_p": test.chi2_p,
        "iman_davenport_f": test.f if is_finite else None,
        "iman_davenport_f_infinite": not is_finite,
        "iman_davenport_dof": list(test.f_dof),
        "iman_davenport_p": test.f_p,
        "permutation_p": test.permutation_p,
        "p": test.p,
        "significant": comparison.significant,
        "kendall_w": test.kendall_w,
        "average_ranks": comparison.mean_ranks,
        **_reach_fields(comparison),
    }


def pair_fields(comparison: RankTests) -> dict[str, Any]:
    """Return the paired tests of one setting as plain values."""
    test = comparison.pair
    if test is None:
        return _common_fields(comparison)
    return {
        **_common_fields(comparison),
        "a": test.a,
        "b": test.b,
        "wins": test.wins,
        "losses": test.losses,
        "ties": test.ties,
        "wilcoxon_rank_sum": test.rank_sum,
        "wilcoxon_p": test.wilcoxon_p,
        "sign_p": test.sign_p,
        "significant": comparison.significant,
        **_reach_fields(comparison),
    }


def _common_fields(comparison: RankTests) -> dict[str, Any]:
    """Return what is compared in a setting."""
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
    """Return what a setting could have shown at all; empty without tests."""
    reach = comparison.reach
    if reach is None:
        return {}
    return {
        "critical_difference": reach.critical_difference,
        "largest_possible_difference": reach.largest_difference,
        "smallest_num_sets": reach.smallest_num_sets,
        "power": reach.sentence,
    }
