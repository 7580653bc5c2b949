"""Defocus blur and snow's grey beside OpenCV, with which the released images were made.

OpenCV's own float32 results depend on the processor: with AVX2 it multiplies and adds in one rounding, and the
published images were made so. Without AVX2 there is nothing to compare with; the checksums of the kernels
hold everywhere.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from biasbed.data.corruptions import SEVERITIES
from biasbed.data.corruptions.blur import DEFOCUS, make_disk
from biasbed.data.corruptions.corruption import fused
from biasbed.data.corruptions.weather import grey_as_opencv

DISKS = {
    (3, 0.1): "37f5ff517a66ec62",
    (4, 0.5): "f7fbaa054dfbca95",
    (6, 0.5): "3fb167a4ff527772",
    (8, 0.5): "554fe4ea1d9c1392",
    (10, 0.5): "834e8492ac4d768b",
    (0.3, 0.4): "4d50dd2b503ca57e",
    (0.4, 0.5): "fe36478a15aa0c35",
    (0.5, 0.6): "4813eaf6e685caa3",
    (1, 0.2): "a21071e2f1f8c63c",
    (1.5, 0.1): "dccc56a51228b6de",
}
SIZES = ((224, 224), (32, 32), (33, 47), (224, 256), (9, 300), (5, 3), (131, 64))


@pytest.fixture(scope="module")
def opencv() -> Any:
    module = pytest.importorskip("cv2", reason="OpenCV is an extra")
    # "*AVX2": there is code for it; "*AVX2?": the processor, or OPENCV_CPU_DISABLE, does not have it
    if "*AVX2" not in module.getCPUFeaturesLine().split():
        pytest.skip("OpenCV rounds otherwise on a processor without AVX2")
    return module


def opencv_disk(opencv: Any, radius: float, sigma: float) -> np.ndarray:
    """Return the kernel as the authors' code makes it: a disk in float32, and OpenCV's Gaussian blur of it."""
    reach, side = (8, 3) if radius <= 8 else (int(radius), 5)
    x, y = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1))
    inside = np.array(x**2 + y**2 <= radius**2, dtype=np.float32)
    inside /= np.sum(inside)
    return np.asarray(opencv.GaussianBlur(inside, ksize=(side, side), sigmaX=sigma))


def picture(rng: np.random.Generator, height: int, width: int, block: int) -> np.ndarray:
    """Return noise in squares of `block` pixels: flat areas are where a kernel's sum decides the level."""
    rows, columns = -(-height // block), -(-width // block)
    squares = rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    return np.repeat(np.repeat(squares, block, 0), block, 1)[:height, :width]


def test_fused_rounds_once() -> None:
    """In two roundings the product's last part is lost, and nothing is left after the subtraction."""
    step = np.float32(1 + 2.0**-12)
    square = np.float32(step * step)
    left = fused(np.array([step]), step, np.array([-square]))
    assert left.dtype == np.float32
    assert left[0] == 2.0**-24
    assert np.float32(step * step) - square == 0


@pytest.mark.parametrize(("radius", "sigma"), DISKS)
def test_kernels_are_frozen(radius: float, sigma: float) -> None:
    """On every machine, with OpenCV or without."""
    kernel = make_disk(radius, sigma)
    assert kernel.dtype == np.float32
    assert hashlib.sha256(kernel.tobytes()).hexdigest()[:16] == DISKS[radius, sigma]


def test_the_frozen_kernels_are_those_of_all_severities() -> None:
    assert set(DISKS) == {*DEFOCUS.parameters, *DEFOCUS.at_32}


@pytest.mark.parametrize(("radius", "sigma"), DISKS)
def test_kernels_are_those_of_opencv(radius: float, sigma: float, opencv: Any) -> None:
    assert np.array_equal(make_disk(radius, sigma), opencv_disk(opencv, radius, sigma))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_is_that_of_opencv_at_every_size(severity: int, opencv: Any) -> None:
    rng = np.random.default_rng(severity)
    for height, width in SIZES:
        parameters = DEFOCUS.at_32 if (height, width) == (32, 32) else DEFOCUS.parameters
        kernel = opencv_disk(opencv, *parameters[severity - 1])
        for block in (1, 25, 60):
            image = picture(rng, height, width, block)
            planes = [opencv.filter2D(image[..., channel] / 255.0, -1, kernel) for channel in range(3)]
            expected = (np.clip(np.stack(planes, axis=2), 0, 1) * 255).astype(np.uint8)
            assert np.array_equal(DEFOCUS.apply(image, None, severity), expected), (height, width, block)


@pytest.mark.parametrize("side", [224, 32])
def test_snow_greys_as_opencv_does(side: int, opencv: Any) -> None:
    """All colours that differ from grey by rounding alone would show: 50,176 colours, in the sizes that snow has."""
    rng = np.random.default_rng(side)
    image = picture(rng, side, side, 1).astype(np.float32) / np.float32(255)
    assert np.array_equal(grey_as_opencv(image), opencv.cvtColor(image, opencv.COLOR_RGB2GRAY))
