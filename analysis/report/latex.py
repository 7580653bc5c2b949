"""The result as LaTeX tables for a paper. Each states its own provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from biasbed.analysis import regret
from biasbed.analysis.report import words
from biasbed.analysis.report.compared import repeats
from biasbed.analysis.report.floats import bold, escape, floated, turned
from biasbed.analysis.report.groups import AVERAGE, Averages, ColumnGroup, above, averages, groups
from biasbed.analysis.report.groups import caption as group_caption
from biasbed.analysis.report.verdicts import Verdict, verdicts
from biasbed.analysis.result import Analysis, Cell, number
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.statistics.friedman import RankTests

DAGGER_TEXT = r"\textsuperscript{$\dagger$}~underlined: the algorithm trained on data of the maker of this set. "


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes all LaTeX tables and returns file name -> one line that says what it is."""
    (folder / "tables").mkdir(exist_ok=True)
    run = words.repeated(analysis)
    tables = {
        "tables/scores.tex": (score_table(analysis), "scores of the algorithms on the sets, LaTeX"),
        "tables/runs.tex": (run_table(analysis), f"score of every {run}, for an appendix, LaTeX"),
    }
    found = averages(analysis)
    if found is not None:
        tables["tables/averages.tex"] = (average_table(analysis, found), "averages of the data sets, LaTeX")
        for group in groups(analysis):
            if group.wide:
                table = data_set_table(analysis, group)
                tables[f"tables/scores_{group.block}.tex"] = (table, f"scores on {group.block} alone, LaTeX")
    if any(len(comparison.ranks) for comparison in analysis.comparisons):
        tables["tables/ranks.tex"] = (rank_table(analysis), "average ranks and omnibus test, LaTeX")
    for comparison in analysis.comparisons:
        if comparison.nemenyi is not None:
            description = f"p-values of Nemenyi's test, {words.setting_file(comparison)}, LaTeX"
            tables[f"tables/nemenyi{comparison.suffix}.tex"] = (nemenyi_table(analysis, comparison), description)
        pairs = verdicts(analysis, comparison)
        if pairs:
            description = f"differences of all pairs with intervals and tests, {words.setting_file(comparison)}, LaTeX"
            tables[f"tables/pairs{comparison.suffix}.tex"] = (pair_table(analysis, comparison, pairs), description)
    if len(analysis.spread):
        tables["tables/spread.tex"] = (spread_table(analysis), "scores with deviations over runs and epochs, LaTeX")
    if len(analysis.selection_gap):
        tables["tables/selection_gap.tex"] = (gap_table(analysis), "the selection rule beside the oracle, LaTeX")
    for name, (text, _) in tables.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: description for name, (_, description) in tables.items()}


def _name(analysis: Analysis, name: str) -> str:
    """A method's or set's as it is printed."""
    return escape(analysis.label(name))


def score_table(analysis: Analysis) -> str:
    """Algorithms x sets, mean +- std over runs; best bold, sets of the training data's maker underlined."""
    found = groups(analysis)
    rows = [
        [_name(analysis, name), *(_cell(cell) for group in found for cell in group.cells(analysis, name))]
        for name in analysis.algorithms
    ]
    caption = f"Scores in {analysis.units}: mean $\\pm$ {_error(analysis)}."
    header, columns = heads(found, analysis.label), "l" + "r" * (len(rows[0]) - 1)
    return floated(header, rows, columns, "scores", caption=caption, note=_note(analysis))


def _note(analysis: Analysis) -> str:
    """What stands below a table of scores."""
    parts = [f"{provenance(analysis)}. Best in bold.", _of_averages(analysis)]
    return " ".join(filter(None, [*parts, DAGGER_TEXT if analysis.daggers else "", _dashes(analysis)]))


def _error(analysis: Analysis) -> str:
    """What ± is; where it is not the standard deviation with n - 1, by what its variance is divided."""
    usual = analysis.error == Rule.error
    by = "" if usual else f", variance by ${words.error_by(analysis)}$"
    return f"{words.error(analysis)} between {words.repeated(analysis)}s{by}"


def data_set_table(analysis: Analysis, group: ColumnGroup) -> str:
    """Algorithms x the columns of one data set, and their average."""
    rows = [[_name(analysis, name), *map(_cell, group.cells(analysis, name))] for name in analysis.algorithms]
    caption = f"{_name(analysis, group.block)}: scores in {analysis.units}, mean $\\pm$ {_error(analysis)}."
    header, columns = ["", *(_name(analysis, name) for name in group.heads)], "l" + "r" * len(group.heads)
    return floated(header, rows, columns, escape(f"scores-{group.block}"), caption=caption, note=_note(analysis))


