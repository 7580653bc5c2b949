"""Cost of a linear probe beside a full fine-tuning, and with kept features beside none.

    PYTHONPATH=src python benchmarks/probing.py [--rounds 5] [--images 32] [--size 64]

On a CPU, one thread: ResNet-18 and training images of noise, in memory, so that reading costs nothing. A probe makes
one forward pass over them and a single fit. A fine-tuning takes ten epochs of steps, as a short one does. Both go the
ways of their methods, `probe` and `erm`. Kept features: the pass of a probe whose features an earlier one has kept,
beside the same pass without a store.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from sides import Goal, Row, interleaved, ratios, show

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Setup, TrainData
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.networks import build
from biasbed.networks.features import FeatureStore, compute_features
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass

TITLE = "Probes"
HOW = (
    "`benchmarks/probing.py`: ResNet-18 on a CPU, one thread, processor time; a probe (a pass over the training images "
    "and a fit) by ten epochs of fine-tuning, and a probe's pass by the same pass whose features were kept before."
)
NOTES = "Reading and decoding are left out: a training with kept features still reads its images, to know them again."
CLASSES, EPOCHS, BATCH = 5, 10, 16


def made(name: str, images: int, features: Any = compute_features, **hparams: Any) -> Algorithm:
    """A started algorithm on ResNet-18, with the same weights each time."""
    cls = algorithms.load(name)
    torch.manual_seed(0)
    setup = Setup(
        num_classes=CLASSES,
        task=MultiClass(),
        network=lambda name="resnet18", outputs=CLASSES, **how: build(name, outputs, **how),
        optimizer=functools.partial(torch.optim.SGD, lr=0.001, momentum=0.9),
        group=Group(),
        precision=Precision(),
        features=features,
    )
    algorithm: Algorithm = cls(build_settings(cls.HParams, hparams), setup)
    algorithm.on_train_data(TrainData(images, CLASSES, 1))
    algorithm.start()
    return algorithm.train()


def probe(algorithm: Any, batches: list[Batch]) -> None:
    """Look at every image, and fit."""
    algorithm.eval()
    with torch.no_grad():
        looked = [algorithm.look(batch) for batch in batches]
    algorithm.fit({name: torch.cat([values[name] for values in looked]) for name in looked[0]})


def look(algorithm: Any, batches: list[Batch]) -> None:
    algorithm.eval()
    with torch.no_grad():
        for batch in batches:
            algorithm.look(batch)


def fine_tune(algorithm: Algorithm, batches: list[Batch]) -> None:
    for _ in range(EPOCHS):
        for batch in batches:
            algorithm.update(batch)


def rows(quick: bool = False, rounds: int = 5, images: int = 32, size: int = 64) -> list[Row]:
    """Measure both ratios."""
    rounds = 1 if quick else rounds
    torch.set_num_threads(1)
    x = torch.rand(images, 3, size, size, generator=torch.Generator().manual_seed(0))
    batches = Batch(x, torch.arange(images) % CLASSES).split(images // BATCH)
    with tempfile.TemporaryDirectory() as folder:
        store = FeatureStore(Path(folder), {})
        plain, kept, tuned = (
            made("probe", images, strengths="1"),
            made("probe", images, store, strengths="1"),
            made("erm", images),
        )
        sides = {
            "probe": lambda: probe(plain, batches),
            "fine-tuning": lambda: fine_tune(tuned, batches),
            "pass": lambda: look(plain, batches),
            "pass, kept": lambda: look(kept, batches),
        }
        times = interleaved(sides, rounds)
    note = f"{images} images, {size} pixels"
    return [
        Row.of("a probe by ten epochs of fine-tuning", ratios(times, "probe", "fine-tuning"), Goal(0.1), note),
        Row.of("a pass with kept features by one without", ratios(times, "pass, kept", "pass"), Goal(0.1), note),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--size", type=int, default=64)
    given = parser.parse_args()
    show(rows(rounds=given.rounds, images=given.images, size=given.size))


if __name__ == "__main__":
    main()
