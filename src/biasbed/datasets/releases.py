"""Published releases of data sets, the rows of `releases.yaml`: images, classes, layout, places, archives, checksums.

Answers: Where is a data set looked for, and which images, layout and licence does its release have?
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from biasbed.plugin_loader import Offered

FILE = Path(__file__).with_name("releases.yaml")


class ReleaseComparison(NamedTuple):
    """Descriptions of differences from the release, and remarks."""

    differences: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """Published release of a data set; `releases.yaml` describes the fields."""

    places: tuple[str, ...]
    source: str
    licence: str
    images: int = 0  # 0 if there is no release, or if the number varies
    classes: int = 0
    conditions: int = 1
    layout: str = "class folders"
    archives: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    md5: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders below data_dir in which the data set may be, in order: `places` with their braces expanded."""
        return tuple(itertools.chain.from_iterable(map(_expand_braces, self.places)))

    def compare(self, images: int) -> tuple[str, ...]:
        """Describe the difference between a number of images and the release's; empty if there is none."""
        return () if self.images in (0, images) else (f"{images:,} images; the release has {self.images:,}",)

    def compare_parts(self, counts: Mapping[str, int]) -> ReleaseComparison:
        """Compare the number of images of each part with those of the release, in any of its versions."""
        versions = {self.version: tuple(self.parts.values()), **self.versions}
        here = tuple(counts.values())
        for description, images in versions.items():
            if images == here:
                return ReleaseComparison((), (f"{sum(here):,} images, {description}",) if description else ())
        differences = []
        for number, (name, count) in enumerate(counts.items()):
            if count == self.parts[name]:
                continue
            same = [f", {description}" for description, images in versions.items() if images[number] == count]
            differences.append(f"{name} has {count:,} images{''.join(same)}; the release has {self.parts[name]:,}")
        return ReleaseComparison(tuple(differences))


@functools.cache
def read_releases() -> Mapping[str, Release]:
    """Read all rows, also those of plug-ins, by the data set's name."""
    files: Mapping[str, Path] = Offered("releases", {"core": FILE})
    releases: dict[str, Release] = {}
    for path in files.values():
        rows: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
        releases |= {name: Release(**_with_tuples(row)) for name, row in rows.items()}
    return releases


def _with_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with each list, also in its mappings, as a tuple."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            value = _with_tuples(value)
        values[key] = tuple(value) if isinstance(value, list) else value
    return values


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yield `a/x`, `b/x` for the pattern `{a,b}/x`; the last braces vary fastest."""
    head, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    options, _, tail = rest.partition("}")
    for option, end in itertools.product(options.split(","), _expand_braces(tail)):
        yield head + option + end
