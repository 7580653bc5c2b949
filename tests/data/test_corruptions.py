"""The corruptions on pictures that a formula makes: what they give, what they depend on, what they refuse.

`corruptions.json` beside this file holds, of every corruption and severity at 224 and at 32 pixels, means and some
pixels, and a checksum where nothing but single operations that round alike on every processor lies between draws and
pixels. `pytest --renew` writes it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed.data import corruptions
from biasbed.data.corruptions import BENCHMARK, CORRUPTIONS, EXTRAS, SEVERITIES, corrupt, find, frost, weather
from biasbed.data.corruptions.blur import shuffle_pixels
from biasbed.data.corruptions.corruption import Corruption
from biasbed.data.corruptions.digital import ElasticDraws
from biasbed.data.corruptions.keyed_draws import key_generator
from biasbed.data.corruptions.noise import GAUSSIAN
from biasbed.data.corruptions.released import crop_clean
from biasbed.data.source import Decoded
from biasbed.errors import UsageError

FILE = Path(__file__).with_name("corruptions.json")
NAMES = (*BENCHMARK, *EXTRAS)
ALIKE = (
    *("gaussian_noise", "impulse_noise", "speckle_noise", "frost"),
    *("brightness", "contrast", "pixelate", "saturate"),
)
SIDES = ((224, ""), (32, "-32"))
GRIDS = {224: slice(20, 224, 61), 32: slice(2, 32, 9)}


def formula(height: int, width: int, number: int = 0) -> np.ndarray:
    """uint8 [H,W,3] with fine and coarse structure, and corners of black, grey and white; integers only."""
    y, x = np.mgrid[:height, :width].astype(np.int64)
    red = (x * x * 7 + y * y * 13 + x * y * (5 + number)) // 64 % 256
    green = (x * 3 + y * y // 9) % 200 + (x * y) % 41
    blue = np.abs((x * (11 + number) - y * 5) // 4 % 511 - 255)
    made = np.stack([red, green, blue], axis=2).astype(np.uint8)
    for at, level in enumerate((0, 127, 255)):
        made[:12, 12 * at : 12 * at + 12] = level
    return made


@functools.cache
def picture(side: int = 224) -> np.ndarray:
    made = formula(side, side)
    made.flags.writeable = False  # no corruption may write into what it is given
    return made


@functools.cache
def of(name: str) -> Corruption:
    if name == "spatter":
        pytest.importorskip("cv2", reason="OpenCV is an extra")
    if name == "frost":
        return weather.make_frost([formula(*shape, number) for number, shape in enumerate(frost.SHAPES)])
    return find(name)


def summary(name: str, severity: int, side: int) -> dict[str, Any]:
    image = corrupt(picture(side), of(name), severity, 3, "n01440764/one")
    found: dict[str, Any] = {
        "mean": image.mean(axis=(0, 1)).round(3).tolist(),
        "pixels": image[GRIDS[side], GRIDS[side]].reshape(-1).tolist(),
    }
    return found | ({"sha256": hashlib.sha256(np.ascontiguousarray(image)).hexdigest()} if name in ALIKE else {})


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_golden(name: str, renew: bool) -> None:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    ours = {f"{name}-{severity}{end}": summary(name, severity, side) for severity in SEVERITIES for side, end in SIDES}
    if renew:
        kept |= ours
        FILE.write_text("{\n" + ",\n".join(f'"{key}": {json.dumps(kept[key])}' for key in sorted(kept)) + "\n}\n")
    for key, found in ours.items():
        expected = kept[key]
        np.testing.assert_allclose(found["mean"], expected["mean"], atol=0.05, err_msg=key)
        off = np.abs(np.subtract(found["pixels"], expected["pixels"]))
        assert (off > (3 if name == "jpeg_compression" else 1)).sum() <= 1, key
        assert found.get("sha256") == expected.get("sha256"), key


def test_all_of_the_benchmark_and_the_extra_four_are_there() -> None:
    assert (len(BENCHMARK), len(EXTRAS)) == (15, 4)
    assert tuple(CORRUPTIONS)[:19] == (*BENCHMARK, *EXTRAS)  # further ones come last
    assert {(len(own.parameters), len(own.at_32)) for own in CORRUPTIONS.values()} == {(5, 5)}
    counts = [sum(CORRUPTIONS[name].group == group for name in BENCHMARK) for group in corruptions.GROUPS]
    assert dict(zip(corruptions.GROUPS, counts, strict=True)) == {"noise": 3, "blur": 4, "weather": 4, "digital": 4}
    assert sum(CORRUPTIONS[name].is_random for name in BENCHMARK) == 9


# --- what an image depends on -----------------------------------------------------------------------------------------


def test_draws_follow_from_the_key_alone() -> None:
    """In whatever order, and after whatever others."""
    names = [name for name in NAMES if CORRUPTIONS[name].is_random and name != "spatter"]
    before = {name: corrupt(picture(), of(name), 1, 0, "x") for name in names}
    for name in reversed(names):
        np.random.seed(1)
        assert np.array_equal(corrupt(picture(), of(name), 1, 0, "x"), before[name]), name


@pytest.mark.parametrize("other", [(1, "x", "snow", 1), (0, "y", "snow", 1), (0, "x", "fog", 1), (0, "x", "snow", 2)])
def test_every_part_of_the_key_counts(other: tuple[int, str, str, int]) -> None:
    first, second = key_generator(0, "x", "snow", 1).random(8), key_generator(*other).random(8)
    assert np.abs(first - second).min() > 1e-6


@pytest.mark.parametrize("reach", [1, 3, 4])
def test_shuffling_at_a_stroke_is_overwriting_one_by_one(reach: int) -> None:
    height, width = 19, 26
    count = (height - 2 * reach) * (width - 2 * reach)
    offsets = np.random.default_rng(reach).integers(-reach, reach, (count, 2))
    expected, drawn = np.arange(height * width).reshape(height, width), iter(offsets.tolist())
    for row in range(height - reach, reach, -1):
        for column in range(width - reach, reach, -1):
            x, y = next(drawn)
            expected[row, column] = expected[row + y, column + x]
    assert np.array_equal(shuffle_pixels((height, width), reach, offsets).reshape(height, width), expected)


@pytest.mark.parametrize("shape", [(256, 256), (300, 700), (900, 257)])
def test_the_clean_image_is_cut_from_the_middle(shape: tuple[int, int]) -> None:
    """A picture whose levels grow with the place, so that the crop's mean says where it is."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    ramp = np.stack([255 * y / (shape[0] - 1), 255 * x / (shape[1] - 1), 0 * x]).round().astype(np.uint8)
    image = crop_clean(Decoded(torch.from_numpy(ramp)))
    assert image.shape == (224, 224, 3)
    np.testing.assert_allclose(image.mean(axis=(0, 1))[:2], 127.5, atol=0.7)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["glass_blur", "snow", "frost", "fog", "pixelate"])
