"""Spatter: the only corruption that needs OpenCV, an optional dependency."""

from __future__ import annotations

from typing import Any

import numpy as np

from biasbed.data.corruptions.blur import smooth_by_gaussian
from biasbed.data.corruptions.corruption import (
    Constants,
    Corruption,
    Rng,
    Sides,
    import_opencv,
    levels,
    unit,
    whole_levels,
)

WATER = np.array([175, 238, 238]) / 255
MUD = np.array([63, 42, 20]) / 255
EMBOSS = np.array([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])


def draw_drops(rng: Rng, shape: Sides, parameters: Constants) -> np.ndarray:
    """Draw the drops [H,W]."""
    mean, scale, *_ = parameters
    return rng.normal(mean, scale, shape)


def spatter(image: np.ndarray, drops: np.ndarray, parameters: Constants) -> np.ndarray:
    """Add drops of water that shine at their edges, or drops of mud that cover the image."""
    _, _, sigma, threshold, gain, is_mud = parameters
    opencv = import_opencv("spatter")
    liquid = smooth_by_gaussian(drops, sigma)
    liquid[liquid < threshold] = 0
    x = unit(image, np.float32)
    if is_mud:
        hidden = smooth_by_gaussian((liquid > threshold).astype(np.float32), gain)
        hidden[hidden < np.float32(0.8)] = 0
        hidden = hidden[..., None]
        return levels(x * (1 - hidden) + hidden * MUD.astype(np.float32))
    shine = _water(opencv, liquid)
    shine = shine / shine.max() * np.float32(gain) if shine.any() else shine
    return levels(x + shine[..., None] * WATER.astype(np.float32))


def _water(opencv: Any, liquid: np.ndarray) -> np.ndarray:
    """Return the unscaled shine [H,W] float32 of the water, largest near the edges of the drops."""
    drops = levels(liquid)
    inside = 255 - opencv.Canny(drops, 50, 150)
    near = np.minimum(opencv.distanceTransform(inside, opencv.DIST_L2, 5), 20)
    near = opencv.equalizeHist(whole_levels(opencv.blur(near, (3, 3))))
    embossed = opencv.filter2D(near, opencv.CV_8U, EMBOSS)
    return drops * opencv.blur(embossed, (3, 3)).astype(np.float32)


SPATTER = Corruption(
    "spatter",
    "weather",
    (
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    (
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    spatter,
    draw_drops,
)
