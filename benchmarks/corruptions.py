"""What corrupting costs: the 15 corruptions x 5 severities of one image, beside five naive glass blurs, and each alone.

    PYTHONPATH=src python benchmarks/corruptions.py [--rounds 5] [--frost ../shared/data/frost]

One process, one image of 224 x 224 pixels; ours with its draws. The naive glass blur draws for and exchanges pixels
one by one, as the reference does; its Gaussian filters are ours. The aim: a quarter of its time. Seconds of the
processor, so that others on the machine don't matter. Without photographs of frost, noise of their sizes stands for
them, which costs the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from biasbed.data import corruptions
from biasbed.data.corruptions import blur, weather
from biasbed.data.corruptions.corruption import SEVERITIES, SIDE, Corruption, levels, unit, whole_levels
from biasbed.data.corruptions.frost import SHAPES

AIM = 0.25


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


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The median, of the processor's time."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def main() -> None:
    """Prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frost", type=Path, help="folder of the photographs")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    photographs = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    frost = corruptions.find("frost", options.frost) if options.frost else weather.frosted(photographs)
    chosen = [frost if name == "frost" else corruptions.find(name) for name in corruptions.BENCHMARK]
    for severity in SEVERITIES:  # the rewrite is the loop's equal
        corruption = corruptions.find("glass_blur")
        draws = corruption.draw(np.random.default_rng(severity), severity)
        assert np.array_equal(corruption.apply(image, draws, severity), naive_glass(image, severity))
    ours(image, chosen)  # kernels and matrices are made once a process
    each = {corruption.name: seconds(lambda c=corruption: ours(image, [c]), options.rounds) for corruption in chosen}
    whole = seconds(lambda: ours(image, chosen), options.rounds)
    naive = seconds(lambda: [naive_glass(image, severity) for severity in SEVERITIES], options.rounds)
    for name, took in each.items():
        print(f"{name:20}{1000 * took:8.1f} ms for five severities")
    print(f"{'all 75':20}{1000 * whole:8.1f} ms")
    print(f"{'naive glass, five':20}{1000 * naive:8.1f} ms; ours {whole / naive:.3f} of it (aim {AIM})")


if __name__ == "__main__":
    main()
