"""All that is asked of a GPU, in one go: tests, correctness, speed, memory, and what bounds it.

    PYTHONPATH=src python benchmarks/gpu.py                                     # into benchmarks/RESULTS_GPU.md
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --backbone resnet10 --image_size 32 --batch_size 8 \
        --steps 2 --rounds 1 --methods infodrop --images 16 --workers 0 --tests none --to /tmp/gpu.md    # does it work?

First the tests that need a GPU (`--tests all`: the whole suite); where they fail that is said, and it goes on. Then
ResNet-50 at 224 pixels, channels-last, in bf16 and fp16: the same steps as in fp32, and through NCCL on one device. A
hand-written loop and our engine's steps then take turns on the same images, which are on the device already; with and
without torch.compile; the card's peak is what a product of large matrices reaches on it. Then on decoded images, beside
the loader alone and the hand-written loop on the same loader; every method by ERM (benchmarks/methods.py); testing
beside a bare forward pass; decoding on the device; and by the profiler, where the time of a step goes.

Each part is a topic of the file, measured and written by itself: where one fails, the others are there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import methods
import torch
from card import DTYPES, Card, by_hand, compiled, engine_of, forever, ours
from conditions import sources
from results import ROOT, Topic, renew
from sides import Goal, Row, Work, interleaved, ratios, show

from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
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
# What a kernel's name has where it belongs to a kind of work; the first that fits counts.
KINDS: Mapping[str, tuple[str, ...]] = {
    "convolutions and products": ("conv", "gemm", "cutlass", "cudnn", "xmma", "addmm", "mm", "mkldnn"),
    "normalisation": ("batch_norm", "bn_", "norm"),
    "copies and casts": ("copy", "memcpy", "memset", "cat", "to_"),
    "pooling": ("pool",),
    "all else, pointwise": ("",),
}


# --- correctness ------------------------------------------------------------------------------------------------------


def correctness(card: Card) -> list[Row]:
    """Losses of the same few steps: narrow arithmetic beside fp32, and through NCCL (gloo on a CPU) beside without."""
    plain = losses(card, "fp32")
    found = []
    for precision in card.options.precisions.split(","):
        narrow = losses(card, precision)
        apart = [abs(one / other - 1) for one, other in zip(narrow, plain, strict=True)]
        found.append(Row.of(f"{precision}: losses' distance from fp32", apart, Goal(0.05), "relative, of each step"))
    with joined(card) as group:
        apart = [abs(one / other - 1) for one, other in zip(losses(card, "fp32", group), plain, strict=True)]
    backend = "nccl" if card.is_cuda else "gloo"
    return [*found, Row.of(f"{backend} on one device: losses' distance", apart, Goal(1e-3), "DDP around the method")]


def losses(card: Card, precision: str, group: Group | None = None) -> list[float]:
    engine, batch = engine_of(card, precision, group=group), card.images()
    if group is not None:
        engine.algorithm._runtime.ddp = group.wrap(engine.algorithm, find_unused_parameters=False)
    found = []
    for number in range(5):
        engine._update(engine.phases[-1], number, 10**6, batch)  # type: ignore[arg-type]
        metrics = engine.tally.metrics(Group(0, 1, card.device), 1.0)
        engine.tally = type(engine.tally)()
        found.append(next(value for name, value in metrics.items() if name.startswith("train/loss")))
    return found


@contextlib.contextmanager
def joined(card: Card) -> Iterator[Group]:
    """A group of one process that is joined all the same."""
    from torch import distributed as dist

    with tempfile.NamedTemporaryFile() as file:
        store = dist.FileStore(file.name, 1)  # type: ignore[attr-defined]
        dist.init_process_group("cpu:gloo,cuda:nccl" if card.is_cuda else "gloo", store=store, rank=0, world_size=1)
        try:
            yield Group(0, 1, card.device)
        finally:
            dist.destroy_process_group()


# --- steps on images that are on the device ---------------------------------------------------------------------------


def synthetic(card: Card) -> list[Row]:
    found = []
    for precision in card.options.precisions.split(","):
        peak = matmul_flops(card, precision)
        for kind in ("", ", compiled") if card.options.compile else ("",):
            found += beside_by_hand(card, precision, kind, peak)
        found.append(Row.of(f"{precision}: product of large matrices", [peak / 1e12], unit="TFLOP/s"))
    return found


def beside_by_hand(card: Card, precision: str, kind: str, peak: float) -> list[Row]:
    """Speed, share of the peak, and memory of our steps beside those written by hand."""
    change = compiled if kind else (lambda engine: engine)
    batches = forever(card.images())
    mine, plain = (change(engine_of(card, precision)) for _ in range(2))
    network: Any = plain.algorithm.network
    sides = {"ours": ours(card, mine, batches), "by hand": by_hand(card, network, precision, batches)}
    times = interleaved(sides, card.rounds, card.clock, warm=2)
    number = card.steps * card.batch_size
    rates = {name: number / statistics.median(own) for name, own in times.items()}
    flops = step_flops(card, engine_of(card, precision)) / card.batch_size
    share = [number / one * flops / peak for one in times["ours"]]
    memory = {name: card.peak_mb(work) for name, work in sides.items()}
    note = f"{rates['ours']:,.0f} and {rates['by hand']:,.0f} images/s"
    title = f"{precision}{kind}"
    return [
        Row.of(f"{title}: ours / by hand, speed", ratios(times, "by hand", "ours"), Goal(0.95, at_least=True), note),
        Row.of(f"{title}: share of the card's peak", share, None, f"{flops / 1e9:.2f} GFLOP an image, counted"),
        Row.of(f"{title}: memory, ours / by hand", [memory["ours"] / memory["by hand"]], None, "peak of the allocator"),
    ]


def matmul_flops(card: Card, precision: str) -> float:
    """The most that products of large matrices reach, in FLOP a second."""
    side = 8192 if card.is_cuda else 256
    a, b = (torch.randn(side, side, device=card.device, dtype=DTYPES[precision]) for _ in range(2))
    times = interleaved({"product": lambda: [a @ b for _ in range(10)]}, 5, card.clock, warm=2)["product"]
    return 10 * 2 * side**3 / min(times)


def step_flops(card: Card, engine: Engine) -> float:
    """Of a forward and a backward pass, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    network: Any = engine.algorithm.network
    with FlopCounterMode(display=False) as counter:
        network(as_input(card.images().x)).sum().backward()
    return float(counter.get_total_flops())


