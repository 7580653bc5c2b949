"""Data sets of several domains, some of which a training holds out: DomainBed's seven, and a user's own folders.

Data sets in files have the layout `<data set>/<domain>/<class>/<image>`; the others are computed from a seed
(`mnist.py`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from biasbed import record
from biasbed.data.folders import FolderSource, open_folder
from biasbed.data.listing import report_unreadable, scan
from biasbed.data.source import MemorySource, Source
from biasbed.datasets.base import Contents, DataSetRegistry, OnDisk, OwnFolder
from biasbed.datasets.releases import ReleaseComparison
from biasbed.errors import UsageError, find_other_form, listed

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
    offered_as="domains",
)
S = TypeVar("S", bound=Source)
# Folders inside a domain that are splits of its images instead of classes; the first has all images.
DIVISIONS = ("full", "train", "val", "validation", "crossval", "test")


class DomainDataSet(OnDisk):
    """Data set of several domains with one class list. Suites use `domains`, `open_domains` and `fingerprint`."""

    channels = 3
    is_computed = False  # True if the images are computed from a seed
    size: int | None = None  # pixels of computed images

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        """Return the domains in order: identifier -> further names, as in published tables. Opens no image."""
        return {name: self.release.aliases.get(name, ()) for name in self.release.parts}

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        """Open all images of each domain, in order; all domains have the same classes.

        seed: of computed images. image_size: size of computed images, used if it divides theirs, so that they need no
        further resize. Raises UsageError if the data set is missing or doesn't fit.
        """
        raise NotImplementedError

    def fingerprint(self, data_dir: Path) -> str:
        """Return 16 hex digits of its files and of what is made of them: the same for every seed."""
        raise NotImplementedError

    def compare(self, counts: Mapping[str, int], classes: int) -> ReleaseComparison:
        """Compare the number of images of each domain, and of classes, with the release."""
        return ReleaseComparison(())

    def with_interpolation(self, interpolation: str) -> DomainDataSet:
        """Return the data set with another interpolation of its computed images; itself if it has none."""
        return self


class FolderDomains(DomainDataSet):
    """Data set in folders `<domain>/<class>/<image>`."""

    def open_domains(self, data_dir: Path, seed: int = 0, image_size: int | None = None) -> dict[str, Source]:
        return dict(self.opened(data_dir))

    def fingerprint(self, data_dir: Path) -> str:
        return record.digest([source.origin for source in self.opened(data_dir).values()])

    def contents(self, data_dir: Path) -> Contents:
        domains = self.opened(data_dir)
        source = unite_domains(domains, self.name)
        counts = {name: len(domain) for name, domain in domains.items()}
        comparison = self.compare(counts, len(source.classes))
        return Contents.from_source(
            source, source.root, fingerprint=lambda: self.fingerprint(data_dir), **comparison._asdict()
        )

    def opened(self, data_dir: Path) -> dict[str, FolderSource]:
        """Open the images of each domain; `origin` is their fingerprint, as suites draw parts of them by a seed."""
        folder = self.folder(data_dir)
        with report_unreadable():
            folders = {name: self._class_root(path) for name, path in self.folders(folder, data_dir).items()}
            classes = self._classes(folder, {name: scan(path).folders for name, path in folders.items()})
        sources = {name: open_folder(path, name, classes) for name, path in folders.items()}
        return {name: replace(source, origin=source.fingerprint()) for name, source in sources.items()}

    def listed_folders(self, folder: Path) -> list[Path]:
        return [self._class_root(folder / name) for name in scan(folder).folders]

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        """Return the folder of each domain, in order. Raises UsageError if one is missing."""
        raise NotImplementedError

    def _class_root(self, folder: Path) -> Path:
        """Return the folder of a domain's class folders; of a release with splits, the folder with all images."""
        names = scan(folder).folders
        if not names or any(name.lower() not in DIVISIONS for name in names):
            return folder
        complete = [name for name in names if name.lower() == DIVISIONS[0]]
        if complete:
            return folder / complete[0]
        self.refuse(folder, f"all of {listed(names)} are used: move their class folders, merged, up into it")

    def _classes(self, folder: Path, names: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return the classes of all domains, sorted. Raises UsageError if a domain lacks one. names: by domain."""
        classes = sorted(set(itertools.chain.from_iterable(names.values())))
        if not classes:
            self.refuse(
                folder, f"no class folders in {listed(list(names), 5)}: expected {folder}/<domain>/<class>/<image>"
            )
        for name in classes:
            having = [domain for domain, folders in names.items() if name in folders]
            lacking = [domain for domain in names if domain not in having]
            if lacking:
                hint = ", which has it in another Unicode form (NFC or NFD)" if find_other_form(name, classes) else ""
                self.refuse(folder, f"the class '{name}' is in {listed(having)} and not in {listed(lacking)}{hint}")
        return tuple(classes)


class OwnDomains(OwnFolder, FolderDomains):
    """Data set in a user's own folder: every sub-folder is a domain, and there is no release to compare with."""

    own_layout = "domain/class folders"

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(self.folders(self._folder, data_dir), ())

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        with report_unreadable():
            names = scan(folder).folders
        try:
            folders = {identifier: folder / name for name, identifier in record.slugs(names).items()}
        except ValueError as error:
            raise UsageError(f"{folder}: {error}") from None
        if len(folders) < 2:
            raise UsageError(
                f"{folder} has {len(folders)} domain(s), expected several: {folder}/<domain>/<class>/<image>"
            )
        firsts: dict[str, str] = {}
        for identifier, path in folders.items():
            first = firsts.setdefault(os.path.realpath(path), identifier)
            if first != identifier:
                raise UsageError(f"{folder}: the domains '{first}' and '{identifier}' are one folder: remove the link")
        return dict(sorted(folders.items()))


def unite_domains(parts: Mapping[str, S], name: str) -> S:
    """Concatenate the sources of several domains, either all in files or all in memory, into one of their kind.

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
    ids: list[str] = []
    for prefix, source in zip(prefixes, sources, strict=True):
        ids += [f"{prefix}/{name}" for name in source.ids]
    source_of_all: S = replace(sources[0], **columns, ids=ids)
    return source_of_all
