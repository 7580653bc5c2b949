"""Tables of tests: ranks, pairs, what overturns a conclusion, single sets, single runs, power, plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from biasbed.analysis.columns import blocks
from biasbed.analysis.report import latex, limitations, wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    TableCell,
    TableColumn,
    TableRecord,
    count_cell,
    interval,
    interval_cell,
    interval_text,
    make_table,
    named,
    number,
    number_cell,
    p_cell,
    p_value,
    prepared,
    text,
)
from biasbed.analysis.report.verdicts import overturned, verdicts
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics import bootstrap, stability
from biasbed.analysis.statistics import per_set as per_set_tests
from biasbed.analysis.statistics.friedman import RankTests

# --- ranks ------------------------------------------------------------------------------------------------------------


def of_setting(analysis: Analysis, comparison: RankTests, links: Links) -> Mapping[str, ReportTable | None]:
    """Return the tables of one choice of sets; None for those without rows."""
    if comparison.skipped:
        return {"ranks": None, "pairs": None, "flips": None}
    return {
        "ranks": ranks(analysis, comparison, links),
        "pairs": pairs(analysis, comparison, links),
        "flips": flips(analysis, comparison),
    }


def ranks(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable:
    """Average rank, mean over sets with its interval, and the rank on every set."""
    frame, noun = analysis.pairwise.intervals, comparison.noun
    over_sets = frame[(frame["setting"] == comparison.setting) & (frame["dataset"] == bootstrap.OVER_SETS)]
    means = {row["algorithm"]: row for row in over_sets.to_dict("records")}
    sets = [name for name in blocks(analysis.sets) if name in comparison.sets]
    digits = analysis.sets[0].digits
    columns = [links.column(), TableColumn("average rank", prepared("average"))]
    caption = say("ranks")
    if means:
        columns.append(TableColumn(f"mean over {noun}s", prepared("mean")))
        columns_too = ""
        if noun != "set":
            columns_too = say("ranks_columns")
        level = wording.percent(1 - comparison.alpha)
        caption += say("ranks_means", noun=noun, level=level, columns=columns_too)
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
    return make_table(caption, columns, records, "ranks.csv", oracle=analysis.rule.oracle)


def ranks_of_settings(analysis: Analysis, links: Links) -> ReportTable | None:
    """Average ranks of every choice of sets, and below them the omnibus test; for LaTeX."""
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
    slots = {"test": _test_name(comparisons[0]), "provenance": latex.provenance(analysis)}
    note = say("printed_ranks_note", **slots)
    pools = [
        f"{comparison.setting}: {wording.pool(comparison)}" for comparison in comparisons if wording.pool(comparison)
    ]
    if pools:
        note += f"{latex.escape('; '.join(pools))}. "
    printed = PrintedText("ranks", say("printed_ranks"), note)
    oracle = analysis.rule.oracle
    return make_table("", columns, records.values(), oracle=oracle, printed=printed, footer=tuple(footer))


def _omnibus_p(comparison: RankTests) -> str:
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


def _test_name(comparison: RankTests) -> str:
    if comparison.skipped:
        return say("printed_no_test", reason=latex.escape(comparison.skipped))
    test = comparison.friedman
    if test is None:
        return say("printed_wilcoxon")
    if test.permutation_p is None:
        return say("printed_friedman_f")
    return say("printed_friedman_permuted")


def nemenyi(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable:
    """p-values of all pairs, upper triangle; for LaTeX. Bold ones need a significant omnibus test."""
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
    note = say("printed_nemenyi_note", alpha=comparison.alpha, provenance=latex.provenance(analysis))
    note += "" if comparison.significant else say("printed_nemenyi_not_significant")
    caption = say("printed_nemenyi", size=comparison.size)
    printed = PrintedText(f"nemenyi-{comparison.setting}", caption, note)
    return make_table("", columns, records, oracle=analysis.rule.oracle, printed=printed)


def _cell_or_blank(name: str) -> CellMaker:

    def make(record: TableRecord) -> TableCell:
        cell: TableCell = record.get(f"against {name}", TableCell(""))
        return cell

    return make


# --- pairs ------------------------------------------------------------------------------------------------------------


def pairs(analysis: Analysis, comparison: RankTests, links: Links) -> ReportTable | None:
    """Every pair with the size of its difference and what each test says; None without pairs."""
    verdicts_of_pairs = verdicts(analysis, comparison)
    if not verdicts_of_pairs:
        return None
    alpha, digits, noun = analysis.alpha, analysis.sets[0].digits, comparison.noun
    has_nemenyi, has_bayes = comparison.nemenyi is not None, not math.isnan(verdicts_of_pairs[0].alike)
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
    slots = {
        "size": comparison.size,
        "unit": wording.unit(analysis),
        "noun": noun,
        "level": wording.percent(1 - comparison.alpha),
        "provenance": latex.provenance(analysis),
    }
    rope = analysis.options.rope
    bayes = ""
    if has_bayes:
        bayes = say("pairs_bayes", rope=f"{rope:g} {wording.plural('point', rope)}")
    nemenyi = ""
    if has_nemenyi:
        nemenyi = say("pairs_nemenyi")
    level = rf"{100 * (1 - comparison.alpha):g}\,\%"
    printed = PrintedText(
        f"pairs-{comparison.setting}",
        say("printed_pairs", **(slots | {"level": level})),
        say("printed_pairs_note", **slots),
    )
    return make_table(
        say("pairs", bayes=bayes, nemenyi=nemenyi, **slots),
        columns,
        [vars(pair) for pair in verdicts_of_pairs],
        "effects.csv, wilcoxon_holm.csv, bayesian.csv",
        oracle=analysis.rule.oracle,
        printed=printed,
    )


def _bounds(digits: int) -> CellMaker:

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


def flips(analysis: Analysis, comparison: RankTests) -> ReportTable | None:
    """Every conclusion that some change overturns, with the changes."""
    records = []
    for conclusion in overturned(analysis.pairwise.flips, comparison.setting):
        about = limitations.outcome_text(analysis, conclusion, conclusion.before)
        if not conclusion.a:
            about = f"all algorithms: {about}"
        elif conclusion.before == stability.SAME:
            about = f"{analysis.label(conclusion.a)}, {analysis.label(conclusion.b)}: {about}"
        changes = [limitations.change_text(analysis, change.kind, change.changed) for change in conclusion.changes]
        outcomes = dict.fromkeys(
            limitations.outcome_text(analysis, conclusion, change.after) for change in conclusion.changes
        )
        records.append(
            {
                "conclusion": about,
                "test": say(f"test_names.{conclusion.test}"),
                "number": count_cell(len(changes)),
                "outcomes": "; ".join(outcomes),
                "changes": "; ".join(changes),
            }
        )
    if not records:
        return None
    columns = [
        TableColumn("conclusion", text("conclusion")),
        TableColumn("by", text("test")),
        TableColumn("changes", prepared("number")),
        TableColumn("becomes", text("outcomes")),
        TableColumn("by these", text("changes")),
    ]
    return make_table(say("flips"), columns, records, "sensitivity.csv", oracle=analysis.rule.oracle)


# --- single sets, single runs -----------------------------------------------------------------------------------------


def per_set(analysis: Analysis) -> ReportTable | None:
    """Kruskal-Wallis test on each set, and how many pairs are told apart there."""
    frame, set_pairs = analysis.pairwise.sets, analysis.pairwise.set_pairs
    if (frame["skipped"] != "").all():
        return None
    records = []
    for row in frame.to_dict("records"):
        of_set = set_pairs[set_pairs["dataset"] == row["dataset"]]
        apart = int(of_set["significant"].astype(bool).sum())
        cell = TableCell(f"{apart} of {len(of_set)}", value=apart)
        records.append({**row, "apart": TableCell(row["skipped"]) if row["skipped"] else cell})
    columns = [
        TableColumn("set", named("dataset", analysis.label)),
        TableColumn("runs", number("num_runs", 0)),
        TableColumn("H", number("h", 2)),
        TableColumn("p", p_value("p_holm", analysis.alpha, bold="significant")),
        TableColumn("pairs told apart", prepared("apart")),
    ]
    return make_table(say("per_set"), columns, records, "per_set_pairs.csv", oracle=analysis.rule.oracle)


MOST_ON_PAGE = 1000  # pairs on single sets; more are in the file alone


def pairs_on_sets(analysis: Analysis, links: Links) -> list[ReportTable]:
    """Return a table for each set with the pairs there; none if they are too many for a page."""
    if len(analysis.pairwise.set_pairs) > MOST_ON_PAGE:
        return []
    tables: list[ReportTable] = []
    for name in analysis.set_names:
        table = pairs_on_set(analysis, links, name, has_legend=not tables)
        if table is not None:
            tables.append(table)
    return tables


def pairs_on_set(analysis: Analysis, links: Links, name: str, has_legend: bool = True) -> ReportTable | None:
    """Return every pair on one set, the largest difference first; None without tests over runs."""
    frame = analysis.pairwise.set_pairs
    of_set = frame[frame["dataset"] == name]
    if of_set.empty:
        return None
    records = []
    for row in per_set_tests.pair_intervals(of_set, analysis.runs, analysis.alpha).to_dict("records"):
        records.append(_turn_pair(row) if row["difference"] < 0 else row)
    records.sort(key=lambda row: -row["difference"])
    digits = next(column.digits for column in analysis.sets if column.name == name)
    columns = [
        TableColumn("a", links.algorithm("a")),
        TableColumn("b", links.algorithm("b")),
        TableColumn("a better by", interval("difference", "low", "high", digits)),
        TableColumn("p (Holm)", p_value("p_holm", analysis.alpha, bold="significant")),
        TableColumn("smallest p possible", p_value("smallest_p", analysis.alpha)),
    ]
    number_of_tests = records[0]["num_tests"]
    together = say("pairs_on_set_alone")
    if number_of_tests > 1:
        together = say("pairs_on_set_together", number=number_of_tests)
    caption = say("pairs_on_set", name=analysis.label(name))
    if has_legend:
        level = wording.percent(1 - analysis.alpha)
        caption += say("pairs_on_set_legend", unit=wording.unit(analysis), level=level, together=together)
    return make_table(caption, columns, records, "per_set_pairs.csv", oracle=analysis.rule.oracle)


def _turn_pair(row: dict[Any, Any]) -> dict[Any, Any]:
    """Return the same pair seen from the other side."""
    turned = {"a": row["b"], "b": row["a"], "difference": -row["difference"]}
    return row | turned | {"low": -row["high"], "high": -row["low"]}


# --- power ------------------------------------------------------------------------------------------------------------


def power(analysis: Analysis) -> ReportTable | None:
    """Fewest sets, detectable difference and false positives of each test on each choice of sets."""
    records = []
    for limits in analysis.pairwise.limits:
        rates = {test.procedure: test.rate for test in limits.false_positives}
        for test in limits.detectable:
            rate = wording.rate_text(rates[test.procedure]) if test.procedure in rates else "-"
            records.append(
                {
                    "test": limitations.procedure_name(test.procedure),
                    "setting": limits.setting,
                    "fewest": count_cell(test.smallest_num_sets),
                    "detectable": test.difference,
                    "rate": TableCell(rate),
                }
            )
    if not records:
        return None
    columns = [
        TableColumn("test", text("test")),
        TableColumn("sets", text("setting")),
        TableColumn("fewest sets", prepared("fewest")),
        TableColumn("detectable", number("detectable", analysis.sets[0].digits)),
        TableColumn("false positives", prepared("rate")),
    ]
    caption = say("power", unit=wording.unit(analysis))
    return make_table(caption, columns, records, "power.json", oracle=analysis.rule.oracle)


def plan(analysis: Analysis) -> ReportTable | None:
    """Power of larger and smaller designs, if `plan=` asks for it."""
    frame = analysis.pairwise.plan
    if frame is None:
        return None
    columns = [TableColumn("test", text("test")), TableColumn("sets", number("num_sets", 0))]
    for runs in sorted(set(frame["num_runs"])):
        columns.append(TableColumn(wording.count(runs, "run"), prepared(runs)))
    records: dict[tuple[str, float], dict[Any, Any]] = {}
    for row in frame.to_dict("records"):
        procedure, num_sets, share = row["procedure"], float(row["num_sets"]), row["power"]
        name = limitations.procedure_name(procedure)
        record = records.setdefault((procedure, num_sets), {"test": name, "num_sets": num_sets})
        record[row["num_runs"]] = TableCell(f"{share:.0%}", value=share, bold=share >= 0.8)
    caption = say("plan", difference=f"{analysis.options.difference:g}")
    return make_table(caption, columns, records.values(), "plan.csv", oracle=analysis.rule.oracle)
