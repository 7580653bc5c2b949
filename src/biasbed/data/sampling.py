"""The order in which the images of one part of a stream are read: a function of keys alone, so any step can start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

ROUNDS = 256  # whose turns are drawn together
DRAWS = 4096  # with replacement: that are drawn together
# Last words of keys: what is drawn for different purposes must not be alike.
_CELL, _TURNS, _DRAWS = 1, 2, 3


def cells(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The cell of every row [N], dense from 0: one cell for each combination of the columns' values that occurs."""
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1)
    found: np.ndarray = np.unique(codes, axis=0, return_inverse=True)[1]
    return found.reshape(-1)


class Order:
    """An endless sequence of rows in which every cell is equally likely at every position.

    Without replacement it goes in rounds: each round has one row of every cell, the cells in random order, and each
    cell's rows come in passes, reshuffled with every pass. So of any stretch of whole rounds each cell has exactly its
    share, and no row comes twice before every other of its cell came once. With a single cell that is the usual
    shuffling. With replacement, each position is drawn by itself: a row with the probability 1 / (cells x rows of its
    cell), or in proportion to its weight.

    key: integers that set this order apart from others. cells: [N] the cell of every row, from 0 without a gap.
    weights: [N] finite, none below 0, not all 0; with replacement alone.
    """

    def __init__(
        self, key: Sequence[int], cells: np.ndarray, replacement: bool = False, weights: np.ndarray | None = None
    ) -> None:
        self.key, self.replacement = tuple(key), replacement
        self.bounds = None if weights is None else np.cumsum(weights.astype(np.float64))
        self.sizes = np.bincount(cells)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sorted = np.argsort(cells, kind="stable")  # the rows cell by cell
        self._kept: dict[tuple[int, int], tuple[int, np.ndarray]] = {}

    def read(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, numbers), each [count], of the positions from `start` on.

        numbers: the pass in which a row comes, or with replacement the position; no row meets the same one twice.
        """
        positions = np.arange(start, start + count)
        if self.replacement:
            return self._in_blocks(positions, DRAWS, _DRAWS, self._draws), positions
        turns = len(self.sizes)
        chosen = np.zeros(count, dtype=np.int64)
        if turns > 1:
            chosen = self._in_blocks(positions, ROUNDS * turns, _TURNS, self._turns)
        numbers, within = np.divmod(positions // turns, self.sizes[chosen])
        rows = np.empty(count, dtype=np.int64)
        for cell, number in sorted(set(zip(chosen.tolist(), numbers.tolist(), strict=True))):
            here = (chosen == cell) & (numbers == number)
            rows[here] = self._pass(cell, number)[within[here]]
        return rows, numbers

    def _pass(self, cell: int, number: int) -> np.ndarray:
        """All rows of a cell in the order of one pass."""
        key = (number,) if len(self.sizes) == 1 else (number, cell, _CELL)
        members = self.sorted[self.starts[cell] : self.starts[cell] + self.sizes[cell]]
        return self._random((_CELL, cell), key, lambda generator: generator.permutation(members))

    def _turns(self, generator: np.random.Generator) -> np.ndarray:
        """The cells of `ROUNDS` rounds."""
        rounds = np.tile(np.arange(len(self.sizes)), (ROUNDS, 1))
        return generator.permuted(rounds, axis=1).reshape(-1)

    def _draws(self, generator: np.random.Generator) -> np.ndarray:
        """`DRAWS` rows, each drawn by itself."""
        if self.bounds is not None:
            return np.searchsorted(self.bounds, generator.random(DRAWS) * self.bounds[-1], side="right")
        drawn = generator.integers(len(self.sizes), size=DRAWS)
        return self.sorted[self.starts[drawn] + generator.integers(self.sizes[drawn])]

    def _in_blocks(
        self, positions: np.ndarray, size: int, purpose: int, make: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """What stands at the positions of a sequence that is made in blocks."""
        blocks, within = np.divmod(positions, size)
        found = np.empty(len(positions), dtype=np.int64)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            found[here] = self._random((purpose, 0), (block, 0, purpose), make)[within[here]]
        return found

    def _random(
        self, place: tuple[int, int], key: tuple[int, ...], make: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """What `make` draws by the key; the last one of each place is kept, since steps ask for it in turn."""
        kept = self._kept.get(place)
        if kept is None or kept[0] != key[0]:
            kept = self._kept[place] = (key[0], make(np.random.default_rng([*self.key, *key])))
        return kept[1]
