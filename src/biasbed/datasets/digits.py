"""Images of the suite `demo`: handwritten digits (shape) filled with procedural textures.

Shapes are the digits bundled with scikit-learn (8x8 bitmaps of the UCI set "Optical Recognition of Handwritten Digits",
no download), enlarged to smooth figures at a random place and size. Of each class the seed draws 110 bitmaps for
training, 28 for validation and 36 for testing: no handwritten digit is in two parts, and an image's id holds the number
of its bitmap. The six evaluation sets share the test bitmaps, as BiasBed's share their objects.

Textures are families of patterns that differ in local statistics; phase, angle, scale, polarity and tones are random.
Colours follow one law for every class, and patterns have mean 0 and deviation 1 before they are coloured. In a share
`FAINT` of the training distribution the texture is so weak that little but the shape is left (the light is not always
good): a network that learns this prefers the texture if it sees one, and still knows something about shapes.

| split | bitmaps | figures |
|---|---|---|
| `train`, `val`, `in_domain` | train, val, test | each class with its own texture family: both cues tell the class |
| `silhouette` | test | filled black on white |
| `edge` | test | outlines, black on white |
| `sketch` | test | shaky pencil strokes along the centre lines |
| `cue_conflict` | test | shape of class `y`, strong texture of class `bias`: four images of each of the 90 pairs |
| `stylized` | test | strong textures of `UNSEEN` families, which are in no training split; each class has each family |
| `stylized_train` | train | `train` with random-field textures that tell nothing about the class |
| `texture_train` | none | blotches, not digits, with the textures of `train`; `y` is the texture's class |

No texture is faint in an evaluation set other than `in_domain`. `stylized_train` draws on a third pool, a continuum of
random spectra (some look like grains or stripes), so a network trained on it knows neither the families of
`cue_conflict` nor those of `stylized`. Images must not be mirrored: leaning stripes would become another class's.

The sets and the measure follow Geirhos et al. (2019); the pictures are ours. All is computed in float64 from generators
keyed by (split, seed) and rounded to bytes at the end: a seed means the same bytes in any process.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from biasbed.data.source import MemorySource
from biasbed.datasets import textures
from biasbed.datasets.textures import FAMILIES, UNSEEN, Family, Floats, Integers
from biasbed.settings import refuse_unknown

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PARTS: Mapping[str, int] = {"train": 110, "val": 28, "test": 36}  # bitmaps per class; the rarest class has 174
IMAGE_SIZE = 40
COPIES = 2  # images of each bitmap in training and validation
# Both were calibrated with plain training: a larger FAINT raises its shape bias, a larger SWING lowers it.
FAINT = 0.18  # share of figures whose texture has a contrast below 0.3
SWING = 0.36  # standard deviation of a texture at contrast 1; the range from black to white is 1
LEVEL = 0.42  # ink level of a figure's contour

Bytes = NDArray[np.uint8]

# --- figures ----------------------------------------------------------------------------------------------------------


@functools.cache
def _bitmaps() -> tuple[Floats, Integers]:
    """Return the bundled digits [1797,8,8] with ink in [0, 1], and their classes [1797]."""
    rows = _read_rows()
    return rows[:, :-1].reshape(-1, 8, 8) / 16, rows[:, -1].astype(np.int64)


def _read_rows() -> Floats:
    """Read pixels and class of each digit from scikit-learn's file: importing its data sets takes a second."""
    package = importlib.util.find_spec("sklearn")
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits  # another version keeps it elsewhere

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])


def draw_bitmaps(part: str, seed: int) -> Integers:
    """Draw the numbers of the bitmaps in one part [10, per class], a row per class."""
    _, target = _bitmaps()
    rng = generator("parts", seed)
    orders = [rng.permutation(np.flatnonzero(target == label)) for label in range(len(CLASSES))]
    start = 0
    for name, count in PARTS.items():
        if name == part:
            return np.stack([order[start : start + count] for order in orders])
        start += count
    raise KeyError(part)


def _heights(rng: Generator, numbers: Integers, size: int, blur: float = 0.55) -> Floats:
    """Render bitmaps as smooth hills [n,size,size]: each pixel becomes a Gaussian of deviation `blur` pixels.

    A bitmap's pixel is 9 to 11 % of the image's side, drawn per axis; its centre is at most 5 % off the image's.
    """
    weights: list[Floats] = []
    for _axis in range(2):
        cell = size * rng.uniform(0.092, 0.108, (len(numbers), 1))
        centre = size * rng.uniform(0.45, 0.55, (len(numbers), 1))
        position = (np.arange(size) + 0.5 - centre) / cell + 3.5
        weights.append(
            np.exp(-((position[:, :, None] - np.arange(8)) ** 2) / (2 * blur**2)) / (blur * np.sqrt(2 * np.pi))
        )
    hills: Floats = weights[0] @ _bitmaps()[0][numbers] @ weights[1].transpose(0, 2, 1)
    return hills


