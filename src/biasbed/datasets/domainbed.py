"""DomainBed's five data sets of image files (Gulrajani and Lopez-Paz 2021), in its layout.

The images of all official splits are used together. Counts come from the data sets' papers and pages; those of Terra
Incognita come from reports about its archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from biasbed.data.listing import scan
from biasbed.datasets.base import resolve
from biasbed.datasets.domains import FolderDomains, ReleaseComparison
from biasbed.settings import nearest

_TABLES = "as in DomainBed's tables"
_DOWNLOAD = "domainbed/scripts/download.py of https://github.com/facebookresearch/DomainBed"


class Domain(NamedTuple):
    """Domain of a published data set."""

    name: str  # identifier
    names: tuple[str, ...] = ()  # further names in tables and on disk


class Release(NamedTuple):
    """Published version of a data set."""

    description: str
    images: tuple[int, ...]  # of each domain


class PublishedDomains(FolderDomains):
    """Data set with a published list of domains and counts."""

    official_domains: tuple[Domain, ...]  # in order
    releases: tuple[Release, ...]  # first the one of published results
    categories: int

    def __init__(self) -> None:
        self.images = sum(self.releases[0].images)

    @property
    def num_classes(self) -> int:
        return self.categories

    def domains(self, data_dir: Path) -> dict[str, tuple[str, ...]]:
        return {domain.name: domain.names for domain in self.official_domains}

    def folders(self, folder: Path, data_dir: Path) -> dict[str, Path]:
        folders: dict[str, Path] = {}
        for domain in self.official_domains:
            path = _folder_of(domain, folder)
            if path is not None:
                folders[domain.name] = path
        missing = [domain.name for domain in self.official_domains if domain.name not in folders]
        if missing:
            packed = self.packed(data_dir)
            hint = f"; {packed}" if packed else nearest(missing[0], scan(folder)[0])
            self.refuse(folder, f"there is no folder of the domain {' or '.join(missing)}{hint}")
        return folders

    def compare(self, counts: Mapping[str, int], classes: int) -> ReleaseComparison:
        differences = []
        if classes != self.categories:
            differences.append(f"{classes} classes; the release has {self.categories}")
        here = tuple(counts.values())
        same = [f"{sum(here):,} images, {release.description}" for release in self.releases if release.images == here]
        if same:
            return ReleaseComparison(tuple(differences), tuple(same))
        for number, images in enumerate(here):
            if images != self.releases[0].images[number]:
                differences.append(self._count(number, images))
        return ReleaseComparison(tuple(differences), ())

    def _count(self, number: int, images: int) -> str:
        """Describe a domain's number of images that differs from the first release."""
        same = [release.description for release in self.releases if release.images[number] == images]
        which = "".join(f", {description}" for description in same)
        released = self.releases[0].images[number]
        return f"{self.official_domains[number].name} has {images:,} images{which}; the release has {released:,}"

    def _is_in(self, folder: Path) -> bool:
        return any(_folder_of(domain, folder) is not None for domain in self.official_domains)


def _folder_of(domain: Domain, folder: Path) -> Path | None:
    """Find a domain's folder by any of its names; None if there is none."""
    for name in (domain.name, *domain.names):
        path = resolve(folder, name)
        if path is not None:
            return path
    return None


class VLCS(PublishedDomains):
    """Photographs of five categories in four collections (Fang et al. 2013)."""

    name = "vlcs"
    categories = 5
    official_domains = (
        Domain("caltech101", ("C", "caltech")),
        Domain("labelme", ("L",)),
        Domain("sun09", ("S", "sun")),
        Domain("voc2007", ("V", "pascal", "voc")),
    )
    releases = (Release(_TABLES, (1_415, 2_656, 3_282, 3_376)),)
    places = ("VLCS", "VLCS/VLCS")
    archives = ("VLCS.tar.gz", "VLCS.tar", "VLCS.zip")
    licence = "unclear: those of Caltech101, LabelMe, SUN09 and Pascal VOC 2007"
    source = _DOWNLOAD


class PACS(PublishedDomains):
    """Photos, paintings, cartoons and sketches of seven categories (Li et al. 2017)."""

    name = "pacs"
    categories = 7
    official_domains = (
        Domain("art_painting", ("A",)),
        Domain("cartoon", ("C",)),
        Domain("photo", ("P",)),
        Domain("sketch", ("S",)),
    )
    releases = (Release(_TABLES, (2_048, 2_344, 1_670, 3_929)),)
    places = ("PACS", "PACS/kfold", "PACS/PACS", "kfold")
    archives = ("PACS.zip", "PACS.tar.gz", "pacs_data.zip")
    licence = "unclear: images from the web"
    source = _DOWNLOAD


class OfficeHome(PublishedDomains):
    """Objects of 65 categories in art, clip art, product pictures and photographs (Venkateswara et al. 2017)."""

    name = "office_home"
    categories = 65
    official_domains = (
        Domain("art", ("A",)),
        Domain("clipart", ("C",)),
        Domain("product", ("P",)),
        Domain("real_world", ("R", "real")),
    )
    releases = (Release(_TABLES, (2_427, 4_365, 4_439, 4_357)),)
    places = ("office_home", "OfficeHomeDataset_10072016", "office_home/OfficeHomeDataset_10072016")
    archives = ("office_home.zip", "OfficeHomeDataset_10072016.zip", "OfficeHome.zip")
    licence = "non-commercial research, after its page"
    source = "https://www.hemanthdv.org/officeHomeDataset.html"


LOCATIONS = ("100", "38", "43", "46")  # of Terra Incognita's camera traps


class TerraIncognita(PublishedDomains):
    """Animals of ten categories in front of camera traps at four places (Beery et al. 2018)."""

    name = "terra_incognita"
    categories = 10
    official_domains = tuple(Domain(f"location_{number}", (f"L{number}", number)) for number in LOCATIONS)
    releases = (
        Release(_TABLES, (4_879, 9_767, 4_020, 6_122)),
        Release("as its source gives them now, fewer than in DomainBed's tables", (4_741, 9_736, 3_970, 5_883)),
    )
    places = ("terra_incognita", "terra_incognita/terra_incognita", "TerraInc", "terra")
    archives = ("terra_incognita_images.tar.gz", "eccv_18_all_images_sm.tar.gz", "terra_incognita.zip")
    licence = "Community Data License Agreement, permissive"
    source = f"https://lila.science/datasets/caltech-camera-traps, sorted by {_DOWNLOAD}"


class DomainNet(PublishedDomains):
    """Pictures of 345 categories in six styles (Peng et al. 2019), without the duplicates that its authors removed."""

    name = "domainnet"
    categories = 345
    official_domains = tuple(map(Domain, ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")))
    releases = (
        Release(f"{_TABLES}: cleaned", (48_129, 51_605, 72_266, 172_500, 172_947, 69_128)),
        Release("with the duplicates that DomainBed removes", (48_837, 53_201, 75_759, 172_500, 175_327, 70_386)),
    )
    places = ("domain_net", "domain_net/domain_net")
    archives = tuple(f"{domain.name}.zip" for domain in official_domains)
    licence = "unclear: images from the web; its page allows non-commercial research"
    source = "https://ai.bu.edu/M3SDA, its cleaned version"
