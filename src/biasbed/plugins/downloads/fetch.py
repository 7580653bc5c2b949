"""Resumable download of one file, its checksum, and the safe unpacking of an archive."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from biasbed.errors import first_line
from biasbed.plugins.downloads.sources import RemoteFile
from biasbed.system.terminal import ProgressBar

MEGABYTE = 10**6
TIMEOUT = 60.0  # seconds without a byte
BUSY = (408, 429, 500, 502, 503, 504)
RETRY = Retry(total=5, backoff_factor=1, status_forcelist=BUSY, raise_on_status=False)
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError)
DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


class Unavailable(Exception):
    """Error of a file that can't be fetched, or is not the published one."""


def fetch(file: RemoteFile, path: Path) -> str:
    """Download a file unless it is there; return its checksum, as `sha256:<hex>`.

    A call continues where an earlier one has left `<path>.part`. A broken connection is opened again as long as each
    brings bytes. Raises Unavailable, or OSError if the disk fails.
    """
    part = path.with_name(f"{path.name}.part")
    if not path.exists():
        try:
            _fetch_rest(file, part)
        except BROKEN as error:
            raise Unavailable(f"{file.address}: {first_line(error)}") from None
        part.replace(path)
    return _verify(file, path)


def _fetch_rest(file: RemoteFile, part: Path) -> None:
    """Add what the part lacks. Raises one of BROKEN once a try has brought nothing."""
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=RETRY))
        while True:
            before = _size_of(part)
            try:
                return _append(session, file, part)
            except BROKEN:
                if _size_of(part) == before:
                    raise


def _append(session: requests.Session, file: RemoteFile, part: Path) -> None:
    """Request the rest of a file and add it to the part. Raises one of BROKEN if the connection breaks."""
    start = _size_of(part)
    if start and start == file.size:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with session.get(file.address, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink()  # the file is another one by now: begin anew
        response.raise_for_status()
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise requests.RequestException("is a page, not a file: open it in a browser")
        resumed = response.status_code == requests.codes.partial_content
        start = start if resumed else 0
        total = start + int(response.headers.get("Content-Length", 0))
        bar = ProgressBar(-(-total // MEGABYTE), "megabyte", start // MEGABYTE)
        with part.open("ab" if resumed else "wb") as stream, bar:
            # read1 returns what has come; `iter_content` would drop it when the connection breaks
            for chunk in iter(lambda: response.raw.read1(MEGABYTE), b""):
                stream.write(chunk)
                bar.tick(stream.tell() // MEGABYTE - bar.done)


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _verify(file: RemoteFile, path: Path) -> str:
    """Return the checksum. Raises Unavailable, and removes the file, if it is not the published one."""
    algorithm = "md5" if file.md5 else "sha256"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, algorithm).hexdigest()
    size = _size_of(path)
    if digest == (file.md5 or file.sha256 or digest) and size == (file.size or size):
        return f"{algorithm}:{digest}"
    path.unlink()
    expected = f"{file.size:,} bytes, {algorithm} {file.md5 or file.sha256 or 'unknown'}"
    raise Unavailable(f"{file.address} is not the published file: {size:,} bytes, {algorithm} {digest}; not {expected}")


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a folder. Raises Unavailable, and removes the archive, if it is damaged or unsafe."""
    try:
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                tar.extractall(folder, filter="data")  # refuses what would leave the folder
        else:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)  # keeps names inside of the folder
    except DAMAGES as error:
        path.unlink()
        raise Unavailable(f"can't unpack {path.name}: {first_line(error)}") from None
