"""Cost of a busy neighbour for a training on a CPU, with threads that sleep while they wait and with threads that spin.

    PYTHONPATH=src python benchmarks/neighbour.py [--rounds 5] [--threads 2]

Two processes take the same steps (ResNet-18, batch 64, 64 pixels) in turn, one with OpenMP's default, one with what
every command of ours sets (`processes.yield_while_waiting`): alone, and beside a process that keeps one core busy.
OpenMP reads its settings once in a process's life, hence two processes here and not one. Printed are seconds per step
and, as medians over the rounds with their ranges, how many times as long a step takes beside the neighbour, and our
setting against the default.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from sides import Row, ratios, show

TITLE = "Beside a busy neighbour"
HOW = "`benchmarks/neighbour.py`: seconds of a step by the wall clock, with threads that spin or sleep while they wait."
PLACES = {"alone": False, "beside a busy process": True}
STEPS = 3
BUSY = [sys.executable, "-c", "while True: pass"]


def take_steps(threads: int) -> None:
    """In a process of its own: for every line that arrives, take some steps and answer with the seconds of one."""
    import torch

    from biasbed.networks import backbones

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = backbones.create(backbones.resolve("resnet18"), 16)[0].to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    x = torch.rand(64, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    y = torch.randint(16, (64,))
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
        print((time.perf_counter() - start) / STEPS, flush=True)


class Side:
    """A process that takes steps when asked."""

    def __init__(self, threads: int, yields: bool) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        if yields:
            environment["OMP_WAIT_POLICY"] = "passive"
        command = [sys.executable, __file__, "--threads", str(threads), "--steps"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


@contextlib.contextmanager
def neighbour(is_there: bool) -> Iterator[None]:
    """A process that keeps one core busy, if it is to be there."""
    process = subprocess.Popen(BUSY) if is_there else None
    yield
    if process is not None:
        process.send_signal(signal.SIGKILL)
        process.wait()


def rows(quick: bool = False, *, rounds: int = 5, threads: int = 2) -> list[Row]:
    sides = {"spin": Side(threads, yields=False), "sleep": Side(threads, yields=True)}
    for side in sides.values():
        side.seconds()  # warms up
    times: dict[str, list[float]] = {f"{name}, {place}": [] for name in sides for place in PLACES}
    for number in range(1 if quick else rounds):
        for place, busy in PLACES.items():
            with neighbour(busy):
                for name in list(sides) if number % 2 else list(sides)[::-1]:
                    times[f"{name}, {place}"].append(sides[name].seconds())
    for side in sides.values():
        side.process.kill()
        side.process.wait()
    alone, beside = PLACES
    found = [Row.of(name, values, unit="s") for name, values in times.items()]
    found += [Row.of(f"{n}: {beside} / {alone}", ratios(times, f"{n}, {beside}", f"{n}, {alone}")) for n in sides]
    return found + [Row.of(f"sleep / spin, {p}", ratios(times, f"sleep, {p}", f"spin, {p}")) for p in PLACES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        take_steps(options.threads)
    else:
        show(rows(rounds=options.rounds, threads=options.threads))


if __name__ == "__main__":
    main()
