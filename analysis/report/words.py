"""The result in sentences, shared by the printed summary and the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from biasbed import measures
from biasbed.analysis import scores
from biasbed.analysis.columns import blocks
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import COMPLETE, STRICT, Friedman, RankTests
from biasbed.analysis.statistics.pairwise import Limits
from biasbed.analysis.statistics.planner import Rate

# --- nouns ------------------------------------------------------------------------------------------------------------


def count(number: int, noun: str) -> str:
    """`1 set`, `2 sets`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listing(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = list(names)
    return f"{', '.join(first)} and {last}" if first else last


def repeated(analysis: Analysis) -> str:
    """What an algorithm has several of: runs, or replicates where a cell, or a search, has runs of its own."""
    collection = analysis.collection
    return "replicate" if collection.is_search or any(cell.name for cell in collection.cells) else "run"


def error(analysis: Analysis) -> str:
    """What ± is in tables: `standard deviation`, or `standard error`."""
    return scores.ERRORS[analysis.error][0]


def error_by(analysis: Analysis) -> str:
    """What the sum of squares behind it is divided by."""
    return "n - 1" if scores.ERRORS[analysis.error][1] else "n"


def oracle(analysis: Analysis) -> str:
    """What rules are compared with; one that chooses another trial of a search is still compared with the oracle's."""
    return "each set's own best epoch" + (", of the trial that the oracle chose" * analysis.collection.is_search)


def points(analysis: Analysis, value: float) -> str:
    """A difference of scores."""
    return f"{value:.1f} {unit(analysis)}" if abs(value) >= 0.1 else f"{value:.2g} {unit(analysis)}"


def unit(analysis: Analysis) -> str:
    """What differences of scores are measured in: points of a percentage, or what the scores are."""
    found = analysis.sets[0].unit
    return "points" if found == measures.FRACTION else found


# --- settings of the tests --------------------------------------------------------------------------------------------


def setting_title(comparison: RankTests) -> str:
    """Heading of one choice of sets."""
    if comparison.setting == STRICT:
        return f"Strict setting, {comparison.size}"
    title = pool(comparison)
    if comparison.noun == "data set" and len(comparison.sets) == 1 and not title:
        return f"The data set {comparison.sets[0]}"
    return f"{title[0].upper()}{title[1:]}" if title else f"All {comparison.size}"


def pool(comparison: RankTests) -> str:
    """What is compared with what, where some algorithm can't have every set; else empty."""
    number = len(comparison.algorithms)
    if comparison.setting == COMPLETE:
        whole = f"all {count(len(comparison.sets), comparison.noun)}"
        return f"the {number} algorithms that have {whole}" if number > 1 else f"the one algorithm that has {whole}"
    if comparison.left_out and comparison.setting != STRICT:
        return f"the {count(len(comparison.sets), comparison.noun)} that all {number} algorithms have"
    return ""


def setting_sentence(analysis: Analysis, comparison: RankTests) -> str:
    """What a setting leaves out; empty where that is nothing."""
    whole = analysis.comparisons[0]
    size = f"({count(len(comparison.algorithms), 'algorithm')} x {count(len(comparison.sets), comparison.noun)})"
    if comparison.setting == COMPLETE:
        others = ", ".join(name for name in whole.algorithms if name not in comparison.algorithms)
        return f"Left out: {others}, not applicable on some {comparison.noun} {size}."
    lacking = f"{', '.join(whole.left_out)}, on which some algorithm is not applicable {size}"
    if comparison.setting != STRICT:
        return f"Left out: {lacking}." if whole.left_out else ""
    left_out = [name for name in comparison.left_out if name not in whole.left_out]
    made = [name for name in left_out if name in made_by_makers(analysis)]
    parts = [f"{', '.join(made)}, made by the maker of data that some compared algorithm trained on"] if made else []
    other = [name for name in left_out if name not in made]
    parts += [f"{', '.join(other)}, of which nothing is left or some algorithm has no numbers"] if other else []
    parts += [lacking] if whole.left_out else []
    text = f"Left out: {'; and '.join(parts)}." if parts else ""
    return " ".join(filter(None, (text, *overlaps(analysis, comparison))))


def made_by_makers(analysis: Analysis) -> set[str]:
    """Blocks with a column whose maker also made training data."""
    touched = {name for _, name in analysis.daggers}
    return {block for block, same in blocks(analysis.sets).items() if any(column.name in touched for column in same)}


def overlaps(analysis: Analysis, comparison: RankTests) -> list[str]:
    """Which conditions the strict setting does without, and due to which algorithms."""
    of_block = {column.name: column.block for column in analysis.sets}
    found = []
    for column, kinds in analysis.overlaps.items():
        if of_block[column] in comparison.sets:
            by_rows: dict[tuple[str, ...], list[str]] = {}
            for kind, rows in kinds.items():
                by_rows.setdefault(rows, []).append(kind)
            each = [f"{listing(names)}, like which {listing(rows)} trained" for rows, names in by_rows.items()]
            found.append(f"{column} is of the conditions other than {'; and '.join(each)}.")
    return found


def strict_phrase(analysis: Analysis, strict: RankTests) -> str:
    """What the strict setting does without, at the beginning of a sentence."""
    sets = "the sets whose makers also made training data"
    conditions = "the conditions that some algorithm was trained on the like of"
    has_sets = any(name in made_by_makers(analysis) for name in strict.left_out)
    without = [sets] if has_sets or not analysis.overlaps else []
    without += [conditions] if analysis.overlaps else []
    return f"Without {' and '.join(without)} ({strict.size})"


def setting_of(limits: Limits) -> str:
    """A setting before a sentence on its limits; empty for all sets."""
    size = f"{limits.num_sets} {limits.nemenyi.noun}s"
    named = {STRICT: f"Strict setting ({size}): ", COMPLETE: f"Algorithms that have all {size}: "}
    return named.get(limits.setting, "")


def setting_file(comparison: RankTests) -> str:
    """A setting in the line that says what a file is."""
    noun = f"{comparison.noun}s"
    return f"algorithms that have all {noun}" if comparison.setting == COMPLETE else f"{comparison.setting} {noun}"


def not_applicable(analysis: Analysis) -> str:
    """What a dash in a score table means, as a sentence with a blank before it; empty without any."""
    notes = scores.not_applicable_notes(analysis.not_applicable)
    absent = " X: runs are missing, which was accepted." if analysis.absent else ""
    return absent + (f" -: {'; '.join(notes)}." if notes else "")


# --- numbers ----------------------------------------------------------------------------------------------------------


def p_value(p: float) -> str:
    """A p-value to four significant digits; one that no double can tell from zero as a bound."""
    return "< 1e-300" if p == 0 else f"= {p:.4g}"


def friedman_p(test: Friedman) -> str:
    """The p that decides. F of a perfect agreement is infinite and its p 0; what that is worth stands beside it."""
    if test.permutation_p is not None or math.isfinite(test.f):
        return f"p {p_value(test.p)}"
    return f"p = 0, while equal algorithms agree like this with a probability of {test.agreement_p:.2g}"


def percent(share: float) -> str:
    """A level as a percentage, with as many digits as it has."""
    return f"{100 * share:.6g}%"


def most(share: float) -> str:
    """An observed share as a whole percentage; all and none are said of nothing less."""
    text = f"{share:.0%}"
    if text == "100%" and share < 1:
        return "more than 99%"
    return "less than 1%" if text == "0%" and share > 0 else text


def short_p(p: float, alpha: float) -> str:
    """A p-value for a table, never rounded to zero nor across alpha."""
    if p < 0.001:
        return "<0.001"
    text = f"{p:.3f}"
    if (float(text) < alpha) == (p < alpha):
        return text
    away = math.floor if p < alpha else math.ceil  # from alpha
    return f"{away(p * 1e4) / 1e4:.4f}"


def statistics(comparison: RankTests) -> list[str]:
    """Friedman's test in numbers; what they show is `omnibus`'s to say."""
    test = comparison.friedman
    if test is None:
        return []
    f = f"{test.f:.4f}" if math.isfinite(test.f) else "infinite"
    few = "" if test.permutation_p is None else f": on {comparison.size} F does not follow its distribution"
    return [
        f"Friedman: chi-square = {test.chi2:.3f}, {test.chi2_dof} degrees of freedom, p {p_value(test.chi2_p)}; "
        f"Kendall's W = {test.kendall_w:.2f}.",
        f"Iman-Davenport: F = {f}, {test.f_dof[0]} and {test.f_dof[1]} degrees of freedom{few}.",
    ]


def omnibus(comparison: RankTests) -> str:
    """Whether any algorithms differ, by Friedman's test; empty without it."""
    test = comparison.friedman
    if test is None:
        return ""
    infinite = f"F, which is infinite, as every {comparison.noun} ranks them alike"
    f = f"F = {test.f:.2f}" if math.isfinite(test.f) else infinite
    how = f"Iman and Davenport's {f}" if test.permutation_p is None else "permutation of the ranks"
    numbers = f"Friedman's test by {how}, {friedman_p(test)}"
    if comparison.significant:
        return f"Over these {comparison.size} the algorithms differ ({numbers})."
    return (
        f"Over these {comparison.size} it is not shown that the algorithms differ ({numbers}), so no pair is "
        "called different. That is no evidence that they are equal."
    )


def of_two(comparison: RankTests) -> list[str]:
    """The exact tests of two algorithms, and whether anything may be concluded."""
    test, alpha = comparison.pair, comparison.alpha
    if test is None:
        return []
    verdict = f"Significant at {alpha:g} (Wilcoxon): {test.better} is ahead by its ranks."
    if not comparison.significant:
        verdict = f"Not significant at {alpha:g}: these data do not show that the two differ. "
        verdict += "That is no evidence that they are equal."
    return [
        "Two algorithms: exact paired tests in place of Friedman and Nemenyi, which need three.",
        f"{test.a} against {test.b}: better on {test.wins} {comparison.noun}s, worse on {test.losses}, equal on "
        f"{test.ties}.",
        f"Wilcoxon signed-rank: rank sum {test.rank_sum:g}, exact two-sided p {p_value(test.wilcoxon_p)}.",
        f"Sign test: exact two-sided p {p_value(test.sign_p)}.",
        verdict,
    ]


def rate_text(rate: Rate) -> str:
    """A simulated rate with what the simulation leaves open."""
    low, high = rate.interval
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%})"


