"""Cost of conditions and mixtures: 75 conditions beside one set of as many images, our AugMix beside torchvision's.

    PYTHONPATH=src python benchmarks/conditions.py [--images 100] [--rounds 5]

One process, one thread, seconds of the processor. Both sets are the same files, decoded, put into batches of 256 and
decided on by a network that costs nothing, so that a real one can only bring them closer; conditions end a batch. The
mixture has its usual settings (ours: severity 1 of 10 and 1 to 3 operations of a chain without those of colour, as in
the paper), and torchvision's own 3 of 10 and all its operations, on photographs of 224 pixels; both mix, besides, with
the same settings (3, all operations). The aims: 0.9 of the one set's rate, and no slower than torchvision.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sides import Goal, Row, Work, interleaved, ratios, show
from torch import Tensor
from torchvision import transforms

from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.augmix import MixedChains
from biasbed.data.folders import FolderSource
from biasbed.data.transforms import Exact
from biasbed.datasets.imagenet_c import SIDE
from biasbed.evaluation.evaluator import Evaluator
from biasbed.suites.sets import EvaluationSet

TITLE = "Conditions and mixtures"
HOW = "`benchmarks/conditions.py`: one thread, processor time; deciding with a network that costs nothing."
CONDITIONS, BATCH, CLASSES = 75, 256, 10


def photograph(number: int) -> np.ndarray:
    """Smooth structure of every size and a little noise, uint8 [224,224,3]: as costly to decode as a photograph."""
    rng = np.random.default_rng(number)
    sizes = [rng.random((side, side, 3)).astype(np.float32) for side in (7, 28, 112)]
    image = sum(np.kron(part, np.ones((SIDE // len(part), SIDE // len(part), 1))) for part in sizes) / len(sizes)
    return np.asarray(image * 220 + rng.normal(0, 8, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)


def sources(root: Path, per_condition: int) -> dict[str, FolderSource]:
    """The same images as one set, and under conditions."""
    names = [f"{number}.jpg" for number in range(CONDITIONS * per_condition)]
    for number, name in enumerate(names):
        if number < 20:
            Image.fromarray(photograph(number)).save(root / name, quality=85)
        else:
            os.link(root / names[number % 20], root / name)
    y = np.arange(len(names)) % CLASSES
    plain = FolderSource(name="one set", classes=tuple(map(str, range(CLASSES))), y=y, ids=names, root=root)
    known = tuple(f"fog_{number}" for number in range(CONDITIONS))
    under = np.repeat(np.arange(CONDITIONS), per_condition)
    return {"one set": plain, "75 conditions": replace(plain, name="many", condition=under, conditions=known)}


def decided(source: FolderSource) -> Callable[[], object]:
    def predict(x: Tensor) -> Tensor:
        return x[:, 0, :1, :CLASSES].flatten(1)

    entry = EvaluationSet(source.name, source, Exact(SIDE))
    device = Group()
    return lambda: Evaluator([entry], device, Precision(), BATCH, 0, False).decide(predict)


def mixtures(settings: Mapping[str, object], **theirs: object) -> tuple[Callable[[], object], Callable[[], object]]:
    """Torchvision's mixtures of some images, and ours."""
    images = [torch.from_numpy(photograph(number)).permute(2, 0, 1).contiguous() for number in range(20)]
    pictures = [Image.fromarray(photograph(number)) for number in range(20)]
    reference, own = transforms.AugMix(**theirs), MixedChains(MixedChains.Settings(**settings))  # type: ignore[arg-type]
    return lambda: [reference(one) for one in pictures * 5], lambda: [own(one) for one in images * 5]


def compared(name: str, sides: tuple[Work, Work], rounds: int, images: int, goal: Goal | None = None) -> Row:
    """The second side's time by the first's."""
    times = interleaved(dict(zip("ab", sides, strict=True)), rounds)
    each = [1000 * statistics.median(found) / images for found in times.values()]
    return Row.of(name, ratios(times, "b", "a"), goal, f"{each[0]:.2f} and {each[1]:.2f} ms an image")


def rows(quick: bool = False, *, images: int = 40, rounds: int = 5) -> list[Row]:
    if quick:
        images, rounds = 1, 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    with tempfile.TemporaryDirectory() as place:
        found = sources(Path(place), images)
        sides = decided(found["one set"]), decided(found["75 conditions"])
        conditions = compared("75 conditions / one set", sides, rounds, CONDITIONS * images, Goal(1 / 0.9))
    settings, name = {"severity": 3.0, "all_ops": True}, "AugMix: ours / torchvision's"
    return [
        conditions,
        compared(f"{name}, as each has it", mixtures({}), rounds, 100, Goal(1.0)),
        compared(f"{name}, alike", mixtures(settings, severity=3), rounds, 100, Goal(1.0)),
    ]


def main() -> None:
    """Prints the median ratios with their quartiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100, help="under each condition")
    parser.add_argument("--rounds", type=int, default=5)
    show(rows(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
