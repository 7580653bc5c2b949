"""Cost of opening a tree of images the first time and, unchanged, the next: ImageNet-C's 75 conditions.

    PYTHONPATH=src python benchmarks/all.py opening

Makes the tree of hard links in a temporary folder (ImageNet-C has 50 images in each of its 75,000 class
folders). Opening is listing and fingerprint, as every command does both. All of the tree is in the page cache, which is
the worst case for the listing cache: on a disk that has to seek, a first opening takes minutes.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from pathlib import Path

from PIL import Image
from sides import Row

from biasbed.data import listing_cache
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.imagenet_c import SIDE, ImageNetC

TITLE = "Opening a large tree"
HOW = "`benchmarks/opening.py`: listing and fingerprint of ImageNet-C's folders, all in the page cache, wall clock."


def make(root: Path, num_classes: int, per_class: int) -> Path:
    """Return the tree's folder."""
    data = ImageNetC()
    pictures = [root / f"{number}.jpg" for number in range(max(10, 2 * per_class))]  # no file may have 100,000 links
    for picture in pictures:
        Image.new("RGB", (SIDE, SIDE), "grey").save(picture)
    free = itertools.cycle(pictures)
    for corruption in data.corruptions:
        for severity_folder in data.severities(corruption):
            for wnid in imagenet_classes()[:num_classes]:
                folder = root / "ImageNet-C" / severity_folder / wnid
                folder.mkdir(parents=True)
                for number in range(per_class):
                    os.link(next(free), folder / f"ILSVRC2012_val_{number:08}.JPEG")
    return root / "ImageNet-C"


def opened(root: Path) -> tuple[float, str]:
    """(seconds, fingerprint)"""
    began = time.perf_counter()
    fingerprint = ImageNetC().open(root).fingerprint()
    return time.perf_counter() - began, fingerprint


def rows(quick: bool = False, *, classes: int = 1000, images: int = 5, rounds: int = 3) -> list[Row]:
    if quick:
        classes, images, rounds = 5, 1, 1
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BIASBED_HOME"] = str(Path(scratch) / "home")
        folder = make(Path(scratch), classes, images)
        time.sleep(listing_cache.SETTLED)
        seconds = []
        for _ in range(rounds):  # the second follows from the first, so that they can't turn round
            listing_cache.forget(folder)
            first, second = opened(Path(scratch)), opened(Path(scratch))
            assert first[1] == second[1]
            seconds.append((first[0], second[0]))
    note = f"75 conditions x {classes} classes x {images} images; the first took {min(seconds)[0]:.1f} s"
    return [Row.of("the next opening / the first", [second / first for first, second in seconds], None, note)]
