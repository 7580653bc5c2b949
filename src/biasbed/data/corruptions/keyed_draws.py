"""Random generators of corruptions, which follow from what is corrupted and not from when or where.

Answers: Why has a corrupted image the same random draws in every process and on every machine?
"""

from __future__ import annotations

import hashlib

import numpy as np

from biasbed.data.corruptions.corruption import Constants


def key_generator(seed: int, image_id: str, corruption: str, severity: int | Constants) -> np.random.Generator:
    """Make a counter-based generator from a key: draws depend on no other image, corruption, worker or rank.

    severity: or the constants of a suppression (`suppression.py`), which has no severities.
    """
    content = repr((seed, image_id, corruption, severity)).encode()
    number = int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=number))
