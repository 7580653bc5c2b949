"""What conditions and mixtures cost: 75 conditions beside one set of as many images, our AugMix beside torchvision's.

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
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.augmix import MixedChains
from biasbed.data.folders import FolderSource
from biasbed.data.transforms import Exact
from biasbed.datasets.corrupted import SIDE
from biasbed.evaluation.evaluator import Evaluator
from biasbed.suites.sets import EvaluationSet

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


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compare(title: str, sides: tuple[Callable[[], object], Callable[[], object]], rounds: int, images: int) -> float:
    """Prints, and gives, the median ratio of the second side's time by the first's; the first round warms up."""
    pairs = [(seconds(sides[0]), seconds(sides[1])) for _ in range(rounds + 1)][1:]
    ratios = sorted(second / first for first, second in pairs)
    each = [1000 * statistics.median(times) / images for times in zip(*pairs, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{title:44}{each[0]:7.2f} and {each[1]:5.2f} ms; {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
    return ratio


def main() -> None:
    """Prints milliseconds of an image on both sides, and the median ratios with their range."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100, help="under each condition")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    with tempfile.TemporaryDirectory() as place:
        found = sources(Path(place), options.images)
        sides = decided(found["one set"]), decided(found["75 conditions"])
        ratio = compare("one set, 75 conditions", sides, options.rounds, CONDITIONS * options.images)
        print(f"  so 75 conditions come at {1 / ratio:.3f} of the one set's rate")
    compare("torchvision's AugMix, ours; as each has it", mixtures({}), options.rounds, 100)
    settings = {"severity": 3.0, "all_ops": True}
    compare("the same; severity 3, all operations", mixtures(settings, severity=3), options.rounds, 100)


if __name__ == "__main__":
    main()
