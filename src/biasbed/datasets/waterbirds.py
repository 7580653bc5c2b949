"""Waterbirds at any severity, as `prepare what=waterbirds` composes it (Sagawa et al. 2020; Lim et al. 2023, table 8).

`waterbirds` of `tables.py` is the one composition that its authors gave out; `waterbirds_ac` is this one, which is as
biased in validation as in training. A composition of one severity and one seed is a folder in the authors' layout:
images in folders by species, and `metadata.csv`, which is written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from biasbed import record
from biasbed.data.listing import reading, scan
from biasbed.data.prepared import MANIFEST, ImagesManifest
from biasbed.datasets.base import Contents, resolve
from biasbed.datasets.biased import Division, Wanted, counted
from biasbed.datasets.tables import SPLITS, TEST, TRAIN, VALIDATION, Waterbirds
from biasbed.errors import UsageError

SEVERITY = 5.0  # percent, unless told otherwise: that of the authors' composition
IMAGES = 11_788  # of CUB-200-2011, all of which are used


class ComposedWaterbirds(Waterbirds):
    """Composed of CUB-200-2011's birds and Places365's places, for one severity and one seed at a time."""

    name = "waterbirds_ac"
    version_of = "waterbirds"
    images = 0  # how many compositions somebody has is open
    kind = "folders by severity and seed"
    places = ("waterbirds_ac",)
    archives = ()
    source = "biasbed prepare --what waterbirds makes it of CUB-200-2011 and Places365"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}

    def parts(self, data_dir: Path, wanted: Wanted) -> Division:
        share = wanted.severity_or(SEVERITY)
        folder = composition(data_dir, share, wanted.seed)
        if not super()._is_in(folder):
            state = "begun, but not complete" if folder.is_dir() else "not there"
            raise UsageError(
                f"'{self.name}' of data.severity={share:g} and data.seed={wanted.seed} is {state}: "
                + wanted.prepare("waterbirds")
            )
        self._refuse_renamed(folder, share, wanted.seed)
        train, validation, test = self._divided(folder)
        return Division(train, validation, test, share, is_drawn=True)

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        composed = self._compositions(folder)
        with reading():
            begun = [name for name in scan(folder)[0] if name not in composed]
        whole, files, remarks = {}, [], []
        differences = [f"{name} is begun, but not complete" for name in begun]
        for name in composed:
            rows = self._checked(folder / name)
            source = whole[name] = self._part(folder / name, rows)
            files += [f"{name}/{image}" for image in source.ids]
            if len(source) != IMAGES:
                differences.append(f"{name} has {len(source):,} images; CUB-200-2011 has {IMAGES:,}")
            for part in (TRAIN, VALIDATION, TEST):
                if any(SPLITS[row.split.lower()] == part for row in rows):
                    remarks.append(f"{part} of {name} has {counted(self._part(folder / name, rows, part))}")
        return Contents(
            *(folder, files, len(files), max(source.num_labels for source in whole.values())),
            fingerprint=lambda: record.digest([source.fingerprint() for source in whole.values()]),
            differences=tuple(differences),
            remarks=tuple(remarks),
        )

    def _refuse_renamed(self, folder: Path, share: float, seed: int) -> None:
        """UsageError where a folder says that it was composed for another severity or seed than it is called by.

        One that says nothing, as a folder that somebody else composed, is taken at its name.
        """
        manifest = ImagesManifest.read(folder)
        if manifest is None:
            return
        own = manifest.settings.get("severity"), manifest.settings.get("seed")
        if own != (share, seed):
            self.refuse(
                folder, f"{MANIFEST} says that it was composed for data.severity={own[0]} and data.seed={own[1]}"
            )

    def _is_in(self, folder: Path) -> bool:
        return bool(self._compositions(folder))

    def _compositions(self, folder: Path) -> list[str]:
        """Names of the folders that hold one, wholly."""
        with reading():
            return [name for name in scan(folder)[0] if (folder / name / self.file).is_file()]


def composition(data_dir: Path, severity: float, seed: int) -> Path:
    """The folder of one, whether it is there or not. severity: in percent."""
    (place,) = ComposedWaterbirds.places
    return (resolve(data_dir, place) or data_dir / place) / f"{severity:g}pct-seed-{seed}"