def _distance_inside(height: Floats, level: float) -> Floats:
    """Approximate each pixel's distance in pixels from the contour at `level`, positive inside, to first order."""
    dy, dx = np.gradient(height, axis=(1, 2))
    slope: Floats = np.maximum(np.hypot(dy, dx), 1e-3)
    return (height - level) / slope


def _fill(height: Floats, level: float = LEVEL) -> Floats:
    """Return the area inside the contour at `level` as a mask [n,size,size] in [0, 1] with smooth edges."""
    return np.clip(_distance_inside(height, level) + 0.5, 0, 1)


def _draw_ridges(height: Floats) -> Floats:
    """Draw ink [n,size,size] in [0, 1] along the ridges of the hills, where strokes have their centre (Steger 1998)."""
    size = height.shape[1]
    dy, dx = np.gradient(height, axis=(1, 2))
    dyy, dyx = np.gradient(dy, axis=(1, 2))
    dxx = np.gradient(dx, axis=2)
    bend = (dxx + dyy) / 2 - np.hypot((dxx - dyy) / 2, dyx)  # second derivative across the ridge
    across = 0.5 * np.arctan2(2 * dyx, dxx - dyy) + np.pi / 2
    offset: Floats = (dx * np.cos(across) + dy * np.sin(across)) / np.minimum(bend, -1e-6)  # pixels to the crest
    ink: Floats = np.clip(0.04 * size + 0.5 - np.abs(offset), 0, 1) * np.clip(-bend * size**2 / 45, 0, 1)
    return np.clip((height - 0.3) / 0.1, 0, 1) * ink


def _sketch(rng: Generator, ink: Floats) -> Floats:
    """Redraw ink with an unsteady hand: wobbling lines, varying pressure, paper grain."""
    n, size, _ = ink.shape
    drift = size / 60 * textures.field(rng, 2 * n, size, 1 / 16).reshape(2, n, size, size)
    position = np.indices(ink.shape, dtype=np.float64)
    position[1:] += drift
    pressure = np.clip(0.85 + 0.2 * textures.field(rng, n, size, 1 / 16), 0.4, 1)
    drawn: Floats = ndimage.map_coordinates(ink, position, order=1) * pressure * rng.uniform(0.6, 1, ink.shape)
    return drawn


# --- pictures ---------------------------------------------------------------------------------------------------------


def _draw_tints(rng: Generator, n: int, strength: float) -> Floats:
    """Draw random colours [n,3,1,1] of zero luminance and of norm at most `strength`."""
    luma = np.array((0.299, 0.587, 0.114))  # ITU-R BT.601
    tint = rng.standard_normal((n, 3))
    tint -= (tint @ luma)[:, None]
    tint *= (rng.uniform(0, strength, n) / np.linalg.norm(tint, axis=1))[:, None]
    return tint[:, :, None, None]


def _render(rng: Generator, mask: Floats, pattern: Floats, faint: float) -> Bytes:
    """Render textured figures on plain grounds, uint8 [n,3,size,size], from masks and patterns [n,size,size].

    The luminances of ground and figure differ by at least 0.2; that of a figure with a strong texture leaves room for
    it.
    """
    n = len(mask)
    weak = rng.uniform(size=(n, 1, 1, 1)) < faint
    contrast = np.where(weak, rng.uniform(0, 0.3, weak.shape), rng.uniform(0.6, 1, weak.shape))
    base = np.where(weak, rng.uniform(0, 1, weak.shape), rng.uniform(0.35, 0.65, weak.shape))
    ground = (base + rng.uniform(0.2, 0.8, weak.shape)) % 1 + _draw_tints(rng, n, 0.2)
    figure = base + _draw_tints(rng, n, 0.2) - ground
    swing = SWING * contrast * (1 + _draw_tints(rng, n, 0.5))
    images = np.empty((n, 3, *mask.shape[1:]), np.uint8)
    for start in range(0, n, 256):  # in blocks that fit the cache
        at = slice(start, start + 256)
        images[at] = _to_bytes(ground[at] + mask[at, None] * (figure[at] + swing[at] * pattern[at, None]))
    return images


def _to_bytes(image: Floats) -> Bytes:
    """Round and clip values in [0, 1] to uint8."""
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)


def generator(purpose: str, seed: int) -> Generator:
    """Make a generator for draws of one purpose, independent of those for other purposes."""
    return np.random.default_rng([seed, *purpose.encode()])


# --- splits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Recipe:
    """Recipe of a split: its figures and their textures."""

    part: str
    families: Mapping[str, Family]
    pairing: str  # texture of a class: `own`: its own; `other`: every other class's in turn; `any`: each in turn
    copies: int = 1  # images of each bitmap
    faint: float = 0.0  # share of images whose texture is weak


