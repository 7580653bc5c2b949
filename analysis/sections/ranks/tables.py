"""Tables of ranks and of pairs, on the page and for LaTeX."""

from __future__ import annotations

import math
from typing import Any

from biasbed.analysis.columns import blocks
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    interval,
    interval_cell,
    interval_text,
    make_table,
    number,
    number_cell,
    p_cell,
    p_value,
    prepared,
)
from biasbed.analysis.report.verdicts import verdicts
from biasbed.analysis.report.wording import percent
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import bootstrap
from biasbed.analysis.statistics.friedman import RankTests

FILE = "ranks.csv"
PAIR_FILES = "effects.csv, wilcoxon_holm.csv, bayesian.csv"

# --- ranks ------------------------------------------------------------------------------------------------------------


def make_rank_table(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable:
    """Return average rank, mean over sets with its interval, and the rank on every set."""
    frame, noun = analysis.pairwise.intervals, comparison.noun
    over_sets = frame[(frame["setting"] == comparison.setting) & (frame["dataset"] == bootstrap.OVER_SETS)]
    means = {row["algorithm"]: row for row in over_sets.to_dict("records")}
    sets = [name for name in blocks(analysis.sets) if name in comparison.sets]
    digits = analysis.sets[0].digits
    columns = [links.column(), TableColumn("average rank", prepared("average"))]
    caption = "Ranks, 1 is best; equal scores share their mean rank."
    if means:
        columns.append(TableColumn(f"mean over {noun}s", prepared("mean")))
        columns_too = ", their columns" if noun != "set" else ""
        level = percent(1 - comparison.alpha)
        caption += f" Mean over {noun}s with its {level} interval by bootstrap over {noun}s{columns_too} and runs."
    columns += [TableColumn(analysis.label(name), prepared(("rank", name)), name=name) for name in sets]
    records = []
    for name, average in comparison.mean_ranks.items():
        record: dict[Any, Any] = {"algorithm": name, "average": number_cell(average, 2, bold=True)}
        if means:
            mean = means[name]
            record["mean"] = interval_cell(mean["mean"], mean["low"], mean["high"], digits)
        for set_name, value in comparison.ranks.loc[sets, name].astype(float).items():
            record["rank", set_name] = TableCell(f"{value:g}", value=value)
        records.append(record)
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)


def make_printed_ranks(analysis: Analysis, links: Links) -> ReportTable | None:
    """Return the average ranks on every choice of sets, below them the omnibus test, for LaTeX; None without ranks."""
    comparisons = [comparison for comparison in analysis.comparisons if len(comparison.ranks)]
    if not comparisons:
        return None
    columns = [links.column()]
    records: dict[str, dict[str, Any]] = {}
    for comparison in comparisons:
        head = f"{comparison.setting} ({comparison.size})"
        columns.append(TableColumn(None, prepared(comparison.setting), printed=head))
        for name, average in comparison.mean_ranks.items():
            record = records.setdefault(name, {"algorithm": name})
            record[comparison.setting] = number_cell(average, 2)
    footer = [("$p$", *map(_omnibus_p, comparisons))]
    critical = [comparison.reach.critical_difference if comparison.reach else None for comparison in comparisons]
    if any(critical):
        footer.append(("critical difference", *("--" if d is None else f"{d:.2f}" for d in critical)))
    note = f"$p$: {_name_test(comparisons[0])}. {latex.provenance(analysis)}. "
    pools = [
        f"{comparison.setting}: {wording.describe_pool(comparison)}"
        for comparison in comparisons
        if wording.describe_pool(comparison)
    ]
    if pools:
        note += f"{latex.escape('; '.join(pools))}. "
    printed = PrintedText("ranks", "Average ranks, 1 is best.", note)
    oracle = analysis.rule.oracle
    return make_table("", columns, records.values(), oracle=oracle, printed=printed, footer=tuple(footer))


def _omnibus_p(comparison: RankTests) -> str:
    """Return the p-value of the omnibus test, or of Wilcoxon's of two algorithms, as LaTeX."""
    if comparison.skipped:
        return "--"
    p = math.nan
    if comparison.pair:
        p = comparison.pair.wilcoxon_p
    elif comparison.friedman:
        p = comparison.friedman.p
    mantissa, _, exponent = f"{p:.3g}".partition("e")
    if exponent:
        return rf"${mantissa}\cdot 10^{{{int(exponent)}}}$"
    return mantissa


def _name_test(comparison: RankTests) -> str:
    """Return the name of the test whose p-value that is, as LaTeX."""
    if comparison.skipped:
        return f"no test, {latex.escape(comparison.skipped)}"
    test = comparison.friedman
    if test is None:
        return "exact Wilcoxon signed-rank test"
    if test.permutation_p is None:
        return "Friedman's test with Iman and Davenport's $F$"
    return "Friedman's test by permutation of the ranks"