def test_another_size_is_refused_where_a_corruption_has_one(name: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"defined for images of 224 x 224 and 32 x 32 pixels, not of 300 x 256: put Resize and CenterCrop",
    ):
        corrupt(formula(256, 300), of(name), 1, 0, "x")


def test_photographs_of_frost_are_the_published_ones(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(
            UsageError, match=r"frost1.png; the five photographs of frost are in .*hendrycks/robustness"
        ):
            find("frost", folder)
    (tmp_path / "frost1.png").write_bytes(b"others")
    with pytest.raises(UsageError, match=r"frost1.png is not the published .*hendrycks/robustness") as caught:
        find("frost", tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="frost needs its five photographs"):
        corrupt(picture(), find("frost"), 1, 0, "x")


def test_without_opencv_spatter_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UsageError, match=r"spatter needs OpenCV: pip install opencv"):
        corrupt(picture(), find("spatter"), 1, 0, "x")
    assert corrupt(picture(), find("saturate"), 1, 0, "x").any()


# --- images of 32 pixels ----------------------------------------------------------------------------------------------


@functools.cache
def smooth() -> np.ndarray:
    """uint8 [32,32,3] of middle levels, with waves of some pixels: as photographs are."""
    y, x = np.mgrid[:32, :32]
    waves = np.stack([np.sin(x / 3) + np.cos(y / 4), np.sin((x + y) / 5), np.cos((x - y) / 2.5)], axis=2)
    return (120 + 30 * waves).astype(np.uint8)


def test_constants_of_32_pixels_are_for_images_of_32_x_32_alone() -> None:
    """So an image of 32 x 48 has the usual ones."""
    wide = np.concatenate([smooth(), smooth()[:, :16]], axis=1)
    square, other = (GAUSSIAN.apply(own, np.ones(own.shape), 1).astype(int) - own for own in (smooth(), wide))
    assert {int(square.min()), int(square.max())} <= {9, 10, 11}  # 0.04 of 255
    assert {int(other.min()), int(other.max())} <= {19, 20, 21}  # 0.08


def test_frost_of_32_pixels_is_cut_from_photographs_of_a_fifth_of_their_size() -> None:
    opencv = pytest.importorskip("cv2", reason="OpenCV is an extra")
    photographs = [formula(*shape, number) for number, shape in enumerate(frost.SHAPES)]
    black = np.zeros((32, 32, 3), np.uint8)
    for seed in range(30):
        which, row, column = draws = CORRUPTIONS["frost"].draw(np.random.default_rng(seed), 5, (32, 32))
        small = opencv.resize(photographs[which], (0, 0), fx=0.2, fy=0.2)
        part = small[row : row + 32, column : column + 32]
        assert part.shape == (32, 32, 3)
        assert np.array_equal(of("frost").apply(black, draws, 5), (0.45 * part).astype(np.uint8))


def test_the_mildest_elastic_transform_of_32_pixels_is_an_affine_map() -> None:
    elastic = CORRUPTIONS["elastic_transform"]
    corners, *fields = elastic.draw(np.random.default_rng(0), 1, (32, 32))
    still = elastic.apply(smooth(), ElasticDraws(0 * corners, *fields), 1)
    assert np.abs(still.astype(int) - smooth()).max() <= 1
    other = elastic.apply(smooth(), ElasticDraws(corners, *(-field for field in fields)), 1)
    assert np.array_equal(elastic.apply(smooth(), ElasticDraws(corners, *fields), 1), other)
