"""Addresses of published data sets, the rows of `sources.yaml`: files, sizes, checksums, places below data_dir."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

FILE = Path(__file__).with_name("sources.yaml")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class RemoteFile:
    """File of a source; `size` in bytes is 0, and a checksum empty, if none is published."""

    name: str  # path below the source's folder
    address: str
    size: int = 0
    md5: str = ""
    sha256: str = ""

    @property
    def is_archive(self) -> bool:
        return self.name.endswith(ARCHIVES)


@dataclass(frozen=True)
class DownloadSource:
    """One place that a data set can be downloaded from; `sources.yaml` describes the fields."""

    files: tuple[RemoteFile, ...]
    gives: str
    into: str = ""
    strip: str = ""
    sort: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size for file in self.files)

    @property
    def expected(self) -> PurePosixPath:
        """Path of what the data set needs, relative to `into`."""
        return PurePosixPath(self.gives).relative_to(self.into)


@functools.cache
def read_sources() -> Mapping[str, tuple[DownloadSource, ...]]:
    """Read the sources of all data sets by name, in the order in which they are tried."""
    rows: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: tuple(map(_make_source, sources)) for name, sources in rows.items()}


def _make_source(row: Mapping[str, Any]) -> DownloadSource:
    """Return the source that an entry of `sources.yaml` describes. A file's address is `from` and its name."""
    files = []
    for name, facts in row["files"].items():
        described = {"address": f"{row.get('from', '')}{name}", **(facts or {})}
        files.append(RemoteFile(name, **described))
    fields = {name: value for name, value in row.items() if name not in ("from", "files")}
    return DownloadSource(tuple(files), **fields)
