"""The report's tables of selection rules: what a chosen epoch rests on, what each rule costs, what labels buy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.analysis.columns import make_design
from biasbed.analysis.regret import BASELINE, OVER_METHODS
from biasbed.analysis.report import words
from biasbed.analysis.report.cells import Links, ReportTable, TableCell, decimal, interval, text
from biasbed.analysis.result import Analysis, number
from biasbed.analysis.selection.rules import RULES, BestValidation

if TYPE_CHECKING:
    import pandas as pd


def grain(analysis: Analysis) -> ReportTable | None:
    """What validation's few images leave open of the epoch that the rule chose, by column."""
    frame = analysis.grain[analysis.grain["rule"] == analysis.rule.name]
    if frame.empty:
        return None
    rows = []
    for name in [name for name in analysis.set_names if name in set(frame["dataset"])]:
        own = frame[frame["dataset"] == name]
        middle = own[[column for column in own if column in NUMBERS]].median()
        images = TableCell(f"{middle['conflicting_images']:.0f}", value=middle["conflicting_images"])
        worth = (decimal(middle["image_conflicting"]), decimal(middle["image_score"]))
        scores = (_between(middle, ""), _between(middle, "test_"))
        epochs = TableCell(f"{middle['epochs_within']:g} of {middle['epochs']:g}", value=middle["epochs_within"])
        rows.append((text(name), images, *worth, *scores, epochs))
    caption = (
        f"What validation tells of the epoch that {analysis.rule.name} chose: how many conflicting images it has; what "
        "one of them more is worth in points of their accuracy, and of the AC score; the AC score of this epoch, below "
        "the 95 % interval that so few images leave open (of the two accuracies, by Jeffreys); how many epochs' scores "
        "lie within the interval of the best one. Where many do, validation does not tell them apart, and which one "
        "was chosen is largely chance. Medians over all runs."
    )
    head = ("set", "conflicting images", "points of one", "AC points", "AC, validation", "AC, test", "epochs within")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "grain.csv")


NUMBERS = (
    *("conflicting_images", "image_conflicting", "image_score", "score", "low", "high", "epochs", "epochs_within"),
    *("test_score", "test_low", "test_high"),
)


def _between(middle: pd.Series[float], prefix: str) -> TableCell:
    value, low, high = (float(middle[prefix + name]) for name in ("score", "low", "high"))
    return interval(value, low, high)


def labels(analysis: Analysis) -> ReportTable | None:
    """By how much rules that take more labels choose better, mean over methods."""
    frame = analysis.labels
    if frame.empty:
        return None
    own = frame[frame["algorithm"] == OVER_METHODS]
    found = {(row["rule"], row["dataset"]): row for row in own.to_dict("records")}
    columns = {column.name: column for column in analysis.sets}
    names = [name for name in columns if name in set(own["dataset"])]
    rows = []
    for rule, oracle, needed in dict.fromkeys(zip(own["rule"], own["oracle"], own["labels"], strict=True)):
        cells = [_gain(found.get((rule, name)), columns[name].digits) for name in names]
        by = _measure(analysis.collection.protocol.monitor) if rule == BestValidation.name else ""
        named = TableCell(f"{rule} (ORACLE)" if oracle else rule, below=by, left=True)
        rows.append((named, text(needed), *cells))
    level = words.percent(1 - analysis.alpha)
    caption = (
        "What do bias labels on validation images buy? Scores of what each rule chooses, mean over methods and runs, "
        f"in {analysis.units}. Behind it the difference to {BASELINE}, which takes no more than classes, in the same "
        f"runs (+: better); below, its {level} bootstrap interval over runs. One that has 0 in it shows no difference."
    )
    if analysis.collection.is_search:
        caption += " Among the trials of a search, rules that look at no validation image choose by the monitor."
    return ReportTable(caption, ("rule", "labels", *names), tuple(rows), True, "labels.csv")


def _measure(metric: str) -> str:
    name = record.parse_metric(metric)
    return name.measure if name else metric


