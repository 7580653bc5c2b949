"""Time of a training step with `compile=yes` beside one without, and how many steps pay for the compilation.

    PYTHONPATH=src python benchmarks/compiled.py [--rounds 9]

A step of ERM on a CPU with one thread, forward, backward and AdamW, on small networks of timm. Both sides take turns in
one process; compilation is done before the first round and told in the note, as it is in a run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import torch
from sides import Row, interleaved, ratios, show
from torch.nn import functional

from biasbed.networks import Network, build
from biasbed.networks.compilation import compile_networks

TITLE = "Compiled networks"
HOW = "`benchmarks/compiled.py`: a step with `compile=yes` by one without, on a CPU, one thread, processor time."
NETWORKS = ("timm:test_vit", "timm:test_resnet")
SIDE, BATCH, CLASSES = 160, 16, 10


def made(name: str) -> tuple[Network, Callable[[], None]]:
    """Return a network, and a function that takes a training step of it."""
    torch.manual_seed(0)
    network = build(name, CLASSES).train()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4)
    x, y = torch.rand(BATCH, 3, SIDE, SIDE), torch.arange(BATCH) % CLASSES

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(x), y).backward()
        optimizer.step()

    return network, step


def measure(name: str, rounds: int) -> Row:
    """Return the row of a network: the ratio, the seconds of compilation, the steps after which they are saved."""
    _, plain = made(name)
    network, compiled = made(name)
    compile_networks(network)
    began = time.perf_counter()
    compiled()
    seconds = time.perf_counter() - began
    times = interleaved({"plain": plain, "compiled": compiled}, rounds)
    saved = sorted(one - other for one, other in zip(times["plain"], times["compiled"], strict=True))[rounds // 2]
    steps = f"paid for after {seconds / saved:,.0f} steps" if saved > 0 else "never paid for"
    return Row.of(f"{name}: compiled / plain", ratios(times, "compiled", "plain"), note=f"{seconds:.0f} s, {steps}")


def rows(quick: bool = False, *, rounds: int = 9) -> list[Row]:
    torch.set_num_threads(1)
    names = NETWORKS[:1] if quick else NETWORKS
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # what an earlier command compiled would cost nothing
        return [measure(name, 2 if quick else rounds) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    show(rows(rounds=parser.parse_args().rounds))


if __name__ == "__main__":
    main()