def make_nemenyi_table(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable:
    """Return p-values of all pairs, upper triangle; for LaTeX. Bold ones need a significant omnibus test."""
    names = [name for name in analysis.algorithms if name in comparison.algorithms]
    columns = [links.column()]
    columns += [TableColumn(None, _cell_or_blank(name), printed=analysis.label(name), style="turned") for name in names]
    records = []
    for i, a in enumerate(names):
        record: dict[str, Any] = {"algorithm": a}
        for b in names[i + 1 :]:
            p = comparison.p(a, b)
            record[f"against {b}"] = p_cell(p, comparison.alpha, comparison.significant and p < comparison.alpha)
        records.append(record)
    note = f"Bold: below {comparison.alpha:g}. {latex.provenance(analysis)}. "
    if not comparison.significant:
        note += "The omnibus test is not significant, so no pair may be called different and none is bold. "
    caption = f"Nemenyi's test, $p$-values on {comparison.size}."
    printed = PrintedText(f"nemenyi-{comparison.setting}", caption, note)
    return make_table("", columns, records, oracle=analysis.rule.oracle, printed=printed)


def _cell_or_blank(name: str) -> CellMaker:
    """Show the cell against an algorithm; nothing below the diagonal."""

    def make(record: TableRecord) -> TableCell:
        cell: TableCell = record.get(f"against {name}", TableCell(""))
        return cell

    return make


# --- pairs ------------------------------------------------------------------------------------------------------------


def make_pair_table(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable | None:
    """Return every pair with the size of its difference and the verdict of each test; None without pairs."""
    pairs = verdicts(analysis, comparison)
    if not pairs:
        return None
    alpha, digits, noun = analysis.alpha, analysis.sets[0].digits, comparison.noun
    has_nemenyi, has_bayes = comparison.nemenyi is not None, not math.isnan(pairs[0].alike)
    p_nemenyi = TableColumn("p Nemenyi", p_value("nemenyi_p", alpha, bold="nemenyi"))
    improvement = interval("improvement", "improvement_low", "improvement_high", 2)
    columns = [
        TableColumn("a", links.algorithm("a"), printed="a", style="math", align="l"),
        TableColumn("b", links.algorithm("b"), printed="b", style="math", align="l"),
        TableColumn("difference", interval("difference", "low", "high", digits), printed="a-b", style="math"),
        TableColumn(None, _bounds(digits), printed="interval"),
        TableColumn(f"{noun}s +-=", _wins_losses_ties),
        TableColumn(None, _wins, printed="wins"),
        TableColumn("p Wilcoxon", p_value("p_holm", alpha, bold="wilcoxon"), printed="p", style="math"),
        *([p_nemenyi] if has_nemenyi else []),
        TableColumn("a beats b", improvement, printed="a>b", style="math"),
        *([TableColumn("in practice (Bayes)", _in_practice)] if has_bayes else []),
        TableColumn("detectable", number("detectable", digits)),
    ]
    size, unit, rope = comparison.size, wording.unit(analysis), analysis.options.rope
    bayes = ""
    if has_bayes:
        bayes = (
            f"in practice, where ±{rope:g} {wording.plural('point', rope)} count as alike, by the Bayesian test of "
            "this pair alone, which errs more often than the others; "
        )
    caption = (
        f"Pairs: mean difference a - b over {size} in {unit} with the {percent(1 - alpha)} bootstrap interval of this "
        f"pair alone; {noun}s on which a is better, worse, equal; exact Wilcoxon p with Holm's correction"
        f"{', Nemenyi p' if has_nemenyi else ''} (bold: significant, under a significant omnibus test only); "
        f"probability that a run of a beats a run of b; {bayes}and the difference that a test of this pair alone would "
        "find in 80 % of the cases."
    )
    printed = PrintedText(
        f"pairs-{comparison.setting}",
        rf"Pairs on {size}: mean difference in {unit} with the {100 * (1 - alpha):g}\,\% bootstrap interval of each "
        "pair alone.",
        f"Wins: {noun}s on which $a$ is better. $p$: exact Wilcoxon with Holm's correction (bold: significant, under a "
        "significant omnibus test). $a>b$: how often a run of $a$ beats a run of $b$. "
        f"{latex.provenance(analysis)}.",
    )
    records = [vars(pair) for pair in pairs]
    return make_table(caption, columns, records, PAIR_FILES, oracle=analysis.rule.oracle, printed=printed)


def _bounds(digits: int) -> CellMaker:
    """Show the interval of a pair's difference."""

    def make(pair: TableRecord) -> TableCell:
        return TableCell(interval_text(pair["low"], pair["high"], digits))

    return make


def _wins(pair: TableRecord) -> TableCell:
    return TableCell(f"{pair['wins']}/{pair['num_sets']}")


def _wins_losses_ties(pair: TableRecord) -> TableCell:
    return TableCell(f"{pair['wins']}-{pair['losses']}-{pair['ties']}", value=pair["wins"] - pair["losses"])


def _in_practice(pair: TableRecord) -> TableCell:
    """Show which of a pair is better in practice, with the posterior probability behind that."""
    verdict = pair["practical"]
    if not verdict:
        return TableCell("undecided", value=pair["better"])
    probability = math.floor(100 * pair[verdict]) / 100
    return TableCell(verdict, value=pair["better"], interval=f"probability {probability:.2f}")
