"""Data sets: a class each, which finds, checks and opens its images; `load` gives them as torch Datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

    from biasbed.datasets.loading import LoadedDataSet


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    transform: Callable[[Image.Image], Any] | None = None,
    columns: Sequence[str] = ("label",),
    seed: int = 0,
    severity: float | None = None,
    image_size: int = 224,
) -> LoadedDataSet:
    """Return a data set as torch Datasets by part: its domains, or its splits `train`, `val` and `test`.

    An item of a part is (image, label), or what `columns` names: `label`, `domain`, `bias` (-1 if unknown), `id`.

    Args:
        name: name of a data set of docs/data.md in any spelling, or a folder of domains in `data_dir`.
        data_dir: folder of the data sets; computed ones do without.
        transform: function of the PIL image, as torchvision's. Default: items hold PIL images.
        columns: columns of an item after the image.
        seed: seed of images that are computed, and of splits that are drawn.
        severity: percentage of training images that conflict with the bias. Default: the data set's.
        image_size: pixels per side of images that are computed.

    Raises:
        UsageError: if there is no such data set, or its images are missing (`MissingData`) or don't fit.

    Examples:
        >>> pacs = biasbed.datasets.load("pacs", data_dir="/data")
        >>> image, label = pacs["photo"][0]
        >>> pacs["photo"].labels, pacs.classes
    """
    from biasbed.datasets.loading import open_parts

    return open_parts(name, data_dir, transform, columns, seed, severity, image_size)
