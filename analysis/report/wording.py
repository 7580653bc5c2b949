"""Sentences and parts of sentences about an analysis: nouns, numbers, choices of sets, tests and rules in words.

Summary, report, LaTeX and site take them from here, so that one thing has one name everywhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.columns import Column, blocks, names_of
from biasbed.analysis.display_names import Labels
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import stability
from biasbed.analysis.statistics.friedman import COMPLETE, STRICT, Friedman, RankTests
from biasbed.analysis.statistics.planner import Rate
from biasbed.errors import count as count
from biasbed.errors import plural as plural

TEST_NAMES = {  # by those in sensitivity.csv
    stability.RANK_SETS: "ranks",
    stability.OMNIBUS: "Friedman's test",
    stability.NEMENYI: "Nemenyi's test",
    stability.WILCOXON: "Wilcoxon tests with Holm's correction",
}

# --- nouns ------------------------------------------------------------------------------------------------------------


def listing(names: Iterable[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    *first, last = list(names)
    if first:
        return f"{', '.join(first)} and {last}"
    return last


def join_names(analysis: Analysis, names: Iterable[str]) -> str:
    """Return the display names of methods or sets, joined by commas."""
    return ", ".join(map(analysis.label, names))


def capitalized(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[0].upper() + text[1:]


def replicate_noun(analysis: Analysis) -> str:
    """Return the noun for what means are over: `run`, or `replicate` if cells or searches have runs of their own."""
    collection = analysis.collection
    if collection.is_search or any(cell.name for cell in collection.cells):
        return "replicate"
    return "run"


def repeat_noun(analysis: Analysis) -> str:
    """Return the noun of `replicate_noun` for readers of one table: `seed` if a replicate is a seed on all cells."""
    noun = replicate_noun(analysis)
    return "seed" if noun == "replicate" and not analysis.collection.is_search else noun


def error_name(analysis: Analysis) -> str:
    """Return what ± is in tables: `standard deviation` or `standard error`."""
    return scores.ERRORS[analysis.error].label


def deviation_name(analysis: Analysis) -> str:
    """Return what ± is and between what: `standard deviation between runs`."""
    return f"{error_name(analysis)} between {repeat_noun(analysis)}s"


def error_divisor(analysis: Analysis) -> str:
    """Return the divisor in the variance behind ± in tables: `n - 1` or `n`."""
    if scores.ERRORS[analysis.error].ddof:
        return "n - 1"
    return "n"


def has_deviations(analysis: Analysis) -> bool:
    """Return True if any mean is printed with a ±; there are none of single runs."""
    return any(cell.std_text for cell in analysis.cells.values())


def scores_figure_caption(analysis: Analysis) -> str:
    """Return the sentences on bars and dotted lines in the figure of scores, each with a blank before it."""
    parts = []
    if has_deviations(analysis):
        parts.append(" Bars are one standard deviation over runs.")
    if any(column.set_record.chance for column in analysis.sets):
        parts.append(" Dotted lines are chance.")
    return "".join(parts)


def headline_label(sets: Iterable[Column]) -> str:
    """Return what the sets' headlines measure, with units, as an axis says it."""
    headlines = sorted({(column.headline, column.unit) for column in sets})
    return ", ".join(f"{name.replace('_', ' ')} ({unit})" for name, unit in headlines)


def describe_oracle(analysis: Analysis) -> str:
    """Return what selection rules are compared with, in words."""
    if analysis.collection.is_search:
        return "each set's own best epoch, of the trial that the oracle chose"
    return "each set's own best epoch"


def points(analysis: Analysis, value: float) -> str:
    """Return a difference of scores with its unit: `1.2 points`."""
    if abs(value) >= 0.1:
        return f"{value:.1f} {unit(analysis)}"
    return f"{value:.2g} {unit(analysis)}"


def lead_clause(analysis: Analysis, better: str, worse: str, difference: float, low: float, high: float) -> str:
    """Return `A leads B by 1.2 points (95% interval 0.3 to 2.1)`, without interval if its bounds are not finite."""
    if not difference:
        return f"{analysis.label(better)} and {analysis.label(worse)} have the same mean"
    bounds = f" ({percent(1 - analysis.alpha)} interval {low:.1f} to {high:.1f})" if math.isfinite(low) else ""
    return f"{analysis.label(better)} leads {analysis.label(worse)} by {points(analysis, difference)}{bounds}"


