"""Decisions on cue conflicts, of an observer who decides for the shape so often."""

from __future__ import annotations

import numpy as np

from biasbed.evaluation.decisions import Decisions
from biasbed.published import observers

NAMES = tuple(sorted(observers.categories()))


def decided(observer: str, shape: float, classes: tuple[str, ...] = NAMES, each: int = 10) -> Decisions:
    """So large a share of decisions for the shape in every category, all others for the texture."""
    labels = np.repeat(classes, each)
    textures = np.roll(labels, each)
    is_shape = np.tile(np.arange(each) < round(shape * each), len(classes))
    images = np.array([f"{number}.png" for number in range(len(labels))])
    return Decisions(observer, "conflict", images, labels, np.where(is_shape, labels, textures), classes, bias=textures)
