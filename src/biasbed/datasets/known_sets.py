"""Public test sets without their images: classes, conditions and shortcut of each, by name.

No torch: whoever scores recorded decisions need not have it.

Answers: Which classes and conditions does a public test set have?
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.plugin_loader import Joined


@dataclass(frozen=True)
class KnownSet:
    """Facts about a test set. Empty facts are unknown, or the set has none of the kind."""

    classes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    shortcut: str = ""  # class that something in every image suggests


UNKNOWN = KnownSet()
_BY_CATEGORIES = ("cue_conflict", "edge", "silhouette", "sketch")
_BY_IMAGENET = (
    *("imagenet", "imagenet_v2", "imagenet_v2_threshold", "imagenet_v2_top", "imagenet_sketch", "imagenet_real"),
    *("stylized_imagenet", "deepaug_cae", "deepaug_edsr", "real_blurry"),
    *("imagenet_c", "imagenet_c_small", "imagenet_c_extra", "imagenet_c_generated", "imagenet_c_bar", "imagenet_3dcc"),
)


@functools.cache
def known_sets() -> Mapping[str, KnownSet]:
    """Return the facts about each set, also those of plug-ins, by the name that metrics have for it."""
    imagenet = imagenet_classes()
    facts = {
        **dict.fromkeys(_BY_CATEGORIES, KnownSet(CATEGORIES_16)),
        **dict.fromkeys(("imagenet_200", "imagenet_r"), KnownSet(imagenet_classes("r"))),
        "imagenet_a": KnownSet(imagenet_classes("a")),
        **dict.fromkeys(_BY_IMAGENET, KnownSet(imagenet)),
        "real_blurry_100": UNKNOWN,  # its folders say which classes it has
    }
    return Joined("known_sets", facts)


def find_known_set(name: str) -> KnownSet:
    """Return the facts about a set; `UNKNOWN` for a set of your own."""
    return known_sets().get(name, UNKNOWN)
