"""Classes, factors and distortions of the cue data sets. No torch: recorded decisions are read by them, too."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.known_sets import KnownSet

IMAGENET_9 = (
    *("00_dog", "01_bird", "02_wheeled vehicle", "03_reptile", "04_carnivore"),
    *("05_insect", "06_musical instrument", "07_primate", "08_fish"),
)
CARTON = "n02971356"  # the class that ImageNet-W's watermark suggests: its training images often have such a watermark
FACTORS = (
    *("pose", "background", "pattern", "color", "smaller", "shape", "partial_view", "subcategory", "texture"),
    *("larger", "darker", "object_blocking", "person_blocking", "style", "brighter", "multiple_objects"),
)

# Class folder -> ImageNet classes (Kim et al. 2026, arXiv 2603.10834, and their repository).
SHAPES: Mapping[str, tuple[str, ...]] = {
    "balloon": ("n02782093",),
    "book": ("n06596364",),
    "camera": ("n03976467", "n04069434"),
    "cassette": ("n02978881",),
    "clock": ("n03196217", "n02708093", "n04548280"),
    "hourglass": ("n03544143",),
    "ipod": ("n03584254",),
    "mouse": ("n03793489",),
    "revolver": ("n04086273",),
    "soccer_ball": ("n04254680",),
}
TEXTURES: Mapping[str, tuple[str, ...]] = {
    "brain_coral": ("n01917289",),
    "broccoli": ("n07714990",),
    "cheetah": ("n02130308",),
    "dishrag": ("n03207743",),
    "elephant": ("n02504458", "n02504013"),
    "honeycomb": ("n03530642",),
    "porcupine": ("n02346627",),
    "strawberry": ("n07745940",),
    "tiger": ("n02129604",),
    "zebra": ("n02391049",),
}

DISTORTIONS = ("geometric_shapes", "glitched", "luminance_checkerboard", "mosaic", "stickers", "vertical_lines")
INTENSITIES = ("1", "2", "3", "4", "5")
# Class folder -> positions of its ImageNet classes (Li et al., ICML 2025, and their repository).
SUPERCLASSES: Mapping[str, str] = {
    "ball": "429-430 768 805 852 890",
    "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
    "boat": "472 510 554 576 625 814 914",
    "bottle": "440 720 737 898-899 901 907",
    "butterfly": "321-326",
    "car_truck": "436 511 555 569 656 675 717 734 817 864 867",
    "cat": "281-286",
    "chair": "423 559 703 765 831 857",
    "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
    "fish": "0-4 147-148 393-397",
    "fruit": "948-951 953-954",
    "instruments": "401-402 420 432 546 558 566 579 593-594 776 881 889",
    "primate": "365-382",
    "snakes": "52-55 57-68",
    "timekeeping": "409 530-531 826 835 892",
    "tools": "491 499 587 596 740 784 792",
}

_CONDITIONS = tuple(map("-".join, itertools.product(DISTORTIONS, INTENSITIES)))
_VERSIONS = ("", "_mixed_same", "_mixed_rand", "_only_fg", "_only_bg_t")
KNOWN_SETS: Mapping[str, KnownSet] = {
    **dict.fromkeys((f"imagenet_9{version}" for version in _VERSIONS), KnownSet(IMAGENET_9)),
    "imagenet_w": KnownSet(imagenet_classes(), shortcut=CARTON),
    "imagenet_x": KnownSet(imagenet_classes()),
    "laion_c": KnownSet(tuple(SUPERCLASSES), conditions=_CONDITIONS),
    "refined_bias_shape": KnownSet(tuple(SHAPES)),
    "refined_bias_texture": KnownSet(tuple(TEXTURES)),
}
