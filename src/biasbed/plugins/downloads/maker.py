"""Maker `download`: fetches published data sets from their addresses into the layout that suites read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from biasbed.datasets.releases import read_releases
from biasbed.errors import Failure, UsageError, listed
from biasbed.options import PrepareOptions
from biasbed.plugins.downloads.camera_traps import sort_images
from biasbed.plugins.downloads.fetch import Unavailable, fetch, unpack
from biasbed.plugins.downloads.sources import DownloadSource, read_sources
from biasbed.prepare.maker import Maker
from biasbed.settings import nearest, setting
from biasbed.system.files import write_whole
from biasbed.system.terminal import aligned
from biasbed.tracking.folder import exclusive

WORK = ".downloads"  # below data_dir; hidden, so that no data set is looked for in it
COLUMNS = ("data set", "download", "licence", "from")


@dataclass(frozen=True)
class DownloadOptions(PrepareOptions):
    """Settings of downloads."""

    accept: bool = setting(False, "accept the licences that the command lists")


class Download(Maker[DownloadOptions]):
    """Download of the data sets that `sets` names."""

    Settings = DownloadOptions

    def run(self) -> Path:
        """Download the data sets that are not there; return data_dir.

        Raises UsageError for a name that has no source, or if the licences are not accepted; Failure for a source that
        can't be read, files that are not the published ones, and a full disk.
        """
        if self.config.data_dir is None:
            raise UsageError("where to put the data sets: data_dir=<folder>")
        data_dir = Path(self.config.data_dir).expanduser().resolve()
        missing = [name for name in self._requested_names() if not is_there(name, data_dir)]
        if missing:
            print("\n".join(aligned([COLUMNS, *map(_table_row, missing)])))
        if missing and not self.options.accept:
            raise UsageError("read these licences on the data sets' pages; then add accept=yes")
        for name in missing:
            with exclusive(data_dir / WORK / name, "downloaded"):
                if not is_there(name, data_dir):  # several names may stand for the same files
                    download(name, data_dir)
            print(f"{name}: complete")
        return data_dir

    def _requested_names(self) -> Sequence[str]:
        """Return the data sets to download. Raises UsageError if none is named, or one has no source."""
        names = self.config.sets
        if isinstance(names, str):
            raise UsageError(f"say what to download: sets=<{', '.join(read_sources())}>")
        for name in names:
            if name not in read_sources():
                raise UsageError(f"sets={name}: {_describe_other(name)}")
        return names


def _describe_other(name: str) -> str:
    """Describe how to get a data set that has no source here, or that there is none of this name."""
    release = read_releases().get(name)
    if release is None:
        return f"there is no such data set{nearest(name, [*read_sources(), *read_releases()])}"
    archives = f"{listed(release.archives, 5)} " if release.archives else ""
    return f"get {archives}from {release.source}; put it into {release.folders[0]} below data_dir"


def _table_row(name: str) -> tuple[str, ...]:
    """Return a row of the printed table: name, size, licence and address of the first source."""
    first = read_sources()[name][0]
    licence = first.licence or read_releases()[name].licence
    size = f"{first.size / 1e9:.2f} GB" if all(file.size for file in first.files) else "size unknown"
    return name, size, licence, first.files[0].address.split("?")[0]


def is_there(name: str, data_dir: Path) -> bool:
    """Return True if a data set is below data_dir and no download of it has begun."""
    begun = any(_staging_folders(data_dir / WORK / name))
    return not begun and any((data_dir / source.gives).exists() for source in read_sources()[name])


def download(name: str, data_dir: Path) -> None:
    """Download a data set from the first of its sources that gives it. Raises Failure if none does."""
    work = data_dir / WORK / name
    reasons: list[str] = []
    for number, source in enumerate(read_sources()[name]):
        try:
            files = _fetch_and_move(source, work / str(number), data_dir)
        except Unavailable as error:
            reasons.append(str(error))
        else:
            write_whole(work / "files.json", json.dumps(files, indent=1) + "\n")
            for folder in list(_staging_folders(work)):
                shutil.rmtree(folder)
            return
    raise Failure(f"{name} can't be downloaded; the same command goes on", *reasons)


def _staging_folders(work: Path) -> Iterator[Path]:
    """Yield the folders of sources that were begun; each is named by its number."""
    return (path for path in work.glob("[0-9]*") if path.is_dir())


def _fetch_and_move(source: DownloadSource, staging: Path, data_dir: Path) -> dict[str, str]:
    """Fetch and unpack a source's files, and move them to their places; return the checksums by address.

    Files that an earlier call has unpacked are not fetched again. Raises Unavailable.
    """
    content = staging / "content"
    content.mkdir(parents=True, exist_ok=True)
    journal = staging / "unpacked.json"
    checksums: dict[str, str] = json.loads(journal.read_text()) if journal.exists() else {}
    size = sum(file.size for file in source.files if file.address not in checksums)
    free = shutil.disk_usage(staging).free
    if size > free:
        raise Failure(f"{data_dir} has {free / 1e9:.1f} GB free; this download needs {size / 1e9:.1f} GB and more")
    for file in source.files:
        if file.address in checksums:
            continue
        print(f"fetching {file.address}")
        path = staging / Path(file.name).name
        checksum = fetch(file, path)
        if file.is_archive:
            unpack(path, content)
            path.unlink()
        else:
            (content / file.name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(content / file.name)
        checksums[file.address] = checksum
        write_whole(journal, json.dumps(checksums))
    if source.sort:
        sort_images(content, **source.sort)
    if not (content / source.strip / source.expected).exists() and not (data_dir / source.gives).exists():
        names = sorted(path.name for path in content.iterdir())
        raise Unavailable(f"the files have no {source.strip or source.expected}, but {listed(names, 5)}: see {content}")
    _move_contents(content / source.strip, data_dir / source.into)
    return checksums


def _move_contents(folder: Path, target: Path) -> None:
    """Move what a folder holds to another one. A call that was cut off is continued."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if (target / path.name).exists():
            raise Failure(f"{target / path.name} is there already: remove it; then the same command goes on")
        shutil.move(path, target / path.name)
