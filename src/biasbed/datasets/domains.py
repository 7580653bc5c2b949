"""Data sets of several domains, of which a training holds some out: DomainBed's seven and a user's own folders.

Those of files are folders `<data set>/<domain>/<class>/<image>`; the others are made by a seed (`mnist.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from biasbed import record
from biasbed.data.folders import FolderSource, open_folder
from biasbed.data.listing import reading, scan
from biasbed.data.source import MemorySource, Source
from biasbed.datasets.base import Contents, DataSetRegistry, OnDisk, some
from biasbed.errors import UsageError, listed, other_form

# In the order of DomainBed's tables (Gulrajani and Lopez-Paz 2021, table 4).
DATA_SETS = DataSetRegistry(
    {
        "colored_mnist": "biasbed.datasets.mnist:ColoredMNIST",
        "rotated_mnist": "biasbed.datasets.mnist:RotatedMNIST",
        "vlcs": "biasbed.datasets.domainbed:VLCS",
        "pacs": "biasbed.datasets.domainbed:PACS",
        "office_home": "biasbed.datasets.domainbed:OfficeHome",
        "terra_incognita": "biasbed.datasets.domainbed:TerraIncognita",
        "domainnet": "biasbed.datasets.domainbed:DomainNet",
    },
    user_class="biasbed.datasets.domains:OwnDomains",
)
S = TypeVar("S", bound=Source)
# Folders inside a domain that are no classes but a division of its images; the first has all of them.
DIVISIONS = ("full", "train", "val", "validation", "crossval", "test")


class DomainDataSet(OnDisk):
    """A data set of several domains with one class list. `domains`, `open_domains` and `fingerprint` are for suites."""

    channels = 3
    is_computed = False  # whether a seed makes its images
    size: int | None = None  # pixels of computed images

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        """Identifier of each domain, in order, and its other names: those in published tables. No image is opened."""
        raise NotImplementedError

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        """All images of each domain, in order, with the same classes in all.

        seed: of computed images. image_size: computed images come at this size where theirs is a multiple of it, so
        that a transform finds nothing to do. Raises UsageError where the data set is missing or doesn't fit.
        """
        raise NotImplementedError

    def fingerprint(self, data_dir: Path) -> str:
        """Return 16 hex digits of its files and of what is made of them: the same for every seed."""
        raise NotImplementedError

    def with_interpolation(self, interpolation: str) -> DomainDataSet:
        """Return the data set with another interpolation of its computed images; itself if it has none."""
        return self


class FolderDomains(DomainDataSet):
    """One in folders `<domain>/<class>/<image>`."""

    kind = "domain/class folders"

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        return dict(self.opened(data_dir))

    def fingerprint(self, data_dir: Path) -> str:
        return record.digest([source.origin for source in self.opened(data_dir).values()])

    def contents(self, data_dir: Path) -> Contents:
        domains = self.opened(data_dir)
        whole = united(domains, self.name)
        differences, remarks = self.compared(
            {name: len(source) for name, source in domains.items()}, len(whole.classes)
        )
        return Contents(
            folder=whole.root,
            files=whole.ids,
            images=len(whole),
            labels=whole.num_labels,
            fingerprint=lambda: self.fingerprint(data_dir),
            differences=differences,
            remarks=remarks,
        )

    def opened(self, data_dir: Path) -> dict[str, FolderSource]:
        """Every domain's images; `origin` is their own fingerprint, as a suite draws parts of them by a seed."""
        folder = self.folder(data_dir)
        with reading():
            folders = {name: self._undivided(path) for name, path in self.folders(folder, data_dir).items()}
            classes = self._classes(folder, {name: scan(path)[0] for name, path in folders.items()})
        sources = {name: open_folder(path, name, classes) for name, path in folders.items()}
        return {name: replace(source, origin=source.fingerprint()) for name, source in sources.items()}

    def listed(self, folder: Path) -> list[Path]:
        return [self._undivided(folder / name) for name in scan(folder)[0]]

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        """Every domain's folder in that of the data set, in order; UsageError where one is missing."""
        raise NotImplementedError

    def compared(self, counts: Mapping[str, int], classes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(how images by domain and classes differ from the release, what else is to be said), in words."""
        return (), ()

    def _undivided(self, folder: Path) -> Path:
        """The folder of a domain's class folders: that with all its images where a release has divided them."""
        names = scan(folder)[0]
        if not names or any(name.lower() not in DIVISIONS for name in names):
            return folder
        whole = [name for name in names if name.lower() == DIVISIONS[0]]
        if whole:
            return folder / whole[0]
        self.refuse(folder, f"all of {listed(names)} are used: move their class folders, merged, up into it")

    def _classes(self, folder: Path, found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """The class list of all domains, sorted; UsageError where one of them lacks a class."""
        classes = sorted({name for names in found.values() for name in names})
        if not classes:
            self.refuse(folder, f"no class folders in {some(list(found))}: expected {folder}/<domain>/<class>/<image>")
        for name in classes:
            having = [domain for domain, names in found.items() if name in names]
            lacking = [domain for domain in found if domain not in having]
            if lacking:
                hint = ", which has it in another Unicode form (NFC or NFD)" if other_form(name, classes) else ""
                self.refuse(folder, f"the class '{name}' is in {listed(having)} and not in {listed(lacking)}{hint}")
        return tuple(classes)


class OwnDomains(FolderDomains):
    """A user's own: every folder is a domain, and nothing is known of what it should hold."""

    images = 0
    num_classes = 0
    licence = "yours"
    source = "your own"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name, self.places = record.slug(folder.name), (folder.name,)

    def find(self, data_dir: Path) -> Path | None:
        return self._folder

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(self.folders(self._folder, data_dir), ())

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        with reading():
            names = scan(folder)[0]
        try:
            found = {identifier: folder / name for name, identifier in record.slugs(names).items()}
        except ValueError as error:
            raise UsageError(f"{folder}: {error}") from None
        if len(found) < 2:
            raise UsageError(
                f"{folder} has {len(found)} domain(s), expected several: {folder}/<domain>/<class>/<image>"
            )
        first: dict[str, str] = {}
        for identifier, path in found.items():
            other = first.setdefault(os.path.realpath(path), identifier)
            if other != identifier:
                raise UsageError(f"{folder}: the domains '{other}' and '{identifier}' are one folder: remove the link")
        return dict(sorted(found.items()))


def united(parts: Mapping[str, S], name: str) -> S:
    """Sources of several domains of a data set, all of files or all in memory, as one of their kind.

    Domains are numbered 0..D-1 in their order.
    """
    sources: list[Any] = list(parts.values())
    columns: dict[str, Any] = dict(
        name=name,
        y=np.concatenate([source.y for source in sources]),
        domain=np.repeat(np.arange(len(sources)), [len(source) for source in sources]),
        domains=tuple(parts),
        origin=record.digest([source.origin for source in sources]),
    )
    if isinstance(sources[0], MemorySource):
        columns["images"] = np.concatenate([source.images for source in sources])
        prefixes = list(parts)
    else:
        roots = [source.root for source in sources]
        columns["root"] = Path(os.path.commonpath(roots)) if len(roots) > 1 else roots[0].parent
        prefixes = [root.relative_to(columns["root"]).as_posix() for root in roots]
    ids = [f"{prefix}/{own}" for prefix, source in zip(prefixes, sources, strict=True) for own in source.ids]
    found: S = replace(sources[0], **columns, ids=ids)
    return found