def power_sentence(comparison: RankTests) -> str:
    """What this design could have shown at all; empty without tests."""
    if comparison.reach is None:
        return ""
    sentence = comparison.reach.sentence
    return f"Power: {sentence[0].lower()}{sentence[1:]}."


def rule_sentence(analysis: Analysis) -> str:
    """The selection rule by name and in words."""
    return f"{analysis.rule.name} ({rule_label(analysis)})"


def rule_label(analysis: Analysis) -> str:
    """The selection rule in words; what is monitored in each cell, where they validate on images of their own."""
    label, monitors = analysis.rule.label, sorted({cell.protocol.monitor for cell in analysis.collection.cells})
    own = next((monitor for monitor in monitors if monitor in label), "")
    if len(monitors) == 1 or not own:
        return label
    kinds = {monitor.rpartition("/")[0] for monitor in monitors}
    return label.replace(own, f"{kinds.pop()} of its cell" if len(kinds) == 1 else " or ".join(monitors))


DAGGER_SENTENCE = "the algorithm trained on data of the maker of this set"

TERMS = {
    "evaluation set": "a collection of test images with one headline score; the tests treat each set as one block",
    "run": "one training with one seed",
    "selection rule": "which epoch's scores count: best_validation (the epoch with the best validation score), last_n "
    "(mean over the last n epochs), last, best_epoch (each set's own best epoch) and best_epoch_per_run (the best mean "
    "over the sets): these two are oracles, no practical choice; or one of your own",
    "rank": "1 for the best algorithm on a set; equal scores share their mean rank",
    "Friedman test": "could all algorithms be equal, given their ranks on the sets? On six sets or more Iman and "
    "Davenport's F, its less conservative form, decides; on fewer, a permutation of the ranks",
    "Nemenyi test": "which pairs differ, all pairs at once; it depends on which algorithms are compared together",
    "critical difference": "average ranks closer than this are not told apart by the Nemenyi test",
    "strict setting": "the same tests without what some algorithm's training data resemble: sets of their maker, and "
    "conditions",
    "protocol": "suite, training data, evaluation sets and monitor; runs are compared only within one",
}

CELL_TERMS = {
    "data set": "the block that the tests count: all domains, severities and conditions of one data set, as their "
    "plain mean, or as the value that is declared for it; its columns stand in the tables beside it",
    "cell": "what a run trains on: data set and severity, held-out domains; each cell takes a training of its own",
    "replicate": "one algorithm's runs with one seed, or chosen from one repeat of a search, on all cells",
    "not applicable": "the method needs what the cell's training data don't have; tests are on the pool of algorithms "
    "and sets that they name",
}


def terms(analysis: Analysis) -> Mapping[str, str]:
    """The glossary; of cells and blocks where there are any."""
    shown = {
        "data set": analysis.comparisons[0].noun == "data set",
        "cell": repeated(analysis) == "replicate",
        "replicate": repeated(analysis) == "replicate",
        "not applicable": bool(analysis.not_applicable),
    }
    run = f"one training with one seed; scores are means over runs, ± their {error(analysis)} ({error_by(analysis)})"
    return TERMS | {"run": run} | {name: CELL_TERMS[name] for name, wanted in shown.items() if wanted}


def by_category(dataset: str) -> str:
    """Name of the figure of shape biases by category of the shape."""
    return f"shape_bias_by_category_{dataset}"