def average_table(analysis: Analysis, found: Averages) -> str:
    """Algorithms x data sets, and the mean over these, as DomainBed prints it."""
    rows = [
        [_name(analysis, name), *map(_cell, cells), *([number(found.means[name])] if found.means else [])]
        for name, cells in found.rows.items()
    ]
    heads = [*found.heads, *([AVERAGE] if found.means else [])]
    header = ["", *(turned(analysis.label(name)) for name in heads)]
    caption = f"Averages in {analysis.units}{'; last, the mean over the data sets' if found.means else ''}."
    return floated(header, rows, "l" + "r" * len(heads), "averages", caption=caption, note=_note(analysis))


def heads(found: Sequence[ColumnGroup], label: Callable[[str], str], first: Sequence[str] = ("",)) -> list[str]:
    """The names of columns, and above them those of data sets that have several, each over a rule.

    first: heads of the columns before them, as LaTeX has them.
    """
    header = [*first, *(turned(label(name)) for group in found for name in group.heads)]
    if above(found):
        names, rules, column = [""] * len(first), [], len(first) + 1
        for name, width in above(found):
            names.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(label(name))}}}")
            rules += [rf"\cmidrule(lr){{{column}-{column + width - 1}}}"] if name else []
            column += width
        header[0] = " & ".join(names) + r" \\ " + " ".join(rules) + "\n" + header[0]
    return header


def _of_averages(analysis: Analysis) -> str:
    return escape(group_caption(analysis)).replace("±", r"$\pm$") + " " if group_caption(analysis) else ""


def _dashes(analysis: Analysis) -> str:
    """What a dash means."""
    text = escape(words.not_applicable(analysis))
    return f"{text} " if text else ""


def spread_table(analysis: Analysis) -> str:
    """The same means with the deviation over runs and epochs together (`spread`)."""
    found = {(row["algorithm"], row["dataset"]): row for row in analysis.spread.to_dict("records")}
    rows = []
    for algorithm in analysis.algorithms:
        cells = [found.get((algorithm, name)) for name in analysis.set_names]
        texts = ["--" if row is None else _plus_minus(row["mean"], row["std_pooled"]) for row in cells]
        rows.append([_name(analysis, algorithm), *texts])
    caption = f"Scores in {analysis.units}: mean $\\pm$ standard deviation over runs and epochs together."
    note = f"The root of the variance between runs and the mean variance over their epochs. {provenance(analysis)}."
    return _by_set(analysis, rows, "spread", caption, note)


def gap_table(analysis: Analysis) -> str:
    """Each set's own best epoch, the rule in use, and their difference (Kalischek et al. 2023, table 1)."""
    frame, rule = analysis.selection_gap, analysis.rule.name
    found = {(row["algorithm"], row["dataset"]): row for row in frame.to_dict("records")}
    rows = []
    for algorithm in [name for name in analysis.algorithms if name in set(frame["algorithm"])]:
        of_sets = [found.get((algorithm, name)) for name in analysis.set_names]
        for column in (regret.ORACLE, rule, "difference"):
            values = ["--" if row is None else f"{round(row[column], 1) + 0.0:.1f}" for row in of_sets]
            named = _name(analysis, algorithm) if column == regret.ORACLE else ""
            rows.append([named, escape(column), *values])
    caption = f"ORACLE: each set's own best epoch, beside {escape(rule)}, and the difference, in {analysis.units}."
    note = f"Each set's own best epoch is chosen on the test images. Means over runs. {provenance(analysis)}."
    return _by_set(analysis, rows, "selection-gap", caption, note, "ll")


def _by_set(
    analysis: Analysis, rows: Sequence[Sequence[str]], label: str, caption: str, note: str, names: str = "l"
) -> str:
    """A table with a column for every set after those that name the row."""
    header = [*[""] * len(names), *(turned(analysis.label(name)) for name in analysis.set_names)]
    return floated(header, rows, names + "r" * len(analysis.set_names), label, caption=caption, note=note)


def _plus_minus(mean: float, std: float) -> str:
    return rf"{number(mean)} {{\scriptsize$\pm$ {number(std)}}}"


def rank_table(analysis: Analysis) -> str:
    """Average ranks, and below them the omnibus test of each setting."""
    comparisons = [comparison for comparison in analysis.comparisons if len(comparison.ranks)]
    header = ["", *(f"{c.setting} ({c.size})" for c in comparisons)]
    order = dict.fromkeys(name for c in comparisons for name in c.mean_ranks)
    ranks = [c.mean_ranks for c in comparisons]
    rows = [[_name(analysis, name), *(f"{own[name]:.2f}" if name in own else "--" for own in ranks)] for name in order]
    footer = [["$p$", *(_omnibus_p(c) for c in comparisons)]]
    if any(c.reach and c.reach.critical_difference for c in comparisons):
        differences = [c.reach.critical_difference if c.reach else None for c in comparisons]
        footer.append(["critical difference", *("--" if d is None else f"{d:.2f}" for d in differences)])
    note = f"$p$: {_test_name(comparisons[0])}. {provenance(analysis)}. "
    pools = [f"{c.setting}: {pool}" for c in comparisons if (pool := words.pool(c))]
    note += f"{escape('; '.join(pools))}. " if pools else ""
    columns = "l" + "r" * len(comparisons)
    return floated(header, rows, columns, "ranks", caption="Average ranks, 1 is best.", note=note, footer=footer)


