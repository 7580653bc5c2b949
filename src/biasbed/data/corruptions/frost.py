"""Photographs of frost: five files of other authors, which biasbed does not contain."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed.errors import UsageError, os_reason

# name, sha256, (height, width). The release has a sixth file, which the reference never draws.
FILES = (
    ("frost1.png", "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755", (600, 900)),
    ("frost2.png", "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137", (315, 560)),
    ("frost3.png", "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504", (315, 560)),
    ("frost4.jpg", "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e", (350, 527)),
    ("frost5.jpg", "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2", (495, 660)),
)
SHAPES = tuple(shape for _, _, shape in FILES)
SOURCE = "the public repository hendrycks/robustness on GitHub, below ImageNet-C"


def photographs(folder: Path) -> tuple[np.ndarray, ...]:
    """Read the five photographs, uint8 [H,W,3]. Raises UsageError if one is missing or is not the published file."""
    return tuple(_photograph(folder / name, digest) for name, digest, _ in FILES)


def _photograph(path: Path, digest: str) -> np.ndarray:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"frost: {os_reason(error)}; the five photographs of frost are in {SOURCE}") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise UsageError(f"frost: {path} is not the published photograph (another sha256); get it from {SOURCE}")
    with Image.open(path) as photograph:
        return np.asarray(photograph.convert("RGB"))