def unit(analysis: Analysis) -> str:
    """Return the unit of differences: `points` for percentages, else the unit of the scores."""
    score_unit = analysis.sets[0].unit
    if score_unit == measures.FRACTION:
        return "points"
    return score_unit


def rule_name(row: Mapping[Any, Any]) -> str:
    """Return a selection rule's name, marked if it is an oracle. row: of a table with the columns rule and oracle."""
    if row["oracle"]:
        return f"{row['rule']} (ORACLE)"
    return str(row["rule"])


# --- settings of the tests --------------------------------------------------------------------------------------------


def setting_title(comparison: RankTests, label: Labels) -> str:
    """Return the heading of one choice of sets."""
    if comparison.setting == STRICT:
        return f"Strict setting, {comparison.size}"
    title = describe_pool(comparison)
    if title:
        return capitalized(title)
    if comparison.noun == "data set" and len(comparison.sets) == 1:
        return f"The data set {label(comparison.sets[0])}"
    if len(comparison.sets) == 1:
        return "One set"
    return f"All {comparison.size}"


def title_by_setting(analysis: Analysis, setting: str) -> str:
    """Return the heading of a choice of sets by its name."""
    return next(setting_title(tests, analysis.label) for tests in analysis.comparisons if tests.setting == setting)


def describe_pool(comparison: RankTests) -> str:
    """Return which algorithms are compared on which sets, if some algorithm can't have every set; else empty."""
    number, sets = len(comparison.algorithms), count(len(comparison.sets), comparison.noun)
    if comparison.setting == COMPLETE and number > 1:
        return f"the {number} algorithms that have all {sets}"
    if comparison.setting == COMPLETE:
        return f"the one algorithm that has all {sets}"
    if comparison.left_out and comparison.setting != STRICT:
        return f"the {sets} that all {number} algorithms have"
    return ""


def setting_sentence(analysis: Analysis, comparison: RankTests) -> str:
    """Say which algorithms, sets and conditions a setting leaves out; empty if it leaves out nothing."""
    everything = analysis.comparisons[0]
    sets = count(len(comparison.sets), comparison.noun)
    size = f"({count(len(comparison.algorithms), 'algorithm')} x {sets})"
    is_table = analysis.collection.is_table
    if comparison.setting == COMPLETE:
        missing = [name for name in everything.algorithms if name not in comparison.algorithms]
        reason = "without a score" if is_table else "not applicable"
        return f"Left out: {join_names(analysis, missing)}, {reason} on some {comparison.noun} {size}."
    parts = []
    if comparison.setting == STRICT:
        left_out = [name for name in comparison.left_out if name not in everything.left_out]
        by_makers = [name for name in left_out if name in made_by_makers(analysis)]
        empty = [name for name in left_out if name not in by_makers]
        if by_makers:
            parts.append(f"{join_names(analysis, by_makers)}, by a maker whose data some compared algorithm trained on")
        if empty:
            names = join_names(analysis, empty)
            parts.append(f"{names}, of which nothing is left or for which some algorithm has no numbers")
    if everything.left_out:
        reason = "has no score" if is_table else "is not applicable"
        parts.append(f"{join_names(analysis, everything.left_out)}, on which some algorithm {reason} {size}")
    sentences = [f"Left out: {'; and '.join(parts)}."] if parts else []
    if comparison.setting == STRICT:
        sentences += overlap_sentences(analysis, comparison)
    return " ".join(sentences)


def made_by_makers(analysis: Analysis) -> set[str]:
    """Return the blocks with a column whose maker also made training data of some algorithm."""
    marked = {name for _, name in analysis.daggers}
    return {block for block, columns in blocks(analysis.sets).items() if not marked.isdisjoint(names_of(columns))}


