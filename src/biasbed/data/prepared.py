"""Store of prepared images and networks, and prepared images as training data.

`<prepared_dir>/<suite>/<source>-<fingerprint>/` belongs to one collection of images. The fingerprint keeps it apart
from other images, and from these images after a change. The folder contains `<what>/manifest.json`,
`<what>/images/<id>.<format>` and `networks/<kind>.pt`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.registry import Registry
from biasbed.system import commands, formats
from biasbed.system.files import write_whole
from biasbed.system.strict import MANY_PARTS, read_json

if TYPE_CHECKING:
    from biasbed.data.folders import FolderSource
    from biasbed.data.source import Source

# Makers of `prepare`; those of images also make training data from a suite's own images.
MAKERS = Registry(
    "what",
    {
        "style_network": "biasbed.prepare.style:StyleNetwork",
        "stylized": "biasbed.prepare.stylize:StylizedImages",
        "corruptions": "biasbed.prepare.corrupted_images:CorruptionsMaker",
        "check": "biasbed.prepare.doctor:Check",
    },
    base="biasbed.prepare.maker:Maker",
    kind="maker",
)
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ImagesManifest:
    """Contents of a folder of prepared images, and the settings that made them."""

    product: str  # name of the maker; `what` in the file
    source: str
    source_fingerprint: str
    images: int
    format: str
    settings: Mapping[str, Any]  # everything that the images depend on; networks by fingerprint
    skipped: tuple[str, ...] = ()  # ids of images that could not be decoded
    complete: bool = False

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        values = asdict(self)
        values["what"] = values.pop("product")
        write_whole(folder / MANIFEST, json.dumps(values, indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, folder: Path) -> ImagesManifest | None:
        """Read the manifest of a folder; None if there is none. Raises Failure if it is damaged."""
        try:
            values = read_json(folder / MANIFEST, MANY_PARTS)
            values["product"] = values.pop("what")
            return formats.check(cls, values)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Failure(f"{folder / MANIFEST} is damaged ({error}); remove {folder} and prepare it again") from None


@dataclass(frozen=True)
class PreparedStore:
    """Prepared images and networks of one suite."""

    root: Path
    flags: tuple[tuple[str, str], ...]  # flags with which a command refers to the same training data

    def folder(self, source: Source) -> Path:
        return self.root / f"{source.name}-{source.fingerprint()[:8]}"

    def network(self, source: Source, kind: str) -> Path:
        return self.folder(source) / "networks" / f"{kind}.pt"

    def images(self, source: Source, product: str) -> Path:
        return self.folder(source) / product

    def has_images(self, source: Source, product: str) -> bool:
        """Return True if some images of this name were prepared, even if they are not complete."""
        return (self.images(source, product) / MANIFEST).is_file()

    def existing_network(self, source: Source, kind: str) -> Path:
        """Return the path of a prepared network.

        Raises UsageError, with the command that prepares it, if it is missing.
        """
        path = self.network(source, kind)
        if not path.is_file():
            raise UsageError(
                f"this needs a network '{kind}' that has not been prepared: {self.hint(f'{kind}_network')}"
            )
        return path

    def open_images(self, source: Source, product: str, part: Source) -> FolderSource:
        """Open the prepared copies of the images in `part`, a part of `source`, with their labels.

        Raises UsageError, with the command that makes them, if they are missing or not complete.
        """
        from biasbed.data.folders import FolderSource

        folder = self.images(source, product)
        manifest = ImagesManifest.read(folder)
        if manifest is None or not manifest.complete:
            state = "have not been prepared" if manifest is None else "are not complete yet"
            raise UsageError(f"the images '{product}' of '{source.name}' {state}: {self.hint(product)}")
        skipped = set(manifest.skipped)
        rows = [row for row, name in enumerate(part.ids) if name not in skipped]
        ids = [f"{part.ids[row]}.{manifest.format}" for row in rows]
        name = record.slug(f"{part.name}_{product}")
        return FolderSource(
            name=name, classes=part.classes, y=np.asarray(part.y)[rows], ids=ids, root=folder / "images"
        )

    def hint(self, product: str, split: str = "train") -> str:
        """Return the command that prepares it, as the user runs commands."""
        flags = {"what": product}
        if split != "train":
            flags["split"] = split
        return commands.format_command("prepare", flags | dict(self.flags))
