"""Speed and memory of steps on a GPU that is lent by the minute.

    PYTHONPATH=src python benchmarks/gpu.py                   # again and again, until it says that all is done
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --backbone resnet10 --image_size 32 --batch_size 8 \
        --steps 2 --rounds 1 --methods infodrop --to /tmp/gpu.md    # does it work?

A call begins no piece after `--minutes`, and continues where the one before it ended or was killed: each piece is kept
beside the results (`<to>.json`) and written into the tables when it is measured. Exit codes: 0 all is done, 3 more is
left for the same command, 1 a piece failed; the same command tries it once more.

First a hand-written loop and our engine take turns on images that are on the device, with and without torch.compile;
the card's peak is what a product of large matrices reaches on it. Then every method by ERM (benchmarks/methods.py).
Correctness is for `pytest -m gpu tests/compute/test_gpu.py`.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import methods
import torch
from card import DTYPES, Card, Pieces, by_hand, compiled, engine_of, ours
from results import ROOT, Topic, commit, renew
from sides import Goal, Row, interleaved, ratios, show

from biasbed.networks.network import as_input
from biasbed.training.engine import Engine

HEAD = """# Results on a GPU

Written by `PYTHONPATH=src python benchmarks/gpu.py`, table by table, as RESULTS.md is by benchmarks/all.py.
"""
RESULTS = ROOT / "benchmarks" / "RESULTS_GPU.md"
MORE = 3  # exit code: the same command continues


# --- steps on images that are on the device ---------------------------------------------------------------------------


def synthetic(card: Card) -> Pieces:
    for precision in card.options.precisions.split(","):
        for kind in ("", ", compiled") if card.options.compile else ("",):
            yield f"{precision}{kind}", functools.partial(beside_by_hand, card, precision, kind)


def beside_by_hand(card: Card, precision: str, kind: str) -> list[Row]:
    """Speed, share of the peak, and memory of our steps beside those written by hand."""
    peak = matmul_flops(card, precision)
    change = compiled if kind else (lambda engine: engine)
    batch = card.images()
    mine, plain = (change(engine_of(card, precision)) for _ in range(2))
    network: Any = plain.algorithm.network
    sides = {"ours": ours(card, mine, batch), "by hand": by_hand(card, network, precision, batch)}
    times = interleaved(sides, card.rounds, card.clock, warm=2)
    number = card.steps * card.batch_size
    rates = {name: number / statistics.median(seconds_of_side) for name, seconds_of_side in times.items()}
    flops = step_flops(card, engine_of(card, precision)) / card.batch_size
    share = [number / seconds * flops / peak for seconds in times["ours"]]
    memory = {name: card.peak_mb(work) for name, work in sides.items()}
    note = f"{rates['ours']:,.0f} and {rates['by hand']:,.0f} images/s"
    title = f"{precision}{kind}"
    return [
        Row.of(f"{title}: ours / by hand, speed", ratios(times, "by hand", "ours"), Goal(0.95, at_least=True), note),
        Row.of(f"{title}: share of the card's peak", share, None, f"{flops / 1e9:.2f} GFLOP an image, counted"),
        Row.of(f"{title}: memory, ours / by hand", [memory["ours"] / memory["by hand"]], None, "peak of the allocator"),
        Row.of(f"{title}: product of large matrices", [peak / 1e12], unit="TFLOP/s"),
    ]


def matmul_flops(card: Card, precision: str) -> float:
    """Return the most that products of large matrices reach, in FLOP a second."""
    side = 8192 if card.is_cuda else 256
    a, b = (torch.randn(side, side, device=card.device, dtype=DTYPES[precision]) for _ in range(2))
    times = interleaved({"product": lambda: [a @ b for _ in range(10)]}, 5, card.clock, warm=2)["product"]
    return 10 * 2 * side**3 / min(times)


def step_flops(card: Card, engine: Engine) -> float:
    """Return the operations of a forward and a backward pass, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    network: Any = engine.algorithm.network
    with FlopCounterMode(display=False) as counter:
        network(as_input(card.images().x)).sum().backward()
    return float(counter.get_total_flops())


# --- methods ----------------------------------------------------------------------------------------------------------


def of_methods(card: Card) -> Pieces:
    """benchmarks/methods.py with these sizes, memory included."""
    methods.SIZE, methods.BATCH, methods.BACKBONE = card.size, card.batch_size, card.options.backbone
    methods.STEPS, chosen = card.steps, card.options.methods
    for family in methods.families().values():
        first = next(iter(family))
        for name, (method, _) in family.items():
            if name != first and (chosen == "all" or method in chosen.split(",")):
                yield name, functools.partial(by_erm, card, first, name)