def overlap_sentences(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Say, a sentence for each column, which conditions the strict setting leaves out, and due to which algorithms."""
    block_of = {column.name: column.block for column in analysis.sets}
    sentences = []
    for column, rows_by_kind in analysis.overlaps.items():
        if block_of[column] not in comparison.sets:
            continue
        kinds_by_rows: dict[tuple[str, ...], list[str]] = {}
        for kind, rows in rows_by_kind.items():
            kinds_by_rows.setdefault(rows, []).append(kind)
        reasons = []
        for rows, kinds in kinds_by_rows.items():
            verb = "trains" if len(rows) == 1 else "train"
            algorithms = listing(map(analysis.label, rows))
            reasons.append(f"{listing(kinds)}, because {algorithms} {verb} on similar corruptions")
        sentences.append(f"{analysis.label(column)} leaves out {'; and '.join(reasons)}.")
    return sentences


def strict_phrase(analysis: Analysis, strict: RankTests) -> str:
    """Return the beginning of a sentence about the strict setting: `Without the sets ... (8 sets)`."""
    has_sets = any(name in made_by_makers(analysis) for name in strict.left_out)
    parts = []
    if has_sets or not analysis.overlaps:
        parts.append("the sets whose makers also made training data")
    if analysis.overlaps:
        parts.append("the conditions that some algorithm's training corruptions resemble")
    return f"Without {' and '.join(parts)} ({strict.size})"


def setting_label(comparison: RankTests) -> str:
    """Return a setting as the lists of files name it: `all sets`, `algorithms that have all data sets`."""
    if comparison.setting == COMPLETE:
        return f"algorithms that have all {comparison.noun}s"
    return f"{comparison.setting} {comparison.noun}s"


def empty_cells_legend(analysis: Analysis, dash: str = "-") -> str:
    """Return what a dash and an X in a score table mean, with a blank before it; empty if it has neither."""
    text = ""
    if analysis.absent:
        text = " X: runs are missing, which was accepted."
    notes = scores.not_applicable_notes(analysis.not_applicable, analysis.label)
    if notes:
        text += f" {dash}: {'; '.join(notes)}."
    return text


# --- numbers ----------------------------------------------------------------------------------------------------------


def p_value(p: float) -> str:
    """Return `= 0.01234` with four significant digits, or `< 1e-300` for a p-value that no double tells from zero."""
    if p == 0:
        return "< 1e-300"
    return f"= {p:.4g}"


def friedman_p(test: Friedman) -> str:
    """Return the p-value that decides: `p = 0.012`.

    If all sets rank the algorithms alike, F is infinite and its p 0, which says nothing: then the probability that
    equal algorithms agree so well stands beside it.
    """
    if test.permutation_p is not None or math.isfinite(test.f):
        return f"p {p_value(test.p)}"
    return f"p = 0, while equal algorithms agree like this with a probability of {test.agreement_p:.2g}"


def percent(share: float) -> str:
    """Return a share as a percentage, with as many digits as it has: `95%`, `99.5%`."""
    return f"{100 * share:.6g}%"


def share_text(share: float) -> str:
    """Return an observed share as a whole percentage; 100% and 0% only if exact."""
    text = f"{share:.0%}"
    if text == "100%" and share < 1:
        return "more than 99%"
    if text == "0%" and share > 0:
        return "less than 1%"
    return text


def short_p(p: float, alpha: float) -> str:
    """Return a p-value for a table: `0.012`, never rounded to zero nor across alpha."""
    if p < 0.001:
        return "<0.001"
    text = f"{p:.3f}"
    if (float(text) < alpha) == (p < alpha):
        return text
    round_away_from_alpha = math.floor if p < alpha else math.ceil
    return f"{round_away_from_alpha(p * 1e4) / 1e4:.4f}"


def friedman_sentences(comparison: RankTests) -> list[str]:
    """Return the numbers of Friedman's test; none without it. `omnibus_sentence` says what they show."""
    test = comparison.friedman
    if test is None:
        return []
    f = f"{test.f:.4f}" if math.isfinite(test.f) else "infinite"
    few = ""
    if test.permutation_p is not None:
        few = f": on {comparison.size} F does not follow its distribution"
    return [
        f"Friedman: chi-square = {test.chi2:.3f}, {test.chi2_dof} degrees of freedom, p {p_value(test.chi2_p)}; "
        f"Kendall's W = {test.kendall_w:.2f}.",
        f"Iman-Davenport: F = {f}, {test.f_dof[0]} and {test.f_dof[1]} degrees of freedom{few}.",
    ]


def omnibus_sentence(comparison: RankTests) -> str:
    """Say whether any algorithms differ, by Friedman's test; empty without it."""
    test = comparison.friedman
    if test is None:
        return ""
    if test.permutation_p is not None:
        how = "permutation of the ranks"
    elif math.isfinite(test.f):
        how = f"Iman and Davenport's F = {test.f:.2f}"
    else:
        how = f"Iman and Davenport's F, which is infinite, as every {comparison.noun} ranks them alike"
    numbers = f"Friedman's test by {how}, {friedman_p(test)}"
    if comparison.significant:
        return f"Over these {comparison.size} the algorithms differ ({numbers})."
    return (
        f"Over these {comparison.size} it is not shown that the algorithms differ ({numbers}), so no pair is called "
        "different. That is no evidence that they are equal."
    )


def pair_sentences(comparison: RankTests, label: Labels) -> list[str]:
    """Return the numbers of the exact tests of two algorithms, and what they show; none without them."""
    test, noun = comparison.pair, comparison.noun
    if test is None:
        return []
    verdict = (
        f"Not significant at {comparison.alpha:g}: these data do not show that the two differ. That is no evidence "
        "that they are equal."
    )
    if comparison.significant:
        verdict = f"Significant at {comparison.alpha:g} (Wilcoxon): {label(test.better)} is ahead by its ranks."
    return [
        "Two algorithms: exact paired tests in place of Friedman and Nemenyi, which need three.",
        f"{label(test.a)} against {label(test.b)}: better on {test.wins} {noun}s, worse on {test.losses}, equal on "
        f"{test.ties}.",
        f"Wilcoxon signed-rank: rank sum {test.rank_sum:g}, exact two-sided p {p_value(test.wilcoxon_p)}.",
        f"Sign test: exact two-sided p {p_value(test.sign_p)}.",
        verdict,
    ]


def rate_text(rate: Rate) -> str:
    """Return a simulated rate with its confidence interval: `5.2% (4.9% to 5.5%)`."""
    low, high = rate.interval
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%})"