def _gain(row: Mapping[Any, Any] | None, digits: int) -> TableCell:
    """A score with its difference to the baseline and the interval of this."""
    if row is None:
        return decimal(math.nan)
    if row["rule"] == row["baseline"]:
        return decimal(row["mean"], digits)
    names = ("difference", "low", "high")
    more, low, high = (f"{round(row[name], digits) + 0.0:+.{digits}f}" for name in names)  # no -0.0
    return decimal(row["mean"], digits, small=more, below="" if math.isnan(row["low"]) else f"{low} to {high}")


def regret(analysis: Analysis, links: Links) -> ReportTable | None:
    """What each selection rule costs every algorithm, mean over the sets."""
    frame = analysis.regret[analysis.regret["regret"].notna()]
    if frame.empty:
        return None
    rules = {str(rule): bool(oracle) for rule, oracle in zip(frame["rule"], frame["oracle"], strict=True)}
    found = {(row["algorithm"], row["rule"]): row for row in frame.to_dict("records")}
    rows = []
    for algorithm in analysis.algorithms:
        if (algorithm, next(iter(rules))) not in found:
            continue  # published: not known under every rule
        of_rules = [found[algorithm, rule] for rule in rules]
        cells = [decimal(row["regret"], below=_rank(row["average_rank"])) for row in of_rules]
        rows.append((links.algorithm(algorithm), *cells))
    caption = (
        f"What each selection rule costs: {words.unit(analysis)} behind {words.oracle(analysis)}, mean over the "
        f"{make_design(analysis.sets).noun}s; below, the average rank under the rule."
    )
    caption += _labels_needed(analysis, rules)
    head = ("algorithm", *(f"{rule} (ORACLE)" if oracle else rule for rule, oracle in rules.items()))
    return ReportTable(caption, head, tuple(rows), True, "regret.csv")


def _rank(average: float) -> str:
    """Empty where there are no ranks: no set is left that all have."""
    return "" if math.isnan(average) else f"rank {average:.2f}"


def _labels_needed(analysis: Analysis, rules: Iterable[str]) -> str:
    """What rules look at besides validation, with a blank before it; empty where none does."""
    needed: dict[str, list[str]] = {}
    for name in rules:
        rule = analysis.rule if name == analysis.rule.name else RULES.load(name) if name in RULES else None
        for labels in rule.needs if rule else ():
            needed.setdefault(labels, []).append(name)
    parts = [f"{words.listing(names)} need{'s' * (len(names) == 1)} {what}" for what, names in needed.items()]
    return f" {'; '.join(parts)}." if parts else ""


def skipped_rules(analysis: Analysis) -> list[str]:
    """Rules without scores, and why."""
    table = analysis.selection
    skipped = table[table["skipped"].fillna("") != ""]
    return [f"{rule}: not computed, {why}" for rule, why in zip(skipped["rule"], skipped["skipped"], strict=True)]


def gap(analysis: Analysis, links: Links) -> ReportTable | None:
    """Scores under the rule and how far they stay behind the oracle's (Kalischek et al. 2023, table 1)."""
    known = analysis.selection[analysis.selection["gap"].notna() & ~analysis.selection["oracle"].astype(bool)]
    if known.empty:
        return None
    names = list(dict.fromkeys(known["rule"]))
    rule = analysis.rule.name if analysis.rule.name in names else names[0]
    own = {(row["algorithm"], row["dataset"]): row for row in known[known["rule"] == rule].to_dict("records")}
    rows = []
    for algorithm in analysis.algorithms:
        if all((algorithm, name) not in own for name in analysis.set_names):
            continue
        of_sets = [(own.get((algorithm, c.name)), c.digits) for c in analysis.sets]
        cells = [
            decimal(math.nan) if row is None else decimal(row["gap"], n, below=number(row["mean"], n))
            for row, n in of_sets
        ]
        rows.append((links.algorithm(algorithm), *cells))
    caption = (
        f"{rule} against the oracle: by how many {words.unit(analysis)} each set's own best epoch, chosen on the test "
        f"images, is better; below, the score under {rule}."
    )
    return ReportTable(caption, ("algorithm", *analysis.set_names), tuple(rows), True, "selection.csv")
