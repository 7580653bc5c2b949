"""A folder with all of the suite `biasbed`'s data sets, as small as they can be: every class of ImageNet, noise."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes

TRAIN, PER_CATEGORY = 2, 2  # images


def make_tree(root: Path) -> Path:
    """Training images of 1000 classes, one validation image each, stimuli of 16 categories, 16 x 16 cue conflicts."""
    rng = np.random.default_rng(0)
    images = [_encoded(rng, 24, 30, kind) for kind in ("JPEG", "PNG") for _ in range(16)]

    def put(name: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images[rng.integers(16) + 16 * (path.suffix == ".png")])

    for wnid in imagenet_classes():
        for number in range(TRAIN):
            put(f"imagenet/train/{wnid}/{wnid}_{number}.JPEG")
        put(f"imagenet/val/{wnid}/val_{wnid}.JPEG")
        put(f"stylized-imagenet/train/{wnid}/{wnid}_0.png")
        put(f"stylized-imagenet/val/{wnid}/val_{wnid}.png")
        put(f"deepaug_cae/val/{wnid}/val_{wnid}.JPEG")
    for subset in ("a", "r"):
        for wnid in imagenet_classes(subset):
            put(f"imagenet-{subset}/{wnid}/{wnid}.jpg")
        (root / f"imagenet-{subset}" / "README.txt").write_text("about")
    for shape in CATEGORIES_16:
        for number in range(PER_CATEGORY):
            put(f"edges/{shape}/{shape}{number}.png")
            put(f"filled-silhouettes/{shape}/{shape}{number}.png")
            put(f"sketch/dnn/session-1/{number:04}_ske_dnn_0_{shape}_00_n{number}.png")
        for texture in CATEGORIES_16:
            put(f"cue-conflict/{shape}/{shape}1-{texture}1.png")
    return root


def _encoded(rng: np.random.Generator, height: int, width: int, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()
