"""Settings of the reader: columns, axes, blocks and notation as the user says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COLUMNS = "columns"


@dataclass(frozen=True)
class ReaderSettings:
    """Settings of the reader; `auto` leaves a thing to the table."""

    method: str = "auto"  # column
    dataset: str = "auto"
    seed: str = "auto"  # `COLUMNS`: the columns of scores are seeds
    score: str = "auto"  # column or measure
    rows: str = "auto"  # methods or datasets
    table: int = 0  # which of several in a file, from 1 on; 0: the only one
    head: int = 0  # lines of the head; 0: found out
    blocks: Mapping[str, tuple[str, ...]] | None = None  # block -> data sets; None: found out
    leave_out: tuple[str, ...] = ()  # columns or rows
    keep: tuple[str, ...] = ()  # columns or rows that would be left out
    decimal: str = "auto"  # point or comma
    brackets: str = "auto"  # spread or other
    spread: str = "auto"  # standard_deviation or standard_error
    num_runs: int = 0  # behind printed deviations; 0: as the table says
    has_directions: bool = False  # the user says on which data sets lower is better
    value_in_cell: int = 0  # which of several values in a cell; 0: such cells are refused
