"""Time that two processes on a CPU lose to one another, and on paper four.

    PYTHONPATH=src python benchmarks/scaling.py [--rounds 7]

Two processes with one thread each take steps of the same training (ResNet-18, 112 pixels, ERM, each with a batch of its
own) in three ways that take turns: one alone, both without a word to each other, and both with the gradients averaged
as every training averages them. The first by the second is what the machine's shared memory costs and no program can
change; the second by the third is what the exchange costs; the first by the third is the efficiency. A ring of n
processes sends 2 (n - 1) / n of the gradients' size from each, 1 for two and 1.5 for four: four on paper exchange for
1.5 of the time in which two do, and share no more of the machine than two did. Wall clock: a step is done when both
have taken it, and waiting is what is measured. Two free cores are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sides import Goal, Row, show

from biasbed.system.processes import STORE

TITLE = "Two processes"
HOW = (
    "`benchmarks/scaling.py`: two processes of one thread, seconds of a step by the wall clock, both free, one alone, "
    "and four on paper from the measured parts."
)
STEPS, SIZE = 2, 112
ALONE, APART, TOGETHER = "alone", "apart", "together"
FOUR = 2 * (4 - 1) / 4  # what each of four sends in a ring, by what each of two does


# --- in a process of its own ------------------------------------------------------------------------------------------


def answer(batch_size: int) -> None:
    """For every line that arrives, take steps as it says, and answer with the seconds of one."""
    import methods
    import torch

    from biasbed.compute.distributed import Group, process_group

    torch.set_num_threads(1)
    methods.SIZE, methods.BACKBONE, methods.BATCH = SIZE, "resnet18", batch_size
    with process_group("cpu") as group:
        sides = {}
        for name, within in ((APART, Group()), (TOGETHER, group)):
            algorithm = methods.make("erm", {}, methods.SGD, within)
            algorithm.share_gradients()
            sides[name] = algorithm
        batch = methods.images(batch_size)
        for line in sys.stdin:
            algorithm, began = sides[line.strip()], time.perf_counter()
            for _ in range(STEPS):
                algorithm.update(batch)
                algorithm.take_notes()
            print(json.dumps((time.perf_counter() - began) / STEPS), flush=True)


class Process:
    """One of the two."""

    def __init__(self, rank: int, store: Path, batch_size: int) -> None:
        joined = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": "scaling"}
        env = {**os.environ, **joined, STORE: str(store), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        words = [sys.executable, __file__, "--answer", str(batch_size)]
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, how: str) -> None:
        assert self.process.stdin is not None
        print(how, file=self.process.stdin, flush=True)

    def answer(self) -> float:
        assert self.process.stdout is not None
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# --- the sides --------------------------------------------------------------------------------------------------------


def step(processes: list[Process], how: str) -> float:
    """Seconds of one, of the slower of the two where both take it."""
    asked = processes[:1] if how == ALONE else processes
    for process in asked:
        process.ask(TOGETHER if how == TOGETHER else APART)
    return max([process.answer() for process in asked])


def measured(rounds: int, batch_size: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {how: [] for how in (ALONE, APART, TOGETHER)}
    with tempfile.TemporaryDirectory() as place:
        processes = [Process(rank, Path(place) / "store", batch_size) for rank in range(2)]
        try:
            for number in range(rounds + 1):
                for how in list(found) if number % 2 else list(found)[::-1]:
                    took = step(processes, how)
                    if number:  # the first warms up
                        found[how].append(took)
        finally:
            for process in processes:
                process.end()
    return found


def rows(quick: bool = False, *, rounds: int = 7, batch_size: int = 64) -> list[Row]:
    times = measured(1, 4) if quick else measured(rounds, batch_size)
    alone, apart, together = (times[how] for how in (ALONE, APART, TOGETHER))
    pairs = list(zip(alone, apart, together, strict=True))
    note = f"a step alone takes {statistics.median(alone):.2f} s, together {statistics.median(together):.2f} s"
    four = [one / (two + FOUR * max(0.0, both - two)) for one, two, both in pairs]
    return [
        Row.of("efficiency of two processes", [one / both for one, _, both in pairs], Goal(0.9, at_least=True), note),
        Row.of("of that, the machine's part", [one / two for one, two, _ in pairs], None, "two that do not exchange"),
        Row.of("of that, the exchange's", [two / both for _, two, both in pairs], None, "47 MB of gradients a step"),
        Row.of("efficiency of four, on paper", four, Goal(0.9, at_least=True), "where memory bears four as well"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch_size", type=int, default=64, help="of each process")
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.answer)
    else:
        show(rows(rounds=options.rounds, batch_size=options.batch_size))


if __name__ == "__main__":
    main()
