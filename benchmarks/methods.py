"""Cost of a step of each method beside a step of ERM: time and peak memory, as ratios, interleaved in one process.

    PYTHONPATH=src python benchmarks/all.py methods

On a CPU: ResNet-18, 112 pixels, batch 16, one thread, as the authors' code was measured (specs: 1.30 for InfoDrop's
stem, 2.34 for SagNet). On a GPU: ResNet-50, 224 pixels, batch 128, bf16. A round takes the steps of ERM and of every
method in turn; the median of the rounds' ratios is printed with its range. Methods that are plain training on other
images cost what ERM costs and are left out.

Methods that tell domains apart are measured on three domains of 8 images (GPU: 32), with Adam as in DomainBed, beside
ERM on the same images, `erm, domains`. DANN's two kinds of steps are measured each by itself. Beside their authors' own
programs: references.py.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
import unittest.mock
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sides import Goal, Row, interleaved, ratios

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Progress, Setup, TrainData
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.networks import build
from biasbed.networks.style import StyleTransfer
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass

TITLE = "Methods"
HOW = (
    "`benchmarks/methods.py`: a step of each method by a step of ERM on the same images; on a CPU ResNet-18, 112 "
    "pixels, batch 16, one thread, processor time. Peak memory is that of a process of its own, imports left out, "
    "which returns freed memory at once."
)
ADVERSARIES = {f"{name}, {kind}": name for name in ("dann", "cdann") for kind in ("discriminator", "network")}
OF_DOMAINS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "erm, domains": ("erm", {}),
    **{name: (name, {}) for name in ("irm", "vrex", "group_dro", "mixup", "coral", "mmd")},
    "mldg": ("mldg", {}),
    "mldg, ring": ("mldg", {"pairing": "ring"}),
    **{name: (method, {}) for name, method in ADVERSARIES.items()},
}
SIDES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "erm": ("erm", {}),
    "infodrop": ("infodrop", {}),
    "padain": ("padain", {}),
    "sagnet": ("sagnet", {}),
    "debiased": ("debiased", {}),
    "noise2net": ("noise2net", {}),
    "lff": ("lff", {}),
    "lff, small": ("lff", {"biased_backbone": "simple_conv_1x1"}),
    "disent": ("disent", {"warmup": 0.0}),
    "biasensemble": ("biasensemble", {}),  # once its biased networks are trained
    "end": ("end", {}),
    "lnl": ("lnl", {}),
    "rebias": ("rebias", {}),
    "biascon": ("biascon", {}),
    "softcon": ("softcon", {}),  # once its biased network is trained
    "hex": ("hex", {"warmup": 0.0}),
    "augmix": ("augmix", {}),
    "random_erasing": ("random_erasing", {}),
    "speckle": ("speckle", {}),
    "fast_adversarial": ("fast_adversarial", {}),
    **OF_DOMAINS,
}
# What is asked of a step and of peak memory, by ERM's.
TIMES: Mapping[str, Goal] = {
    "infodrop": Goal(1.05),
    "sagnet": Goal(1.7),
    "noise2net": Goal(1.1),
}
MEMORY: Mapping[str, Goal] = dict.fromkeys(TIMES, Goal(1.2))
CONTRASTIVE = ("biascon", "softcon")
# Methods for biased data, which have few classes; EnD's sums and HEX's inverse grow with their number.
OF_FEW_CLASSES = ("end", "lnl", "rebias", *CONTRASTIVE, "hex")
CUDA = torch.cuda.is_available()
BACKBONE, SIZE, BATCH, STEPS = ("resnet50", 224, 128, 10) if CUDA else ("resnet18", 112, 16, 2)
DOMAINS, PER_DOMAIN, BIASES = 3, 32 if CUDA else 8, 10
DEVICE = torch.device("cuda" if CUDA else "cpu")
CLOCK = time.perf_counter if CUDA else time.process_time
SGD = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=1e-4)
ADAM = functools.partial(torch.optim.Adam, lr=5e-5)


def side(name: str) -> Callable[[], None]:
    """Return some training steps of a method; pAdaIN's coins differ from step to step, so it takes more of them."""
    return side_of(name)[1]


def side_of(name: str) -> tuple[Algorithm, Callable[[], None]]:
    """Return a method and some training steps of it."""
    method, hparams = SIDES[name]
    algorithm = make(method, hparams, ADAM if name in OF_DOMAINS else SGD)
    batch = of_domains() if name in OF_DOMAINS else images(BATCH)
    if name in OF_FEW_CLASSES:
        batch.y %= BIASES
    if name in CONTRASTIVE:  # as many images again, in two views each
        pairs = images(BATCH)
        pairs.y %= BIASES
        pairs.x = torch.stack([pairs.x, pairs.x], 1)
        batch.extra["pairs"] = pairs

    views = len(type(algorithm).streams(algorithm.hparams)["main"].views)
    if views > 1:
        batch.x = torch.stack([batch.x] * views, 1)

    def run() -> None:
        for _ in range(STEPS):
            algorithm.progress.step += 1
            if name in ADVERSARIES:  # of two updates the second is the discriminator's
                algorithm.get_submodule("updates").value = int(name.endswith("discriminator"))
            algorithm.update(batch)
            algorithm.take_notes()
        if CUDA:
            torch.cuda.synchronize()

    return algorithm, run


