"""Findings of the check of printed numbers: a line each, with row, column, printed and recomputed value."""

from __future__ import annotations

from typing import NamedTuple

from biasbed.analysis.tables.printed import PrintedNumbers
from biasbed.analysis.tables.scores import Score
from biasbed.errors import shown

CLAIM = "claim"  # kind of a finding on a number that may be right, and does not show what it seems to
COLUMNS = ("kind", "line", "row", "column", "printed", "recomputed", "finding")
MOST_LINES = 40  # that are printed


class TableFinding(NamedTuple):
    """A printed number that can't be, or that does not show what it seems to."""

    kind: str  # average, heads, range, digits, spread, copy, bold or claim
    row: str
    column: str
    printed: str
    recomputed: str
    text: str
    line: int  # of the file

    @property
    def is_error(self) -> bool:
        """True if numbers contradict each other; False for a claim."""
        return self.kind != CLAIM

    def as_row(self) -> tuple[str, int, str, str, str, str, str]:
        """Return the values of `COLUMNS`."""
        return self.kind, self.line, self.row, self.column, self.printed, self.recomputed, self.text

    def __str__(self) -> str:
        position = f"line {self.line}, {shown(self.row, 40)}, {shown(self.column, 40)}"
        text = f"{position}: {shown(self.printed, 30)} {self.text}"
        if self.recomputed in self.text:  # another number of the table
            return text
        return f"{text} ({'recomputed: ' * self.is_error}{shown(self.recomputed, 40)})"


class Checked(NamedTuple):
    """Result of a check."""

    findings: tuple[TableFinding, ...]
    num_numbers: int
    num_averages: int  # that were recomputed
    num_spreads: int
    num_bold: int  # numbers that were held against the others of their data set

    @property
    def errors(self) -> tuple[TableFinding, ...]:
        """Findings on numbers that contradict each other."""
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def claims(self) -> tuple[TableFinding, ...]:
        """Findings on what the numbers do not show."""
        return tuple(finding for finding in self.findings if not finding.is_error)

    @property
    def sentence(self) -> str:
        """Number of findings."""
        errors = f"{len(self.errors) or 'no'} contradiction{'s' * (len(self.errors) != 1)}"
        claims = f"{len(self.claims) or 'no'} claim{'s' * (len(self.claims) != 1)} that the table does not support"
        return f"The printed numbers hold {errors} and {claims}."

    @property
    def extent(self) -> str:
        """Numbers of what was checked."""
        return (
            f"Checked: {self.num_numbers} numbers, {self.num_averages} averages recomputed, {self.num_spreads} "
            f"deviations, {self.num_bold} bold numbers."
        )

    @property
    def lines(self) -> list[str]:
        """Extent, and a line for each finding, contradictions first."""
        findings = (*self.errors, *self.claims)
        lines = [self.extent, *map(str, findings[:MOST_LINES])]
        if len(findings) > MOST_LINES:
            lines.append(f"and {len(findings) - MOST_LINES} more")
        return lines

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  {line}" for line in self.lines)])


def make_finding(table: PrintedNumbers, cell: Score, kind: str, recomputed: str, text: str) -> TableFinding:
    """Return a finding on a cell."""
    row, column, line = table.position(cell)
    return TableFinding(kind, row, column, cell.text, recomputed, text, line)
