"""The report's tables as text. Every row leads to the runs behind it: names and scores link to the table of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from biasbed.analysis.columns import blocks
from biasbed.analysis.report import (
    criteria,
    described,
    doubts,
    effective,
    groups,
    layouts,
    paper_html,
    selecting,
    single_runs,
    words,
)
from biasbed.analysis.report.cells import Links, ReportTable, TableCell, decimal, interval, p_entry, score, text
from biasbed.analysis.report.findings import TEST_NAMES, procedure
from biasbed.analysis.report.verdicts import Verdict, overturned, verdicts
from biasbed.analysis.result import Analysis, number
from biasbed.analysis.selection.reproduction import card_sentence
from biasbed.analysis.statistics import bootstrap, stability
from biasbed.analysis.statistics.friedman import RankTests

# --- of all sets together ---------------------------------------------------------------------------------------------


def whole(analysis: Analysis, links: Links) -> Mapping[str, Any]:
    """The tables that are not of one setting; None where there is nothing to show."""
    return {
        "rows": described.rows(analysis, links),
        "cells": described.cells(analysis),
        "scores": scores(analysis, links),
        "texture": shape_bias(analysis, links),
        "averages": averages(analysis, links),
        "deviations": deviations(analysis, links),
        "sets": per_set(analysis),
        "paper": paper_html.section(analysis, links),
        "layouts": layouts.section(analysis, links),
        "effective": effective.tables(analysis, links),
        "over_images": single_runs.table(analysis, links),
        "card": card(analysis, links),
        "grain": selecting.grain(analysis),
        "regret": selecting.regret(analysis, links),
        "labels": selecting.labels(analysis),
        "gap": selecting.gap(analysis, links),
        "criteria": criteria.means(analysis),
        "winners": criteria.each(analysis, links),
        "skipped_rules": selecting.skipped_rules(analysis),
        "power": power(analysis),
        "plan": plan(analysis),
    }


def scores(analysis: Analysis, links: Links) -> ReportTable:
    """The score table; every cell leads to the algorithm's runs."""
    found, relies = groups.groups(analysis), _shape_biases(analysis)
    rows = []
    for algorithm in analysis.algorithms:
        cells = [cell for group in found for cell in group.cells(analysis, algorithm)]
        link = f"#{links.algorithms[algorithm]}"
        entries = [*_relies(relies, algorithm), *(score(cell, href=link) for cell in cells)]
        rows.append((links.algorithm(algorithm), *entries))
    run = words.repeated(analysis)
    error = f"{words.error(analysis)} between {run}s ({words.error_by(analysis)})"
    caption = f"Mean ± {error}, in {analysis.units}. Bold: best of the column."
    caption += groups.caption(analysis)
    if any(cell.interval_text for cell in analysis.cells.values()):
        caption += (
            " Below: where a single model's accuracy lies (95 %, Wilson), given how many images the set has. A number "
            "leads to its runs."
        )
        if any(column.conditions for column in analysis.sets):
            caption += " The views of one photograph under several conditions count as one image there."
    if analysis.daggers:
        caption += " Underlined†: the algorithm trained on data of the maker of this set."
    if relies:
        caption += " Shape bias: of the decisions for either cue, the percentage for the shape; ± between runs."
    caption += words.not_applicable(analysis)
    head = ("algorithm", *relies, *(name for group in found for name in group.heads))
    above = (("", 1 + len(relies)), *groups.above(found)) if groups.above(found) else ()
    file = "scores.csv, blocks.csv" if above else "scores.csv"
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, file, above=above)


def _shape_biases(analysis: Analysis) -> dict[str, dict[str, TableCell]]:
    """Head of a column -> algorithm -> its shape bias, for each set of cue conflicts."""
    found: dict[str, dict[str, TableCell]] = {}
    own = analysis.texture.groupby("dataset", sort=False)
    for dataset, frame in own:
        head = "shape bias" if own.ngroups == 1 else f"shape bias, {dataset}"
        cells = {row["algorithm"]: decimal(row["mean"], small=_spread(row["std"])) for row in frame.to_dict("records")}
        found[head] = {str(name): cell for name, cell in cells.items()}
    return found


def _relies(relies: Mapping[str, Mapping[str, TableCell]], algorithm: str) -> list[TableCell]:
    return [column.get(algorithm, decimal(math.nan)) for column in relies.values()]