def make(
    method: str,
    hparams: Mapping[str, Any],
    optimizer: Callable[..., torch.optim.Optimizer],
    group: Group | None = None,
) -> Algorithm:
    """Ready to train. group: of several processes."""
    cls = algorithms.load(method)
    torch.manual_seed(0)
    group = group or Group(device=DEVICE)
    group.seed(0)
    classes = BIASES if method in OF_FEW_CLASSES else 1000
    setup = Setup(
        num_classes=classes,
        task=MultiClass(),
        network=lambda name=BACKBONE, **how: build(name, classes, **how).to(DEVICE),
        optimizer=optimizer,
        group=group,
        precision=Precision("bf16" if CUDA else "fp32", DEVICE),
        prepared=lambda kind: StyleTransfer().eval().requires_grad_(False).to(DEVICE),
    )
    algorithm = cls(build_settings(cls.HParams, hparams), setup)
    algorithm.on_train_data(TrainData(BATCH, classes, DOMAINS, BIASES))
    algorithm.to(DEVICE).start()
    # In the midst of a training: past its end, InfoDrop drops nothing.
    algorithm.progress = Progress(step=500, steps_per_epoch=1000)
    return algorithm.train()


def images(count: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, SIZE, SIZE, generator=generator).to(DEVICE)
    y = torch.randint(1000, (count,), generator=generator).to(DEVICE)
    return Batch(x, y, index=torch.arange(count, device=DEVICE), bias=y % BIASES)


def of_domains() -> Batch:
    """Equal parts of all domains, one after the other."""
    batch = images(DOMAINS * PER_DOMAIN)
    batch.domain = torch.arange(DOMAINS, device=DEVICE).repeat_interleave(PER_DOMAIN)
    batch.parts = DOMAINS
    return batch


def peak_mb(name: str) -> float:
    """Peak memory of a few steps in a fresh process (CPU: of the process; GPU: of the allocator).

    glibc gives freed memory back to the system from a size on that it raises as it goes, which made peaks of the same
    steps differ by a tenth. Setting the size keeps it: 128 KiB, the initial one.
    """
    context = multiprocessing.get_context("spawn")
    with unittest.mock.patch.dict(os.environ, MALLOC_MMAP_THRESHOLD_=str(2**17)), context.Pool(1) as pool:
        return pool.apply(_peak, (name,))


def _peak(name: str) -> float:
    torch.set_num_threads(1)
    if CUDA:
        side(name)()
        return torch.cuda.max_memory_allocated() / 2**20
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    side(name)()
    return _status("VmHWM") - before


def _status(field: str) -> float:
    """Return a memory size of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def families() -> dict[str, Mapping[str, tuple[str, Mapping[str, Any]]]]:
    """Return the sides that are compared on the same images, ERM first, keyed by the kind of images."""
    others = {name: side for name, side in SIDES.items() if name not in OF_DOMAINS}
    return {f"batch {BATCH}": others, f"{DOMAINS} domains of {PER_DOMAIN}": OF_DOMAINS}


def beside(sides: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Return each side's time by the first one's, round by round."""
    times = interleaved(sides, rounds, CLOCK)
    first = next(iter(sides))
    return {name: ratios(times, name, first) for name in sides}


def rows_of(names: Sequence[str], rounds: int, memory: Collection[str] = ()) -> list[Row]:
    """Return the rows of one family's sides. The first side is the reference.

    memory: those whose peak is measured too.
    """
    first, sides = names[0], {name: side(name) for name in names}
    all_rows = [
        Row.of(f"{name} / {first}", values, TIMES.get(name))
        for name, values in beside(sides, rounds).items()
        if name != first
    ]
    if memory:
        base = peak_mb(first)
        peaks = {name: peak_mb(name) / base for name in memory}
        all_rows += [Row.of(f"peak memory: {n} / {first}", [peak], MEMORY.get(n)) for n, peak in peaks.items()]
    return all_rows


def rows(quick: bool = False, *, rounds: int = 9) -> list[Row]:
    """Return the methods of which something is asked in as many rounds, all others in a third of them."""
    torch.set_num_threads(1)
    if quick:
        return rows_of(["erm", "infodrop"], 1)
    all_rows = rows_of(["erm", *TIMES], rounds, list(MEMORY))
    for family in families().values():
        others = [name for name in family if name not in TIMES]
        all_rows += rows_of(others, max(3, rounds // 3))
    return all_rows
