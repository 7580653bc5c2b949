"""Table of scores and answer that `analyze` prints, in few lines.

Answers: What does `analyze` print?
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from biasbed.analysis.report import score_tables, summary, wording
from biasbed.analysis.report.answer import answer_sentences, shows_difference
from biasbed.analysis.report.table_model import Links, ReportTable
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.result import Analysis
from biasbed.system.terminal import Style, styled

MOST_ROWS = 12
MOST_BELOW = 4  # rows below the rule


def render(analysis: Analysis, has_files: bool = True) -> str:
    """Return title, scores and answer for `summary.WIDTH` columns.

    Columns that do not fit are left out, and above `MOST_ROWS` rows those with the worst average ranks, with a line
    that says so.
    has_files: a summary is written, which has the rest.
    """
    title = styled(f"Analysis of {analysis.title}", Style.BOLD)
    if analysis.rule.oracle:
        title += "\n" + summary.wrap([summary.ORACLE], indent=0)
    answer = styled(summary.wrap(answer_sentences(analysis), indent=0), _style(analysis))
    below = [answer, styled(_rest(analysis), Style.DIM)] if has_files else [answer]
    return "\n\n".join([title, _scores(analysis), *below])


def _rest(analysis: Analysis) -> str:
    """Return the line on what else the summary has: notes, runs that don't count, all tests."""
    counts = [(len(analysis.notes), "note"), (len(analysis.collection.duplicates), "uncounted run")]
    first = [wording.count(number, noun) for number, noun in counts if number]
    return f"In summary.txt: {wording.listing([*first, 'all tests with what they could have shown'])}"


def _style(analysis: Analysis) -> Style:
    """Return the colour of the answer: green if it shows a difference, else yellow."""
    return Style.GREEN if shows_difference(analysis) else Style.YELLOW


def _scores(analysis: Analysis) -> str:
    """Return the table of scores with its title and the line on what it leaves out."""
    table = score_tables.scores(analysis, Links(analysis))
    if wording.has_deviations(analysis):
        title = summary.title_with_deviation(analysis)
    else:
        title = f"Scores, {analysis.units}, with 95 % intervals over images where they are known"
        table = _with_intervals(table)
    num_columns = _num_columns(table)
    rows = _best_rows(analysis, table)
    num_rows = len(table.rows) - len(rows) + len(table.below[MOST_BELOW:])
    left_out = []
    for number, noun in ((num_rows, "row"), (len(table.columns) - num_columns, "column")):
        if number:
            left_out.append(wording.count(number, noun))
    parts = [title, summary.render_table(_part(table, rows, num_columns))]
    if left_out:
        parts.append(f"  and {wording.listing(left_out)} more in summary.txt")
    if table.legend_below:
        parts.append(summary.wrap([table.legend_below.strip()]))
    return "\n".join(parts)


def _with_intervals(table: ReportTable) -> ReportTable:
    """Return the table with the interval of each cell in place of a deviation, for rows of one run."""
    rows = []
    for row in table.rows:
        cells = []
        for cell in row:
            spread = f"[{cell.interval}]" if cell.interval else ""
            cells.append(cell._replace(spread=spread))
        rows.append(tuple(cells))
    return dataclasses.replace(table, rows=tuple(rows))


def _num_columns(table: ReportTable) -> int:
    """Return how many of the first columns fit beside each other; two at least."""
    ends = itertools.accumulate(2 + width for width in summary.column_widths(table))
    return max(sum(end <= summary.WIDTH for end in ends), 2)


def _best_rows(analysis: Analysis, table: ReportTable) -> list[int]:
    """Return the positions of at most `MOST_ROWS` rows, in the table's order: those with the best average ranks."""
    positions = list(range(len(table.rows)))
    comparison = main_comparison(analysis)
    if len(positions) > MOST_ROWS and not comparison.skipped:
        ranks = [comparison.mean_ranks.get(name, float("inf")) for name in analysis.algorithms]
        positions.sort(key=lambda position: ranks[position])
    return sorted(positions[:MOST_ROWS])


def _part(table: ReportTable, rows: Sequence[int], columns: int) -> ReportTable:
    """Return these rows, and the first columns, of a table."""
    cells = tuple(table.rows[row][:columns] for row in rows)
    below = tuple(row[:columns] for row in table.below[:MOST_BELOW])
    return dataclasses.replace(table, columns=table.columns[:columns], rows=cells, below=below)