def averages(analysis: Analysis, links: Links) -> ReportTable | None:
    """A value for each data set, and the mean over them."""
    found = groups.averages(analysis)
    if found is None:
        return None
    rows = []
    for algorithm, cells in found.rows.items():
        link = f"#{links.algorithms[algorithm]}"
        over = [decimal(found.means[algorithm], analysis.sets[0].digits, bold=False)] if found.means else []
        rows.append((links.algorithm(algorithm), *(score(cell, href=link) for cell in cells), *over))
    caption = f"Averages of the data sets, in {analysis.units}. Bold: best of the column.{groups.caption(analysis)}"
    caption += " Last: the mean over the data sets." if found.means else ""
    head = ("algorithm", *found.heads, *([groups.AVERAGE] if found.means else []))
    caption += words.not_applicable(analysis)
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "blocks.csv, scores.csv")


def deviations(analysis: Analysis, links: Links) -> ReportTable | None:
    """Mean and the deviation over runs and epochs together (`spread`), beside that between runs."""
    found = {(row["algorithm"], row["dataset"]): row for row in analysis.spread.to_dict("records")}
    rows = []
    for algorithm in [a for a in analysis.algorithms if any((a, name) in found for name in analysis.set_names)]:
        cells = [_deviation(found.get((algorithm, column.name)), column.digits) for column in analysis.sets]
        rows.append((links.algorithm(algorithm), *cells))
    caption = (
        f"The same means ± the standard deviation over runs and epochs together, in {analysis.units}: the root of the "
        "variance between runs (n) and the mean variance over their epochs. Below: the deviation between runs (n - 1), "
        "which every other table gives."
    )
    head = ("algorithm", *analysis.set_names)
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "spread.csv") if rows else None


def _deviation(row: Mapping[Any, Any] | None, digits: int) -> TableCell:
    if row is None:
        return decimal(math.nan)
    pooled, between = number(row["std_pooled"], digits), number(row["std_between_runs"], digits)
    return decimal(row["mean"], digits, small=f"±{pooled}", below=f"runs ±{between}")


def shape_bias(analysis: Analysis, links: Links) -> ReportTable | None:
    """Shape bias beside the reference's; None where no run has one."""
    frame = analysis.texture
    if frame.empty:
        return None
    rows = []
    for row in frame.to_dict("records"):
        mean = decimal(row["mean"], small=_spread(row["std"]))
        difference = interval(row["difference"], row["low"], row["high"])
        p = p_entry(row["p_holm"], analysis.alpha, bool(row["significant"]))
        cells = (mean, decimal(row["coverage"]), difference, p, decimal(row["num_runs"], 0))
        rows.append((links.algorithm(row["algorithm"]), text(row["dataset"]), *cells))
    reference = next(filter(None, frame["reference"]), "")
    caption = (
        "Shape bias: of the decisions for either cue, the percentage for the shape (0: all for the texture); coverage: "
        "that of all decisions which is for either cue. Mean ± standard deviation over runs (n - 1). "
    )
    caption += (
        f"Against {reference}: the difference with its 95 % interval (Welch's t over runs), p with Holm's correction."
        if reference
        else "There is no reference to compare with: control=<algorithm> names one."
    )
    head = ("algorithm", "set", "shape bias", "coverage", f"against {reference or '-'}", "p (Holm)", "runs")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "shape_bias.csv")


def per_set(analysis: Analysis) -> ReportTable | None:
    """Kruskal-Wallis on each set, and how many pairs are told apart there."""
    frame, pairs = analysis.pairwise.sets, analysis.pairwise.set_pairs
    if (frame["skipped"] != "").all():
        return None
    rows = []
    for row in frame.to_dict("records"):
        own = pairs[pairs["dataset"] == row["dataset"]]
        apart = int(own["significant"].astype(bool).sum())
        entries = (decimal(row["h"], 2), p_entry(row["p_holm"], analysis.alpha, bool(row["significant"])))
        told = TableCell(f"{apart} of {len(own)}", value=apart) if not row["skipped"] else TableCell(row["skipped"])
        rows.append((text(row["dataset"]), decimal(row["num_runs"], 0), *entries, told))
    caption = (
        "Do the algorithms differ on one set? Kruskal-Wallis over the runs, p with Holm's correction over the sets; "
        "pairs by Mann-Whitney with Holm's correction within the set."
    )
    head = ("set", "runs", "H", "p", "pairs told apart")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "per_set_pairs.csv")


