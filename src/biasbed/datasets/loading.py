"""Data sets by name as torch Datasets: domains of a data set with domains, splits of a biased one, or test images."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from biasbed.data.decoding import as_pillow_decodes
from biasbed.data.image_store import make_store
from biasbed.data.source import Source
from biasbed.datasets import biased, domains
from biasbed.datasets.base import DataSet, OnDisk, letters
from biasbed.errors import UsageError
from biasbed.settings import nearest, refuse_unknown
from biasbed.system import places

# Data sets of test images alone.
TESTS = {
    "cue_conflict": "biasbed.datasets.geirhos:CueConflict",
    "edge": "biasbed.datasets.geirhos:Edge",
    "imagenet": "biasbed.datasets.imagenet:ImageNet",
    "imagenet_a": "biasbed.datasets.imagenet:ImageNetA",
    "imagenet_r": "biasbed.datasets.imagenet:ImageNetR",
    "silhouette": "biasbed.datasets.geirhos:Silhouette",
    "sketch": "biasbed.datasets.geirhos:Sketch",
    "stylized_imagenet": "biasbed.datasets.imagenet:StylizedImageNet",
}
COLUMNS = ("label", "domain", "bias", "id")


class Images(Dataset[Any]):
    """Images of one source. An item is the image, a PIL image or what `transform` makes of it, and its columns.

    labels: class indices [N], or multi-hot [N,K]. domain_labels: index [N] into `domains`; None without domains. bias:
    class that the shortcut of each image suggests [N], None if it is unknown. ids: names of the images.
    """

    def __init__(
        self, source: Source, transform: Callable[[Image.Image], Any] | None, columns: Sequence[str] = ("label",)
    ) -> None:
        self.source, self.transform, self.columns = source, transform, tuple(columns)
        self.classes, self.domains = source.classes, source.domains
        self.labels, self.domain_labels, self.bias = source.y, source.domain, source.bias
        self.ids = source.names

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return the image and its columns. Raises CorruptImage, which names the file, if it can't be decoded."""
        row = range(len(self))[index]
        image = to_image(as_pillow_decodes(self.source.open(row)))
        x = image if self.transform is None else self.transform(image)
        return (x, *(self._column(name, row) for name in self.columns))

    def _column(self, name: str, row: int) -> Any:
        if name == "id":
            return self.ids[row]
        values = {"label": self.labels, "domain": self.domain_labels, "bias": self.bias}[name]
        if values is None:
            return -1  # loaders can't make batches of None
        return values[row].copy() if values.ndim > 1 else int(values[row])

    def __repr__(self) -> str:
        return f"Images({self.source.name}: {len(self)} images of {len(self.classes)} classes)"


def to_image(pixels: Tensor) -> Any:
    """Return pixels uint8 [C,H,W] as a PIL image; unchanged if they have other than one or three channels."""
    if len(pixels) not in (1, 3):
        return pixels
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if len(pixels) == 1 else array))


class LoadedDataSet(Mapping[str, Images]):
    """Parts of a data set by name: its domains, its splits `train`, `val` and `test`, or `test` alone."""

    def __init__(self, name: str, parts: Mapping[str, Images]) -> None:
        self.name, self._parts = name, dict(parts)

    @property
    def classes(self) -> tuple[str, ...]:
        return next(iter(self._parts.values())).classes

    def __getitem__(self, part: str) -> Images:
        if part not in self._parts:
            raise KeyError(f"'{self.name}' has no part '{part}'{nearest(part, self._parts)}")
        return self._parts[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(part)}" for name, part in self._parts.items())
        return f"LoadedDataSet({self.name}, {len(self.classes)} classes: {counts} images)"


def open_parts(
    name: str,
    data_dir: str | os.PathLike[str] | None,
    transform: Callable[[Image.Image], Any] | None,
    columns: Sequence[str],
    seed: int,
    severity: float | None,
    image_size: int,
) -> LoadedDataSet:
    """Return the data set of a name. `datasets.load` describes the arguments."""
    columns = (columns,) if isinstance(columns, str) else columns
    for column in columns:
        refuse_unknown(column, COLUMNS, f"columns: there is no column '{column}'")
    identifier, sources = _open_sources(name, data_dir, seed, severity, image_size)
    images = make_store()
    parts = {part: Images(images.attach(source), transform, columns) for part, source in sources.items()}
    return LoadedDataSet(identifier, parts)


def _open_sources(
    name: str, data_dir: str | os.PathLike[str] | None, seed: int, severity: float | None, image_size: int
) -> tuple[str, dict[str, Source]]:
    """Return the data set's identifier and the sources of its parts. Raises UsageError for an unknown name."""
    folder = functools.partial(places.data_root, data_dir, f"'{name}'")
    tests = {letters(test): test for test in TESTS}
    for registry in (domains.DATA_SETS, biased.DATA_SETS):
        if registry.identifier(name) not in registry:
            continue
        data_set = registry.make(name, folder)
        is_computed = data_dir is None and not isinstance(data_set, OnDisk)
        root = Path() if is_computed else folder()
        if registry is domains.DATA_SETS:
            parts = _with_domain_numbers(data_set.open_domains(root, seed, image_size))
            return registry.identifier(name), parts
        request = biased.DivisionRequest(severity=severity, seed=seed, image_size=image_size, frost=root / "frost")
        division = data_set.parts(root, request)
        return registry.identifier(name), {"train": division.train, "val": division.validation, "test": division.test}
    if letters(name) in tests:
        test: DataSet = resolve_name(TESTS[tests[letters(name)]])()
        return tests[letters(name)], {"test": test.open(folder())}
    if data_dir is not None and (folder() / name).is_dir():
        folders = domains.OwnDomains(folder() / name)
        return folders.name, _with_domain_numbers(folders.open_domains(folder()))
    names = sorted({*domains.DATA_SETS, *biased.DATA_SETS, *TESTS})
    raise UsageError(f"there is no data set '{name}', and no folder of domains in data_dir{nearest(name, names)}")


def _with_domain_numbers(parts: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources of domains with the number of the domain for each image."""
    numbered = {}
    for number, (name, source) in enumerate(parts.items()):
        column = np.full(len(source), number, dtype=np.int64)
        numbered[name] = replace(source, domain=column, domains=tuple(parts))
    return numbered
