"""Random order of the images in one part of a stream: a function of keys alone, so that training can start anywhere.

Which images a batch is made of, also equally many of each domain, is in `data/streams.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ROUNDS_PER_BLOCK = 256  # rounds whose strata are drawn together
ROWS_PER_BLOCK = 4096  # rows that are drawn together, with replacement
# Last elements of keys: draws for different purposes must be independent.
_PASS_KEY, _ROUND_KEY, _REPLACEMENT_KEY = 1, 2, 3


def stratify(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return the stratum [N] of each row, numbered from 0: one stratum for each combination of values that occurs."""
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1)
    stratum_of_row: np.ndarray = np.unique(codes, axis=0, return_inverse=True)[1]
    return stratum_of_row.reshape(-1)


class OrderedRows(NamedTuple):
    """Rows of an order, each with its pass; the pair is unique."""

    rows: np.ndarray  # [n]
    passes: np.ndarray  # [n] number of the pass that a row belongs to or, with replacement, its position


class Order:
    """Endless sequence of rows in which every stratum is equally likely at every position.

    Without replacement the sequence consists of rounds. A round has one row of each stratum, the strata in random
    order. The rows of a stratum come in passes and are reshuffled for each pass: no row comes again before all rows of
    its stratum came. With a single stratum this is the usual shuffling. With replacement each position is drawn
    independently: a row has the probability 1 / (strata x rows in its stratum), or one in proportion to its weight.

    key: integers that distinguish this order from others. strata: stratum [N] of each row, numbered from 0 without a
    gap. weights: [N], finite and not negative, with a positive sum; only with replacement.
    """

    def __init__(
        self, key: Sequence[int], strata: np.ndarray, replacement: bool = False, weights: np.ndarray | None = None
    ) -> None:
        self.key, self.replacement = tuple(key), replacement
        self.cumulative_weights = None if weights is None else np.cumsum(weights.astype(np.float64))
        self.sizes = np.bincount(strata)  # rows of each stratum
        self.starts = np.cumsum(self.sizes) - self.sizes  # of each stratum in `sorted_rows`
        self.sorted_rows = np.argsort(strata, kind="stable")  # by stratum
        self._last_drawn: dict[tuple[int, int], tuple[int, np.ndarray]] = {}

    def read(self, start: int, count: int) -> OrderedRows:
        """Return the rows at `count` positions from `start` on."""
        positions = np.arange(start, start + count)
        if self.replacement:
            rows = self._draw_blocks(positions, ROWS_PER_BLOCK, _REPLACEMENT_KEY, self._draw_rows)
            return OrderedRows(rows, positions)
        number_of_strata = len(self.sizes)
        strata = np.zeros(count, dtype=np.int64)
        if number_of_strata > 1:
            block_size = ROUNDS_PER_BLOCK * number_of_strata
            strata = self._draw_blocks(positions, block_size, _ROUND_KEY, self._draw_rounds)
        rounds = positions // number_of_strata
        passes, positions_in_pass = np.divmod(rounds, self.sizes[strata])
        rows = np.empty(count, dtype=np.int64)
        for stratum, pass_number in sorted(set(zip(strata.tolist(), passes.tolist(), strict=True))):
            here = (strata == stratum) & (passes == pass_number)
            rows[here] = self._draw_pass(stratum, pass_number)[positions_in_pass[here]]
        return OrderedRows(rows, passes)

    def _draw_pass(self, stratum: int, pass_number: int) -> np.ndarray:
        """Draw the order of a stratum's rows in one pass."""
        key = (pass_number,) if len(self.sizes) == 1 else (pass_number, stratum, _PASS_KEY)
        members = self.sorted_rows[self.starts[stratum] : self.starts[stratum] + self.sizes[stratum]]
        return self._draw((_PASS_KEY, stratum), key, lambda generator: generator.permutation(members))

    def _draw_rounds(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the strata of the rounds of one block."""
        rounds = np.tile(np.arange(len(self.sizes)), (ROUNDS_PER_BLOCK, 1))
        return generator.permuted(rounds, axis=1).reshape(-1)

    def _draw_rows(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the independent rows of one block."""
        if self.cumulative_weights is not None:
            points = generator.random(ROWS_PER_BLOCK) * self.cumulative_weights[-1]
            return np.searchsorted(self.cumulative_weights, points, side="right")
        strata = generator.integers(len(self.sizes), size=ROWS_PER_BLOCK)
        return self.sorted_rows[self.starts[strata] + generator.integers(self.sizes[strata])]

    def _draw_blocks(
        self, positions: np.ndarray, size: int, purpose: int, draw: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """Return the elements at the positions of an endless sequence that `draw` makes in blocks of `size`."""
        blocks, positions_in_block = np.divmod(positions, size)
        elements = np.empty(len(positions), dtype=np.int64)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            elements[here] = self._draw((purpose, 0), (block, 0, purpose), draw)[positions_in_block[here]]
        return elements

    def _draw(
        self, slot: tuple[int, int], key: tuple[int, ...], draw: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """Return the result of `draw` with a generator made from the key.

        slot: purpose and stratum. The last result of each slot is kept, because consecutive steps need it again.
        """
        kept = self._last_drawn.get(slot)
        if kept is None or kept[0] != key[0]:
            kept = self._last_drawn[slot] = (key[0], draw(np.random.default_rng([*self.key, *key])))
        return kept[1]