def power_sentence(comparison: RankTests) -> str:
    """Say which differences this design could have shown at all; empty without tests."""
    if comparison.reach is None:
        return ""
    sentence = comparison.reach.sentence
    return f"Power: {sentence[0].lower()}{sentence[1:]}."


def rule_sentence(analysis: Analysis) -> str:
    """Return the selection rule: `last_n (the mean over the last 30 epochs)`."""
    return f"{analysis.rule.name} ({rule_label(analysis)})"


def rule_label(analysis: Analysis) -> str:
    """Return the selection rule in words, with the hash of a user's code.

    The rule's own label names the monitor of the first cell. If cells have different monitors, all are named.
    """
    label, selection = analysis.rule.label, analysis.options.selection
    if ".py:" in selection:  # a user's rule, which may be another one tomorrow
        code = Path(selection.rpartition(":")[0]).expanduser().read_bytes()
        label += f" ({selection}, code {hashlib.sha256(code).hexdigest()[:8]})"
    monitors = sorted({cell.protocol.monitor for cell in analysis.collection.cells})
    named = [monitor for monitor in monitors if monitor in label]
    if len(monitors) == 1 or not named:
        return label
    metrics = {monitor.rpartition("/")[0] for monitor in monitors}  # without their sets
    all_monitors = f"{metrics.pop()} of its cell" if len(metrics) == 1 else " or ".join(monitors)
    return label.replace(named[0], all_monitors)


def subtitle(analysis: Analysis) -> str:
    """Return what is analysed, and by which version."""
    study, version = analysis.collection.scope.study, analysis.versions["biasbed"]
    subject = f"scores of {study}" if analysis.collection.is_table else f"study {study}"
    return f"{subject}, analysed by biasbed {version}"
