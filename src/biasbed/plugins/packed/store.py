"""Store of packed images: the packs that the sources of a suite read, found by the sources' fingerprints.

Answers: Where is a picture opened: from its file, or from a pack?
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
from collections.abc import Callable
from os.path import commonpath, relpath
from pathlib import Path
from typing import Any, NamedTuple

from biasbed import record
from biasbed.data.image_store import ImageStore
from biasbed.data.source import Picture, Source
from biasbed.errors import MissingData, UsageError
from biasbed.plugins.packed import index as pack_index
from biasbed.plugins.packed.pack import INDEX, STORE, WHOLE, Pack
from biasbed.system import commands, places

log = logging.getLogger(__name__)
_FOLDER = re.compile(r".*-(?P<fingerprint>[0-9a-f]{16})-(?P<form>whole|\d+-raw|\d+-jpeg\d+)")


class _Bound(NamedTuple):
    """Pack that has the files below a folder."""

    root: str
    pack: Pack


class _RelatedPack(NamedTuple):
    """Pack of a folder, or of a folder above or below it.

    is_above: the pack's names are the folder's names with the prefix before them. Else they are the folder's names
    without the prefix.
    """

    prefix: str
    is_above: bool
    pack: Pack


class PackedImage(NamedTuple):
    """Image in a pack."""

    pack: Pack
    position: int  # in the pack's index


class PackStore(ImageStore):
    """Packs of image folders in one form: those with the fingerprint of a source that reads here."""

    def __init__(self, folder: Path, form: str = WHOLE) -> None:
        """folder: of all packs. form: of the packs that are read."""
        self.folder, self.form = folder, form
        self._bound: list[_Bound] = []
        self._related: dict[Path, list[_RelatedPack]] = {}  # by folder

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_related": {}}

    @functools.cached_property
    def _pack_folders(self) -> dict[str, Path]:
        """Folder of each pack of this form by its source's fingerprint."""
        folders = {}
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            match = _FOLDER.fullmatch(path.name)
            if match and match["form"] == self.form and (path / INDEX).is_file():
                folders[match["fingerprint"]] = path
        return folders

    def bind(self, source: Source, folder: Path, fingerprint: Callable[[], str]) -> None:
        """Let a source's files below a folder be read from the pack with its fingerprint, unless a pack has them.

        Warns about a pack of the same folder that has other images. Raises MissingData as `attach` does.
        """
        names = source.ids[:1] if self.form == WHOLE else source.ids
        if (self._pack_folders or self.form != WHOLE) and not all(self.find(folder, name) for name in names):
            self._bind_to_pack(source, folder, fingerprint())

    def _bind_to_pack(self, source: Source, folder: Path, fingerprint: str) -> None:
        root = os.path.abspath(folder)
        pack_folder = self._pack_folders.get(fingerprint)
        if pack_folder is not None:
            if not any(bound.root == root and bound.pack.folder == pack_folder for bound in self._bound):
                self._bound.append(_Bound(root, Pack(pack_folder)))
                self._related.clear()
        elif self.form != WHOLE:
            if not all(self.find(folder, name) for name in source.ids):
                flags = {"what": "packed", "packed.side": self.form.split("-")[0]}
                command = commands.format_command("prepare", flags)
                raise MissingData(
                    f"data.packed={self.form}: the images of '{source.name}' in {root} are not packed so, or have "
                    f"changed since: {command}, with this command's suite and data_dir"
                )
        else:
            self._warn_of_other(source.name, root, fingerprint)

    def mark(self, fingerprint: str) -> str:
        """Return the fingerprint of images that are read here: another one if they were resized."""
        return fingerprint if self.form == WHOLE else record.digest([fingerprint, self.form])

    def _warn_of_other(self, name: str, root: str, fingerprint: str) -> None:
        """Warn if there is a pack of the same name and folder, made when the images had another fingerprint."""
        for packed_fingerprint, folder in self._pack_folders.items():
            is_bound = any(bound.pack.folder == folder for bound in self._bound)  # of which this is a part
            if is_bound or folder in _warned or not folder.name.startswith(f"{record.slug(name)}-"):
                continue
            _warned.add(folder)
            with contextlib.suppress(UsageError):
                if pack_index.read(folder / INDEX).about.root == root:
                    log.warning(
                        "the packed images %s are not read: '%s' in %s has changed since it was packed (fingerprint "
                        "%s, now %s); prepare what=packed again",
                        *(folder, name, root, packed_fingerprint, fingerprint),
                    )

    def find(self, root: Path, name: str) -> PackedImage | None:
        """Return the packed image of a file; None if no pack has it."""
        if root not in self._related:
            self._related[root] = self._find_related(os.path.abspath(root))
        for prefix, is_above, pack in self._related[root]:
            if is_above:
                position = pack.find(prefix + name)
            else:
                position = pack.find(name[len(prefix) :]) if name.startswith(prefix) else None
            if position is not None:
                return PackedImage(pack, position)
        return None

    def _find_related(self, root: str) -> list[_RelatedPack]:
        """Return the packs of this folder, and of folders above or below it."""
        related = []
        for base, pack in self._bound:
            common = commonpath((base, root))
            if common == base:
                prefix = relpath(root, base)
                related.append(_RelatedPack("" if prefix == "." else f"{prefix}/", True, pack))
            elif common == root:
                related.append(_RelatedPack(f"{relpath(base, root)}/", False, pack))
        return related

    def open(self, root: Path, name: str) -> Picture | None:
        """Open a packed image without decoding it; None if no pack has it."""
        if not self._bound:
            return None
        image = self.find(root, name)
        return None if image is None else image.pack.open(image.position, root / name)

    def checksum(self, root: Path, name: str) -> int | None:
        """Return the CRC-32 of a packed image; None if no pack has it."""
        image = self.find(root, name) if self._bound else None
        return None if image is None else image.pack.checksum(image.position)


_warned: set[Path] = set()  # packs of changed sources that were reported


def make_pack_store(prepared_dir: str, form: str) -> PackStore:
    """Return the store of the packs in `prepared_dir`. form: `data.packed`."""
    return PackStore(places.prepared_home(prepared_dir) / STORE, WHOLE if form == "auto" else form)
