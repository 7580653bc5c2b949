"""All that is asked of a GPU that is lent by the minute: speed, memory, and what bounds it.

    PYTHONPATH=src python benchmarks/gpu.py                   # again and again, until it says that all is done
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --backbone resnet10 --image_size 32 --batch_size 8 \
        --steps 2 --rounds 1 --methods infodrop --images 16 --workers 0 --to /tmp/gpu.md    # does it work?

A call begins no piece after `--minutes`, and continues where the one before it ended or was killed: each piece is kept
beside the results (`<to>.json`) and written into the tables when it is measured. Exit codes: 0 all is done, 3 more is
left for the same command, 1 a piece failed; the same command tries it once more.

Parts are in order of worth. First a hand-written loop and our engine take turns on images that are on the device, with
and without torch.compile; the card's peak is what a product of large matrices reaches on it. Then every method by ERM
(benchmarks/methods.py), decoded images beside the loader alone and the hand-written loop, testing beside a bare forward
pass, and by the profiler where the time of a step goes. Correctness is for `pytest -m gpu tests/compute/test_gpu.py`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import methods
import torch
from card import DTYPES, Card, Pieces, by_hand, compiled, engine_of, forever, ours
from photographs import write_photographs
from results import ROOT, Topic, commit, renew
from sides import Goal, Row, Work, interleaved, ratios, show

from biasbed.batch import MAIN, Batch
from biasbed.config import Augment, Preprocess
from biasbed.data import transforms
from biasbed.data.loading import TrainLoader
from biasbed.data.source import Source
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.evaluation.evaluator import Evaluator
from biasbed.networks.network import as_input
from biasbed.suites.sets import EvaluationSet
from biasbed.training.engine import Engine

HEAD = """# Results on a GPU

Written by `PYTHONPATH=src python benchmarks/gpu.py`, table by table, as RESULTS.md is by benchmarks/all.py.
"""
RESULTS = ROOT / "benchmarks" / "RESULTS_GPU.md"
MORE = 3  # exit code: the same command continues
# What a kernel's name has where it belongs to a kind of work; the first that fits counts.
KINDS: Mapping[str, tuple[str, ...]] = {
    "convolutions and products": ("conv", "gemm", "cutlass", "cudnn", "xmma", "addmm", "mm", "mkldnn"),
    "normalisation": ("batch_norm", "bn_", "norm"),
    "copies and casts": ("copy", "memcpy", "memset", "cat", "to_"),
    "pooling": ("pool",),
    "all else, pointwise": ("",),
}


# --- steps on images that are on the device ---------------------------------------------------------------------------


def synthetic(card: Card) -> Pieces:
    for precision in card.options.precisions.split(","):
        for kind in ("", ", compiled") if card.options.compile else ("",):
            yield f"{precision}{kind}", functools.partial(beside_by_hand, card, precision, kind)


def beside_by_hand(card: Card, precision: str, kind: str) -> list[Row]:
    """Speed, share of the peak, and memory of our steps beside those written by hand."""
    peak = matmul_flops(card, precision)
    change = compiled if kind else (lambda engine: engine)
    batches = forever(card.images())
    mine, plain = (change(engine_of(card, precision)) for _ in range(2))
    network: Any = plain.algorithm.network
    sides = {"ours": ours(card, mine, batches), "by hand": by_hand(card, network, precision, batches)}
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
    """The most that products of large matrices reach, in FLOP a second."""
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


# --- decoded images ---------------------------------------------------------------------------------------------------


def decoded(card: Card) -> Pieces:
    yield "training", functools.partial(from_files, card)
    yield "decoding", functools.partial(on_device, card)


def from_files(card: Card) -> list[Row]:
    """Training from files: ours, the loop by hand and the loader alone in turn, all on the same number of workers."""
    precision = card.options.precisions.split(",")[0]
    workers = card.options.workers
    with tempfile.TemporaryDirectory(dir=card.options.scratch) as name:
        source = write_photographs(Path(name), card.options.images)
        engine = engine_of(card, precision)
        network: Any = engine_of(card, precision).algorithm.network
        loaders = [read(card, source, workers) for _ in range(3)]
        sides: dict[str, Work] = {
            "ours": ours(card, engine, loaders[0]),
            "by hand": by_hand(card, network, precision, loaders[1]),
            "loader": lambda: [batch for _, batch in zip(range(card.steps), loaders[2](), strict=False)] and None,
            "synthetic": ours(card, engine_of(card, precision), forever(card.images())),
        }
        times = interleaved(sides, card.rounds, card.clock)
    number = card.steps * card.batch_size
    rates = {name: number / statistics.median(seconds_of_side) for name, seconds_of_side in times.items()}
    bound = [max(pair) for pair in zip(times["loader"], times["synthetic"], strict=True)]
    reached = [least / seconds for least, seconds in zip(bound, times["ours"], strict=True)]
    note = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    return [
        Row.of("decoded: ours / by hand, speed", ratios(times, "by hand", "ours"), Goal(0.95, at_least=True), note),
        Row.of("decoded: share of what loader and device allow", reached, None, f"images/s, {workers} workers"),
    ]


def read(card: Card, source: Source, workers: int) -> Callable[[], Iterator[Batch]]:
    """A loader's batches, on and on; it stays ahead between two rounds as it does between two steps."""
    stream = Stream(
        (Part(source, 1.0, transforms.make_training_transform(card.size, Augment())),),
        min(card.batch_size, len(source)),
    )
    loader = TrainLoader(BatchPlan({MAIN: stream}, 0), workers, card.is_cuda)
    batches = (step[2] for step in loader.from_step(0, 10**6))
    return lambda: batches