# --- decoded images ---------------------------------------------------------------------------------------------------


def decoded(card: Card) -> list[Row]:
    """Training from files: ours, the loop by hand and the loader alone in turn, all on the same number of workers."""
    precision = card.options.precisions.split(",")[0]
    workers = card.options.workers
    with tempfile.TemporaryDirectory(dir=card.options.scratch) as name:
        source = photographs(Path(name), card.options.images)
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
    rates = {name: number / statistics.median(own) for name, own in times.items()}
    bound = [max(pair) for pair in zip(times["loader"], times["synthetic"], strict=True)]
    reached = [least / one for least, one in zip(bound, times["ours"], strict=True)]
    note = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    return [
        Row.of("decoded: ours / by hand, speed", ratios(times, "by hand", "ours"), Goal(0.95, at_least=True), note),
        Row.of("decoded: share of what loader and device allow", reached, None, f"images/s, {workers} workers"),
        *on_device(card),
    ]


def photographs(place: Path, number: int) -> Source:
    return sources(place, -(-number // 75))["one set"].subset(range(number), "photographs")


def read(card: Card, source: Source, workers: int) -> Callable[[], Iterator[Batch]]:
    """A loader's batches, on and on; it stays ahead between two rounds as it does between two steps."""
    stream = Stream((Part(source, 1.0, transforms.training(card.size, Augment())),), min(card.batch_size, len(source)))
    loader = TrainLoader(BatchPlan({MAIN: stream}, 0), workers, card.is_cuda)
    batches = (found[2] for found in loader.from_step(0, 10**6))
    return lambda: batches


def on_device(card: Card) -> list[Row]:
    """Decoding by the card beside decoding on a core."""
    import simplejpeg
    from torchvision import io as files

    with tempfile.TemporaryDirectory(dir=card.options.scratch) as name:
        photographs(Path(name), 64)
        contents = [path.read_bytes() for path in sorted(Path(name).glob("*.jpg"))[:64]]
    encoded = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
    there: Any = card.device if card.is_cuda else "cpu"
    sides: dict[str, Work] = {
        "device": lambda: files.decode_jpeg(list(encoded), mode=files.ImageReadMode.RGB, device=there),
        "core": lambda: [simplejpeg.decode_jpeg(content, "RGB") for content in contents],
    }
    times = interleaved(sides, card.rounds, card.clock)
    rates = {name: len(contents) / statistics.median(own) for name, own in times.items()}
    note = f"{rates['device']:,.0f} and {rates['core']:,.0f} images/s, decoding alone"
    return [Row.of("decoding on the device / on a core, speed", ratios(times, "core", "device"), None, note)]


# --- methods, testing, what bounds it ---------------------------------------------------------------------------------


def of_methods(card: Card) -> list[Row]:
    """benchmarks/methods.py with these sizes, memory included."""
    methods.SIZE, methods.BATCH, methods.BACKBONE = card.size, card.batch_size, card.options.backbone
    methods.STEPS, wanted, found = card.steps, card.options.methods, []
    for known in methods.families().values():
        first = next(iter(known))
        names = [name for name, (method, _) in known.items() if wanted == "all" or method in wanted.split(",")]
        for name in (name for name in names if name != first):
            try:
                found += methods.rows_of([first, name], card.rounds, [name] if card.is_cuda else [])
            except (RuntimeError, torch.OutOfMemoryError) as error:  # of one method the others need not know
                found.append(Row(f"{name}: failed", *[float("nan")] * 3, note=str(error).splitlines()[0][:100]))
            if card.is_cuda:
                torch.cuda.empty_cache()
    return found


def testing(card: Card) -> list[Row]:
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
        source = photographs(Path(name), card.options.images)
        entry = EvaluationSet("photographs", source, transforms.natural(card.size, Preprocess())[0])
        evaluator = Evaluator([entry], engine.group, engine.precision, card.batch_size, workers, False)
        sides: dict[str, Work] = {
            "tested": lambda: evaluator.decide(engine.algorithm.eval().predict),
            "forward": bare,
            "step": ours(card, engine_of(card, precision), forever(batch)),
        }
        times = interleaved(sides, card.rounds, card.clock)
    counts = {"tested": len(source), "forward": card.steps * card.batch_size, "step": card.steps * card.batch_size}
    rates = {side: counts[side] / statistics.median(own) for side, own in times.items()}
    forward = [one / other for one, other in zip(times["forward"], times["step"], strict=True)]
    return [
        Row.of("testing from files", [rates["tested"]], None, f"{workers} workers, decoding included", "images/s"),
        Row.of("a forward pass", [rates["forward"]], None, "images on the device", "images/s"),
        Row.of("a forward pass / a training step", forward, None, "what testing costs where loading keeps up"),
    ]


def bounds(card: Card) -> list[Row]:
    """By the profiler: which share of a step's device time is what, and how much of a step the device does nothing."""
    from torch.profiler import ProfilerActivity, profile

    engine = engine_of(card, card.options.precisions.split(",")[0])
    work = ours(card, engine, forever(card.images()))
    work()
    began = card.clock()
    work()
    took = card.clock() - began
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if card.is_cuda else [])]
    with profile(activities=activities) as found:
        work()
        card.wait()
    spent = dict.fromkeys(KINDS, 0.0)
    for event in found.key_averages():
        own = event.self_device_time_total if card.is_cuda else event.self_cpu_time_total
        kind = next(kind for kind, words in KINDS.items() if any(word in event.key.lower() for word in words))
        # With a GPU, only what ran there: an operation of the host also carries its kernels' time.
        spent[kind] += own / 1e6 if not card.is_cuda or "cuda" in str(event.device_type).lower() else 0.0
    whole = sum(spent.values())
    rows = [Row.of(f"share of {kind}", [own / whole]) for kind, own in spent.items()]
    if card.is_cuda:
        rows.append(Row.of("share of a step without work for the device", [max(0.0, 1 - whole / took)]))
    return [*rows, Row.of("a step", [1000 * took / card.steps], unit="ms")]