def card(analysis: Analysis, links: Links) -> ReportTable | None:
    """One's own numbers beside the published ones, where asked for."""
    frame = analysis.reproduction
    if frame is None:
        return None
    rows = []
    for row in frame.to_dict("records"):
        name = links.algorithm(row["algorithm"])
        own = decimal(row["mean"], small=_spread(row["std"]), href=name.href)
        published = decimal(row["published_mean"], small=_spread(row["published_std"]))
        differences = (decimal(row["difference"]), decimal(row["difference_in_std"]))
        judged = (p_entry(row["p_holm"], analysis.alpha, bold=False), text(row["judged_by"]), text(row["verdict"]))
        rows.append((name, text(row["dataset"]), own, published, *differences, *judged))
    caption = card_sentence(frame, analysis.alpha)
    head = ("algorithm", "set", "ours", "published", "difference", "in published std", "p", "judged by", "verdict")
    return ReportTable(
        f"Reproduction of published numbers. {caption}", head, tuple(rows), analysis.rule.oracle, "reproduction.csv"
    )


def _spread(std: float) -> str:
    return "" if math.isnan(std) else f"±{number(std)}"


def power(analysis: Analysis) -> ReportTable | None:
    """Per setting and procedure: fewest sets, detectable difference, false positives."""
    rows = []
    for limits in analysis.pairwise.limits:
        rates = {entry.procedure: entry for entry in limits.false_positives}
        for entry in limits.detectable:
            found = rates.get(entry.procedure)
            false = words.rate_text(found.rate) if found else "-"
            fewest = TableCell(str(entry.smallest_num_sets), value=entry.smallest_num_sets)
            sizes = (fewest, decimal(entry.difference, analysis.sets[0].digits))
            rows.append((text(procedure(entry.procedure)), text(limits.setting), *sizes, TableCell(false)))
    if not rows:
        return None
    caption = (
        "What each test could have found: the fewest sets on which it can reject at all, the lead over all others in "
        f"{words.unit(analysis)} that it finds in 80 % of the cases on these sets and runs (∞: none), and how often it "
        "finds something among equal methods whose runs differ as these do, with the 95 % interval of that simulation."
    )
    head = ("test", "sets", "fewest sets", "detectable", "false positives")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "power.json")


def plan(analysis: Analysis) -> ReportTable | None:
    """Power of larger and smaller designs, where asked for."""
    frame = analysis.pairwise.plan
    if frame is None:
        return None
    runs = sorted(set(frame["num_runs"]))
    rows = []
    designs = dict.fromkeys(zip(frame["procedure"], frame["num_sets"].astype(float), strict=True))
    for name, num_sets in designs:
        own = frame[(frame["procedure"] == name) & (frame["num_sets"] == num_sets)]
        powers = dict(zip(own["num_runs"], own["power"], strict=True))
        cells = [TableCell(f"{powers[n]:.0%}", value=powers[n], bold=powers[n] >= 0.8) for n in runs]
        rows.append((text(procedure(name)), decimal(num_sets, 0), *cells))
    caption = (
        f"Plan: with what probability a lead of {analysis.options.difference:g} points would be found, for so many "
        "sets and runs of each algorithm. Bold: at least 80 %."
    )
    head = ("test", "sets", *(f"{n} run{'s' * (n > 1)}" for n in runs))
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "plan.csv")


# --- of one setting ---------------------------------------------------------------------------------------------------


def of_setting(analysis: Analysis, comparison: RankTests, links: Links) -> Mapping[str, ReportTable | None]:
    """The tables of one choice of sets; None where there is nothing to show."""
    if comparison.skipped:
        return {"ranks": None, "pairs": None, "flips": None}
    pairs = verdicts(analysis, comparison)
    return {
        "ranks": ranks(analysis, comparison, links),
        "pairs": pair_table(analysis, comparison, pairs, links) if pairs else None,
        "flips": flip_table(analysis, comparison, links),
    }


