"""Stimuli of Geirhos et al. (2019, 2021) in 16 categories, in the layouts of both releases.

texture-vs-shape has class folders, `edges/dog/dog3.png`; model-vs-human writes the class into the file name,
`edge/dnn/session-1/0004_edg_dnn_0_dog_00_dog3.png`. Images are 224 x 224 pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from biasbed.data.listing import images_below, images_in, scan
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import CATEGORIES_16, CueClasses, parse_cue_classes
from biasbed.errors import listed

_IN_THE_NAME = "class in the file name (model-vs-human)"


class Stimuli(DataSet):
    """Stimuli of 16 categories, in class folders or with the class in the file name."""

    @property
    def classes(self) -> tuple[str, ...]:
        return CATEGORIES_16

    def layout(self, folder: Path) -> str:
        return _IN_THE_NAME if _has_trials(folder) else self.release.layout

    def listing(self, folder: Path) -> tuple[list[str], np.ndarray]:
        if not _has_trials(folder):
            return super().listing(folder)
        ids = list(itertools.chain.from_iterable(images_below(folder, _trial_folders(folder)))) or images_in(folder)
        categories = [_category(name) for name in ids]
        strange = [name for name, category in zip(ids, categories, strict=True) if category not in CATEGORIES_16]
        if strange:
            self.refuse(folder, f"no category in the fifth of the fields between '_' of {listed(strange, 5)}")
        empty = sorted(set(CATEGORIES_16) - set(categories))
        if empty:
            self.refuse(folder, f"no images of {listed(empty, 16)}")
        return ids, np.array([CATEGORIES_16.index(category) for category in categories], dtype=np.int64)


class Edge(Stimuli):
    """Edges of objects."""

    name = "edge"


class Silhouette(Stimuli):
    """Filled silhouettes of objects."""

    name = "silhouette"


class Sketch(Stimuli):
    """Sketches of the 16 categories, selected from ImageNet-Sketch (Wang et al. 2019)."""

    name = "sketch"


class CueConflict(Stimuli):
    """Images with the shape of one category (`y`) and the texture of another or the same one (`bias`)."""

    name = "cue_conflict"

    def listing(self, folder: Path) -> tuple[list[str], np.ndarray]:
        """Return ids and labels by folder or trial field, which must agree with the shape in the image's name."""
        ids, y = super().listing(folder)
        pairs = zip(ids, y, strict=True)
        wrong = [name for name, label in pairs if self._cues(name, folder).shape != CATEGORIES_16[label]]
        if wrong:
            self.refuse(folder, f"the shape in the name is not the category of {listed(wrong, 5)}")
        return ids, y

    def bias(self, ids: Sequence[str], folder: Path) -> np.ndarray:
        """Return the category of each texture."""
        return np.array([CATEGORIES_16.index(self._cues(name, folder).texture) for name in ids], dtype=np.int64)

    def _cues(self, name: str, folder: Path) -> CueClasses:
        """Return the categories of shape and texture. Raises UsageError for a name that does not tell them."""
        cues = parse_cue_classes(name)
        if cues is None or not set(cues) <= set(CATEGORIES_16):
            self.refuse(folder, f"'{name}' is not named <shape><number>-<texture><number>")
        return cues


def _has_trials(folder: Path) -> bool:
    """Return True if the class is in the file names."""
    return bool(_trial_folders(folder)) or any(map(_category, scan(folder).images))


def _trial_folders(folder: Path) -> list[str]:
    """Return the folders that the release of model-vs-human has instead of class folders."""
    return [name for name in scan(folder).folders if name == "dnn" or name.startswith("session-")]


def _category(path: str) -> str:
    """Return the fifth field of `0004_edg_dnn_0_dog_00_dog3.png`; empty if there are fewer than seven fields."""
    fields = path.rpartition("/")[2].split("_")
    return fields[4] if len(fields) >= 7 else ""