def by_erm(card: Card, first: str, name: str) -> list[Row]:
    try:
        return methods.rows_of([first, name], card.rounds, [name] if card.is_cuda else [])
    finally:
        if card.is_cuda:
            torch.cuda.empty_cache()


# --- the run ----------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, tuple[str, Callable[[Card], Pieces], str]] = {
    "synthetic": ("Steps on images on the device", synthetic, "Blocks of steps in turn, by a clock that waits."),
    "of_methods": ("Methods", of_methods, "`benchmarks/methods.py` with this card's sizes; a step by ERM's."),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = torch.cuda.is_available()
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if there else "cpu")
    made.add_argument("--backbone", default="resnet50")
    for name, default in (("image_size", 224), ("batch_size", 256), ("steps", 20), ("rounds", 7)):
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--precisions", default="bf16,fp16")
    made.add_argument("--compile", action=argparse.BooleanOptionalAction, default=there)
    made.add_argument("--methods", default="all", help="by commas; none: leave them out")
    made.add_argument("--parts", default=",".join(PARTS), help="by commas, in this order")
    made.add_argument("--minutes", type=float, default=8.5, help="of this call; a lease gives ten a call")
    made.add_argument("--to", type=Path, default=RESULTS)
    return made


class KeptRows:
    """Rows of the pieces that this call and earlier ones have measured, by part and piece, in a file of JSON."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key  # key: card, sizes and commit; rows of another are not these
        self.parts: dict[str, dict[str, list[Row]]] = {part: {} for part in PARTS}
        content = json.loads(path.read_text()) if path.exists() else {}
        for part, pieces in content.get(key, {}).items():
            self.parts[part] = {piece: [_read_row(values) for values in rows] for piece, rows in pieces.items()}

    def add(self, part: str, piece: str, rows: list[Row]) -> None:
        self.parts[part][piece] = rows
        content = {
            part: {piece: [asdict(row) for row in rows] for piece, rows in pieces.items()}
            for part, pieces in self.parts.items()
        }
        self.path.write_text(json.dumps({self.key: content}))


def _read_row(values: dict[str, Any]) -> Row:
    goal = values.pop("goal")
    return Row(**values, goal=None if goal is None else Goal(**goal))


def write(card: Card, kept: KeptRows, part: str, took: float) -> None:
    """Write a part's table as far as it is measured."""
    options, (title, _, how) = card.options, PARTS[part]
    rows = [row for piece in kept.parts[part].values() for row in piece]
    sizes = f"{options.backbone}, {card.size} px, batches of {card.batch_size}, {card.steps} steps a block"
    topic = Topic(part, title, f"{how} {sizes}.", "", took, not card.is_cuda, card.name)
    renew(options.to, HEAD, [(topic, rows)], tuple(PARTS))


def measure(card: Card, kept: KeptRows, end: float) -> int:
    """Measure what is missing until the clock shows `end`; return the exit code."""
    failed = []
    for part in card.options.parts.split(","):
        for piece, work in PARTS[part][1](card):
            if piece in kept.parts[part]:
                continue
            began = time.perf_counter()
            if began > end:
                print("more is left: the same command continues", file=sys.stderr)
                return MORE
            print(f"--- {part}: {piece}", flush=True)
            try:
                rows = list(work())
            except Exception:  # the other pieces are worth having
                traceback.print_exc()
                failed.append(f"{part}: {piece}")
                continue
            show(rows)
            kept.add(part, piece, rows)
            write(card, kept, part, time.perf_counter() - began)
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    end = time.perf_counter()
    options = parser().parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown or (options.device == "cuda" and not torch.cuda.is_available()):
        parser().error(f"no such part: {', '.join(sorted(unknown))}" if unknown else "there is no GPU here")
    with tempfile.TemporaryDirectory() as options.scratch:
        card = Card(options)
        sizes = ("backbone", "image_size", "batch_size", "steps", "rounds")
        key = " ".join([card.name, commit(), *(f"{name}={getattr(options, name)}" for name in sizes)])
        return measure(card, KeptRows(options.to.with_suffix(".json"), key), end + 60 * options.minutes)


if __name__ == "__main__":
    sys.exit(main())