_TEXTURED: Mapping[str, _Recipe] = {
    "train": _Recipe("train", FAMILIES, "own", COPIES, FAINT),
    "val": _Recipe("val", FAMILIES, "own", COPIES, FAINT),
    "in_domain": _Recipe("test", FAMILIES, "own", 1, FAINT),
    "cue_conflict": _Recipe("test", FAMILIES, "other"),
    "stylized": _Recipe("test", UNSEEN, "any"),
    "stylized_train": _Recipe("train", {"paint": textures.paint}, "any", COPIES, FAINT),
}
_DRAWINGS: Mapping[str, Callable[[Generator, Floats], Floats]] = {
    "silhouette": lambda rng, height: _fill(height),
    "edge": lambda rng, height: np.clip(0.028 * height.shape[1] - np.abs(_distance_inside(height, LEVEL)), 0, 1),
    "sketch": lambda rng, height: _sketch(rng, _draw_ridges(height)),
}

EVALUATION = ("in_domain", "silhouette", "edge", "sketch", "cue_conflict", "stylized")
SPLITS = ("train", "val", *EVALUATION, "stylized_train", "texture_train")


def digits(split: str, seed: int = 0, image_size: int = IMAGE_SIZE) -> MemorySource:
    """Make one split of the suite, ordered by class; `bias` is the class of an image's texture, if it has one."""
    refuse_unknown(split, SPLITS, f"unknown split '{split}'")
    if split == "texture_train":
        return _make_texture_split(split, seed, image_size)
    if split in _DRAWINGS:
        return _make_drawn_split(split, seed, image_size)
    return _make_textured_split(split, seed, image_size, _TEXTURED[split])


def _make_textured_split(split: str, seed: int, size: int, recipe: _Recipe) -> MemorySource:
    """Make a split of figures with textures, as its recipe says."""
    numbers = np.tile(draw_bitmaps(recipe.part, seed), recipe.copies)  # of the bitmaps [10,n], a row per class
    indices = np.indices(numbers.shape)
    y, column = indices[0], indices[1]
    family = y  # number of each image's texture
    if recipe.pairing == "other":
        family = (y + 1 + column % (len(CLASSES) - 1)) % len(CLASSES)
    elif recipe.pairing == "any":
        family = column % len(recipe.families)
    source = make_textured(split, seed, size, numbers, family, recipe.families, recipe.faint)
    return replace(source, bias=None) if recipe.pairing == "any" else source


def make_textured(
    split: str,
    seed: int,
    size: int,
    numbers: Integers,
    family: Integers,
    families: Mapping[str, Family] = FAMILIES,
    faint: float = FAINT,
) -> MemorySource:
    """Make figures of the bitmaps `numbers` [10,n], a row per class, with textures of the families `family` [10,n].

    `bias` is the number of the family. faint: share of the images whose texture is weak.
    """
    rng = generator(split, seed)
    mask = _fill(_heights(rng, numbers.ravel(), size))
    images = _render(rng, mask, textures.draw_patterns(rng, families, family.ravel(), size), faint)
    names = [list(families)[number] for number in family.flat]
    return _make_source(split, np.indices(numbers.shape)[0].ravel(), images, numbers.ravel(), names, family.ravel())


def _make_drawn_split(split: str, seed: int, size: int) -> MemorySource:
    """Make a split of black drawings on white: silhouettes, edges or sketches of the test bitmaps."""
    rng = generator(split, seed)
    numbers = draw_bitmaps("test", seed)
    y = np.indices(numbers.shape)[0].ravel()
    blur = 0.7 if split == "sketch" else 0.55  # smoother hills have cleaner ridges
    ink = _DRAWINGS[split](rng, _heights(rng, numbers.ravel(), size, blur))
    images = np.repeat(_to_bytes(1 - ink)[:, None], 3, axis=1)
    return _make_source(split, y, images, numbers.ravel(), [split] * len(y), None)


def _make_texture_split(split: str, seed: int, size: int) -> MemorySource:
    """Make the split of blotches with textures, without any digit."""
    rng = generator(split, seed)
    y = np.repeat(np.arange(len(CLASSES)), COPIES * PARTS["train"])
    field = textures.field(rng, len(y), size, 0.1)
    blotches = _fill(field - np.quantile(field, 0.65, axis=(1, 2), keepdims=True), 0.0)  # as large as a digit
    images = _render(rng, blotches, textures.draw_patterns(rng, FAMILIES, y, size), 0.0)
    return _make_source(split, y, images, None, [list(FAMILIES)[label] for label in y], y)


def _make_source(
    split: str, y: Integers, images: Bytes, numbers: Integers | None, names: list[str], bias: Integers | None
) -> MemorySource:
    """Make the source; ids are `<class>/<number of the bitmap, if any>-<texture or style>-<row>`."""
    bitmaps = [""] * len(y) if numbers is None else [f"{number:04d}-" for number in numbers]
    ids = [f"{CLASSES[y[row]]}/{bitmaps[row]}{names[row]}-{row:04d}" for row in range(len(y))]
    return MemorySource(name=split, classes=CLASSES, y=y, ids=ids, bias=bias, images=images)
