"""The result as plain text for a terminal of 100 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from biasbed.analysis import texture
from biasbed.analysis.columns import make_design
from biasbed.analysis.report import doubts, effective, findings, groups, layouts, paper_tables, single_runs, words
from biasbed.analysis.result import Analysis, Cell, number, scores_by_run
from biasbed.analysis.selection import reproduction
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.statistics.friedman import RankTests

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100


def render(analysis: Analysis) -> str:
    """The whole summary; what must be known before the numbers stands before them."""
    oracle = (
        ["ORACLE numbers: selected on the test images themselves, as no practice can."] if analysis.rule.oracle else []
    )
    part = analysis.collection.part
    parts = [
        f"Analysis of {analysis.title}",
        *([_wrapped([f"{part[0].upper()}{part[1:]}."], indent=0)] if part else []),
        _wrapped([analysis.runs_sentence + "."], indent=0),
        _wrapped([f"Selection rule: {words.rule_sentence(analysis)}.", *oracle], indent=0),
    ]
    if analysis.notes:
        parts.append("Notes\n" + _wrapped(analysis.notes, bullet="! "))
    if len(analysis.duplicates):
        parts.append("Finished runs that do not count\n" + _duplicates(analysis))
    parts += [_scores(analysis)]
    relies = texture.sentences(analysis.texture)
    parts += ["Texture or shape\n" + _wrapped(relies)] if relies else []
    parts += [*_averages(analysis), *_laid_out(analysis)]
    above = effective.sentences(analysis)
    parts += ["Effective robustness\n" + _wrapped(above)] if above else []
    over_images = single_runs.sentences(analysis)
    parts += ["Rows with one run, over images\n" + _wrapped(over_images)] if over_images else []
    parts += _reproduction(analysis) + _regret(analysis) + _criteria(analysis) + _paper_tables(analysis)
    parts += [_comparison(analysis, comparison) for comparison in analysis.comparisons]
    plan = doubts.planned(analysis)
    parts += ["Plan\n" + _wrapped(plan)] if plan else []
    return "\n\n".join(parts)


def _wrapped(lines: Sequence[str], indent: int = 2, bullet: str = "") -> str:
    first, rest = " " * indent + bullet, " " * (indent + len(bullet))
    return "\n".join(
        textwrap.fill(line, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
        for line in lines
    )


def _scores(analysis: Analysis) -> str:
    """Score table: mean +- std; a dagger where the set's maker made training data."""
    found = groups.groups(analysis)
    rows = [
        [algorithm, *(_cell(cell) for group in found for cell in group.cells(analysis, algorithm))]
        for algorithm in analysis.algorithms
    ]
    text = f"Scores, {analysis.units}: mean ± {words.error(analysis)} between {words.repeated(analysis)}s"
    text += f"{'' if analysis.error == Rule.error else f' ({words.error_by(analysis)})'}\n"
    text += table(["", *(name for group in found for name in group.full_heads)], rows)
    text += f"\n  † {words.DAGGER_SENTENCE}" if analysis.daggers else ""
    below = [line.strip() for line in (groups.caption(analysis), words.not_applicable(analysis)) if line]
    return text + (f"\n{_wrapped(below)}" if below else "")


def _averages(analysis: Analysis) -> list[str]:
    """The averages of data sets, where there are several."""
    found = groups.averages(analysis)
    if found is None:
        return []
    rows = [
        [name, *map(_cell, cells), *([number(found.means[name], analysis.sets[0].digits)] if found.means else [])]
        for name, cells in found.rows.items()
    ]
    heads = ["", *found.heads, *([groups.AVERAGE] if found.means else [])]
    return [f"Averages of the data sets, {analysis.units}\n" + table(heads, rows)]


def _laid_out(analysis: Analysis) -> list[str]:
    """The tables that are laid out as a paper's, with the rows that are missing."""
    found = []
    for one in layouts.of(analysis):
        heads, *rows = layouts.in_words(one)
        lines = [one.title, table(heads, rows), _wrapped([one.caption])]
        found.append(
            "\n".join([*lines, *(["  Missing rows, and what makes them:"] if one.missing else []), *one.missing])
        )
    return found