def ranks(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable:
    """Average rank, mean over sets with its interval, and the rank on every set."""
    frame = analysis.pairwise.intervals
    own = frame[(frame["setting"] == comparison.setting) & (frame["dataset"] == bootstrap.OVER_SETS)]
    means = {row["algorithm"]: row for row in own.to_dict("records")}
    sets = [name for name in blocks(analysis.sets) if name in comparison.sets]
    digits = analysis.sets[0].digits
    rows = []
    for name, average in comparison.mean_ranks.items():
        cells = [decimal(average, 2, bold=True)]
        if means:
            cells.append(interval(means[name]["mean"], means[name]["low"], means[name]["high"], digits))
        cells += [TableCell(f"{value:g}", value=value) for value in comparison.ranks.loc[sets, name].astype(float)]
        rows.append((links.algorithm(name), *cells))
    caption = "Ranks, 1 is best; equal scores share their mean rank."
    if means:
        caption += (
            f" Mean over {comparison.noun}s with its {words.percent(1 - comparison.alpha)} interval by bootstrap over "
            f"{comparison.noun}s{', their columns' * (comparison.noun != 'set')} and runs."
        )
    head = ("algorithm", "average rank", *((f"mean over {comparison.noun}s",) if means else ()), *sets)
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "ranks.csv")


def pair_table(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict], links: Links) -> ReportTable:
    """Every pair with the size of its difference and what each test says."""
    rope, digits = analysis.options.rope, analysis.sets[0].digits
    nemenyi, practical = comparison.nemenyi is not None, not math.isnan(pairs[0].alike)
    rows = []
    for pair in pairs:
        in_practice = TableCell(pair.practical or "undecided", value=pair.better, below=_probability(pair))
        cells = [
            links.algorithm(pair.a),
            links.algorithm(pair.b),
            interval(pair.difference, pair.low, pair.high, digits),
            TableCell(f"{pair.wins}-{pair.losses}-{pair.ties}", value=pair.wins - pair.losses),
            p_entry(pair.p_holm, analysis.alpha, pair.wilcoxon),
            *([p_entry(pair.nemenyi_p, analysis.alpha, pair.nemenyi)] if nemenyi else []),
            interval(pair.improvement, pair.improvement_low, pair.improvement_high, 2),
            *([in_practice] if practical else []),
            decimal(pair.detectable, digits),
        ]
        rows.append(tuple(cells))
    bayes = (
        f"in practice, where ±{rope:g} point{'s' * (rope != 1)} count as alike, by the Bayesian test of this pair "
        "alone, which errs more often than the others; "
    )
    caption = (
        f"Pairs: mean difference a - b over {comparison.size} in {words.unit(analysis)} with its "
        f"{words.percent(1 - comparison.alpha)} bootstrap interval; {comparison.noun}s on which a is better, worse, "
        "equal; exact Wilcoxon p with Holm's correction"
        f"{', Nemenyi p' * nemenyi} (bold: significant, under a significant omnibus test only); probability that a run "
        f"of a beats a run of b; {bayes * practical}and the difference that a test of this pair alone would find in "
        "80 % of the cases."
    )
    head = ["a", "b", "difference", f"{comparison.noun}s +-=", "p Wilcoxon", *(["p Nemenyi"] if nemenyi else [])]
    head += ["a beats b", *(["in practice (Bayes)"] if practical else []), "detectable"]
    return ReportTable(
        caption, tuple(head), tuple(rows), analysis.rule.oracle, "effects.csv, wilcoxon_holm.csv, bayesian.csv"
    )


def _probability(pair: Verdict) -> str:
    """The posterior behind a verdict in practice; empty where it is undecided."""
    found = {"better": pair.better, "alike": pair.alike, "worse": pair.worse}.get(pair.practical)
    return "" if found is None else f"probability {math.floor(100 * found) / 100:.2f}"


def flip_table(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable | None:
    """Every conclusion that some change overturns, with the changes."""
    found = overturned(analysis.pairwise.flips, comparison.setting)
    if not found:
        return None
    rows = []
    for one in found:
        about = f"{one.a}, {one.b}: " if one.before == stability.SAME else ""
        changes = [doubts.change_text(analysis, change, what) for change, what, _ in one.changes]
        after = "; ".join(dict.fromkeys(after for _, _, after in one.changes))
        rows.append(
            (
                text(about + one.before if one.a else f"all algorithms: {one.before}"),
                text(TEST_NAMES[one.test]),
                TableCell(str(len(changes)), value=len(changes)),
                text(after),
                text("; ".join(changes)),
            )
        )
    caption = "Conclusions that some change overturns, those that claim a difference first."
    head = ("conclusion", "by", "changes", "becomes", "by these")
    return ReportTable(caption, head, tuple(rows), analysis.rule.oracle, "sensitivity.csv")
