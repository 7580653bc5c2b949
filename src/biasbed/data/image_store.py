"""Image store: the object that the pictures of image folders are opened through.

Answers: How is an image file opened, and what may take its place?
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from biasbed.data.source import Picture, Source
from biasbed.errors import UsageError
from biasbed.plugin_loader import Offered


class ImageStore:
    """Image files, opened one by one. A subclass may have the pictures elsewhere."""

    def attach(self, source: Source) -> Source:
        """Return a source that opens its pictures here. Raises MissingData if they should be here and are not."""
        return source.with_store(self)

    def bind(self, source: Source, folder: Path, fingerprint: Callable[[], str]) -> None:
        """Note a source whose files below a folder are opened here. Raises MissingData as `attach` does."""

    def open(self, root: Path, name: str) -> Picture | None:
        """Open an image without decoding it; None if its file is to be opened."""
        return None

    def checksum(self, root: Path, name: str) -> int | None:
        """Return the CRC-32 of an image; None if its file is to be opened."""
        return None

    def mark(self, fingerprint: str) -> str:
        """Return the fingerprint of images that are opened here: another one if they differ from the files."""
        return fingerprint


FILES = ImageStore()
# Functions of `prepared_dir` and `data.packed` to the store that they ask for.
_STORES: Offered[Callable[[str, str], ImageStore]] = Offered("image_store")


def make_store(prepared_dir: str = "auto", form: str = "auto") -> ImageStore:
    """Return the store of a plug-in, or of files alone. form: `data.packed`."""
    make = next(iter(_STORES.values()), None)
    if form == "no" or (make is None and form == "auto"):
        return FILES
    if make is None:
        raise UsageError(f"data.packed={form}: there is no plug-in with packed images")
    return make(prepared_dir, form)
