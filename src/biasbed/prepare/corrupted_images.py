"""Corrupted copies of a suite's images in ImageNet-C's layout: `<corruption>/<severity>/<class>/<name>.JPEG`.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019. An
image's short side is resized to 256; its centre of 224 pixels is corrupted and saved at quality 85.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biasbed import suites
from biasbed.data.corruptions import BENCHMARK, CORRUPTIONS, EXTRAS, SEVERITIES, corrupt, find
from biasbed.data.corruptions.released import FORMAT, QUALITY, as_released, clean, released_name, released_names
from biasbed.data.prepared import ImagesManifest
from biasbed.data.source import Source
from biasbed.errors import CorruptImage, UsageError
from biasbed.prepare.images import PooledOptions, complete, missing, same_settings
from biasbed.prepare.maker import KeptMaker, KeptOptions
from biasbed.settings import nearest, setting
from biasbed.system.files import atomic_file

BLOCK = 4096  # bytes of a disk that no two files share
SAMPLE = 3  # images that are corrupted to estimate the size of files
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
            if name not in GROUPS and name not in CORRUPTIONS:
                raise UsageError(f"corruptions={name}: there is no such corruption{nearest(name, CORRUPTIONS)}")
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

    def maker(self) -> Callable[[int], None]:
        make = self.files()

        def write(row: int) -> None:
            for path, content in make(row, self.lacking(row)):
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(path, durable=False) as temporary:  # waiting for the disk would cost days
                    temporary.write_bytes(content)

        return write

    def files(self) -> Callable[[int, list[tuple[str, int]]], Iterator[tuple[Path, bytes]]]:
        """Return a function that yields the files of one image, which it decodes once.

        Raises UsageError if a corruption lacks what it needs.
        """
        corruptions = {name: find(name, self.frost) for name in self.corruptions}

        def make(row: int, conditions: list[tuple[str, int]]) -> Iterator[tuple[Path, bytes]]:
            image, name = clean(self.source.open(row)), self.source.ids[row]
            for corruption, severity in conditions:
                corrupted = corrupt(image, corruptions[corruption], severity, self.seed, name)
                yield self.path(row, corruption, severity), as_released(corrupted)

        return make


class CorruptionsMaker(KeptMaker[CorruptionsOptions]):
    """Maker of corrupted copies of a suite's images; corruptions may be added later."""

    Settings = CorruptionsOptions

    def make(self) -> Path:
        """Write the missing files and return their folder. Raises UsageError if the disk is too small."""
        folder, source = self.store.images(self.source, self.name), self.source
        work = Corrupting(source, folder, self.options.names(), self.config.seed, self._frost())
        released_names(source.ids, source.name)  # refuses two images of one name
        settings = {"seed": self.config.seed, "quality": QUALITY}
        manifest = ImagesManifest(self.name, source.name, source.fingerprint(), len(source), FORMAT, settings)
        existing = same_settings(folder, manifest, self.options.overwrite, ", prepared_dir= elsewhere")
        if existing is not None and existing.complete and not missing(work, existing.skipped):
            print(f"{folder} is complete already: {existing.images} images in every condition", file=sys.stderr)
            return folder
        refuse_full_disk(work, shutil.disk_usage(folder.parent).free)
        processes = self.options.how_many("cpu")
        done = complete(work, manifest, folder, processes, may_skip=self.config.corrupt != "stop")
        print(f"done: {done.images} images in {len(list(work.conditions()))} conditions in {folder}", file=sys.stderr)
        return folder

    def _frost(self) -> Path | None:
        if "frost" not in self.options.names():
            return None
        if self.options.frost == "auto":
            return suites.make_suite(self.config).data_root / "frost"
        return Path(self.options.frost).expanduser()


def refuse_full_disk(work: Corrupting, free: int) -> None:
    """Raise UsageError if the missing files take more than `free` bytes, as estimated from a few images.

    The few are made in memory, so a corruption that lacks something is also noticed before anything is written.
    """
    make = work.files()
    rows = [row for row in range(len(work.names)) if not work.is_there(row)]
    sizes: list[int] = []
    for row in rows[:: -(-len(rows) // SAMPLE) or 1]:
        with contextlib.suppress(CorruptImage):  # reported when all files are made
            sizes += [-(-len(content) // BLOCK) * BLOCK for _, content in make(row, list(work.conditions()))]
    files = sum(len(work.lacking(row)) for row in rows)
    needed = files * float(np.mean(sizes)) if sizes else 0
    if needed > free:
        raise UsageError(
            f"{files:,} files of corrupted images take about {needed / 2**30:.1f} GiB, and {work.folder} has "
            f"{free / 2**30:.1f} GiB left: prepared_dir= elsewhere, or fewer corruptions="
        )
