"""Corrupted copies of a suite's images in ImageNet-C's layout: `<corruption>/<severity>/<class>/<name>.JPEG`.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. An
image's short side is resized to 256; its centre of 224 pixels is corrupted and saved at quality 85.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from biasbed import suites
from biasbed.data.corruptions import BENCHMARK, CORRUPTIONS, EXTRAS, SEVERITIES, corrupt, find
from biasbed.data.corruptions.released import (
    FORMAT,
    QUALITY,
    crop_clean,
    encode_as_released,
    released_name,
    released_names,
)
from biasbed.data.prepared import ImagesManifest
from biasbed.data.source import Source
from biasbed.prepare.images import PooledOptions, has_missing, make_missing, remove_other_images
from biasbed.prepare.maker import KeptMaker, KeptOptions
from biasbed.settings import refuse_unknown, setting
from biasbed.system.files import atomic_file

GROUPS = {"benchmark": BENCHMARK, "extra": EXTRAS, "all": (*BENCHMARK, *EXTRAS)}


@dataclass(frozen=True)
class CorruptionsOptions(PooledOptions, KeptOptions):
    """Settings of the maker of corrupted images."""

    corruptions: tuple[str, ...] = setting(
        ("benchmark",), "which: benchmark (the 15), extra (the other 4), all, or names, separated by commas"
    )
    frost: str = setting("auto", "folder of the five photographs of frost (auto: frost below data_dir)")

    def names(self) -> tuple[str, ...]:
        """Return the names of the chosen corruptions, each once. Raises UsageError for an unknown one."""
        names: dict[str, None] = {}
        for name in self.corruptions:
            refuse_unknown(name, (*GROUPS, *CORRUPTIONS), f"corruptions={name}: there is no such corruption")
            names |= dict.fromkeys(GROUPS.get(name, (name,)))
        return tuple(names)


@dataclass(frozen=True)
class Corrupting:
    """Corrupted copies of a source's images, to be made."""

    source: Source
    folder: Path
    corruptions: tuple[str, ...]
    seed: int
    frost: Path | None  # folder of frost's photographs; None if they are not needed

    @property
    def names(self) -> Sequence[str]:
        return self.source.ids

    def is_there(self, row: int) -> bool:
        return not self.lacking(row)

    def lacking(self, row: int) -> list[tuple[str, int]]:
        """Return the corruptions and severities of which the image has no file yet."""
        return [condition for condition in self.conditions() if not self.path(row, *condition).exists()]

    def conditions(self) -> Iterator[tuple[str, int]]:
        return itertools.product(self.corruptions, SEVERITIES)

    def path(self, row: int, corruption: str, severity: int) -> Path:
        return self.folder / corruption / str(severity) / released_name(self.source.ids[row])

    def make_writer(self) -> Callable[[int], None]:
        """Return a function that writes the missing files of a row.

        Raises UsageError if the photographs of frost are missing.
        """
        corruptions = {name: find(name, self.frost) for name in self.corruptions}

        def write(row: int) -> None:
            image, name = crop_clean(self.source.open(row)), self.source.ids[row]
            for corruption, severity in self.lacking(row):
                corrupted = corrupt(image, corruptions[corruption], severity, self.seed, name)
                path = self.path(row, corruption, severity)
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(path, durable=False) as temporary:  # waiting for the disk would cost days
                    temporary.write_bytes(encode_as_released(corrupted))

        return write


class CorruptionsMaker(KeptMaker[CorruptionsOptions]):
    """Maker of corrupted copies of a suite's images; corruptions may be added later."""

    Settings = CorruptionsOptions

    def make(self) -> Path:
        """Write the missing files and return their folder."""
        folder, source = self.store.images(self.source, self.name), self.source
        work = Corrupting(source, folder, self.options.names(), self.config.seed, self._frost())
        released_names(source.ids, source.name)  # refuses two images of one name
        settings = {"seed": self.config.seed, "quality": QUALITY}
        manifest = ImagesManifest(self.name, source.name, source.fingerprint(), len(source), FORMAT, settings)
        existing = remove_other_images(folder, manifest, self.options.overwrite, ", prepared_dir= elsewhere")
        if existing is not None and existing.complete and not has_missing(work, existing.skipped):
            print(f"{folder} is complete already: {existing.images} images in every condition", file=sys.stderr)
            return folder
        work.make_writer()  # refuses a corruption that lacks something before anything is written
        processes = self.options.count_processes("cpu")
        done = make_missing(work, manifest, folder, processes, may_skip=self.config.corrupt != "stop")
        print(f"done: {done.images} images in {len(list(work.conditions()))} conditions in {folder}", file=sys.stderr)
        return folder

    def _frost(self) -> Path | None:
        if "frost" not in self.options.names():
            return None
        if self.options.frost == "auto":
            return suites.make_suite(self.config).data_root / "frost"
        return Path(self.options.frost).expanduser()
