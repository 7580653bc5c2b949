"""Waterbirds at any severity, as `prepare what=waterbirds` composes it (Sagawa et al. 2020; Lim et al. 2023, table 8).

`waterbirds` in `metadata_csv.py` is the composition that the authors released; `waterbirds_ac` is this one, with the
same bias in validation as in training. The composition of one severity and seed is a folder in the authors' layout:
images in folders by species, and `metadata.csv`, which is written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from biasbed import record
from biasbed.data.listing import report_unreadable, scan
from biasbed.data.prepared import MANIFEST, ImagesManifest
from biasbed.datasets.base import Contents, resolve
from biasbed.datasets.biased import Division, DivisionRequest, describe_counts
from biasbed.datasets.metadata_csv import SPLITS, TEST, TRAIN, VALIDATION, Waterbirds
from biasbed.datasets.releases import read_releases
from biasbed.errors import UsageError

SEVERITY = 5.0  # default in percent, as in the authors' composition


class ComposedWaterbirds(Waterbirds):
    """Compositions of CUB-200-2011's birds and Places365's places, one per severity and seed."""

    name = "waterbirds_ac"
    version_of = "waterbirds"
    defaults: ClassVar[Mapping[str, Any]] = {"data.severity": SEVERITY}

    def parts(self, data_dir: Path, request: DivisionRequest) -> Division:
        share = request.severity_or(SEVERITY)
        folder = composition(data_dir, share, request.seed)
        if not super()._is_in(folder):
            state = "begun, but not complete" if folder.is_dir() else "not there"
            raise UsageError(
                f"'{self.name}' of data.severity={share:g} and data.seed={request.seed} is {state}: "
                + request.prepare("waterbirds")
            )
        self._refuse_renamed(folder, share, request.seed)
        train, validation, test = self._open_parts(folder)
        return Division(train, validation, test, share, is_drawn=True)

    def contents(self, data_dir: Path) -> Contents:
        folder = self.folder(data_dir)
        composed = self._compositions(folder)
        with report_unreadable():
            begun = [name for name in scan(folder).folders if name not in composed]
        birds = read_releases()["cub"].images  # all of them are in each composition
        sources, files, remarks = {}, [], []
        differences = [f"{name} is begun, but not complete" for name in begun]
        for name in composed:
            rows = self._read_checked(folder / name)
            source = sources[name] = self._open_part(folder / name, rows)
            files += [f"{name}/{image}" for image in source.ids]
            if len(source) != birds:
                differences.append(f"{name} has {len(source):,} images; CUB-200-2011 has {birds:,}")
            splits = {SPLITS[row.split.lower()] for row in rows}
            for part in (TRAIN, VALIDATION, TEST):
                if part in splits:
                    remarks.append(
                        f"{part} of {name} has {describe_counts(self._open_part(folder / name, rows, part))}"
                    )
        return Contents(
            *(folder, files, len(files), max(source.num_labels for source in sources.values())),
            fingerprint=lambda: record.digest([source.fingerprint() for source in sources.values()]),
            differences=tuple(differences),
            remarks=tuple(remarks),
        )

    def _refuse_renamed(self, folder: Path, share: float, seed: int) -> None:
        """Raise UsageError if a folder's manifest has another severity or seed than its name.

        A folder without a manifest, which another program composed, is accepted by its name.
        """
        manifest = ImagesManifest.read(folder)
        if manifest is None:
            return
        severity, made_by = manifest.settings.get("severity"), manifest.settings.get("seed")
        if (severity, made_by) != (share, seed):
            self.refuse(
                folder, f"{MANIFEST} says that it was composed for data.severity={severity} and data.seed={made_by}"
            )

    def _is_in(self, folder: Path) -> bool:
        return bool(self._compositions(folder))

    def _compositions(self, folder: Path) -> list[str]:
        """Return the names of the folders with a complete composition."""
        with report_unreadable():
            return [name for name in scan(folder).folders if (folder / name / self.file).is_file()]


def composition(data_dir: Path, severity: float, seed: int) -> Path:
    """Return the folder of a composition, which may be missing. severity: in percent."""
    (location,) = ComposedWaterbirds().release.folders
    return (resolve(data_dir, location) or data_dir / location) / f"{severity:g}pct-seed-{seed}"