def nemenyi_table(analysis: Analysis, comparison: RankTests) -> str:
    """p-values of all pairs, upper triangle; significant ones bold where the omnibus test is."""
    names = [name for name in analysis.algorithms if name in comparison.algorithms]
    rows = []
    for i, a in enumerate(names):
        cells = [_p_cell(comparison.p(a, b), comparison) if j > i else "" for j, b in enumerate(names)]
        rows.append([_name(analysis, a), *cells])
    caption = f"Nemenyi's test, $p$-values on {comparison.size}."
    note = f"Bold: below {comparison.alpha:g}. {provenance(analysis)}. "
    if not comparison.significant:
        note += "The omnibus test is not significant, so no pair may be called different and none is bold. "
    header = ["", *(turned(analysis.label(name)) for name in names)]
    columns, label = "l" + "r" * len(names), f"nemenyi-{comparison.setting}"
    return floated(header, rows, columns, label, caption=caption, note=note)


def pair_table(analysis: Analysis, comparison: RankTests, pairs: Sequence[Verdict]) -> str:
    """Every pair's mean difference with its interval and what the tests say, over as many floats as it takes."""
    head = ["$a$", "$b$", "$a-b$", "interval", "wins", "$p$", "$a>b$"]
    digits = analysis.sets[0].digits
    rows = [
        [
            _name(analysis, pair.a),
            _name(analysis, pair.b),
            f"{pair.difference:.{digits}f}",
            "--" if math.isnan(pair.low) else f"{pair.low:.{digits}f} to {pair.high:.{digits}f}",
            f"{pair.wins}/{pair.num_sets}",
            bold(words.short_p(pair.p_holm, comparison.alpha).replace("<", "$<$"), pair.wilcoxon),
            "--" if math.isnan(pair.improvement) else f"{pair.improvement:.2f}",
        ]
        for pair in pairs
    ]
    interval = rf"{100 * (1 - comparison.alpha):g}\,\% bootstrap interval"
    caption = f"Pairs on {comparison.size}: mean difference in {words.unit(analysis)} with its {interval}."
    note = (
        f"Wins: {comparison.noun}s on which $a$ is better. $p$: exact Wilcoxon with Holm's correction (bold: "
        "significant, under a significant omnibus test). $a>b$: how often a run of $a$ beats a run of $b$. "
        f"{provenance(analysis)}."
    )
    return floated(head, rows, "llrrrrr", f"pairs-{comparison.setting}", caption=caption, note=note)


def run_table(analysis: Analysis) -> str:
    """Every replicate's scores, over as many floats as it takes."""
    head = ["algorithm", "seed", *(turned(analysis.label(name)) for name in analysis.set_names)]
    rows = []
    for one in repeats(analysis):
        values = [number(one.scores.get(c.name, math.nan), c.digits) for c in analysis.sets]
        rows.append([_name(analysis, one.algorithm), escape(one.name), *values])
    caption = f"Scores in {analysis.units} of every {words.repeated(analysis)}."
    columns = "ll" + "r" * len(analysis.set_names)
    return floated(head, rows, columns, "runs", caption=caption, note=f"{provenance(analysis)}.")


def _cell(cell: Cell) -> str:
    text = bold(cell.mean_text, cell.best)
    if cell.std_text:
        text += rf" {{\scriptsize$\pm$ {cell.std_text}}}"
    return rf"\underline{{{text}}}\textsuperscript{{$\dagger$}}" if cell.dagger else text


def _p_cell(p: float, comparison: RankTests) -> str:
    text = words.short_p(p, comparison.alpha).replace("<", "$<$")
    return bold(text, comparison.significant and p < comparison.alpha)


def _omnibus_p(comparison: RankTests) -> str:
    if comparison.skipped:
        return "--"
    test = comparison.pair.wilcoxon_p if comparison.pair else comparison.friedman.p if comparison.friedman else math.nan
    mantissa, _, exponent = f"{test:.3g}".partition("e")
    return rf"${mantissa}\cdot 10^{{{int(exponent)}}}$" if exponent else mantissa


def _test_name(comparison: RankTests) -> str:
    if comparison.skipped:
        return "no test, " + escape(comparison.skipped)
    test = comparison.friedman
    if test is None:
        return "exact Wilcoxon signed-rank test"
    how = "with Iman and Davenport's $F$" if test.permutation_p is None else "by permutation of the ranks"
    return f"Friedman's test {how}"


def provenance(analysis: Analysis) -> str:
    """Study, rule and number of runs, for captions."""
    return escape(
        f"{analysis.title}; rule {analysis.rule.name}: {words.rule_label(analysis)}; {analysis.runs_sentence}"
    )
