"""Cost of corrupting: the 15 corruptions x 5 severities of one image, beside five naive glass blurs, and each alone.

    PYTHONPATH=src python benchmarks/corruptions.py [--rounds 5] [--frost ../shared/data/frost]

One process, one image of 224 x 224 pixels; ours with its draws. The naive glass blur draws for and exchanges pixels
one by one, as the reference does; its Gaussian filters are ours. The aim: a quarter of its time. Seconds of the
processor, so that others on the machine don't matter. Without photographs of frost, noise of their sizes stands for
them, which costs the same.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from pathlib import Path

import numpy as np
from sides import Goal, Row, Work, interleaved, ratios, show

from biasbed.data import corruptions
from biasbed.data.corruptions import blur, weather
from biasbed.data.corruptions.corruption import SEVERITIES, SIDE, Corruption, levels, unit, whole_levels
from biasbed.data.corruptions.frost import SHAPES

TITLE = "Corruptions"
HOW = "`benchmarks/corruptions.py`: one image of 224 pixels, processor time; of each corruption five severities."


def naive_glass(image: np.ndarray, severity: int) -> np.ndarray:
    """Glass blur with a loop over pixels."""
    sigma, reach, passes = blur.GLASS.parameters[severity - 1]
    rng = np.random.default_rng(severity)
    made = whole_levels(blur.smoothed(unit(image), sigma) * 255)
    for _ in range(passes):
        for row in range(SIDE - reach, reach, -1):
            for column in range(SIDE - reach, reach, -1):
                x, y = rng.integers(-reach, reach, 2)
                there = row + y, column + x
                # both sides are views, so that this copies the one and loses the other
                made[row, column], made[there] = made[there], made[row, column]
    return levels(blur.smoothed(unit(made), sigma))


def ours(image: np.ndarray, chosen: list[Corruption]) -> None:
    for corruption in chosen:
        for severity in SEVERITIES:
            corruptions.corrupt(image, corruption, severity, 0, "image")


def rows(quick: bool = False, *, rounds: int = 5, frost: Path | None = None) -> list[Row]:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    photographs = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    frosted = corruptions.find("frost", frost) if frost else weather.frosted(photographs)
    chosen = [frosted if name == "frost" else corruptions.find(name) for name in corruptions.BENCHMARK]
    severities = SEVERITIES[:1] if quick else SEVERITIES
    for severity in severities:  # the rewrite is the loop's equal
        corruption = corruptions.find("glass_blur")
        draws = corruption.draw(np.random.default_rng(severity), severity)
        assert np.array_equal(corruption.apply(image, draws, severity), naive_glass(image, severity))
    whole, naive = "all 75 / five naive glass blurs", "naive"
    sides: dict[str, Work] = {
        naive: lambda: [naive_glass(image, severity) for severity in severities],
        whole: lambda: ours(image, chosen),
        **{c.name: functools.partial(ours, image, [c]) for c in ([] if quick else chosen)},
    }
    times = interleaved(sides, 1 if quick else rounds)
    note = f"{1000 * statistics.median(times[whole]):.0f} and {1000 * statistics.median(times[naive]):.0f} ms"
    single = [Row.of(name, [1000 * one for one in times[name]], unit="ms") for name in list(sides)[2:]]
    return [Row.of(whole, ratios(times, whole, naive), Goal(0.25), note), *single]


def main() -> None:
    """Prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frost", type=Path, help="folder of the photographs")
    show(rows(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