def _reproduction(analysis: Analysis) -> list[str]:
    """The card: each cell ours, published, their difference, with the verdict and by what it was reached."""
    card = analysis.reproduction
    if card is None:
        return []
    rows = []
    for row in card.to_dict("records"):
        spread = "" if math.isnan(row["published_std"]) else f" ±{number(row['published_std'])}"
        numbers = (number(row["mean"]), number(row["published_mean"]) + spread)
        differences = (_signed(row["difference"]), _signed(row["difference_in_std"]))
        rows.append([row["algorithm"], row["dataset"], *numbers, *differences, row["judged_by"], row["verdict"]])
    header = ["", "set", "ours", "published", "difference", "in std", "judged by", "verdict"]
    sentence = _wrapped([reproduction.card_sentence(card, analysis.alpha)])
    return [f"Reproduction of published numbers, {analysis.units}\n" + table(header, rows) + "\n" + sentence]


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 1) + 0.0:+.1f}"  # no -0.0


def _paper_tables(analysis: Analysis) -> list[str]:
    """Which tables of the Align-Conflict paper there are, and why others are not."""
    found = paper_tables.of(analysis)
    lines = [f"Table {table.number} ({table.name}): {table.title}." for table in found.tables] + found.reasons
    return ["Tables of the Align-Conflict paper\n" + _wrapped(lines)] if lines else []


def _regret(analysis: Analysis) -> list[str]:
    """What each selection rule costs, where an oracle is known."""
    regret = analysis.regret[analysis.regret["regret"].notna()]
    if regret.empty:
        return []
    oracles = set(regret.loc[regret["oracle"], "rule"])
    means = regret.pivot(index="algorithm", columns="rule", values="regret")[list(regret["rule"].unique())]
    header = ["", *(f"{rule} (ORACLE)" if rule in oracles else str(rule) for rule in means)]
    rows = [[str(name), *map(number, values)] for name, values in zip(means.index, means.to_numpy(), strict=True)]
    return [
        f"Regret of selection rules, {words.unit(analysis)}: behind {words.oracle(analysis)}, "
        f"mean over {make_design(analysis.sets).noun}s\n" + table(header, rows)
    ]


def _criteria(analysis: Analysis) -> list[str]:
    """What every rule's winners score in testing: the mean over methods."""
    means = analysis.winners.means
    if means.empty:
        return []
    shown = analysis.winners.digits
    rows = [
        [f"{row['dataset']} {row['rule']}{' (ORACLE)' if row['oracle'] else ''}"]
        + [number(row[measure], digits) for measure, digits in shown.items()]
        for row in means.sort_values("dataset", kind="stable", key=_order(analysis)).to_dict("records")
    ]
    title = f"Winners of the search by criterion: test values, mean over {means['num_algorithms'].iloc[0]} algorithms"
    return [f"{title}\n" + table(["", *shown], rows)]


def _order(analysis: Analysis) -> Callable[[pd.Series[str]], pd.Series[int]]:
    """Columns as tables have them in order."""
    return lambda names: names.map(analysis.set_names.index)


def _cell(cell: Cell) -> str:
    return cell.mean_text + (f" ±{cell.std_text}" if cell.std_text else "") + ("†" if cell.dagger else " ")


def _comparison(analysis: Analysis, comparison: RankTests) -> str:
    parts = [words.setting_title(comparison)]
    about = words.setting_sentence(analysis, comparison)
    before = [about] if about else []
    if comparison.reach is not None:
        ranks = [[name, f"{value:.2f}"] for name, value in comparison.mean_ranks.items()]
        parts += [_wrapped(before)] if before else []
        parts.append(table(["average rank", "1 = best"], ranks))
    elif before:
        parts.append(_wrapped(before))
    power = words.power_sentence(comparison)
    lines = [*words.statistics(comparison), *findings.concluded(analysis, comparison)]
    parts.append(_wrapped([*lines, *([power] if power else [])]))
    return "\n".join(parts)


def _duplicates(analysis: Analysis) -> str:
    scores = scores_by_run(analysis.duplicates)
    rows = []
    for run in analysis.collection.duplicates:
        values = [number(scores.get((run.id, c.name), math.nan), c.digits) for c in analysis.sets]
        rows.append([f"{run.algorithm} seed {run.seed} {run.id[:8]}", *values])
    return table(["", *analysis.set_names], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """Aligned columns; those that don't fit go into further blocks, each with the first column before it."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    blocks: list[list[int]] = [[]]
    used = 2 + widths[0]
    for column in range(1, len(header)):
        if used + 2 + widths[column] > width and blocks[-1]:
            blocks.append([])
            used = 2 + widths[0]
        blocks[-1].append(column)
        used += 2 + widths[column]
    return "\n\n".join("\n".join(_line(row, block, widths) for row in (header, *rows)) for block in blocks)


def _line(row: Sequence[str], block: Sequence[int], widths: Sequence[int]) -> str:
    return ("  " + row[0].ljust(widths[0]) + "".join("  " + row[i].rjust(widths[i]) for i in block)).rstrip()
