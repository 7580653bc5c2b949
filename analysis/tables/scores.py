"""Score of a table: what it is a score of, where it stands and how it was printed."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """A number on a data set, from its cell to the comparison. Scores of no table have only the first five fields."""

    method: str
    dataset: str
    seed: str  # empty if the table names none
    value: float
    where: str  # line of the file, for messages
    block: str = ""  # data set that it is a part of
    metric: str = ""
    split: str = ""  # val, train or test, if the table says it
    direction: str = ""  # yes: higher is better; no; empty: nothing says it
    spread: float | None = None
    num_runs: int = 0  # behind the deviation; 0: the table does not say
    num_items: int = 0  # images that it is a share of; 0: the table does not say
    left_out: str = ""  # why the comparison does not use it
    row: int = -1  # of the table's body, as is the column
    column: int = -1
    line: int = 0  # of the file
    text: str = ""  # as printed
    digits: int = 0  # behind the decimal sign
    half: float = 0.0  # half a unit of the last digit: how far the unrounded number may be away
    is_bold: bool = False
    is_turned_by_name: bool = False  # lower is better, by nothing but the words of its name

    @property
    def key(self) -> tuple[str, str, str]:
        """Block, data set and measure: what its column is."""
        return self.block, self.dataset, self.metric

    @property
    def names(self) -> tuple[str, ...]:
        """Names that no two scores of a table may share."""
        return self.method, *self.key, self.split, self.seed

    @property
    def spread_half(self) -> float:
        """Half a unit of the last digit of the deviation."""
        digits = len(repr(self.spread).partition(".")[2]) if self.spread is not None else 0
        return 0.5 * 10.0**-digits
