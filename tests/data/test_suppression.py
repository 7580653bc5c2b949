"""Suppressions of a cue: what is removed, what stays, and that draws follow from the image alone.

The pixels were also compared with albumentations 2.0.8 and OpenCV 5.0, on 41 photographs in three sizes: all equal.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is an extra")

from biasbed.data.corruptions.suppression import (
    BILATERAL_FILTER,
    CHANNEL_SHUFFLE,
    GAUSSIAN_SMOOTHING,
    GREY_BLEND,
    NON_LOCAL_MEANS,
    PATCH_ROTATION,
    PATCH_SHUFFLE,
    SMOOTH_SHUFFLE,
    SUPPRESSIONS,
    CellShuffle,
    Suppression,
    suppress,
)
from biasbed.errors import UsageError

EVERY = pytest.mark.parametrize("suppression", SUPPRESSIONS.values(), ids=SUPPRESSIONS)


def noise(height: int = 96, width: int = 96, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@EVERY
def test_the_same_image_is_suppressed_alike_and_stays_as_it_was(suppression: Suppression) -> None:
    image = noise()
    for constants in suppression.strengths:
        results = [suppress(image, suppression, constants, 0, name) for name in ("a.png", "a.png", "b.png")]
        assert np.array_equal(image, noise())
        assert all((result.dtype, result.shape) == (np.uint8, image.shape) for result in results)
        assert np.array_equal(results[0], results[1])
    if suppression.name in ("patch_shuffle", "patch_rotation", "grey_shuffle", "smooth_shuffle"):
        assert not np.array_equal(results[0], results[2])


@EVERY
def test_an_image_of_one_grey_has_no_cue_to_lose(suppression: Suppression) -> None:
    grey = np.full((60, 60, 3), 77, np.uint8)
    for constants in suppression.strengths:
        assert np.abs(suppress(grey, suppression, constants, 0, "").astype(int) - 77).max() <= 1  # which is cut off


@pytest.mark.parametrize("shape", [(96, 96), (97, 90)])
@pytest.mark.parametrize("grid", [1, 2, 6, 16])
def test_shuffled_cells_are_those_of_the_image_each_once(shape: tuple[int, int], grid: int) -> None:
    """Cells of one size change places, whatever the sizes are."""
    image, (heights, widths, order) = noise(*shape), PATCH_SHUFFLE.draw(np.random.default_rng(1), (grid,), shape)
    assert (heights.sum(), widths.sum()) == shape
    assert np.ptp(heights) <= 1
    assert np.ptp(widths) <= 1
    assert sorted(order) == list(range(grid * grid))
    shuffled = PATCH_SHUFFLE.apply(image, CellShuffle(heights, widths, order), (grid,))
    tops, lefts = np.cumsum(heights) - heights, np.cumsum(widths) - widths
    for place, source in enumerate(order):
        (row, column), (source_row, source_column) = divmod(place, grid), divmod(int(source), grid)
        height, width = heights[row], widths[column]
        assert (height, width) == (heights[source_row], widths[source_column])
        cell = shuffled[tops[row] :][:height, lefts[column] :][:, :width]
        assert np.array_equal(cell, image[tops[source_row] :][:height, lefts[source_column] :][:, :width])


def test_every_order_of_four_cells_is_drawn_alike_often() -> None:
    rng = np.random.default_rng(0)
    orders = [tuple(PATCH_SHUFFLE.draw(rng, (2,), (8, 8))[2]) for _ in range(4800)]
    counts = [orders.count(order) for order in itertools.permutations(range(4))]
    assert abs(np.array(counts) - 200).max() < 60  # over four standard deviations of 14


def test_cells_turned_back_are_the_image() -> None:
    image = noise()
    for grid in (2, 6, 16):
        turns = PATCH_ROTATION.draw(np.random.default_rng(0), (grid,), (96, 96))
        assert set(turns) <= {0, 1, 2, 3}
        turned = PATCH_ROTATION.apply(image, turns, (grid,))
        assert not np.array_equal(turned, image)
        assert np.array_equal(PATCH_ROTATION.apply(turned, -turns % 4, (grid,)), image)


def test_cells_of_an_image_that_the_grid_does_not_divide_are_turned_in_a_larger_one() -> None:
    """So a smooth image hardly changes where no cell is turned, and keeps its size."""
    ramp = np.repeat(np.linspace(0, 255, 90, dtype=np.uint8)[None, :, None], 3, axis=2).repeat(50, axis=0)
    still = PATCH_ROTATION.apply(ramp, np.zeros(49, int), (7,))
    assert still.shape == ramp.shape
    assert np.abs(still.astype(int) - ramp).max() <= 4


def test_grey_is_the_luminance_of_the_three_channels() -> None:
    image = noise()
    grey = GREY_BLEND.apply(image, None, (1.0,)).astype(float)
    assert np.ptp(grey, axis=2).max() == 0
    assert np.abs(grey[..., 0] - image @ [0.299, 0.587, 0.114]).max() <= 1  # ITU-R BT.601
    half = GREY_BLEND.apply(image, None, (0.6,))
    assert np.array_equal(half, np.floor(0.4 * image + 0.6 * grey).astype(np.uint8))


def test_shuffled_channels_are_the_image_s_own() -> None:
    image = noise()
    orders = {tuple(CHANNEL_SHUFFLE.draw(np.random.default_rng(seed), (), (96, 96))) for seed in range(60)}
    assert orders == set(itertools.permutations(range(3)))
    assert np.array_equal(
        CHANNEL_SHUFFLE.apply(image, np.array([2, 0, 1]), ()), np.stack([image[..., c] for c in (2, 0, 1)], 2)
    )


def test_a_point_becomes_the_gaussian() -> None:
    """By the formula, in pixels, whatever the side."""
    away = np.arange(-4, 5)
    weights = np.exp(-(away**2) / (2 * 1.33**2))
    weights /= weights.sum()
    for side in (224, 40):
        image = np.zeros((side, side, 3), np.uint8)
        image[side // 2, side // 2] = 255
        blurred = GAUSSIAN_SMOOTHING.apply(image, None, (9, 1.33))[..., 0].astype(float)
        middle = slice(side // 2 - 4, side // 2 + 5)
        assert np.abs(blurred[middle, middle] - 255 * np.outer(weights, weights)).max() <= 1.5
        assert blurred.sum() == blurred[middle, middle].sum()


def test_the_bilateral_filter_is_its_formula() -> None:
    """Tomasi & Manduchi 1998, as OpenCV has it: a disc of the diameter, distances of colours summed over channels."""
    diameter, sigma_colour, sigma_space = 12, 170, 75
    image, radius = noise(40, 40), diameter // 2
    padded = np.pad(image, ((radius, radius), (radius, radius), (0, 0)), mode="reflect").astype(float)
    total, weights = np.zeros(image.shape), np.zeros((40, 40, 1))
    for down, right in itertools.product(range(-radius, radius + 1), repeat=2):
        if down**2 + right**2 > radius**2:
            continue
        moved = padded[radius + down :, radius + right :][:40, :40]
        colours = np.abs(moved - image).sum(axis=2, keepdims=True)
        weight = np.exp(-(down**2 + right**2) / (2 * sigma_space**2) - colours**2 / (2 * sigma_colour**2))
        total += weight * moved
        weights += weight
    filtered = BILATERAL_FILTER.apply(image, None, (diameter, sigma_colour))
    assert np.abs(filtered - total / weights).max() <= 1


@pytest.mark.parametrize(("suppression", "constants"), [(BILATERAL_FILTER, (12, 80)), (NON_LOCAL_MEANS, (25,))])
def test_texture_is_smoothed_and_an_edge_stays(suppression: Suppression, constants: tuple[float, ...]) -> None:
    weak = np.random.default_rng(0).normal(0, 8, (224, 224, 3))
    image = np.clip(np.where(np.arange(224) < 112, 40, 215)[None, :, None] + weak, 0, 255).astype(np.uint8)
    smooth = suppression.apply(image, None, constants).astype(float)
    inside = np.r_[10:100, 124:214]
    assert smooth[:, 10:100].std() < 0.4 * image[:, 10:100].std()
    assert np.abs(smooth[:, inside].mean(axis=(0, 2)) - np.where(inside < 112, 40, 215)).max() < 3
    step = smooth[:, 112].mean() - smooth[:, 111].mean()
    assert step > 160


def test_strengths_of_the_protocol_are_those_of_the_paper() -> None:
    """Appendix of Burgert et al.: eight grids, six filters, seven blurs, five strengths and five shares."""
    assert {name: len(suppression.strengths) for name, suppression in SUPPRESSIONS.items()} == {
        **{"patch_shuffle": 8, "patch_rotation": 8, "bilateral_filter": 6, "gaussian_smoothing": 7},
        **{"non_local_means": 5, "grey_blend": 5, "channel_shuffle": 1},
        **{"grey_shuffle": 8, "smooth_shuffle": 8 + 5, "smooth_grey": 6},
    }
    assert len(set(SMOOTH_SHUFFLE.strengths)) == 13
    assert all(len(strength) == len(s.parameters) for s in SUPPRESSIONS.values() for strength in s.strengths)


@EVERY
def test_other_images_are_refused(suppression: Suppression) -> None:
    for image in (np.zeros((8, 8, 3)), np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8)):
        with pytest.raises(UsageError, match=rf"^{suppression.name} takes images uint8 \[H,W,3\], not "):
            suppression.apply(image, None, suppression.strengths[0])
