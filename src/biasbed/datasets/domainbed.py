"""DomainBed's five data sets of image files (Gulrajani and Lopez-Paz 2021), in its layout.

The images of all official splits are used together. Their domains and counts are in `releases.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from biasbed.data.listing import scan
from biasbed.datasets.base import resolve
from biasbed.datasets.domains import FolderDomains
from biasbed.datasets.releases import ReleaseComparison
from biasbed.settings import nearest


class PublishedDomains(FolderDomains):
    """Data set whose release has a list of domains."""

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        folders: dict[str, Path] = {}
        domains = self.domains(data_dir)
        for name, aliases in domains.items():
            path = _find_folder(folder, (name, *aliases))
            if path is not None:
                folders[name] = path
        missing = [name for name in domains if name not in folders]
        if missing:
            packed = self.describe_archives(data_dir)
            hint = f"; {packed}" if packed else nearest(missing[0], scan(folder).folders)
            self.refuse(folder, f"there is no folder of the domain {' or '.join(missing)}{hint}")
        return folders

    def compare(self, counts: Mapping[str, int], classes: int) -> ReleaseComparison:
        differences, remarks = self.release.compare_parts(counts)
        if classes != self.release.classes:
            differences = (f"{classes} classes; the release has {self.release.classes}", *differences)
        return ReleaseComparison(differences, remarks)

    def _is_in(self, folder: Path) -> bool:
        domains = self.domains(folder)
        return any(_find_folder(folder, (name, *aliases)) is not None for name, aliases in domains.items())


def _find_folder(folder: Path, names: Iterable[str]) -> Path | None:
    """Find a domain's folder by any of its names; None if there is none."""
    paths = (resolve(folder, name) for name in names)
    return next((path for path in paths if path is not None), None)


class VLCS(PublishedDomains):
    """Photographs of five categories in four collections (Fang et al. 2013)."""

    name = "vlcs"


class PACS(PublishedDomains):
    """Photos, paintings, cartoons and sketches of seven categories (Li et al. 2017)."""

    name = "pacs"


class OfficeHome(PublishedDomains):
    """Objects of 65 categories in art, clip art, product pictures and photographs (Venkateswara et al. 2017)."""

    name = "office_home"


class TerraIncognita(PublishedDomains):
    """Animals of ten categories in front of camera traps at four places (Beery et al. 2018)."""

    name = "terra_incognita"


class DomainNet(PublishedDomains):
    """Pictures of 345 categories in six styles (Peng et al. 2019), without the duplicates that its authors removed."""

    name = "domainnet"
