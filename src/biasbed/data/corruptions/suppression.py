"""Suppression of one cue in an image: of shape, texture or colour, so that a loss of accuracy is reliance on the cue.

Burgert, Stoll, Rota & Demir, ImageNet-trained CNNs are not biased towards texture: Revisiting feature reliance through
controlled suppression, NeurIPS 2025, section 3 and appendix. The protocol's strengths are meant for images of 224 x 224
pixels, as a network gets them, and do not follow the side: on the demo's 40, filters that did so removed no texture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple

import numpy as np

from biasbed.data.corruptions.corruption import (
    SIDE,
    Constants,
    Rng,
    Sides,
    import_opencv,
    integers,
    nothing,
    refuse_other_arrays,
    whole_levels,
)
from biasbed.data.corruptions.keyed_draws import key_generator

Cue = Literal["shape", "texture", "colour"]
GRIDS = (2, 4, 6, 8, 10, 12, 14, 16)  # cells per side
BILATERAL = ((4, 50), (6, 80), (8, 110), (10, 140), (12, 170), (14, 200))  # diameter in pixels, sigma of colour
SIGMA_SPACE = 75  # pixels
BLURS = ((3, 0.33), (5, 0.66), (7, 1.0), (9, 1.33), (11, 1.66), (13, 2.0), (15, 2.33))  # kernel and sigma in pixels
STRENGTHS_OF_MEANS = (5, 10, 15, 20, 25)  # h, in levels
TEMPLATE, SEARCH = 14, 21  # pixels
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of grey
_opencv = functools.partial(import_opencv, "a suppression")
TURNS = 4  # a cell is turned by 0, 90, 180 or 270 degrees


@dataclass(frozen=True)
class Suppression:
    """A way to remove cues, in one or more strengths.

    function: returns the image without the cue from (image uint8 [H,W,3], draws, constants) and changes none of them.
    draws: returns the random numbers from (generator, (height, width), constants).
    """

    name: str
    cues: tuple[Cue, ...]
    parameters: tuple[str, ...]  # names of a strength's constants
    strengths: tuple[Constants, ...]  # the protocol's, from weak to strong
    function: Callable[[np.ndarray, Any, Constants], np.ndarray]
    draws: Callable[[Rng, Sides, Constants], Any] = nothing

    def draw(self, rng: Rng, constants: Constants, shape: Sides = (SIDE, SIDE)) -> Any:
        """Draw the random numbers for one image of this height and width."""
        return self.draws(rng, shape, constants)

    def apply(self, image: np.ndarray, draws: Any, constants: Constants) -> np.ndarray:
        """Suppress the cue in an image uint8 [H,W,3]. Raises UsageError for another type, or without OpenCV."""
        refuse_other_arrays(image, self.name)
        return self.function(image, draws, constants)


def suppress(image: np.ndarray, suppression: Suppression, constants: Constants, seed: int, image_id: str) -> np.ndarray:
    """Suppress a cue in an image uint8 [H,W,3] with draws that follow from seed, image, suppression and constants."""
    shape = (image.shape[0], image.shape[1])
    draws = suppression.draw(key_generator(seed, image_id, suppression.name, constants), constants, shape)
    return suppression.apply(image, draws, constants)


# --- shape ------------------------------------------------------------------------------------------------------------


class CellShuffle(NamedTuple):
    """Division of an image into grid x grid cells, and a new order of the cells."""

    heights: np.ndarray  # of the rows of cells, in pixels [grid]
    widths: np.ndarray  # of the columns of cells, in pixels [grid]
    order: np.ndarray  # number of the cell that moves to each place, row by row [grid * grid]


def draw_cell_shuffle(rng: Rng, shape: Sides, constants: Constants) -> CellShuffle:
    """Draw a division of an image and a new order. constants: (grid,), the number of cells per side.

    Cells differ by one pixel in height or width if grid does not divide the side. Cells change places only with cells
    of their own size.
    """
    (grid,) = constants
    heights, widths = (rng.permutation(_split_side(side, grid)) for side in shape)
    sizes = np.stack(np.meshgrid(heights, widths, indexing="ij"), axis=-1).reshape(-1, 2)
    order = np.arange(grid * grid)
    for size in np.unique(sizes, axis=0):
        same_size = np.flatnonzero((sizes == size).all(axis=1))
        order[same_size] = rng.permutation(same_size)
    return CellShuffle(heights, widths, order)


def patch_shuffle(image: np.ndarray, shuffle: CellShuffle, constants: Constants) -> np.ndarray:
    """Cut the image into grid x grid cells and put them into another order: local shape stays, global shape goes."""
    rows = pairwise([0, *np.cumsum(shuffle.heights)])
    columns = list(pairwise([0, *np.cumsum(shuffle.widths)]))
    cells = [(slice(*row), slice(*column)) for row, column in product(rows, columns)]
    shuffled = np.empty_like(image)
    for target, source in zip(cells, shuffle.order, strict=True):
        shuffled[target] = image[cells[source]]
    return shuffled


def draw_turns(rng: Rng, shape: Sides, constants: Constants) -> np.ndarray:
    """Draw the number of quarter turns of each of grid x grid cells, row by row [grid * grid]."""
    (grid,) = constants
    return np.asarray(integers(rng, 0, TURNS, (grid * grid,)))


def patch_rotation(image: np.ndarray, turns: np.ndarray, constants: Constants) -> np.ndarray:
    """Turn each of grid x grid square cells in its place.

    An image that cannot be cut into such cells is resized (bilinear) to the next larger square that can, and back at
    the end.
    """
    (grid,) = constants
    height, width, _ = image.shape
    cell_side = -(-max(height, width) // grid)
    side = cell_side * grid
    has_cells = (height, width) == (side, side)
    square = image if has_cells else _opencv().resize(image, (side, side))
    turned = np.empty_like(square)
    for number, quarter_turns in enumerate(turns):
        top, left = (cell_side * index for index in divmod(number, grid))
        window = slice(top, top + cell_side), slice(left, left + cell_side)
        turned[window] = np.rot90(square[window], int(quarter_turns))
    return turned if has_cells else np.asarray(_opencv().resize(turned, (width, height)))


def _split_side(side: int, parts: int) -> np.ndarray:
    """Return sizes [parts] that differ by at most one pixel and sum to the side, as 3, 3, 2 for a side of 8."""
    sizes = np.full(parts, side // parts)
    sizes[: side % parts] += 1
    return sizes


# --- texture ----------------------------------------------------------------------------------------------------------


def bilateral_filter(image: np.ndarray, draws: None, constants: Constants) -> np.ndarray:
    """Average pixels with near ones of a like colour (OpenCV): textures become smooth, edges stay."""
    diameter, sigma_colour = constants
    return np.asarray(_opencv().bilateralFilter(image, diameter, sigma_colour, SIGMA_SPACE))


def gaussian_smoothing(image: np.ndarray, draws: None, constants: Constants) -> np.ndarray:
    """Blur by a Gaussian in a window of k x k pixels (OpenCV): texture and fine shape go."""
    kernel, sigma = constants
    return np.asarray(_opencv().GaussianBlur(image, (kernel, kernel), sigma))


def non_local_means(image: np.ndarray, draws: None, constants: Constants) -> np.ndarray:
    """Average pixels whose surroundings are alike, colours together (OpenCV's `fastNlMeansDenoising`)."""
    (strength,) = constants
    return np.asarray(_opencv().fastNlMeansDenoising(image, None, strength, TEMPLATE, SEARCH))


# --- colour -----------------------------------------------------------------------------------------------------------


def grey_blend(image: np.ndarray, draws: None, constants: Constants) -> np.ndarray:
    """Return (1 - alpha) image + alpha grey, cut to whole levels."""
    (share,) = constants
    grey = _opencv().cvtColor(image, _opencv().COLOR_RGB2GRAY)
    return whole_levels((1 - share) * image + share * grey[..., None])


def draw_channel_order(rng: Rng, shape: Sides, constants: Constants) -> np.ndarray:
    """Draw an order of the three channels, [3]; one of six is the usual one."""
    return np.asarray(rng.permutation(3))


def channel_shuffle(image: np.ndarray, order: np.ndarray, constants: Constants) -> np.ndarray:
    """Put the channels into another order."""
    return np.ascontiguousarray(image[..., order])


# --- two cues ---------------------------------------------------------------------------------------------------------


def grey_shuffle(image: np.ndarray, shuffle: CellShuffle, constants: Constants) -> np.ndarray:
    """Shuffle cells, then remove all colour."""
    return grey_blend(patch_shuffle(image, shuffle, constants), None, (1.0,))


def draw_smooth_shuffle(rng: Rng, shape: Sides, constants: Constants) -> CellShuffle:
    """Draw a shuffle of cells. constants: (diameter, sigma of colour, grid)."""
    return draw_cell_shuffle(rng, shape, constants[-1:])


def smooth_shuffle(image: np.ndarray, shuffle: CellShuffle, constants: Constants) -> np.ndarray:
    """Smooth by the bilateral filter, then shuffle cells."""
    diameter, sigma_colour, grid = constants
    return patch_shuffle(bilateral_filter(image, None, (diameter, sigma_colour)), shuffle, (grid,))


def smooth_grey(image: np.ndarray, draws: None, constants: Constants) -> np.ndarray:
    """Smooth by the bilateral filter, then remove all colour."""
    return grey_blend(bilateral_filter(image, None, constants), None, (1.0,))


_FILTER = ("diameter", "sigma_colour")
_BY_GRID = tuple((grid,) for grid in GRIDS)
PATCH_SHUFFLE = Suppression("patch_shuffle", ("shape",), ("grid",), _BY_GRID, patch_shuffle, draw_cell_shuffle)
PATCH_ROTATION = Suppression("patch_rotation", ("shape",), ("grid",), _BY_GRID, patch_rotation, draw_turns)
BILATERAL_FILTER = Suppression("bilateral_filter", ("texture",), _FILTER, BILATERAL, bilateral_filter)
GAUSSIAN_SMOOTHING = Suppression("gaussian_smoothing", ("texture",), ("kernel", "sigma"), BLURS, gaussian_smoothing)
NON_LOCAL_MEANS = Suppression(
    "non_local_means", ("texture",), ("strength",), tuple((h,) for h in STRENGTHS_OF_MEANS), non_local_means
)
GREY_BLEND = Suppression("grey_blend", ("colour",), ("share",), tuple((share,) for share in SHARES), grey_blend)
CHANNEL_SHUFFLE = Suppression("channel_shuffle", ("colour",), (), ((),), channel_shuffle, draw_channel_order)
GREY_SHUFFLE = Suppression("grey_shuffle", ("shape", "colour"), ("grid",), _BY_GRID, grey_shuffle, draw_cell_shuffle)
SMOOTH_SHUFFLE = Suppression(
    "smooth_shuffle",
    ("texture", "shape"),
    (*_FILTER, "grid"),
    (
        *((*BILATERAL[4], grid) for grid in GRIDS),
        *((*pair, grid) for pair, grid in zip(BILATERAL, GRIDS, strict=False) if pair != BILATERAL[4]),
    ),
    smooth_shuffle,
    draw_smooth_shuffle,
)
SMOOTH_GREY = Suppression("smooth_grey", ("texture", "colour"), _FILTER, BILATERAL, smooth_grey)

SUPPRESSIONS = {
    suppression.name: suppression
    for suppression in (
        *(PATCH_SHUFFLE, PATCH_ROTATION, BILATERAL_FILTER, GAUSSIAN_SMOOTHING, NON_LOCAL_MEANS),
        *(GREY_BLEND, CHANNEL_SHUFFLE, GREY_SHUFFLE, SMOOTH_SHUFFLE, SMOOTH_GREY),
    )
}
