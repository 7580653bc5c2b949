"""The images of the embedded suite `demo`: handwritten digits (shape) filled with procedural textures.

Shapes are the digits bundled with scikit-learn (8x8 bitmaps of the UCI set "Optical Recognition of Handwritten Digits",
no download), enlarged to smooth figures at a random place and size. Of each class the seed draws 110 bitmaps for
training, 28 for validation and 36 for testing: no handwritten digit is in two parts, and an image's id holds the number
of its bitmap. The six evaluation sets share the test bitmaps, as BiasBed's share their objects.

Textures are families of patterns that differ in local statistics; phase, angle, scale, polarity and tones are random.
Colours follow one law for every class, and patterns have mean 0 and deviation 1 before they are coloured. In a share
`FAINT` of the training distribution the texture is so weak that little but the shape is left (the light is not always
good): a network that learns this prefers the texture where it sees one and still knows something about shapes.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

from biasbed.data.source import MemorySource
from biasbed.errors import UsageError
from biasbed.settings import nearest

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PARTS: Mapping[str, int] = {"train": 110, "val": 28, "test": 36}  # bitmaps per class; the rarest class has 174
IMAGE_SIZE = 40
COPIES = 2  # images of each bitmap in training and validation
# These two were calibrated on plain training: more FAINT raises its shape bias, more SWING lowers it.
FAINT = 0.18  # share of figures whose texture has a contrast below 0.3
SWING = 0.36  # a texture's deviation at contrast 1, where black to white is 1
LEVEL = 0.42  # of ink, where a figure ends

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Family = Callable[[Generator, int, int], Floats]  # (generator, n, size) -> patterns [n,size,size] of any range


# --- textures: all lengths are fractions of the image's side ----------------------------------------------------------


def _plane(
    rng: Generator, n: int, size: int, period: float, angle: float = 0.0, spread: float = 8.0
) -> tuple[Floats, Floats]:
    """Coordinates across and along [n,size,size] in periods, turned by `angle` +- `spread` degrees."""
    turn = np.radians(angle + rng.uniform(-spread, spread, (n, 1, 1)))
    scale = 1 / (period * size * rng.uniform(0.9, 1.1, (n, 1, 1)))
    phase = rng.uniform(0, 100, (2, n, 1, 1))
    row, column = np.mgrid[:size, :size].astype(np.float64)
    across = (np.cos(turn) * column + np.sin(turn) * row) * scale + phase[0]
    along = (np.cos(turn) * row - np.sin(turn) * column) * scale + phase[1]
    return across, along


def _soft(x: Floats) -> Floats:
    """A soft threshold at 0: -1 to 1."""
    out: Floats = np.tanh(x)
    return out


def _wave(x: Floats) -> Floats:
    return _soft(3 * np.sin(2 * np.pi * x))


def _off(x: Floats) -> Floats:
    """Distance to the nearest whole number."""
    return np.abs(x - np.round(x))


def _below(x: Floats, limit: float) -> Floats:
    """1 where x < limit, 0 where larger, with a soft edge."""
    return np.clip((limit - x) / 0.08 + 0.5, 0, 1)


def _stripes(angle: float) -> Family:
    return lambda rng, n, size: _wave(_plane(rng, n, size, 0.12, angle)[0])


def _checks(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.22)
    return _soft(5 * np.sin(2 * np.pi * x) * np.sin(2 * np.pi * y))


def _dots(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.12, spread=15)
    waves = sum(np.cos(2 * np.pi * (x * np.sin(a) + y * np.cos(a))) for a in np.radians((0, 60, 120)))
    return _soft(2 * (waves - 0.4))


def _grid(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.14)
    return _below(np.minimum(_off(x), _off(y)), 0.15)


def _zigzag(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.13)
    return _wave(y + 1.8 * _off(0.6 * x))


def _field(rng: Generator, n: int, size: int, width: float) -> Floats:
    """Smooth random fields [n,size,size] of deviation 1, correlated over about `width`."""
    noise, sigma = rng.standard_normal((n, size, size)), (0, width * size, width * size)
    field: Floats = ndimage.gaussian_filter(noise, sigma, mode="wrap")
    field /= field.std((1, 2), keepdims=True)
    return field


def _grains(width: float) -> Family:
    return lambda rng, n, size: _soft(3 * _field(rng, n, size, width))


FAMILIES: Mapping[str, Family] = {  # in the order of CLASSES
    "rows": _stripes(90),
    "columns": _stripes(0),
    "slashes": _stripes(45),
    "backslashes": _stripes(-45),
    "checks": _checks,
    "dots": _dots,
    "grid": _grid,
    "zigzag": _zigzag,
    "blobs": _grains(0.045),
    "speckle": _grains(0.012),
}


def _crosses(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2)
    return _below(np.minimum(_off(x), _off(y)), 0.13) * _below(np.maximum(_off(x), _off(y)), 0.38)


def _rings(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.3)
    return _wave(2.5 * np.hypot(_off(x), _off(y)))


def _scales(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2)
    return _below(_off(y + 0.6 * np.sqrt(1 - (2 * _off(x)) ** 2)), 0.15)


def _marble(rng: Generator, n: int, size: int) -> Floats:
    return _wave(_plane(rng, n, size, 0.2, spread=180)[0] + 0.6 * _field(rng, n, size, 0.08))


def _bricks(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.15)
    return np.maximum(_below(_off(y), 0.13), _below(1.6 * _off(x / 1.6 + 0.5 * np.floor(y)), 0.13))


def _triangles(rng: Generator, n: int, size: int) -> Floats:
    x, y = _plane(rng, n, size, 0.2, spread=20)
    return _below(2 * _off(x) - np.mod(y, 1), 0)


_unseen = (_crosses, _rings, _scales, _marble, _bricks, _triangles)
UNSEEN: Mapping[str, Family] = {family.__name__.strip("_"): family for family in _unseen}


def _paint(rng: Generator, n: int, size: int) -> Floats:
    """Random fields, each with a spectrum (band, width, direction) and a point-wise law of its own."""
    fy, fx = np.meshgrid(np.fft.fftfreq(size) * size, np.fft.rfftfreq(size) * size, indexing="ij")
    band = np.exp(rng.uniform(np.log(2), np.log(size / 3), (n, 1, 1)))  # cycles per image
    width = rng.uniform(0.1, 0.6, (n, 1, 1))
    focus = rng.choice((0, 0, 2, 8), (n, 1, 1)) * np.cos(2 * (np.arctan2(fy, fx) - rng.uniform(0, np.pi, (n, 1, 1))))
    gain = np.exp(-(np.log(np.maximum(np.hypot(fx, fy), 0.5) / band) ** 2) / (2 * width**2) + focus)
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((n, size, size))) * gain, (size, size))
    field /= field.std((1, 2), keepdims=True)
    return np.choose(rng.integers(0, 3, (n, 1, 1)), (field, _soft(3 * field), np.abs(field)))


def _patterns(rng: Generator, families: Mapping[str, Family], which: Integers, size: int) -> Floats:
    """Textures [n,size,size] of the families `which` [n]: mean 0, deviation 1, either polarity."""
    out = np.empty((len(which), size, size))
    for index, family in enumerate(families.values()):
        rows = np.flatnonzero(which == index)
        if len(rows):
            out[rows] = family(rng, len(rows), size)
    out -= out.mean((1, 2), keepdims=True)
    out *= (rng.choice((-1.0, 1.0), len(out)) / out.std((1, 2)))[:, None, None]
    return np.clip(out, -2, 2, out=out)


# --- figures ----------------------------------------------------------------------------------------------------------


@functools.cache
def _bitmaps() -> tuple[Floats, Integers]:
    """The bundled digits [1797,8,8] with ink in [0, 1], and their classes [1797]."""
    from sklearn.datasets import load_digits  # lazily: a second of import

    digits = load_digits()
    return digits.images / 16, digits.target.astype(np.int64)


def _numbers(part: str, seed: int) -> Integers:
    """Numbers of the bitmaps in one part [10, per class]."""
    _, target = _bitmaps()
    rng = _generator("parts", seed)
    order = np.stack([rng.permutation(np.flatnonzero(target == c))[: sum(PARTS.values())] for c in range(len(CLASSES))])
    ends = np.cumsum(list(PARTS.values()))[:-1]
    return dict(zip(PARTS, np.split(order, ends, axis=1), strict=True))[part]


def _heights(rng: Generator, numbers: Integers, size: int, blur: float = 0.55) -> Floats:
    """Bitmaps as smooth hills [n,size,size]: every pixel of a bitmap is a Gaussian of deviation `blur` pixels.

    A bitmap's pixel is 9 to 11 % of the image's side, drawn per axis; its centre is at most 5 % off the image's.
    """
    weights: list[Floats] = []
    for _axis in range(2):
        cell = size * rng.uniform(0.092, 0.108, (len(numbers), 1))
        centre = size * rng.uniform(0.45, 0.55, (len(numbers), 1))
        place = (np.arange(size) + 0.5 - centre) / cell + 3.5
        weights.append(np.exp(-((place[:, :, None] - np.arange(8)) ** 2) / (2 * blur**2)) / (blur * np.sqrt(2 * np.pi)))
    hills: Floats = weights[0] @ _bitmaps()[0][numbers] @ weights[1].transpose(0, 2, 1)
    return hills


def _inside(height: Floats, level: float) -> Floats:
    """First-order distance to the contour at `level` in pixels, positive above it."""
    dy, dx = np.gradient(height, axis=(1, 2))
    slope: Floats = np.maximum(np.hypot(dy, dx), 1e-3)
    return (height - level) / slope


def _filled(height: Floats, level: float = LEVEL) -> Floats:
    return np.clip(_inside(height, level) + 0.5, 0, 1)


def _ridges(height: Floats) -> Floats:
    """Ink along the ridges of the hills, i.e. the centre lines of the strokes (Steger 1998, section 2)."""
    size = height.shape[1]
    dy, dx = np.gradient(height, axis=(1, 2))
    dyy, dyx = np.gradient(dy, axis=(1, 2))
    dxx = np.gradient(dx, axis=2)
    bend = (dxx + dyy) / 2 - np.hypot((dxx - dyy) / 2, dyx)  # second derivative across the ridge
    across = 0.5 * np.arctan2(2 * dyx, dxx - dyy) + np.pi / 2
    offset: Floats = (dx * np.cos(across) + dy * np.sin(across)) / np.minimum(bend, -1e-6)  # pixels to the crest
    ink: Floats = np.clip(0.04 * size + 0.5 - np.abs(offset), 0, 1) * np.clip(-bend * size**2 / 45, 0, 1)
    return np.clip((height - 0.3) / 0.1, 0, 1) * ink


def _sketched(rng: Generator, ink: Floats) -> Floats:
    """Ink drawn by an unsteady hand: wobbling lines, varying pressure, paper grain."""
    n, size, _ = ink.shape
    drift = size / 60 * _field(rng, 2 * n, size, 1 / 16).reshape(2, n, size, size)
    place = np.indices(ink.shape, dtype=np.float64)
    place[1:] += drift
    pressure = np.clip(0.85 + 0.2 * _field(rng, n, size, 1 / 16), 0.4, 1)
    drawn: Floats = ndimage.map_coordinates(ink, place, order=1) * pressure * rng.uniform(0.6, 1, ink.shape)
    return drawn


# --- pictures ---------------------------------------------------------------------------------------------------------


def _tints(rng: Generator, n: int, strength: float) -> Floats:
    """Random colours [n,3,1,1] of no luminance, at most `strength` long."""
    luma = np.array((0.299, 0.587, 0.114))  # ITU-R BT.601
    tint = rng.standard_normal((n, 3))
    tint -= (tint @ luma)[:, None]
    tint *= (rng.uniform(0, strength, n) / np.linalg.norm(tint, axis=1))[:, None]
    return tint[:, :, None, None]


def _render(rng: Generator, mask: Floats, pattern: Floats, faint: float) -> Bytes:
    """Textured figures on plain grounds, uint8 [n,3,size,size], from masks and patterns [n,size,size].

    The ground's luminance is at least 0.2 from the figure's, which leaves room for its texture if that is strong.
    """
    n = len(mask)
    weak = rng.uniform(size=(n, 1, 1, 1)) < faint
    contrast = np.where(weak, rng.uniform(0, 0.3, weak.shape), rng.uniform(0.6, 1, weak.shape))
    base = np.where(weak, rng.uniform(0, 1, weak.shape), rng.uniform(0.35, 0.65, weak.shape))
    ground = (base + rng.uniform(0.2, 0.8, weak.shape)) % 1 + _tints(rng, n, 0.2)
    figure = base + _tints(rng, n, 0.2) - ground
    swing = SWING * contrast * (1 + _tints(rng, n, 0.5))
    images = np.empty((n, 3, *mask.shape[1:]), np.uint8)
    for start in range(0, n, 256):  # in blocks, which stay in the cache
        at = slice(start, start + 256)
        images[at] = _bytes(ground[at] + mask[at, None] * (figure[at] + swing[at] * pattern[at, None]))
    return images


def _bytes(image: Floats) -> Bytes:
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)


def _generator(purpose: str, seed: int) -> Generator:
    return np.random.default_rng([seed, *purpose.encode()])


# --- splits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Recipe:
    """Which figures carry which textures."""

    part: str
    families: Mapping[str, Family]
    pairing: str  # `own`: texture = class; `other`: every other class in turn; `any`: the families in turn
    copies: int = 1
    faint: float = 0.0


_TEXTURED: Mapping[str, _Recipe] = {
    "train": _Recipe("train", FAMILIES, "own", COPIES, FAINT),
    "val": _Recipe("val", FAMILIES, "own", COPIES, FAINT),
    "in_domain": _Recipe("test", FAMILIES, "own", 1, FAINT),
    "cue_conflict": _Recipe("test", FAMILIES, "other"),
    "stylized": _Recipe("test", UNSEEN, "any"),
    "stylized_train": _Recipe("train", {"paint": _paint}, "any", COPIES, FAINT),
}
_DRAWINGS: Mapping[str, Callable[[Generator, Floats], Floats]] = {
    "silhouette": lambda rng, height: _filled(height),
    "edge": lambda rng, height: np.clip(0.028 * height.shape[1] - np.abs(_inside(height, LEVEL)), 0, 1),
    "sketch": lambda rng, height: _sketched(rng, _ridges(height)),
}

EVALUATION = ("in_domain", "silhouette", "edge", "sketch", "cue_conflict", "stylized")
SPLITS = ("train", "val", *EVALUATION, "stylized_train", "texture_train")


def digits(split: str, seed: int = 0, image_size: int = IMAGE_SIZE) -> MemorySource:
    """One split of the suite, ordered by class; `bias` holds the class whose texture an image shows, if one does."""
    if split not in SPLITS:
        raise UsageError(f"unknown split '{split}'{nearest(split, SPLITS)}")
    if split == "texture_train":
        return _texture_split(split, seed, image_size)
    if split in _DRAWINGS:
        return _drawn_split(split, seed, image_size)
    return _textured_split(split, seed, image_size, _TEXTURED[split])


def _textured_split(split: str, seed: int, size: int, recipe: _Recipe) -> MemorySource:
    rng = _generator(split, seed)
    numbers = np.tile(_numbers(recipe.part, seed), recipe.copies)
    y = np.indices(numbers.shape)[0]
    turn = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    others, any_ = (y + 1 + turn % (len(CLASSES) - 1)) % len(CLASSES), turn % len(recipe.families)
    which = {"own": y, "other": others, "any": any_}[recipe.pairing].ravel()
    y, numbers = y.ravel(), numbers.ravel()
    mask = _filled(_heights(rng, numbers, size))
    images = _render(rng, mask, _patterns(rng, recipe.families, which, size), recipe.faint)
    names = [list(recipe.families)[w] for w in which]
    return _source(split, y, images, numbers, names, None if recipe.pairing == "any" else which)


def _drawn_split(split: str, seed: int, size: int) -> MemorySource:
    rng = _generator(split, seed)
    numbers = _numbers("test", seed)
    y = np.indices(numbers.shape)[0].ravel()
    blur = 0.7 if split == "sketch" else 0.55  # smoother hills have cleaner ridges
    ink = _DRAWINGS[split](rng, _heights(rng, numbers.ravel(), size, blur))
    images = np.repeat(_bytes(1 - ink)[:, None], 3, axis=1)
    return _source(split, y, images, numbers.ravel(), [split] * len(y), None)


def _texture_split(split: str, seed: int, size: int) -> MemorySource:
    rng = _generator(split, seed)
    y = np.repeat(np.arange(len(CLASSES)), COPIES * PARTS["train"])
    field = _field(rng, len(y), size, 0.1)
    blotches = _filled(field - np.quantile(field, 0.65, axis=(1, 2), keepdims=True), 0.0)  # as large as a digit
    images = _render(rng, blotches, _patterns(rng, FAMILIES, y, size), 0.0)
    return _source(split, y, images, None, [list(FAMILIES)[c] for c in y], y)


def _source(
    split: str, y: Integers, images: Bytes, numbers: Integers | None, names: list[str], bias: Integers | None
) -> MemorySource:
    """Ids are `<class>/<number of the bitmap, if any>-<texture or style>-<row>`."""
    digit = [""] * len(y) if numbers is None else [f"{number:04d}-" for number in numbers]
    ids = [f"{CLASSES[y[i]]}/{digit[i]}{names[i]}-{i:04d}" for i in range(len(y))]
    return MemorySource(name=split, classes=CLASSES, y=y, ids=ids, bias=bias, images=images)
