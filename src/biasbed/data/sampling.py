"""Random order of the images in one part of a stream: a function of keys alone, so that training can start anywhere.

Which images a batch is made of, also equally many of each domain, is in `data/streams.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

ROUNDS = 256  # rounds whose strata are drawn together
DRAWS = 4096  # rows that are drawn together, with replacement
# Last elements of keys: draws for different purposes must be independent.
_STRATUM, _TURNS, _DRAWS = 1, 2, 3


def stratify(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return the stratum [N] of each row, numbered from 0: one stratum for each combination of values that occurs."""
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1)
    stratum_of_row: np.ndarray = np.unique(codes, axis=0, return_inverse=True)[1]
    return stratum_of_row.reshape(-1)


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
        self.bounds = None if weights is None else np.cumsum(weights.astype(np.float64))
        self.sizes = np.bincount(strata)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sorted = np.argsort(strata, kind="stable")  # rows, sorted by stratum
        self._kept: dict[tuple[int, int], tuple[int, np.ndarray]] = {}

    def read(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows [count], numbers [count]) at the positions from `start` on.

        numbers: the pass that a row belongs to or, with replacement, the position; (row, number) is unique.
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
        for stratum, number in sorted(set(zip(chosen.tolist(), numbers.tolist(), strict=True))):
            here = (chosen == stratum) & (numbers == number)
            rows[here] = self._pass(stratum, number)[within[here]]
        return rows, numbers

    def _pass(self, stratum: int, number: int) -> np.ndarray:
        """Return all rows of a stratum in the order of one pass."""
        key = (number,) if len(self.sizes) == 1 else (number, stratum, _STRATUM)
        members = self.sorted[self.starts[stratum] : self.starts[stratum] + self.sizes[stratum]]
        return self._random((_STRATUM, stratum), key, lambda generator: generator.permutation(members))

    def _turns(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the strata of `ROUNDS` rounds."""
        rounds = np.tile(np.arange(len(self.sizes)), (ROUNDS, 1))
        return generator.permuted(rounds, axis=1).reshape(-1)

    def _draws(self, generator: np.random.Generator) -> np.ndarray:
        """Draw `DRAWS` independent rows."""
        if self.bounds is not None:
            return np.searchsorted(self.bounds, generator.random(DRAWS) * self.bounds[-1], side="right")
        drawn = generator.integers(len(self.sizes), size=DRAWS)
        return self.sorted[self.starts[drawn] + generator.integers(self.sizes[drawn])]

    def _in_blocks(
        self, positions: np.ndarray, size: int, purpose: int, make: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """Return the elements at the positions of a sequence that `make` draws in blocks of `size`."""
        blocks, within = np.divmod(positions, size)
        elements = np.empty(len(positions), dtype=np.int64)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            elements[here] = self._random((purpose, 0), (block, 0, purpose), make)[within[here]]
        return elements

    def _random(
        self, slot: tuple[int, int], key: tuple[int, ...], make: Callable[[np.random.Generator], np.ndarray]
    ) -> np.ndarray:
        """Return what `make` draws with the key. The last result of each slot is kept: consecutive steps need it."""
        kept = self._kept.get(slot)
        if kept is None or kept[0] != key[0]:
            kept = self._kept[slot] = (key[0], make(np.random.default_rng([*self.key, *key])))
        return kept[1]