def on_device(card: Card) -> list[Row]:
    """Decoding by the card beside decoding on a core."""
    import simplejpeg
    from torchvision import io as files

    with tempfile.TemporaryDirectory(dir=card.options.scratch) as name:
        write_photographs(Path(name), 64)
        contents = [path.read_bytes() for path in sorted(Path(name).glob("*.jpg"))[:64]]
    encoded = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
    there: Any = card.device if card.is_cuda else "cpu"
    sides: dict[str, Work] = {
        "device": lambda: files.decode_jpeg(list(encoded), mode=files.ImageReadMode.RGB, device=there),
        "core": lambda: [simplejpeg.decode_jpeg(content, "RGB") for content in contents],
    }
    times = interleaved(sides, card.rounds, card.clock)
    rates = {name: len(contents) / statistics.median(seconds_of_side) for name, seconds_of_side in times.items()}
    note = f"{rates['device']:,.0f} and {rates['core']:,.0f} images/s, decoding alone"
    return [Row.of("decoding on the device / on a core, speed", ratios(times, "core", "device"), None, note)]


# --- methods, testing, what bounds it ---------------------------------------------------------------------------------


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


def testing(card: Card) -> Pieces:
    yield "evaluator", functools.partial(beside_forward, card)


def beside_forward(card: Card) -> list[Row]:
    """The evaluator beside bare forward passes on images that are on the device, and beside a training step."""
    precision, workers = card.options.precisions.split(",")[0], card.options.workers
    engine, batch = engine_of(card, precision), card.images()
    network: Any = engine.algorithm.network

    @torch.inference_mode()
    def bare() -> None:
        network.eval()
        for _ in range(card.steps):
            with card.autocast(precision):
                network(as_input(batch.x)).argmax(1)
        network.train()

    with tempfile.TemporaryDirectory(dir=card.options.scratch) as name:
        source = write_photographs(Path(name), card.options.images)
        evaluation_set = EvaluationSet(
            "photographs", source, transforms.make_photo_transform(card.size, Preprocess())[0]
        )
        evaluator = Evaluator([evaluation_set], engine.group, engine.precision, card.batch_size, workers, False)
        sides: dict[str, Work] = {
            "tested": lambda: evaluator.decide(engine.algorithm.eval().predict),
            "forward": bare,
            "step": ours(card, engine_of(card, precision), forever(batch)),
        }
        times = interleaved(sides, card.rounds, card.clock)
    counts = {"tested": len(source), "forward": card.steps * card.batch_size, "step": card.steps * card.batch_size}
    rates = {side: counts[side] / statistics.median(seconds_of_side) for side, seconds_of_side in times.items()}
    forward = [
        forward_seconds / step_seconds
        for forward_seconds, step_seconds in zip(times["forward"], times["step"], strict=True)
    ]
    return [
        Row.of("testing from files", [rates["tested"]], None, f"{workers} workers, decoding included", "images/s"),
        Row.of("a forward pass", [rates["forward"]], None, "images on the device", "images/s"),
        Row.of("a forward pass / a training step", forward, None, "what testing costs where loading keeps up"),
    ]


def bounds(card: Card) -> Pieces:
    yield "profiler", functools.partial(profiled, card)


def profiled(card: Card) -> list[Row]:
    """By the profiler: which share of a step's device time is what, and how much of a step the device does nothing."""
    from torch.profiler import ProfilerActivity, profile

    engine = engine_of(card, card.options.precisions.split(",")[0])
    work = ours(card, engine, forever(card.images()))
    work()
    began = card.clock()
    work()
    took = card.clock() - began
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if card.is_cuda else [])]
    with profile(activities=activities) as profiler:
        work()
        card.wait()
    spent = dict.fromkeys(KINDS, 0.0)
    for event in profiler.key_averages():
        event_time = event.self_device_time_total if card.is_cuda else event.self_cpu_time_total
        kind = next(kind for kind, words in KINDS.items() if any(word in event.key.lower() for word in words))
        # With a GPU, only what ran there: an operation of the host also carries its kernels' time.
        spent[kind] += event_time / 1e6 if not card.is_cuda or "cuda" in str(event.device_type).lower() else 0.0
    total = sum(spent.values())
    rows = [Row.of(f"share of {kind}", [event_time / total]) for kind, event_time in spent.items()]
    if card.is_cuda:
        rows.append(Row.of("share of a step without work for the device", [max(0.0, 1 - total / took)]))
    return [*rows, Row.of("a step", [1000 * took / card.steps], unit="ms")]


# --- the run ----------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, tuple[str, Callable[[Card], Pieces], str]] = {
    "synthetic": ("Steps on images on the device", synthetic, "Blocks of steps in turn, by a clock that waits."),
    "of_methods": ("Methods", of_methods, "`benchmarks/methods.py` with this card's sizes; a step by ERM's."),
    "decoded": ("Steps on decoded images", decoded, "JPEG photographs of 224 pixels from the page cache."),
    "testing": ("Testing", testing, "Blocks in turn, by a clock that waits for the device."),
    "bounds": ("What bounds a step", bounds, "torch's profiler; shares of the device's time."),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = torch.cuda.is_available()
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if there else "cpu")
    made.add_argument("--backbone", default="resnet50")
    for name, default in (("image_size", 224), ("batch_size", 256), ("steps", 20), ("rounds", 7), ("images", 3000)):
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 1), help="loader processes")
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
        sizes = ("backbone", "image_size", "batch_size", "steps", "rounds", "images", "workers")
        key = " ".join([card.name, commit(), *(f"{name}={getattr(options, name)}" for name in sizes)])
        return measure(card, KeptRows(options.to.with_suffix(".json"), key), end + 60 * options.minutes)


if __name__ == "__main__":
    sys.exit(main())