# --- the run ----------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, tuple[str, Callable[[Card], list[Row]], str]] = {
    "correctness": ("Correctness", correctness, "Five steps on the same images from the same weights."),
    "synthetic": ("Steps on images on the device", synthetic, "Blocks of steps in turn, by a clock that waits."),
    "decoded": ("Steps on decoded images", decoded, "JPEG photographs of 224 pixels from the page cache."),
    "testing": ("Testing", testing, "Blocks in turn, by a clock that waits for the device."),
    "bounds": ("What bounds a step", bounds, "torch's profiler; shares of the device's time."),
    "of_methods": ("Methods", of_methods, "`benchmarks/methods.py` with this card's sizes; a step by ERM's."),
}


def tests(which: str) -> str:
    """Runs them; what to say of them."""
    if which == "none":
        return "Tests were not run."
    words = ["tests", "-m", "gpu" if which == "gpu" else "not slow", "-q", "-x" if which == "gpu" else "-q"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=env, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing was said"]
    print("\n".join(lines[-20:]))
    said = "passed" if done.returncode == 0 else f"**FAILED** (exit code {done.returncode})"
    return f"Tests marked `{words[2]}` {said}: {lines[-1].strip('= ')}."


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = torch.cuda.is_available()
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if there else "cpu")
    found.add_argument("--backbone", default="resnet50")
    for name, default in (("image_size", 224), ("batch_size", 256), ("steps", 20), ("rounds", 7), ("images", 3000)):
        found.add_argument(f"--{name}", type=int, default=default)
    found.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 1), help="loader processes")
    found.add_argument("--precisions", default="bf16,fp16")
    found.add_argument("--compile", action=argparse.BooleanOptionalAction, default=there)
    found.add_argument("--methods", default="all", help="by commas; none: leave them out")
    found.add_argument("--parts", default=",".join(PARTS), help="by commas")
    found.add_argument("--tests", choices=("gpu", "all", "none"), default="gpu")
    found.add_argument("--to", type=Path, default=RESULTS)
    return found


def main() -> int:
    options, failed = parser().parse_args(), []
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown or (options.device == "cuda" and not torch.cuda.is_available()):
        parser().error(f"no such part: {', '.join(unknown)}" if unknown else "there is no GPU here")
    said = tests(options.tests)
    with tempfile.TemporaryDirectory() as options.scratch:
        card = Card(options)
        for name in options.parts.split(","):
            title, part, how = PARTS[name]
            began = time.perf_counter()
            print(f"--- {name}", flush=True)
            try:
                with contextlib.redirect_stderr(io.StringIO()) as noise:
                    rows = part(card)
            except Exception:  # the other parts are worth having
                traceback.print_exc()
                print(noise.getvalue()[-2000:], file=sys.stderr)
                failed.append(name)
                continue
            show(rows)
            sizes = f"{options.backbone}, {card.size} px, batches of {card.batch_size}, {card.steps} steps a block"
            took, device = time.perf_counter() - began, card.name
            topic = Topic(name, title, f"{how} {sizes}.", said, took, not card.is_cuda, device)
            renew(options.to, HEAD, [(topic, rows)], tuple(PARTS))
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
